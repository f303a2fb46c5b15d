//! A fake GitHub: the REST API as its schemas have it, and a runners' protocol of its own beside it.
//! What runners are configured with has the form that actions/runner 2.336.0 reads, at 258d6c857db3
//! (`Runner.cs` of its listener, `ConfigurationStore.cs`, `CredentialData.cs`).
//!
//! Every answer, every body it is sent and every query is held against the schemas. What they lack is
//! listed in `LACKING` and unverified: enterprises, lists of repositories, App installations, rate
//! limits, scale sets.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::scale::Scale;
use super::server::{Reply, Request, serve};
use super::shapes::Shapes;

/// Calls that the schemas lack.
const LACKING: [&str; 6] = [
    "/enterprises/{enterprise}/",
    "GET /orgs/{org}/repos",
    "GET /installation/repositories",
    "/{owner}/{repo}/installation",
    "GET /orgs/{org}/installation",
    "runner-registration",
];

pub const TOKEN: &str = "ghp_test";

/// Versions that were released, and when.
const RELEASED: [(&str, &str); 3] =
    [("2.336.0", "2026-08-01"), ("2.334.0", "2026-05-20"), ("2.331.0", "2026-01-14")];

/// A job of a workflow.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: u64,
    pub repository: String,
    pub run: u64,
    pub name: String,
    pub labels: Vec<String>,
    pub status: &'static str,
    pub conclusion: Option<&'static str>,
    pub runner: Option<String>,
    /// What its one step runs.
    pub command: String,
    pub created: Timestamp,
}

/// A runner's row.
#[derive(Clone, Debug)]
pub struct Runner {
    pub id: u64,
    pub name: String,
    pub labels: Vec<String>,
    pub online: bool,
    /// Its program's version, once it was connected.
    pub version: Option<String>,
    pub group: u64,
    /// What it logs in with, by this fake's own protocol.
    session: String,
}

impl Runner {
    /// What it logs in with.
    pub fn session(&self) -> &str {
        &self.session
    }
}

/// A request that was heard: `METHOD PATH`, and the status of its answer.
pub type Heard = (String, u16);

#[derive(Default)]
pub struct State {
    pub jobs: Vec<Job>,
    pub runners: Vec<Runner>,
    pub repositories: Vec<String>,
    pub heard: Vec<Heard>,
    pub faults: Vec<String>,
    /// Tokens that are good now.
    tokens: BTreeSet<String>,
    /// Tokens of installations that were minted.
    pub minted: u32,
    registration: BTreeSet<String>,
    /// Requests left; none where there is no limit.
    pub remaining: Option<u64>,
    /// The next answer of this call never arrives.
    pub lose: Option<&'static str>,
    /// Calls of paths that have this in them are refused with this status.
    pub refuse: Option<(&'static str, u16)>,
    pub page_size: usize,
    /// Whether drover's rows move to the first page of their list once that was read.
    pub shifts: bool,
    pub public_key: Option<String>,
    pub scale: Scale,
    /// Groups that runners were made in.
    pub groups: Vec<u64>,
    /// Versions of runners that are given no job any more.
    pub deprecated: BTreeSet<String>,
    /// Versions of the runner's program that were released, and when; none where nobody says.
    pub released: Vec<(&'static str, &'static str)>,
    next: u64,
}

/// The fake, and what it saw.
#[derive(Clone)]
pub struct GitHub {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl GitHub {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            tokens: [TOKEN.to_owned()].into(),
            page_size: 100,
            released: RELEASED.to_vec(),
            next: 1,
            ..State::default()
        }));
        let (inner, shapes) = (Arc::clone(&state), Shapes::read());
        let port = serve(move |request| {
            if let Some(reply) = super::scale::poll(&inner, request) {
                return reply;
            }
            let mut state = inner.lock().unwrap();
            let reply = answer(&mut state, &shapes, request);
            state.scale.news.notify_all();
            reply
        });
        let url = format!("http://127.0.0.1:{port}");
        state.lock().unwrap().scale.url = url.clone();
        Self { url, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until requests brought it there.
    pub fn until(&self, there: impl Fn(&State) -> bool) {
        let state = self.state();
        let news = Arc::clone(&state.scale.news);
        let waited = news.wait_timeout_while(state, crate::harness::WAIT_LIMIT, |now| !there(now));
        assert!(!waited.unwrap().1.timed_out(), "it did not come to that");
    }

    /// A job begins to wait, or is held back.
    pub fn job(&self, repository: &str, name: &str, labels: &[&str], command: &str) -> u64 {
        let mut state = self.state();
        let id = state.next();
        if !state.repositories.iter().any(|known| known == repository) {
            state.repositories.push(repository.to_owned());
        }
        let job = Job {
            id,
            repository: repository.to_owned(),
            run: id + 1_000_000,
            name: name.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            status: "queued",
            conclusion: None,
            runner: None,
            command: command.to_owned(),
            created: Timestamp::now(),
        };
        state.scale.came(&job);
        state.jobs.push(job);
        id
    }

    /// Jobs by name, each with how it ended.
    pub fn conclusions(&self) -> BTreeMap<String, String> {
        let text = |job: &Job| job.conclusion.unwrap_or(job.status).to_owned();
        self.state().jobs.iter().map(|job| (job.name.clone(), text(job))).collect()
    }

    /// Calls heard whose path has this in it.
    pub fn heard(&self, part: &str) -> Vec<Heard> {
        self.state().heard.iter().filter(|(call, _)| call.contains(part)).cloned().collect()
    }

    /// Everything was as the schemas have it.
    pub fn sound(&self) {
        assert_eq!(self.state().faults, Vec::<String>::new());
    }

    /// What it sends of a job by webhook.
    pub fn hook(&self, id: u64) -> Value {
        let state = self.state();
        let job = state.jobs.iter().find(|job| job.id == id).unwrap();
        let action = job.status;
        let mut reported = job_of(job);
        reported["run_attempt"] = json!(1);
        let body = json!({
            "action": action,
            "workflow_job": reported,
            "repository": { "id": 1, "full_name": job.repository },
            "sender": { "login": "octocat" },
        });
        assert_eq!(Shapes::read().faults(&format!("hook {action}"), &body), Vec::<String>::new());
        body
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether the login is good, and what it is.
    fn login<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let token = request.header("authorization").strip_prefix("Bearer ")?;
        self.tokens.contains(token).then_some(token)
    }

    /// Gives a runner a login by this fake's own protocol.
    pub fn enrol(&mut self, name: &str, labels: Vec<String>, group: u64) -> Runner {
        let id = self.next();
        let runner = Runner {
            id,
            name: name.to_owned(),
            labels,
            online: false,
            version: None,
            group,
            session: format!("session-{id}"),
        };
        self.runners.push(runner.clone());
        runner
    }

    /// All that a guest needs to be this runner: files by their names.
    pub fn configuration(&self, runner: &Runner) -> String {
        let (url, own) = (&self.scale.url, json!({ "clientId": runner.session }));
        let settings = json!({
            "AgentId": runner.id, "AgentName": runner.name, "PoolId": 1, "PoolName": "Default",
            "ServerUrl": url, "ServerUrlV2": url, "GitHubUrl": url, "WorkFolder": "_work",
            "UseV2Flow": true, "DisableUpdate": true, "Ephemeral": true,
        });
        let login = json!({ "Scheme": "OAuth", "Data": own });
        let [settings, login] = [settings, login].map(|file| STANDARD.encode(file.to_string()));
        STANDARD.encode(json!({ ".runner": settings, ".credentials": login }).to_string())
    }

    /// Tokens of installations are taken back.
    pub fn revoke(&mut self) {
        self.tokens.retain(|token| token == TOKEN);
    }

    /// A token that registers any number of runners.
    pub fn registration_token(&mut self) -> String {
        let token = format!("AREG{}", self.next());
        self.registration.insert(token.clone());
        token
    }

    pub fn registers(&self, token: &str) -> bool {
        self.registration.contains(token)
    }
}

fn row(runner: &Runner, busy: bool) -> Value {
    let label = |name: &String| json!({ "id": 1, "name": name, "type": "custom" });
    json!({
        "id": runner.id, "name": runner.name, "os": "linux", "busy": busy, "ephemeral": true,
        "status": if runner.online { "online" } else { "offline" },
        "runner_group_id": runner.group, "version": runner.version,
        "labels": runner.labels.iter().map(label).collect::<Vec<_>>(),
    })
}

fn job_of(job: &Job) -> Value {
    json!({
        "id": job.id, "run_id": job.run, "run_url": "https://x/run", "node_id": "n",
        "head_sha": "0", "url": "https://x/job", "html_url": "https://x/html",
        "status": job.status, "conclusion": job.conclusion, "name": job.name, "steps": [],
        "created_at": job.created.to_string(), "started_at": job.created.to_string(),
        "completed_at": job.conclusion.map(|_| Timestamp::now().to_string()),
        "check_run_url": "https://x/check", "labels": job.labels,
        "runner_id": job.runner.as_ref().map(|_| 1), "runner_name": job.runner,
        "runner_group_id": null, "runner_group_name": null,
        "workflow_name": "ci", "head_branch": "main",
    })
}

fn run_of(id: u64, status: &str) -> Value {
    json!({
        "id": id, "node_id": "n", "head_branch": "main", "run_number": 1, "display_title": "ci",
        "event": "push", "status": status, "conclusion": null, "head_sha": "0", "path": "ci.yml",
        "workflow_id": 1, "url": "u", "html_url": "u", "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "head_commit": null, "head_repository": {},
        "repository": {}, "jobs_url": "u", "logs_url": "u", "check_suite_url": "u",
        "cancel_url": "u", "rerun_url": "u", "artifacts_url": "u", "workflow_url": "u",
        "pull_requests": [],
    })
}

fn release(version: &str, day: &str) -> Value {
    json!({
        "url": "u", "html_url": "u", "assets_url": "u", "upload_url": "u", "tarball_url": null,
        "zipball_url": null, "id": 1, "node_id": "n", "tag_name": format!("v{version}"),
        "target_commitish": "main", "name": null, "draft": false, "prerelease": false,
        "created_at": format!("{day}T09:00:00Z"), "published_at": format!("{day}T10:00:00Z"),
        "author": {}, "assets": [],
    })
}

/// The path as the schemas write it, and the repository it is about.
fn pattern(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.trim_start_matches("/api/v3").split('/').collect();
    let (head, rest, repository) = match parts.as_slice() {
        ["", "repos", owner, name, rest @ ..] => {
            ("/repos/{owner}/{repo}", rest, format!("{owner}/{name}"))
        }
        ["", "orgs", _, rest @ ..] => ("/orgs/{org}", rest, String::new()),
        ["", "enterprises", _, rest @ ..] => ("/enterprises/{enterprise}", rest, String::new()),
        ["", "app", "installations", _, rest @ ..] => {
            ("/app/installations/{installation_id}", rest, String::new())
        }
        all => return (all.join("/"), String::new()),
    };
    let rest: Vec<&str> = rest.to_vec();
    let mut pattern = head.to_owned();
    for (at, part) in rest.iter().enumerate() {
        let named = match part.parse::<u64>().is_ok().then(|| rest[at - 1]) {
            Some("runs") => "{run_id}",
            Some("jobs") => "{job_id}",
            Some(_) => "{runner_id}",
            None => *part,
        };
        pattern.push_str(&format!("/{named}"));
    }
    (pattern, repository)
}

fn answer(state: &mut State, shapes: &Shapes, request: &Request) -> Reply {
    if let Some(reply) = super::guest::answer(state, request) {
        return reply;
    }
    if let Some(reply) = super::scale::answer(state, request) {
        return reply;
    }
    let (path, repository) = pattern(&request.path);
    let call = format!("{} {path}", request.method);
    let lacking = LACKING.iter().any(|known| call.contains(known));
    if !lacking {
        let strange = shapes.strange(&format!("query {call}"), &request.query);
        state.faults.extend(strange.iter().map(|name| format!("{call}: `{name}` in its query")));
    }
    let head = format!("body {call}");
    if shapes.knows(&head) {
        state.faults.extend(shapes.faults(&head, &request.json()));
    }
    let mut reply =
        if let Some((_, status)) = state.refuse.filter(|(part, _)| request.path.contains(part)) {
            Reply::json(status, &json!({ "message": "Resource not accessible" }))
        } else if state.remaining == Some(0) {
            Reply::json(403, &json!({ "message": "API rate limit exceeded" }))
        } else {
            let (status, value) = rest(state, request, &path, &repository);
            if !lacking && (200..300).contains(&status) && status != 204 {
                let found = shapes.faults(&format!("answer {call} {status}"), &value);
                state.faults.extend(found);
            }
            Reply::json(status, &value)
        };
    if request.method == "GET" && reply.status == 200 {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(reply.body.as_bytes());
        let etag = format!("W/\"{}\"", URL_SAFE_NO_PAD.encode(digest));
        if request.header("if-none-match") == etag {
            reply = Reply::json(304, &Value::Null);
        }
        reply.headers.push(("ETag".into(), etag));
    }
    if let Some(left) = &mut state.remaining {
        if reply.status != 304 {
            *left = left.saturating_sub(1);
        }
        let reset = Timestamp::now().as_second() + 600;
        reply.headers.push(("X-RateLimit-Limit".into(), "1000".into()));
        reply.headers.push(("X-RateLimit-Remaining".into(), left.to_string()));
        reply.headers.push(("X-RateLimit-Reset".into(), reset.to_string()));
    }
    state.heard.push((format!("{} {}", request.method, request.path), reply.status));
    if state.lose.is_some_and(|part| request.path.contains(part)) {
        state.lose = None;
        reply.status = 0;
    }
    reply
}

/// One page of a list.
fn page(state: &State, request: &Request, name: &str, all: Vec<Value>) -> Value {
    let number = |name: &str, preset: usize| {
        request.asked(name).and_then(|text| text.parse().ok()).unwrap_or(preset)
    };
    let size = number("per_page", 30).min(state.page_size);
    let (total, skip) = (all.len(), (number("page", 1) - 1) * size);
    let rows: Vec<Value> = all.into_iter().skip(skip).take(size).collect();
    if name.is_empty() { json!(rows) } else { json!({ "total_count": total, name: rows }) }
}

fn rest(state: &mut State, request: &Request, path: &str, repository: &str) -> (u16, Value) {
    let call = format!("{} {path}", request.method);
    if path.starts_with("/app/") || path.ends_with("/installation") {
        return app(state, request, &call);
    }
    if state.login(request).is_none() {
        return (401, json!({ "message": "Bad credentials" }));
    }
    let tail = call.replacen("/repos/{owner}/{repo}", "", 1);
    let tail = tail.replacen("/orgs/{org}", "", 1).replacen("/enterprises/{enterprise}", "", 1);
    let busy = |state: &State, name: &str| {
        let on = |job: &Job| job.status == "in_progress" && job.runner.as_deref() == Some(name);
        state.jobs.iter().any(on)
    };
    match tail.as_str() {
        "GET /actions/runners" => {
            let name = request.asked("name");
            let wanted = |runner: &&Runner| name.as_ref().is_none_or(|name| *name == runner.name);
            let mut rows: Vec<&Runner> = state.runners.iter().filter(wanted).collect();
            if state.shifts {
                let first = request.asked("page").is_none_or(|page| page == "1");
                rows.sort_by_key(|row| row.name.starts_with("drover-") == first);
            }
            let rows = rows.into_iter();
            let rows = rows.map(|runner| row(runner, busy(state, &runner.name))).collect();
            (200, page(state, request, "runners", rows))
        }
        "GET /actions/runners/{runner_id}" => {
            let id = request.path.rsplit('/').next().and_then(|id| id.parse::<u64>().ok());
            match state.runners.iter().find(|runner| Some(runner.id) == id) {
                Some(runner) => (200, row(runner, busy(state, &runner.name))),
                None => (404, json!({ "message": "Not Found" })),
            }
        }
        "POST /actions/runners/generate-jitconfig" => {
            let body = request.json();
            let name = body["name"].as_str().unwrap_or_default().to_owned();
            if state.runners.iter().any(|runner| runner.name == name) {
                return (409, json!({ "message": "Already exists" }));
            }
            let labels: Vec<String> =
                serde_json::from_value(body["labels"].clone()).unwrap_or_default();
            if labels.is_empty() {
                return (422, json!({ "message": "Invalid", "documentation_url": "x" }));
            }
            let group = body["runner_group_id"].as_u64().unwrap_or(0);
            state.groups.push(group);
            let runner = state.enrol(&name, labels, group);
            let config = state.configuration(&runner);
            (201, json!({ "runner": row(&runner, false), "encoded_jit_config": config }))
        }
        "POST /actions/runners/registration-token" => {
            let token = state.registration_token();
            (201, json!({ "token": token, "expires_at": "2099-01-01T00:00:00Z" }))
        }
        "DELETE /actions/runners/{runner_id}" => {
            let id = request.path.rsplit('/').next().and_then(|id| id.parse::<u64>().ok());
            let Some(at) = state.runners.iter().position(|runner| Some(runner.id) == id) else {
                return (404, json!({ "message": "Not Found" }));
            };
            if busy(state, &state.runners[at].name) {
                return (422, json!({ "message": "Runner is busy", "documentation_url": "x" }));
            }
            state.runners.remove(at);
            (204, Value::Null)
        }
        "GET /actions/runner-groups" => {
            let group = |id: u64, name: &str| {
                json!({ "id": id, "name": name, "visibility": "all", "default": id == 1,
                    "runners_url": "u", "inherited": false, "allows_public_repositories": false })
            };
            let all = vec![group(1, "Default"), group(7, "Machines")];
            (200, page(state, request, "runner_groups", all))
        }
        "GET /releases" if repository == "actions/runner" && !state.released.is_empty() => {
            let all = state.released.iter().map(|(version, day)| release(version, day)).collect();
            (200, page(state, request, "", all))
        }
        "GET /actions/runners/downloads" => {
            let file = |os: &str, end: &str| {
                let filename = format!("actions-runner-{os}-x64-2.336.0.{end}");
                json!({ "os": os, "architecture": "x64", "download_url": "u", "filename": filename })
            };
            (200, json!([file("linux", "tar.gz"), file("win", "zip")]))
        }
        "GET /repos" => {
            let all = state.repositories.iter().map(|name| json!({ "full_name": name })).collect();
            (200, page(state, request, "", all))
        }
        "GET /installation/repositories" => {
            let all = state.repositories.iter().map(|name| json!({ "full_name": name })).collect();
            (200, page(state, request, "repositories", all))
        }
        "GET /actions/runs" => {
            let wanted = request.asked("status").unwrap_or_default();
            let of = |job: &&Job| job.repository == repository && job.status == wanted;
            let runs: BTreeSet<u64> = state.jobs.iter().filter(of).map(|job| job.run).collect();
            let runs = runs.into_iter().map(|id| run_of(id, &wanted)).collect();
            (200, page(state, request, "workflow_runs", runs))
        }
        "GET /actions/runs/{run_id}/jobs" => {
            let run = request.path.split('/').rev().nth(1).and_then(|id| id.parse::<u64>().ok());
            let jobs = state.jobs.iter().filter(|job| Some(job.run) == run).map(job_of).collect();
            (200, page(state, request, "jobs", jobs))
        }
        "GET /actions/jobs/{job_id}" => {
            let id = request.path.rsplit('/').next().and_then(|id| id.parse::<u64>().ok());
            let is = |job: &&Job| Some(job.id) == id && job.repository == repository;
            match state.jobs.iter().find(is) {
                Some(job) => (200, job_of(job)),
                None => (404, json!({ "message": "Not Found" })),
            }
        }
        _ => (404, json!({ "message": "Not Found" })),
    }
}

/// The part that an App logs in for with its own statement.
fn app(state: &mut State, request: &Request, call: &str) -> (u16, Value) {
    let statement = request.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
    if !is_signed(state.public_key.as_deref(), statement) {
        return (401, json!({ "message": "A JSON web token could not be decoded" }));
    }
    if call.ends_with("/access_tokens") {
        state.minted += 1;
        let token = format!("ghs_{}", state.minted);
        state.tokens.insert(token.clone());
        return (201, json!({ "token": token, "expires_at": "2099-01-01T00:00:00Z" }));
    }
    (200, json!({ "id": 77 }))
}

/// Whether an App's statement is by its key (as OpenSSL sees it) and of now.
fn is_signed(public: Option<&str>, statement: &str) -> bool {
    let Some((text, signature)) = statement.rsplit_once('.') else { return false };
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    let claims = text.split('.').nth(1).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&decode(claims)).unwrap_or_default();
    let (now, at) = (Timestamp::now().as_second(), |name: &str| claims[name].as_i64().unwrap_or(0));
    let timely = at("iat") <= now && now < at("exp") && at("exp") - at("iat") <= 600;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("key"), public.unwrap_or_default()).unwrap();
    std::fs::write(path("text"), text).unwrap();
    std::fs::write(path("signature"), decode(signature)).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-verify"]).arg(path("key")).arg("-signature");
    openssl.arg(path("signature")).arg(path("text")).stdout(Stdio::null()).stderr(Stdio::null());
    timely && claims["iss"] == "4711" && openssl.status().unwrap().success()
}
