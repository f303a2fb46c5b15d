//! The fake's scale-set service; no schema mentions it.
//!
//! It follows GitHub's public client of it, actions/scaleset at 6ce025902cd9: `types.go` (what is said),
//! `client.go` (the set, the login, the content type of each call), `session_client.go` (sessions, messages and
//! their own login), `common_client.go` (the byte order mark), `config.go` (the page of a scope); and of
//! actions/actions-runner-controller `RunnerSetting.ephemeral`. It is looser in this: its tokens are no JWT.
//! What that client does not send is refused, and counts as a fault.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fake::{Job, State};
use super::server::{Reply, Request};

/// For so long a poll is held.
const HELD: Duration = Duration::from_secs(2);
/// How Go writes a time that is not known.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Default)]
pub struct Scale {
    pub url: String,
    /// The set's name and labels, once it was made.
    pub set: Option<(String, Vec<String>)>,
    /// Who holds the session.
    pub owner: Option<String>,
    /// Sessions that were opened, renewed and closed.
    pub sessions: (u32, u32, u32),
    /// When each was opened.
    pub opened: Vec<Instant>,
    /// What all polls are refused with; none where they are answered.
    pub refuses: Option<u16>,
    /// So many polls from here on are answered by a gateway that has no server.
    pub broken: u32,
    /// The login of the session ends before its next poll.
    pub expired: bool,
    pub acknowledged: Vec<u64>,
    messages: Vec<Message>,
    /// The last message that was reported.
    reported: u64,
    /// The number of the session's login: an older one is good for nothing.
    login: u32,
    assigned: u32,
    running: u32,
    next: u64,
    pub news: Arc<Condvar>,
}

/// A message, which grows until it is reported.
struct Message {
    id: u64,
    jobs: Vec<Value>,
}

/// What is reported of a job: `JobMessageBase`, and what its kind has beside that.
fn reported(kind: &str, job: &Job) -> Value {
    let (owner, repository) = job.repository.split_once('/').unwrap_or(("", ""));
    let assigned = if kind == "JobAvailable" { NEVER.to_owned() } else { job.created.to_string() };
    let mut reported = json!({
        "messageType": kind, "runnerRequestId": job.id, "repositoryName": repository, "ownerName": owner,
        "jobId": format!("7e57ab1e-0000-4000-8000-{:012x}", job.id),
        "jobWorkflowRef": format!("{}/.github/workflows/ci.yml@refs/heads/main", job.repository),
        "jobDisplayName": job.name, "workflowRunId": job.run, "eventName": "push",
        "requestLabels": job.labels, "queueTime": job.created.to_string(),
        "scaleSetAssignTime": assigned, "runnerAssignTime": NEVER, "finishTime": NEVER,
    });
    let more = match kind {
        "JobAvailable" => json!({ "acquireJobUrl": "https://pipelines/acquire" }),
        "JobStarted" => json!({ "runnerId": 1, "runnerName": job.runner }),
        "JobCompleted" => {
            let result = match job.conclusion {
                Some("success") => "succeeded",
                Some("cancelled") => "canceled",
                Some(_) | None => "failed",
            };
            json!({ "result": result, "runnerId": 1, "runnerName": job.runner })
        }
        _ => json!({}),
    };
    for (name, value) in more.as_object().unwrap() {
        reported[name] = value.clone();
    }
    reported
}

impl Scale {
    fn statistics(&self) -> Value {
        json!({ "totalAvailableJobs": 0, "totalAcquiredJobs": 0, "totalRegisteredRunners": 0,
            "totalAssignedJobs": self.assigned, "totalRunningJobs": self.running,
            "totalBusyRunners": self.running, "totalIdleRunners": 0 })
    }

    /// What happens until a message is reported is in one message.
    fn say(&mut self, body: Value) {
        let reported = self.reported;
        match self.messages.last_mut().filter(|message| message.id > reported) {
            Some(message) => message.jobs.push(body),
            None => {
                self.next += 1;
                self.messages.push(Message { id: self.next, jobs: vec![body] });
            }
        }
        self.news.notify_all();
    }

    /// A job begins to wait.
    pub fn came(&mut self, job: &Job) {
        let fits = |(_, labels): &(String, Vec<String>)| {
            job.labels.iter().all(|label| labels.contains(label))
        };
        if self.set.as_ref().is_some_and(fits) {
            self.say(reported("JobAvailable", job));
        }
    }

    fn acquired(&mut self, job: &Job) {
        self.assigned += 1;
        self.say(reported("JobAssigned", job));
    }

    pub fn started(&mut self, job: &Job) {
        if self.set.is_some() {
            self.running += 1;
            self.say(reported("JobStarted", job));
        }
    }

    pub fn ended(&mut self, job: &Job) {
        if self.set.is_some() {
            self.running -= 1;
            self.assigned -= 1;
            self.say(reported("JobCompleted", job));
        }
    }

    /// The number of the session, which no other has.
    fn session_id(&self) -> String {
        format!("5e551000-0000-4000-8000-{:012x}", self.sessions.0)
    }

    fn token(&self) -> String {
        format!("queue-token-{}", self.login)
    }

    fn session(&self) -> Value {
        json!({ "sessionId": self.session_id(), "ownerName": self.owner,
            "runnerScaleSet": { "id": 5, "name": self.set.as_ref().map(|(name, _)| name) },
            "statistics": self.statistics(),
            "messageQueueUrl": format!("{}/queue?sessionId={}", self.url, self.session_id()),
            "messageQueueAccessToken": self.token() })
    }

    /// The next message behind this one.
    fn behind(&mut self, last: u64) -> Option<Value> {
        let message = self.messages.iter().find(|message| message.id > last)?;
        self.reported = message.id;
        let body = Value::from(message.jobs.clone()).to_string();
        Some(json!({ "messageId": message.id, "messageType": "RunnerScaleSetJobMessages",
            "body": body, "statistics": self.statistics() }))
    }

    fn holds_login(&self, request: &Request) -> bool {
        request.header("authorization") == format!("Bearer {}", self.token())
    }
}

/// What a poll must accept, as GitHub's client says (`session_client.go`).
const ACCEPTED: &str = "application/json; api-version=6.0-preview";

/// An answer that begins with a byte order mark, which that client strips (`common_client.go`).
fn reply(status: u16, value: &Value) -> Reply {
    let mut reply = Reply::json(status, value);
    if !reply.body.is_empty() {
        reply.body.insert(0, '\u{feff}');
    }
    reply
}

/// Something that the client does not do.
fn fault(state: &mut State, what: String) -> Reply {
    let answer = reply(400, &json!({ "typeName": "VssServiceException", "message": what }));
    state.faults.push(what);
    answer
}

/// A poll, held until there is news; it does not keep others from the fake.
pub fn poll(state: &Arc<Mutex<State>>, request: &Request) -> Option<Reply> {
    if request.path != "/queue" {
        return None;
    }
    let last: u64 = request.asked("lastMessageId").and_then(|id| id.parse().ok()).unwrap_or(0);
    let mut guard = state.lock().unwrap();
    if request.header("accept") != ACCEPTED {
        return Some(fault(&mut guard, "a poll accepts no version of the API".to_owned()));
    }
    if let Some(status) = guard.scale.refuses {
        return Some(reply(status, &Value::Null));
    }
    if guard.scale.broken > 0 {
        guard.scale.broken -= 1;
        return Some(reply(502, &Value::Null));
    }
    if std::mem::take(&mut guard.scale.expired) {
        guard.scale.login += 1;
    }
    if guard.scale.owner.is_none() || !guard.scale.holds_login(request) {
        return Some(reply(401, &Value::Null));
    }
    if request.asked("sessionId") != Some(guard.scale.session_id()) {
        return Some(fault(&mut guard, format!("a poll of another session: {}", request.query)));
    }
    if request.header("x-scalesetmaxcapacity").parse::<u32>().is_err() {
        return Some(fault(&mut guard, "a poll does not say how many jobs it takes".to_owned()));
    }
    if last != 0 && last != guard.scale.reported {
        let text = format!("message {last} was the last, and {} was sent", guard.scale.reported);
        return Some(fault(&mut guard, text));
    }
    let news = Arc::clone(&guard.scale.news);
    let (mut guard, _) = news
        .wait_timeout_while(guard, HELD, |state| {
            !state.scale.messages.iter().any(|message| message.id > last) && !state.scale.expired
        })
        .unwrap();
    let next = guard.scale.behind(last);
    Some(next.map_or_else(|| reply(202, &Value::Null), |message| reply(200, &message)))
}

/// Whether this is the page of an organisation, a repository or an enterprise (`config.go`).
fn is_page(base: &str, url: &str) -> bool {
    let Some(path) = url.strip_prefix(base).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), [_] | [_, _]) && parts.iter().all(|part| !part.is_empty())
}

/// What is wrong with the wanted state of a set (`RunnerScaleSet`).
fn wrong(set: &Value) -> Option<String> {
    let known = ["name", "runnerGroupId", "labels", "RunnerSetting"];
    let fields: Vec<&String> = set.as_object().map(|map| map.keys().collect()).unwrap_or_default();
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let labels = set["labels"].as_array().cloned().unwrap_or_default();
    let typed = |label: &Value| is_text(&label["name"]) && is_text(&label["type"]);
    let setting = set["RunnerSetting"].as_object().cloned().unwrap_or_default();
    let is_setting = |(name, value): (&String, &Value)| {
        ["disableUpdate", "ephemeral"].contains(&name.as_str()) && value.is_boolean()
    };
    let well = fields.len() == known.len()
        && fields.iter().all(|field| known.contains(&field.as_str()))
        && is_text(&set["name"])
        && set["runnerGroupId"].is_u64()
        && !labels.is_empty()
        && labels.iter().all(typed)
        && set["RunnerSetting"].is_object()
        && setting.iter().all(is_setting);
    (!well).then(|| format!("no set can be made of {set}"))
}

/// The calls that are not polls.
pub fn answer(state: &mut State, request: &Request) -> Option<Reply> {
    let path = request.path.as_str();
    let is_its_own = path.starts_with("/queue/")
        || path.starts_with("/svc/")
        || path == "/api/v3/actions/runner-registration";
    if !is_its_own {
        return None;
    }
    let call = format!("{} {path}", request.method);
    if request.header("content-type") != "application/json" {
        let reported = format!("{call}: its content type is `{}`", request.header("content-type"));
        return Some(fault(state, reported));
    }
    if let ("DELETE", Some(id)) = (request.method.as_str(), path.strip_prefix("/queue/")) {
        if !state.scale.holds_login(request) {
            return Some(reply(401, &Value::Null));
        }
        let id: u64 = id.parse().unwrap();
        if state.scale.reported < id || state.scale.messages.iter().all(|message| message.id != id)
        {
            return Some(fault(state, format!("message {id} is acknowledged, and was not sent")));
        }
        state.scale.messages.retain(|message| message.id != id);
        state.scale.acknowledged.push(id);
        return Some(reply(204, &Value::Null));
    }
    if call == "POST /api/v3/actions/runner-registration" {
        return Some(register(state, request));
    }
    let rest = path.strip_prefix("/svc/_apis/runtime/runnerscalesets")?;
    let acquires = rest.ends_with("/acquirejobs");
    let admin = request.header("authorization") == "Bearer admin-token";
    if !(if acquires { state.scale.holds_login(request) } else { admin }) {
        return Some(reply(401, &Value::Null));
    }
    if request.asked("api-version").as_deref() != Some("6.0-preview") {
        return Some(fault(state, format!("{call}: no version of the API")));
    }
    Some(of_set(state, request, rest))
}

/// The login to the service, for a registration token.
fn register(state: &mut State, request: &Request) -> Reply {
    let token = request.header("authorization").strip_prefix("RemoteAuth ").unwrap_or_default();
    if !state.registers(token) {
        return reply(401, &Value::Null);
    }
    let body = request.json();
    let page = body["url"].as_str().unwrap_or_default();
    let fields = body.as_object().map_or(0, serde_json::Map::len);
    if fields != 2 || body["runner_event"] != "register" || !is_page(&state.scale.url, page) {
        return fault(state, format!("no runner registers with {body}"));
    }
    reply(200, &json!({ "url": format!("{}/svc/", state.scale.url), "token": "admin-token" }))
}

/// A call of sets, or of the one that there is.
fn of_set(state: &mut State, request: &Request, rest: &str) -> Reply {
    let body = request.json();
    let own = format!("/5/sessions/{}", state.scale.session_id());
    let is_own = rest == own && state.scale.owner.is_some();
    let (status, value) = match (request.method.as_str(), rest) {
        ("GET", "") => {
            let wanted = request.asked("name").unwrap_or_default();
            let group = request.asked("runnerGroupId").and_then(|text| text.parse::<u64>().ok());
            if wanted.is_empty() || group.is_none() {
                return fault(state, format!("sets are looked for by `{}`", request.query));
            }
            let found = state.scale.set.iter().filter(|(name, _)| *name == wanted);
            let named = |label: &String| json!({ "id": 1, "name": label, "type": "System" });
            let found: Vec<Value> = found
                .map(|(name, labels)| {
                    let labels: Vec<Value> = labels.iter().map(named).collect();
                    json!({ "id": 5, "name": name, "runnerGroupId": group, "labels": labels })
                })
                .collect();
            (200, json!({ "count": found.len(), "value": found }))
        }
        ("POST", "") | ("PATCH", "/5") => {
            if let Some(text) = wrong(&body) {
                return fault(state, text);
            }
            let labels = body["labels"].as_array().unwrap().iter();
            let labels = labels.map(|label| label["name"].as_str().unwrap().to_owned()).collect();
            state.scale.set = Some((body["name"].as_str().unwrap().to_owned(), labels));
            (200, json!({ "id": 5, "name": body["name"], "labels": body["labels"] }))
        }
        ("POST", "/5/sessions") => {
            let owner = body["ownerName"].as_str().filter(|owner| !owner.is_empty());
            if owner.is_none() || body.as_object().map_or(0, serde_json::Map::len) != 1 {
                return fault(state, format!("no session can be opened with {body}"));
            }
            if state.scale.owner.is_some() {
                let message = "The session is held by another owner.";
                return reply(409, &json!({ "typeName": "Conflict", "message": message }));
            }
            state.scale.owner = owner.map(str::to_owned);
            state.scale.sessions.0 += 1;
            state.scale.login += 1;
            state.scale.opened.push(Instant::now());
            (200, state.scale.session())
        }
        ("PATCH", _) if is_own => {
            state.scale.sessions.1 += 1;
            state.scale.login += 1;
            (200, state.scale.session())
        }
        ("DELETE", _) if is_own => {
            state.scale.owner = None;
            state.scale.sessions.2 += 1;
            (204, Value::Null)
        }
        ("POST", "/5/acquirejobs") => {
            let Ok(ids) = serde_json::from_value::<Vec<u64>>(body.clone()) else {
                return fault(state, format!("jobs are no list of numbers: {body}"));
            };
            let jobs = state.jobs.iter().filter(|job| ids.contains(&job.id)).cloned();
            for job in jobs.collect::<Vec<_>>() {
                state.scale.acquired(&job);
            }
            (200, json!({ "count": ids.len(), "value": ids }))
        }
        ("POST", "/5/generatejitconfig") => {
            let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
            let (name, folder) = (text("name"), text("workFolder"));
            let fields = body.as_object().map_or(0, serde_json::Map::len);
            if fields != 2 || name.is_empty() || folder.is_empty() {
                return fault(state, format!("no runner can be made of {body}"));
            }
            if state.runners.iter().any(|runner| runner.name == name) {
                let reported =
                    json!({ "typeName": "AgentExistsException", "message": "it exists" });
                return reply(409, &reported);
            }
            let labels = state.scale.set.clone().map(|(_, labels)| labels).unwrap_or_default();
            let runner = state.enrol(&name, labels, 1);
            let config = state.configuration(&runner);
            let row = json!({ "id": runner.id, "name": runner.name, "runnerScaleSetId": 5 });
            (200, json!({ "runner": row, "encodedJITConfig": config }))
        }
        _ => (404, Value::Null),
    };
    reply(status, &value)
}
