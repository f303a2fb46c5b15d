//! A fake GitLab whose jobs run on agents of the simulated cluster.
//!
//! Its REST half answers as GitLab's documentation says, and takes runners as its source does (gitlabhq/gitlabhq:
//! `lib/api/user_runners.rb` at 0ae72efefb93, `lib/api/ci/runners.rb` at 034daf00b12f); it is no proof of what a
//! server does. It is stricter in this: a field that nobody reads is refused, and one of another type.

mod jobs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_ci::SourceConnection;
use drover_ci::gitlab::{Scope, Settings};
use drover_ci::{Connector, Route, System, connector};
use drover_model::gate::Gate;
use drover_model::id::RunnerName;
use drover_model::ports::{Known, SourceObservation};
use drover_model::record::Want;
use proxmox_client::Tls;
use serde_json::{Value, json};

use crate::ci::{Core, Fake, Job, Reply, Request, Row, Server, Stand};
use crate::open::{HOOK_SECRET, HOOKED, Open};
use crate::ways::{self, Kind, Scene};

/// A group with three projects, one of them archived, and a foreign runner.
pub struct GitLab {
    pub core: Core,
    /// Projects: number, path, whether it is archived; jobs are in the first.
    projects: Vec<(u64, &'static str, bool)>,
    /// Rows a page at most, whatever is asked for.
    page: usize,
    /// The user's access level in group and projects.
    pub access: u32,
    /// What its token may do.
    pub scopes: Vec<&'static str>,
    /// Answers 429 so often, with so many seconds to wait.
    refuses: (u32, u64),
    /// Whether two hours have passed since any runner called.
    late: bool,
    /// Jobs that are over because somebody cancelled them.
    cancelled: BTreeSet<u64>,
}

const GROUP: (u64, &str) = (3, "build/tools");

impl Default for GitLab {
    fn default() -> Self {
        let projects =
            vec![(11, "build/tools/app", false), (12, "build/tools/old", true), (13, "x/y", false)];
        let scopes = vec!["read_api", "create_runner", "manage_runner"];
        let mut core = Core::default();
        core.row("somebody else's", Vec::new());
        let (page, access, refuses, late) = (2, 50, (0, 0), false);
        let cancelled = BTreeSet::new();
        Self { core, projects, page, access, scopes, refuses, late, cancelled }
    }
}

/// The word of where a job stands.
fn status(job: &Job) -> &'static str {
    match job.stand {
        Stand::Held(_) => "created",
        Stand::Waits => "pending",
        Stand::Runs(_) => "running",
        Stand::Done(true, _) => "success",
        Stand::Done(false, _) => "failed",
    }
}

fn shown(job: &Job) -> Value {
    json!({
        "id": job.id, "name": job.name, "status": status(job), "stage": "test", "ref": "main",
        "tag_list": job.labels, "created_at": "2026-01-02T03:04:05.678Z", "queued_duration": 1.5,
        "pipeline": { "id": 1 }, "runner": null, "user": { "id": 1 }, "project": { "id": 11 },
    })
}

impl GitLab {
    /// A page of a list, and how to have the next.
    fn list(&mut self, request: &Request, rows: Vec<Value>) -> Reply {
        if request.parameter("per_page").is_empty() {
            return self.core.complain(format!("no per_page at {}", request.path.join("/")));
        }
        let keyset = request.parameter("pagination") == "keyset";
        let from: usize = match keyset {
            true => {
                let after: u64 = request.parameter("id_after").parse().unwrap_or(0);
                rows.iter().take_while(|row| row["id"].as_u64().unwrap() <= after).count()
            }
            false => (request.parameter("page").parse().unwrap_or(1) - 1) * self.page,
        };
        let end = (from + self.page).min(rows.len());
        let page = rows.get(from..end).unwrap_or_default();
        let reply = Reply::json(200, &json!(page));
        match (keyset, end < rows.len()) {
            (true, true) => {
                let mut query: Vec<String> = request
                    .query
                    .iter()
                    .filter(|(key, _)| *key != "id_after")
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                query.push(format!("id_after={}", page.last().unwrap()["id"]));
                let link =
                    format!("<http://lab/api/v4/projects?{}>; rel=\"next\"", query.join("&"));
                reply.with("Link", link)
            }
            (true, false) => reply,
            (false, more) => {
                let next = if more { (from / self.page + 2).to_string() } else { String::new() };
                reply.with("X-Next-Page", next)
            }
        }
    }

    fn project(&self, name: &str) -> Option<u64> {
        let is = |(id, path, _): &&(u64, &str, bool)| id.to_string() == name || *path == name;
        self.projects.iter().find(is).map(|(id, ..)| *id)
    }

    fn listed(&mut self, request: &Request, below: &str) -> Reply {
        for (name, value) in [("archived", "false"), ("simple", "true"), ("order_by", "id")] {
            if request.parameter(name) != value {
                return self.core.complain(format!("projects are listed without {name}={value}"));
            }
        }
        let all = self.projects.iter().filter(|(_, path, old)| path.starts_with(below) && !old);
        let rows = all.map(|(id, path, _)| json!({ "id": id, "path_with_namespace": path }));
        let rows = rows.collect();
        self.list(request, rows)
    }

    fn runners(&mut self, request: &Request, kind: &str) -> Reply {
        if request.parameter("type") != kind {
            return self.core.complain(format!("runners are listed without type={kind}"));
        }
        let first = request.parameter("page").parse().unwrap_or(1) == 1;
        let rows =
            self.core.rows_in_order(first).into_iter().map(|row| self.reported_of(&row, kind));
        let rows = rows.collect();
        self.list(request, rows)
    }

    fn reported_of(&self, row: &Row, kind: &str) -> Value {
        let status = match (row.called, self.late) {
            (false, _) => "never_contacted",
            (true, false) => "online",
            (true, true) => "offline",
        };
        json!({ "id": row.id, "description": row.name, "status": status, "online": row.called,
                "paused": row.quiet, "runner_type": kind, "is_shared": false })
    }

    fn one(&self, id: &str) -> Reply {
        match self.core.rows.iter().find(|row| row.id.to_string() == id) {
            Some(row) => Reply::json(200, &self.reported_of(row, "group_type")),
            None => Reply::json(404, &json!({ "message": "404 Not found" })),
        }
    }

    fn make(&mut self, request: &Request) -> Reply {
        if !self.core.may_make {
            return Reply::json(403, &json!({ "message": "403 Forbidden" }));
        }
        let body = request.json();
        let needed = ["runner_type", "description", "tag_list", "run_untagged", "maximum_timeout"];
        self.core.fields(&body, &needed, &["project_id", "group_id", "locked"]);
        let place = (&body["group_id"], &body["project_id"], &body["locked"]);
        let null = &Value::Null;
        let well = match body["runner_type"].as_str().unwrap_or_default() {
            "instance_type" => place == (null, null, null),
            "group_type" => place == (&json!(GROUP.0), null, null),
            "project_type" => place == (null, &json!(11), &json!(true)),
            _ => false,
        };
        let is_json = request.header("content-type") == "application/json";
        let timed = body["maximum_timeout"].as_u64().is_some_and(|seconds| seconds >= 600);
        let tags: Option<Vec<String>> = serde_json::from_value(body["tag_list"].clone()).ok();
        let name = body["description"].as_str().filter(|name| !name.is_empty());
        let (Some(name), Some(mut labels), Some(untagged), true) =
            (name, tags, body["run_untagged"].as_bool(), well && timed && is_json)
        else {
            return self.core.complain(format!("no runner can be made of {body}"));
        };
        if untagged {
            labels.push(String::new());
        } else if labels.is_empty() {
            return self.core.complain(format!("a runner of {body} would be given no job"));
        }
        let row = self.core.row(name, labels);
        let made = json!({ "id": row.id, "token": row.secret, "token_expires_at": null });
        Reply::json(201, &made)
    }

    fn jobs_of_runner(&mut self, request: &Request, id: &str) -> Reply {
        if request.parameter("order_by") != "id" || request.parameter("sort") != "desc" {
            return self.core.complain("a runner's jobs are not listed by the newest");
        }
        let id: u64 = id.parse().unwrap();
        if self.core.rows.iter().all(|row| row.id != id) {
            return Reply::empty(404);
        }
        Reply::json(200, &self.core.on(id).into_iter().rev().map(shown).collect())
    }

    fn jobs_of_project(&mut self, request: &Request, name: &str) -> Reply {
        if request.parameter("scope[]") != "pending" {
            return self.core.complain("more than pending jobs are listed");
        }
        let first = self.project(name) == Some(11);
        let waits = self.core.jobs.iter().filter(|job| first && job.stand == Stand::Waits);
        let rows = waits.map(shown).collect();
        self.list(request, rows)
    }

    /// One job, which stays when its runner's row goes.
    fn job(&self, id: &str) -> Reply {
        let Some(job) = self.core.jobs.iter().find(|job| job.id.to_string() == id) else {
            return Reply::json(404, &json!({ "message": "404 Not found" }));
        };
        let mut reported = shown(job);
        if self.cancelled.contains(&job.id) {
            reported["status"] = "canceled".into();
        }
        Reply::json(200, &reported)
    }

    fn of_user(&mut self, request: &Request) -> Reply {
        if self.refuses.0 > 0 {
            self.refuses.0 -= 1;
            return Reply::json(429, &json!({ "message": "Retry later" }))
                .with("Retry-After", self.refuses.1.to_string());
        }
        if request.header("private-token") != self.core.token {
            return Reply::json(401, &json!({ "message": "401 Unauthorized" }));
        }
        let (method, path) = request.route();
        match (method.as_str(), &path[2..]) {
            ("GET", ["projects", project]) => match self.project(project) {
                Some(id) => Reply::json(200, &json!({ "id": id })),
                None => Reply::json(404, &json!({ "message": "404 Project Not Found" })),
            },
            ("GET", ["groups", name]) if *name == GROUP.1 => {
                Reply::json(200, &json!({ "id": GROUP.0 }))
            }
            ("GET", ["projects"]) => self.listed(request, ""),
            ("GET", ["groups", name, "projects"]) if *name == GROUP.1 => {
                self.listed(request, GROUP.1)
            }
            ("GET", ["projects", project, "jobs"]) => self.jobs_of_project(request, project),
            ("GET", ["projects", "11", "jobs", id]) => self.job(id),
            ("GET", ["projects", _, "runners"]) => self.runners(request, "project_type"),
            ("GET", ["groups", _, "runners"]) => self.runners(request, "group_type"),
            ("GET", ["runners", "all"]) => self.runners(request, "instance_type"),
            ("GET", ["runners", id, "jobs"]) => self.jobs_of_runner(request, id),
            ("GET", ["runners", id]) => self.one(id),
            ("POST", ["user", "runners"]) => self.make(request),
            ("PUT", ["runners", id]) => {
                let body = request.json();
                self.core.fields(&body, &["paused"], &[]);
                let Some(paused) = body["paused"].as_bool() else {
                    return self.core.complain(format!("a runner cannot be made {body}"));
                };
                self.row(id, |row| row.quiet = paused)
            }
            ("DELETE", ["runners", id]) => {
                let reply = self.row(id, |_| ());
                self.core.rows.retain(|row| row.id.to_string() != *id);
                if reply.status == 200 { Reply::empty(204) } else { reply }
            }
            ("GET", ["user"]) => Reply::json(200, &json!({ "id": 7, "username": "drover" })),
            ("GET", ["personal_access_tokens", "self"]) => {
                Reply::json(200, &json!({ "scopes": self.scopes, "expires_at": "2027-01-01" }))
            }
            ("GET", ["projects" | "groups", _, "members", "all", "7"]) => {
                Reply::json(200, &json!({ "id": 7, "access_level": self.access }))
            }
            (method, path) => self.core.complain(format!("unknown: {method} {}", path.join("/"))),
        }
    }

    fn row(&mut self, id: &str, change: impl Fn(&mut Row)) -> Reply {
        match self.core.rows.iter_mut().find(|row| row.id.to_string() == id) {
            Some(row) => {
                change(row);
                Reply::json(200, &json!({ "id": row.id }))
            }
            None => Reply::json(404, &json!({ "message": "404 Not found" })),
        }
    }
}

impl Fake for GitLab {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn answer(&mut self, request: &Request) -> Reply {
        let (method, path) = request.route();
        match (method.as_str(), path.as_slice()) {
            ("POST", ["api", "v4", "jobs", "request"]) => self.request(request),
            ("PUT", ["api", "v4", "jobs", id]) | ("PATCH", ["api", "v4", "jobs", id, "trace"]) => {
                self.reported(request, id)
            }
            (_, ["api", "v4", ..]) => self.of_user(request),
            (method, path) => self.core.complain(format!("unknown: {method} {}", path.join("/"))),
        }
    }
}

/// How it is configured.
pub fn kind() -> Kind<GitLab> {
    Kind {
        keys: "kind: gitlab, scope: group/build/tools",
        script: "gitlab_runner.py",
        program: "gitlab-runner",
        arguments: "run-single --max-builds 1 --wait-timeout 300",
        label: str::to_owned,
        start: || Server::start(GitLab::default()),
    }
}

// Invariant: each job runs on an agent of its own, once it can run, and nothing is left behind.

#[test]
fn jobs_of_a_gitlab_run_on_agents_of_their_own_and_leave_nothing_behind() {
    let server = ways::jobs_have_agents_of_their_own(&kind());
    // The one of somebody else stays.
    assert_eq!(server.fake().core().rows.len(), 1);
}

#[test]
fn a_gitlab_that_does_not_answer_is_reported_and_served_again_after_it() {
    ways::an_outage_is_reported_and_over_when_it_is(&kind());
}

#[test]
fn a_row_of_gitlab_that_somebody_removed_costs_its_agent_and_not_the_job() {
    ways::a_removed_row_costs_its_agent_and_not_the_job(&kind());
}

#[test]
fn a_guest_whose_gitlab_runner_never_calls_is_given_up_by_deadline() {
    ways::a_runner_that_never_calls_is_given_up(&kind());
}

#[test]
fn a_job_of_gitlab_runs_to_its_end_while_the_list_of_runners_shifts() {
    ways::a_job_runs_to_its_end_while_lists_shift(&Kind {
        start: || Server::start(GitLab { page: 20, ..GitLab::default() }),
        ..kind()
    });
}

#[test]
fn a_gitlab_runner_that_ends_at_once_is_reported_before_its_time() {
    ways::a_runner_that_ends_at_once_is_reported_before_its_time(&kind());
}

#[test]
fn a_gitlab_runner_that_ends_badly_after_its_job_is_done() {
    ways::a_runner_that_ends_badly_after_its_job_is_done(&kind());
}

#[test]
fn a_token_that_may_make_no_runner_of_gitlab_is_reported() {
    ways::a_token_that_may_make_no_row_is_reported(&kind());
}

// Invariant: a hook makes drover look at once, and none is believed without the secret.

#[test]
fn a_hook_of_gitlab_has_its_job_run_long_before_the_next_look() {
    let mut open = None;
    let rewrite = |site: &crate::harness::Site, yaml: String| {
        let (reached, yaml) = Open::of(site, &yaml);
        open = Some(reached);
        yaml
    };
    let mut scene = Scene::start_with(&kind(), &format!("{HOOKED},"), rewrite, |_| ());
    let open = open.unwrap();
    let hook = |token: &str, delivery: &str| {
        let headers = [
            "X-Gitlab-Event: Job Hook".to_owned(),
            format!("X-Gitlab-Token: {token}"),
            format!("Idempotency-Key: {delivery}"),
        ];
        let body = json!({ "object_kind": "build", "build_status": "pending" });
        open.send("ci", &headers, &body.to_string())
    };
    scene.push("it", &["linux"], None, "echo woken");
    assert_eq!(hook("another secret", "a"), "401");
    assert_eq!(hook(HOOK_SECRET, "a"), "202");
    assert_eq!(hook(HOOK_SECRET, "a"), "200", "it counts once");
    scene.ends(&[("it", "success")]);
    // As GitLab does when a job ends.
    assert_eq!(hook(HOOK_SECRET, "b"), "202");
    scene.events.until("agentGone", |_| true);
}

// Invariant: a job lost with its machine is reported, and not run again.

#[test]
fn a_job_of_gitlab_whose_machine_is_switched_off_is_lost_once() {
    let mut scene = Scene::start(&kind(), "", |_| ());
    let id = scene.push("it", &["linux"], None, "sleep 600");
    // Its guest may lie, and ask for more.
    scene.server.until("asked to take no more", |core| {
        core.rows.iter().any(|row| row.quiet && row.name.starts_with("drover-"))
    });
    let lost = scene.lose();
    assert_eq!(
        (&lost["job"]["source"], &lost["job"]["job"]),
        (&json!("ci"), &json!(id.to_string()))
    );
    scene.events.until("source", |fact| fact["source"]["runners"] == 0);
    crate::ci::nothing_left(&scene.server, &scene.sim, &scene.site);
    assert_eq!(scene.site.json(&["status"])["sources"][0]["waiting"], 0);
}

// Invariant: a job that is over, as GitLab says of that very job, ends the machine of a runner whose
// row is gone, whatever the runner does.

#[test]
fn a_cancelled_job_of_gitlab_whose_row_is_gone_ends_its_machine_though_its_runner_goes_on() {
    let mut scene = Scene::start(&kind(), "", |_| ());
    let id = scene.push("it", &["linux"], None, "sleep 3600");
    scene.events.until("source", |fact| fact["source"]["running"] == 1);
    {
        let mut fake = scene.server.fake();
        fake.core.finish(id, false);
        fake.cancelled.insert(id);
        fake.core.rows.retain(|row| !row.name.starts_with("drover-"));
    }
    let gone = scene.gone(1);
    assert_eq!(gone[0]["reason"], "used-up", "{gone:?}");
    assert_eq!(scene.site.json(&["status"])["lostJobs"], json!([]));
    crate::ci::nothing_left(&scene.server, &scene.sim, &scene.site);
}

/// A connector without a service around it.
fn connected(server: &Server<GitLab>, scope: Scope, run_untagged: bool) -> Arc<dyn Connector> {
    let token = server.fake().core.token.clone().into();
    let (job, idle) = (Duration::from_secs(60), Duration::from_secs(300));
    let settings = Settings { scope, token, run_untagged, job, idle };
    let connection = SourceConnection {
        url: server.url().parse().unwrap(),
        tls: Tls::System,
        route: Route::Direct,
        system: System::GitLab(settings),
        command: None,
        webhook: None,
    };
    connector(&connection, Gate::default()).unwrap()
}

fn group() -> Scope {
    Scope::Group(GROUP.1.to_owned())
}

fn looked(connector: &dyn Connector) -> Result<SourceObservation, String> {
    block(connector.poll(&Known::new())).map_err(|error| error.to_string())
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

// Invariant: no part of a list is taken for the whole, whichever way its pages are reported.

#[test]
fn lists_of_gitlab_are_read_to_their_end_for_each_scope() {
    let server = Server::start(GitLab { page: 1, ..GitLab::default() });
    let names = ["drover-a1b2c3d4-0123456789abcdef", "drover-a1b2c3d4-0123456789abcdeg"];
    for (name, label) in [(names[0], "linux"), (names[1], "x64"), (names[0], "arm")] {
        server.fake().core.row(name, vec![label.to_owned()]);
        server.push(label, &[label], "true");
    }
    let project = |name: &str| Scope::Project(name.to_owned());
    for scope in [Scope::Server, group(), project("11"), project("build/tools/app")] {
        let connector = connected(&server, scope.clone(), false);
        let observation = looked(&*connector).unwrap();
        let rows: Vec<&str> = observation.rows.iter().map(|row| row.runner.as_str()).collect();
        assert_eq!(rows, [names[0], names[1], names[0]], "{scope:?}");
        let jobs: Vec<&str> = observation.jobs.iter().map(|job| &*job.name).collect();
        assert_eq!(jobs, ["linux", "x64", "arm"], "{scope:?}");
    }
    // Every row of exactly that name goes, and no other.
    block(connected(&server, group(), false).deregister(&RunnerName::new(names[0]))).unwrap();
    let left: Vec<String> = server.fake().core.rows.iter().map(|row| row.name.clone()).collect();
    assert_eq!(left, ["somebody else's", names[1]]);
    block(connected(&server, group(), false).cordon(&RunnerName::new(names[1]))).unwrap();
    assert!(server.fake().core.rows[1].quiet);
}

#[test]
fn jobs_without_tags_are_wanted_only_where_that_is_said() {
    let server = Server::start(GitLab::default());
    server.push("plain", &[], "true");
    assert_eq!(looked(&*connected(&server, group(), false)).unwrap().jobs, []);
    let jobs = looked(&*connected(&server, group(), true)).unwrap().jobs;
    assert_eq!(jobs[0].want, Want::Labels([].into()));
}

// Invariant: a runner that had its job is none any more, and its row is not forgotten for that.

#[test]
fn a_runner_that_had_its_job_is_gone_and_reported_again_where_its_row_was_left() {
    let server = Server::start(GitLab::default());
    let name = "drover-a1b2c3d4-0123456789abcdef";
    let row = server.fake().core.row(name, vec!["linux".to_owned()]);
    let id = server.push("it", &["linux"], "true");
    let connector = connected(&server, group(), false);
    let seen = || {
        let rows = looked(&*connector).unwrap().rows.into_iter();
        rows.map(|row| (row.online, row.jobs, row.job)).collect::<Vec<_>>()
    };
    assert_eq!(seen(), [(false, 0, None)]);
    let row = server.fake().core.caller(&row.secret).unwrap();
    assert_eq!(seen(), [(true, 0, None)]);
    server.fake().core.take(&row, |_| true).unwrap();
    assert_eq!(seen(), [(true, 1, Some(id.to_string()))]);
    server.fake().core.finish(id, true);
    assert_eq!(seen(), []);
    let observation = block(connector.poll(&Known::new())).unwrap();
    assert_eq!(observation.done, [RunnerName::new(name)].into(), "its source says so");
    server.fake().late = true;
    assert_eq!(seen(), [(false, 0, None)]);
}

// Invariant: a runner that a list does not show is asked for by itself, and is gone only where GitLab
// says that of that very row.

#[test]
fn a_runner_that_gitlabs_list_does_not_show_is_found_by_its_number() {
    let server = Server::start(GitLab::default());
    let name = RunnerName::new("drover-a1b2c3d4-0123456789abcdef");
    for n in 0..3 {
        server.fake().core.row(&format!("theirs {n}"), Vec::new());
    }
    server.fake().core.row(name.as_str(), vec!["linux".to_owned()]);
    let known: Known = [(name.clone(), BTreeSet::new())].into();
    let connector = connected(&server, group(), false);
    let look = || {
        let observation = block(connector.poll(&known)).unwrap();
        (observation.rows.len(), observation.gone.len(), observation.whole)
    };
    assert_eq!(look(), (1, 0, true));
    server.fake().core.shifts = true;
    assert_eq!(look(), (1, 0, false), "no list shows it");
    let rename = |to: &str| {
        server.fake().core.rows.last_mut().unwrap().name = to.to_owned();
    };
    rename("the fast one");
    let (rows, gone, _) = look();
    assert_eq!((rows, gone), (1, 0), "its number shows it");
    let number = server.fake().core.rows.pop().unwrap().id;
    assert_eq!(look(), (0, 1, true));
    let stranger = connected(&server, group(), false);
    let observation = block(stranger.poll(&known)).unwrap();
    assert!(observation.gone.is_empty(), "a list proves nothing where its number is not known");
    let stranger = connected(&server, group(), false);
    let observation = block(stranger.poll(&[(name.clone(), [number].into())].into())).unwrap();
    assert_eq!(observation.gone, [name].into(), "an earlier start wrote its number down");
}

// Invariant: a server that asks to be left alone is.

#[test]
fn a_gitlab_that_is_asked_too_often_is_left_alone_for_as_long_as_it_says() {
    let server = Server::start(GitLab { refuses: (1, 600), ..GitLab::default() });
    let patient = connected(&server, group(), false);
    let said = looked(&*patient).unwrap_err();
    assert!(said.contains("429") && said.contains("Retry later"), "{said}");
    let calls = server.fake().core.calls.len();
    let said = looked(&*patient).unwrap_err();
    assert!(said.contains("429: GitLab asked drover to wait 600 s more"), "{said}");
    assert_eq!(server.fake().core.calls.len(), calls, "nothing was asked");
    server.fake().refuses = (1, 0);
    let other = connected(&server, group(), false);
    assert!(looked(&*other).is_err());
    assert!(looked(&*other).is_ok(), "it is over");
}
