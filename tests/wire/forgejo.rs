//! A fake Forgejo whose jobs run on agents of the simulated cluster.
//!
//! Its REST half follows Forgejo 15 as its public forks have it (`routers/api/v1/shared/runners.go` and
//! `modules/structs/action.go` of rezuscloud/forgejo at 1ae5887ed900, `modules/structs/runner.go` of
//! creator-signal/fork-forgejo-forgejo at 6edf7674e013), its runners' half the protocol that it shares with
//! Gitea; it is no proof of what a server does. It is stricter in this: a field that nobody reads is refused.

use std::time::Instant;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::ci::{Core, Fake, Job, Reply, Request, Row, Server, Stand};
use crate::harness::WAIT_LIMIT;
use crate::ways::{self, Kind, Scene};

/// A server with a runner of somebody else's.
pub struct Forgejo {
    core: Core,
    /// Rows a page at most, whatever is asked for.
    page: usize,
}

impl Default for Forgejo {
    fn default() -> Self {
        let mut core = Core::default();
        core.row("somebody else's", Vec::new());
        core.row("another one's", Vec::new());
        Self { core, page: 1 }
    }
}

fn shown(job: &Job) -> Value {
    let status = match job.stand {
        Stand::Waits => "waiting",
        Stand::Held(_) => "blocked",
        Stand::Runs(_) => "running",
        Stand::Done(true, _) => "success",
        Stand::Done(false, _) => "failure",
    };
    json!({
        "id": job.id, "run_id": 1, "attempt": 1, "handle": format!("handle-{}", job.id),
        "repo_id": 1, "owner_id": 1, "name": job.name, "needs": null,
        "runs_on": job.labels, "task_id": 0, "status": status,
    })
}

/// What a row is called by its runner.
fn uuid(row: u64) -> String {
    format!("00000000-0000-4000-8000-{row:012}")
}

impl Forgejo {
    fn runners(&mut self, request: &Request) -> Reply {
        let number = |name| request.parameter(name).parse::<usize>().ok().filter(|it| *it > 0);
        let (Some(page), Some(limit)) = (number("page"), number("limit")) else {
            return self.core.complain(format!("no page of runners: {:?}", request.query));
        };
        let size = self.page.min(limit);
        let rows = self.core.rows_in_order(page == 1).into_iter();
        let rows = rows.skip((page - 1) * size).take(size);
        let all: Vec<Value> = rows.map(|row| self.reported_of(&row)).collect();
        Reply::json(200, &json!(all)).with("X-Total-Count", self.core.rows.len().to_string())
    }

    fn reported_of(&self, row: &Row) -> Value {
        let runs = |job: &&Job| matches!(job.stand, Stand::Runs(_));
        let status = match (row.called, self.core.on(row.id).iter().any(runs)) {
            (false, _) => "offline",
            (true, true) => "active",
            (true, false) => "idle",
        };
        json!({ "id": row.id, "uuid": uuid(row.id), "name": row.name,
                "status": status, "labels": row.labels, "ephemeral": true })
    }

    fn waiting(&self) -> Reply {
        // Those that run are reported as well, and an empty list is null.
        let is = |job: &&Job| matches!(job.stand, Stand::Waits | Stand::Runs(_));
        let all: Vec<Value> = self.core.jobs.iter().filter(is).map(shown).collect();
        Reply::json(200, &if all.is_empty() { Value::Null } else { all.into() })
    }

    fn make(&mut self, request: &Request) -> Reply {
        if !self.core.may_make {
            return Reply::json(403, &json!({ "message": "token does not have the scope" }));
        }
        let body = request.json();
        self.core.fields(&body, &["name", "ephemeral"], &["description"]);
        let name = body["name"].as_str().filter(|name| !name.is_empty());
        let described = body.get("description").is_none_or(Value::is_string);
        let is_json = request.header("content-type") == "application/json";
        let (Some(name), Some(true)) = (name, body["ephemeral"].as_bool()) else {
            return self.core.complain(format!("no runner for one job can be made of {body}"));
        };
        if !described || !is_json {
            return self.core.complain(format!("no runner can be made of {}", request.body));
        }
        let row = self.core.row(name, Vec::new());
        let made = json!({ "id": row.id, "uuid": uuid(row.id), "token": row.secret });
        Reply::json(201, &made)
    }

    /// What runners call.
    fn rpc(&mut self, request: &Request, what: &str) -> Reply {
        let Some(row) = self.core.caller(request.header("x-runner-token")) else {
            let text = "unregistered runner";
            return Reply::json(500, &json!({ "code": "unknown", "message": text }));
        };
        if request.header("x-runner-uuid") != uuid(row.id) {
            return self.core.complain("a runner calls by another's uuid");
        }
        let body = request.json();
        let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
        match what {
            "Declare" => {
                let all = body["labels"].as_array().unwrap().iter();
                let labels: Vec<String> =
                    all.map(|label| label.as_str().unwrap().to_owned()).collect();
                let known = self.core.rows.iter_mut().find(|one| one.id == row.id).unwrap();
                known.labels = labels;
                Reply::json(200, &json!({}))
            }
            "FetchTask" => {
                let fits = |job: &Job| job.labels.iter().all(|label| row.labels.contains(label));
                let Some(job) = self.core.take(&row, fits) else {
                    return Reply::json(200, &json!({ "tasksVersion": "1" }));
                };
                let text = format!("jobs:\n  it:\n    steps:\n      - run: {}\n", job.run);
                let payload = base64::engine::general_purpose::STANDARD.encode(text);
                let task = json!({ "id": job.id.to_string(), "workflowPayload": payload });
                Reply::json(200, &json!({ "task": task, "tasksVersion": "1" }))
            }
            "UpdateLog" => {
                let id = number(&body["taskId"]);
                let job = self.core.jobs.iter_mut().find(|job| job.id == id).unwrap();
                for row in body["rows"].as_array().unwrap() {
                    job.log += row["content"].as_str().unwrap();
                }
                Reply::json(200, &json!({ "ackIndex": "0" }))
            }
            "UpdateTask" => {
                let state = &body["state"];
                self.core.finish(number(&state["id"]), state["result"] == "RESULT_SUCCESS");
                // An ephemeral runner is gone with its job.
                self.core.rows.retain(|one| one.id != row.id);
                Reply::json(200, &json!({}))
            }
            other => self.core.complain(format!("unknown: {other}")),
        }
    }
}

impl Fake for Forgejo {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (method, path) = request.route();
        if let ("POST", ["api", "actions", "runner.v1.RunnerService", what]) =
            (method.as_str(), path.as_slice())
        {
            return self.rpc(request, what);
        }
        if request.header("authorization") != format!("token {}", self.core.token) {
            return Reply::json(401, &json!({ "message": "invalid username, password or token" }));
        }
        match (method.as_str(), path.as_slice()) {
            ("GET", ["api", "v1", "version"]) => {
                Reply::json(200, &json!({ "version": "15.0.1+gitea-1.22.0" }))
            }
            ("GET", ["api", "v1", "orgs", "build", "actions", "runners"]) => self.runners(request),
            ("POST", ["api", "v1", "orgs", "build", "actions", "runners"]) => self.make(request),
            ("GET", ["api", "v1", "orgs", "build", "actions", "runners", "jobs"]) => self.waiting(),
            ("GET", ["api", "v1", "orgs", "build", "actions", "runners", id]) => {
                match self.core.rows.iter().find(|row| row.id.to_string() == *id) {
                    Some(row) => Reply::json(200, &self.reported_of(row)),
                    None => Reply::json(404, &json!({ "message": "not found" })),
                }
            }
            ("DELETE", ["api", "v1", "orgs", "build", "actions", "runners", id]) => {
                let before = self.core.rows.len();
                self.core.rows.retain(|row| row.id.to_string() != *id);
                Reply::empty(if self.core.rows.len() < before { 204 } else { 404 })
            }
            (method, path) => self.core.complain(format!("unknown: {method} {}", path.join("/"))),
        }
    }
}

/// How it is configured.
pub fn kind() -> Kind<Forgejo> {
    Kind {
        keys: "kind: forgejo, scope: org/build",
        script: "forgejo_runner.py",
        program: "forgejo-runner",
        arguments: "",
        label: str::to_owned,
        start: || Server::start(Forgejo::default()),
    }
}

// Invariant: each job runs on an agent of its own, once it can run, and nothing is left behind.

#[test]
fn jobs_of_a_forgejo_run_on_agents_of_their_own_and_leave_nothing_behind() {
    let server = ways::jobs_have_agents_of_their_own(&kind());
    // Those of others stay.
    assert_eq!(server.fake().core().rows.len(), 2);
}

#[test]
fn a_forgejo_that_does_not_answer_is_reported_and_served_again_after_it() {
    ways::an_outage_is_reported_and_over_when_it_is(&kind());
}

#[test]
fn a_job_of_forgejo_runs_to_its_end_while_the_list_of_runners_shifts() {
    ways::a_job_runs_to_its_end_while_lists_shift(&Kind {
        start: || Server::start(Forgejo { page: 20, ..Forgejo::default() }),
        ..kind()
    });
}

#[test]
fn a_row_of_forgejo_that_somebody_removed_costs_its_agent_and_not_the_job() {
    ways::a_removed_row_costs_its_agent_and_not_the_job(&kind());
}

#[test]
fn a_guest_whose_forgejo_runner_never_calls_is_given_up_by_deadline() {
    ways::a_runner_that_never_calls_is_given_up(&kind());
}

#[test]
fn a_token_that_may_make_no_runner_of_forgejo_is_reported() {
    ways::a_token_that_may_make_no_row_is_reported(&kind());
}

// Invariant: a program that is too old for how it is started is reported with what takes its place, and costs few
// machines.

#[test]
fn a_forgejo_runner_that_is_too_old_is_reported_with_the_version_that_takes_its_place() {
    let old = Kind { script: "forgejo_runner_old.sh", ..kind() };
    let reported = "its forgejo-runner is too old for drover's command line (unknown flag: --url); install 12.8";
    ways::a_runner_that_is_too_old_is_reported(&old, "", reported);
}

// Invariant: a job is as old as the first look that saw it: Forgejo's list has no dates (`shown` has none).

#[test]
fn a_job_of_forgejo_is_as_old_as_the_first_look_that_saw_it_also_over_a_restart() {
    let mut scene = Scene::start(&kind(), "", |fake| fake.core().holds = true);
    scene.push("it", &["linux"], None, "echo served");
    let reported = scene.events.until("source", |fact| fact["source"]["oldest"].is_string());
    let looks = |core: &mut Core| {
        core.calls.iter().filter(|call| call.ends_with("/actions/runners/jobs")).count()
    };
    let before = looks(scene.server.fake().core());
    scene.server.until("looked at", |core| looks(core) >= before + 3);
    let source = scene.site.json(&["status"])["sources"][0].clone();
    assert_eq!(source["oldest"], reported["source"]["oldest"], "{source}");
    // A start of the service makes it no younger.
    scene.restart();
    let (end, mut again) = (Instant::now() + WAIT_LIMIT, Value::Null);
    while again.is_null() && Instant::now() < end {
        again = scene.site.json(&["status"])["sources"][0]["oldest"].clone();
    }
    assert_eq!(again, reported["source"]["oldest"]);
    scene.server.fake().core().holds = false;
    scene.gone(1);
    scene.ends(&[("it", "success")]);
}
