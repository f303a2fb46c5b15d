//! A fake Woodpecker whose workflows run on agents of the simulated cluster.
//!
//! Its REST half answers as Woodpecker 3.17.0 at a4cb541b82de does (`server/api/agent.go` and `queue.go`,
//! `server/model/agent.go`, `task.go` and `queue.go`). It is stricter in this: a field that nobody reads is
//! refused. Agents speak gRPC with a real one; here a small JSON of the tests' own stands for that, so that
//! nothing is proven of its bytes: what is proven is the environment that an agent is given, and the life of
//! its row.

mod agents;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_ci::SourceConnection;
use drover_ci::woodpecker::Settings;
use drover_ci::{Connector, Route, System, connector};
use drover_model::gate::Gate;
use drover_model::id::RunnerName;
use drover_model::ports::{Idle, Known};
use proxmox_client::Tls;
use serde_json::{Value, json};

use crate::ci::{Core, Fake, Job, Reply, Request, Row, Server, Stand, nothing_left};
use crate::ways::{self, Kind, Scene};

/// A server with an agent of somebody else's.
pub struct Woodpecker {
    core: Core,
    /// Rows a page at most, whatever is asked for.
    page: usize,
    /// Whether its queue is paused.
    paused: bool,
    /// How many workflows run at once by the `concurrency` of all of them; 0 for any number.
    limit: usize,
    /// Whether its queue does not know what runs, as after a start of the server.
    forgets: bool,
    /// Whether the token's user is an administrator.
    pub admin: bool,
    /// Rows whose agents have said what they are.
    registered: BTreeSet<u64>,
}

impl Default for Woodpecker {
    fn default() -> Self {
        let mut core = Core::default();
        core.row("somebody else's", Vec::new());
        let registered = BTreeSet::new();
        let (page, paused, limit, forgets, admin) = (2, false, 0, false, true);
        Self { core, page, paused, limit, forgets, admin, registered }
    }
}

/// The labels of a workflow: what somebody wrote, and what the server adds.
fn labels(job: &Job) -> BTreeMap<String, String> {
    let pairs = job.labels.iter().filter_map(|text| text.split_once('='));
    let more = [("repo", "o/r"), ("org-id", "1"), ("platform", "")];
    let all = pairs.chain(more).chain([("woodpecker-ci.org/forge-id", "1")]);
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// What a workflow's task says of it. Each is of a pipeline of its own.
fn task(job: &Job, limit: usize) -> Value {
    let agent = match job.stand {
        Stand::Runs(row) => row,
        Stand::Held(_) | Stand::Waits | Stand::Done(..) => 0,
    };
    let group = if limit > 0 { "deploy" } else { "" };
    json!({ "id": job.id.to_string(), "pid": 1, "name": job.name, "labels": labels(job),
            "dependencies": null, "run_on": ["success"], "dep_status": {}, "agent_id": agent,
            "pipeline_id": job.id, "repo_id": 1, "pipeline_number": job.id, "created": job.id,
            "concurrency_group": group, "concurrency_limit": limit,
            "agent_name": "" })
}

impl Woodpecker {
    fn queue(&self) -> Reply {
        let tasks = |is: fn(&Job) -> bool| -> Value {
            let all = self.core.jobs.iter().filter(|job| is(job));
            let all: Vec<Value> = all.map(|job| task(job, self.limit)).collect();
            // As Go writes a list that was never made.
            if all.is_empty() { Value::Null } else { all.into() }
        };
        let running = if self.forgets {
            Value::Null
        } else {
            tasks(|job| matches!(job.stand, Stand::Runs(_)))
        };
        Reply::json(
            200,
            &json!({
                "pending": tasks(|job| job.stand == Stand::Waits),
                "waiting_on_deps": tasks(|job| matches!(job.stand, Stand::Held(_))),
                "running": running,
                "stats": { "worker_count": 1 }, "paused": self.paused,
            }),
        )
    }

    /// Pipelines that wait or run, of the database (`server/store/datastore/feed.go`).
    fn pipelines(&self) -> Reply {
        let open = self.core.jobs.iter().filter(|job| !matches!(job.stand, Stand::Done(..)));
        let entries = open.map(|job| {
            let runs = matches!(job.stand, Stand::Runs(_));
            json!({ "repo_id": 1, "id": job.id, "number": job.id, "event": "push",
                    "status": if runs { "running" } else { "pending" } })
        });
        Reply::json(200, &entries.collect())
    }

    /// One pipeline with its workflow (`server/model/workflow.go`).
    fn pipeline(&self, number: &str) -> Reply {
        let Some(job) = self.core.jobs.iter().find(|job| job.id.to_string() == number) else {
            return Reply::empty(404);
        };
        let (state, agent) = match job.stand {
            Stand::Held(_) | Stand::Waits => ("pending", 0),
            Stand::Runs(row) => ("running", row),
            Stand::Done(true, row) => ("success", row),
            Stand::Done(false, row) => ("failure", row),
        };
        let workflow = json!({ "id": job.id, "pipeline_id": job.id, "pid": 1, "name": job.name,
                               "state": state, "agent_id": agent });
        Reply::json(
            200,
            &json!({ "id": job.id, "number": job.id, "status": state,
                                  "workflows": [workflow] }),
        )
    }

    fn shown(&self, row: &Row) -> Value {
        let now = jiff::Timestamp::now().as_second();
        let contact = if row.called { now } else { 0 };
        let capacity = i32::from(self.registered.contains(&row.id));
        let work = if self.core.on(row.id).is_empty() { 0 } else { now };
        json!({ "id": row.id, "name": row.name, "no_schedule": row.quiet, "token": row.secret,
                "last_contact": contact, "last_work": work, "owner_id": 1, "org_id": -1,
                "created": row.id, "updated": row.id, "platform": "", "backend": "",
                "capacity": capacity, "version": "", "custom_labels": null })
    }

    /// An agent's name, and whether it is given no workflow, as somebody sets them.
    fn wanted(&mut self, request: &Request) -> Result<(String, bool), Reply> {
        let body = request.json();
        self.core.fields(&body, &["name", "no_schedule"], &[]);
        let name = body["name"].as_str().filter(|name| !name.is_empty());
        let is_json = request.header("content-type") == "application/json";
        match (name, body["no_schedule"].as_bool(), is_json) {
            (Some(name), Some(quiet), true) => Ok((name.to_owned(), quiet)),
            _ => Err(self.core.complain(format!("no agent can be {}", request.body))),
        }
    }

    fn change(&mut self, request: &Request, id: &str) -> Reply {
        let (name, quiet) = match self.wanted(request) {
            Ok(wanted) => wanted,
            Err(reply) => return reply,
        };
        let Some(row) = self.core.rows.iter_mut().find(|row| row.id.to_string() == id) else {
            return Reply::empty(404);
        };
        // What is not sent is emptied.
        (row.name, row.quiet) = (name, quiet);
        let row = row.clone();
        Reply::json(200, &self.shown(&row))
    }

    fn remove(&mut self, id: &str) -> Reply {
        let Some(row) = self.core.rows.iter().find(|row| row.id.to_string() == id) else {
            return Reply::empty(404);
        };
        let (row, runs) = (row.id, |job: &&Job| matches!(job.stand, Stand::Runs(_)));
        if self.core.on(row).iter().any(runs) {
            return Reply {
                status: 409,
                headers: Vec::new(),
                body: "Agent has running tasks".into(),
            };
        }
        self.core.rows.retain(|one| one.id != row);
        Reply::empty(204)
    }

    fn agents(&mut self, request: &Request) -> Reply {
        if request.parameter("perPage").is_empty() {
            return self.core.complain("agents are listed without perPage");
        }
        let page: usize = request.parameter("page").parse().unwrap();
        let rows = self.core.rows_in_order(page == 1).into_iter();
        let rows = rows.skip((page - 1) * self.page).take(self.page);
        let rows: Vec<Value> = rows.map(|row| self.shown(&row)).collect();
        Reply::json(200, &json!(rows))
    }

    fn make(&mut self, request: &Request) -> Reply {
        if !self.core.may_make {
            return Reply::empty(403);
        }
        match self.wanted(request) {
            Ok((name, false)) => {
                let row = self.core.row(&name, Vec::new());
                Reply::json(200, &self.shown(&row))
            }
            Ok((name, true)) => self.core.complain(format!("{name} would be given no workflow")),
            Err(reply) => reply,
        }
    }
}

impl Fake for Woodpecker {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (method, path) = request.route();
        if let ("POST", ["rpc", what]) = (method.as_str(), path.as_slice()) {
            return self.agent(request, what);
        }
        if request.header("authorization") != format!("Bearer {}", self.core.token) {
            return Reply { status: 401, headers: Vec::new(), body: "User not authorized".into() };
        }
        match (method.as_str(), path.as_slice()) {
            ("GET", ["api", "user"]) => {
                Reply::json(200, &json!({ "id": 1, "login": "drover", "admin": self.admin }))
            }
            (_, ["api", ..]) if !self.admin => Reply::empty(403),
            ("GET", ["api", "queue", "info"]) => self.queue(),
            ("GET", ["api", "pipelines"]) => self.pipelines(),
            ("GET", ["api", "repos", "1", "pipelines", number]) => self.pipeline(number),
            ("GET", ["api", "agents"]) => self.agents(request),
            ("GET", ["api", "agents", id]) => {
                match self.core.rows.iter().find(|row| row.id.to_string() == *id) {
                    Some(row) => Reply::json(200, &self.shown(row)),
                    None => Reply::empty(404),
                }
            }
            ("POST", ["api", "agents"]) => self.make(request),
            ("PATCH", ["api", "agents", id]) => self.change(request, id),
            ("DELETE", ["api", "agents", id]) => self.remove(id),
            (method, path) => self.core.complain(format!("unknown: {method} {}", path.join("/"))),
        }
    }
}

/// How it is configured.
pub fn kind() -> Kind<Woodpecker> {
    Kind {
        keys: "kind: woodpecker, grpcServer: \"ADDRESS\", grpcSecure: false",
        script: "woodpecker_agent.py",
        program: "woodpecker-agent",
        arguments: "",
        label: |text| format!("{text}=yes"),
        start: || Server::start(Woodpecker::default()),
    }
}

// Invariant: each workflow runs on an agent of its own, once it can run, and nothing is left behind.

#[test]
fn workflows_of_a_woodpecker_run_on_agents_of_their_own_and_leave_nothing_behind() {
    let server = ways::jobs_have_agents_of_their_own(&kind());
    // The one of somebody else stays.
    assert_eq!(server.fake().core().rows.len(), 1);
}

#[test]
fn a_woodpecker_that_does_not_answer_is_reported_and_served_again_after_it() {
    ways::an_outage_is_reported_and_over_when_it_is(&kind());
}

#[test]
fn an_agent_of_woodpecker_that_somebody_removed_costs_its_agent_and_not_the_workflow() {
    ways::a_removed_row_costs_its_agent_and_not_the_job(&kind());
}

#[test]
fn a_guest_whose_woodpecker_agent_never_calls_is_given_up_by_deadline() {
    ways::a_runner_that_never_calls_is_given_up(&kind());
}

#[test]
fn a_workflow_runs_to_its_end_while_the_list_of_agents_shifts() {
    ways::a_job_runs_to_its_end_while_lists_shift(&Kind {
        start: || Server::start(Woodpecker { page: 20, ..Woodpecker::default() }),
        ..kind()
    });
}

#[test]
fn an_agent_of_woodpecker_that_ends_at_once_is_reported_before_its_time() {
    ways::a_runner_that_ends_at_once_is_reported_before_its_time(&kind());
}

#[test]
fn a_token_that_may_make_no_agent_of_woodpecker_is_reported() {
    ways::a_token_that_may_make_no_row_is_reported(&kind());
}

// Invariant: an agent that had its workflow sends the end of its log before its machine goes, soon.

#[test]
fn the_last_lines_of_a_short_workflow_arrive_and_its_machine_goes_soon_after() {
    let mut scene = Scene::start(&kind(), "", |_| ());
    scene.push("it", &["linux"], None, "echo first; echo THE REASON; exit 3");
    let gone = scene.gone(1);
    assert_eq!(gone[0]["reason"], "used-up", "{gone:?}");
    scene.ends(&[("it", "failure")]);
    let log = scene.server.fake().core.jobs[0].log.clone();
    assert_eq!(log, "first\nTHE REASON\n");
    nothing_left(&scene.server, &scene.sim, &scene.site);
}

#[test]
fn an_agent_that_ends_with_its_workflow_and_badly_is_done_and_loses_the_end_of_its_log() {
    let command = "WOODPECKER_AGENT_SINGLE_WORKFLOW=true python3 ../../runner.py; exit 9";
    let more = format!("runnerCommand: \"{command}\"");
    let mut scene = Scene::start(&kind(), &more, |_| ());
    scene.push("it", &["linux"], None, "echo THE REASON");
    let gone = scene.gone(1);
    assert_eq!(gone[0]["reason"], "used-up", "{gone:?}");
    assert_eq!(scene.server.fake().core.jobs[0].log, "");
}

#[test]
fn a_workflow_that_its_server_forgot_in_its_queue_is_not_over() {
    let server = Server::start(Woodpecker::default());
    let row = server.fake().core.row("drover-a1b2c3d4-0123456789abcdef", Vec::new());
    let id = server.push("it", &["linux=yes"], "true");
    server.fake().core.take(&row, |_| true).unwrap();
    server.fake().forgets = true;
    let connector = connected(&server);
    let look = || {
        let observation = block(connector.poll(&Known::new())).unwrap();
        (observation.rows[0].jobs, observation.rows[0].idle)
    };
    assert_eq!(look(), (0, Idle::Spent));
    server.fake().core.finish(id, true);
    assert_eq!(look(), (0, Idle::Over));
}

// Invariant: an agent that its server does not understand is reported with the version that it does.

#[test]
fn an_agent_of_woodpecker_that_is_too_old_is_reported_with_the_version_of_its_server() {
    let command = "DROVER_TEST_GRPC_VERSION=15 python3 ../../runner.py";
    let reported = "its woodpecker-agent is too old: it speaks version 15 of the agents' protocol, and the \
                server 3.17.0 version 16; install woodpecker-agent 3.17.0 in the template image";
    let more = format!("runnerCommand: \"{command}\"");
    ways::a_runner_that_is_too_old_is_reported(&kind(), &more, reported);
}

// Invariant: a queue that somebody paused wants nothing, and is served when it goes on.

#[test]
fn a_paused_queue_begins_nothing_until_it_is_resumed() {
    let mut scene = Scene::start(&kind(), "", |fake| fake.paused = true);
    scene.push("it", &["linux"], None, "echo served");
    let looks = |core: &mut Core| core.calls.iter().filter(|call| call.contains("queue")).count();
    let before = looks(scene.server.fake().core());
    scene.server.until("looked at", |core| looks(core) >= before + 2);
    assert_eq!(scene.site.json(&["agents"])["agents"], json!([]));
    assert_eq!(scene.site.json(&["status"])["sources"][0]["waiting"], 0);
    scene.server.fake().paused = false;
    scene.gone(1);
    scene.ends(&[("it", "success")]);
}

// Invariant: a workflow that its `concurrency` holds back stays in the queue and wants no machine.

#[test]
fn a_workflow_that_its_concurrency_holds_back_begins_no_machine_until_it_is_its_turn() {
    let scene = Scene::start(&kind(), "", |fake| fake.limit = 1);
    let first = scene.push("first", &["linux"], None, "sleep 600");
    scene.push("second", &["linux"], None, "echo served");
    scene.server.until("started", |core| core.ends()["first"] == "runs");
    let looks = |core: &mut Core| core.calls.iter().filter(|call| call.contains("queue")).count();
    let before = looks(scene.server.fake().core());
    scene.server.until("looked at", |core| looks(core) >= before + 2);
    let agents = scene.site.json(&["agents"])["agents"].clone();
    assert_eq!(agents.as_array().map(Vec::len), Some(1), "{agents}");
    assert_eq!(scene.site.json(&["status"])["sources"][0]["waiting"], 0);
    // Somebody cancels the first.
    scene.server.fake().core.finish(first, false);
    scene.server.until("served", |core| core.ends()["second"] == "success");
}

// Invariant: a runner that is let go keeps its name, by which its row is found again.

#[test]
fn an_agent_that_is_asked_to_take_no_more_keeps_its_name_and_goes() {
    let mut scene = Scene::start(&kind(), "idleTimeoutSec: 5,", |fake| fake.core.holds = true);
    let id = scene.push("it", &["linux"], None, "echo never");
    scene.server.until("connected", |core| {
        core.rows.iter().any(|row| row.called && row.name.starts_with("drover-"))
    });
    // Somebody cancels the workflow, and the agent has nothing to do.
    scene.server.fake().core.jobs.retain(|job| job.id != id);
    let gone = scene.gone(1);
    assert_eq!(gone.len(), 1, "{gone:?}");
    let calls = scene.server.fake().core.calls.clone();
    assert!(calls.iter().any(|call| call.starts_with("PATCH api/agents/")), "{calls:?}");
    crate::ci::nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// A connector without a service around it.
fn connected(server: &Server<Woodpecker>) -> Arc<dyn Connector> {
    let token = server.fake().core.token.clone().into();
    let settings = Settings { token, grpc: server.address(), secure: false };
    let connection = SourceConnection {
        url: server.url().parse().unwrap(),
        tls: Tls::System,
        route: Route::Direct,
        system: System::Woodpecker(settings),
        command: None,
        webhook: None,
    };
    connector(&connection, Gate::default()).unwrap()
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

// Invariant: every row of exactly that name goes, and no other; one with a workflow once that is over.

#[test]
fn rows_of_woodpecker_go_by_their_whole_name_once_no_workflow_is_on_them() {
    let server = Server::start(Woodpecker::default());
    let names = ["drover-a1b2c3d4-0123456789abcdef", "drover-a1b2c3d4-0123456789abcdef-2"];
    for name in [names[0], names[1], names[0]] {
        server.fake().core.row(name, Vec::new());
    }
    let id = server.push("it", &["linux=yes"], "true");
    let busy = server.fake().core.rows[3].clone();
    server.fake().core.take(&busy, |_| true).unwrap();
    let (connector, runner) = (connected(&server), RunnerName::new(names[0]));
    let observation = block(connector.poll(&Known::new())).unwrap();
    let seen: Vec<(&str, u32)> =
        observation.rows.iter().map(|row| (row.runner.as_str(), row.jobs)).collect();
    assert_eq!(seen, [(names[0], 0), (names[1], 0), (names[0], 1)]);
    let refused = block(connector.deregister(&runner)).unwrap_err().to_string();
    assert!(refused.contains("409: Agent has running tasks"), "{refused}");
    server.fake().core.finish(id, false);
    block(connector.deregister(&runner)).unwrap();
    let left: Vec<String> = server.fake().core.rows.iter().map(|row| row.name.clone()).collect();
    assert_eq!(left, ["somebody else's", names[1]]);
}
