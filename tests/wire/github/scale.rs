//! The fake's scale-set service, after GitHub's public client of it; no schema tells of it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fake::{Job, State};
use super::server::{Reply, Request};

/// For so long a poll is held.
const HELD: Duration = Duration::from_secs(2);

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
    /// The next poll is told that its login has ended.
    pub expired: bool,
    pub acknowledged: Vec<u64>,
    messages: Vec<(u64, Value)>,
    assigned: u32,
    running: u32,
    next: u64,
    pub news: Arc<Condvar>,
}

fn told(kind: &str, job: &Job) -> Value {
    json!({ "messageType": kind, "runnerRequestId": job.id, "requestLabels": job.labels,
        "jobDisplayName": job.name, "runnerName": job.runner.clone().unwrap_or_default(), "queueTime": job.created.to_string() })
}

impl Scale {
    fn statistics(&self) -> Value {
        json!({ "totalAvailableJobs": 0, "totalAcquiredJobs": 0, "totalRegisteredRunners": 0,
            "totalAssignedJobs": self.assigned, "totalRunningJobs": self.running,
            "totalBusyRunners": self.running, "totalIdleRunners": 0 })
    }

    fn say(&mut self, body: Value) {
        self.next += 1;
        let text = json!([body]).to_string();
        let message = json!({ "messageId": self.next, "messageType": "RunnerScaleSetJobMessages",
            "body": text, "statistics": self.statistics() });
        self.messages.push((self.next, message));
        self.news.notify_all();
    }

    /// A job begins to wait.
    pub fn came(&mut self, job: &Job) {
        let fits = |(_, labels): &(String, Vec<String>)| {
            job.labels.iter().all(|label| labels.contains(label))
        };
        if self.set.as_ref().is_some_and(fits) {
            self.say(told("JobAvailable", job));
        }
    }

    fn acquired(&mut self, job: &Job) {
        self.assigned += 1;
        self.say(told("JobAssigned", job));
    }

    pub fn started(&mut self, job: &Job) {
        if self.set.is_some() {
            self.running += 1;
            self.say(told("JobStarted", job));
        }
    }

    pub fn ended(&mut self, job: &Job) {
        if self.set.is_some() {
            self.running -= 1;
            self.assigned -= 1;
            self.say(told("JobCompleted", job));
        }
    }

    fn session(&self) -> Value {
        json!({ "sessionId": "s-1", "ownerName": self.owner, "statistics": self.statistics(),
            "messageQueueUrl": format!("{}/queue?sessionId=1", self.url),
            "messageQueueAccessToken": "queue-token" })
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

/// A poll, held until there is news; it does not keep others from the fake.
pub fn poll(state: &Arc<Mutex<State>>, request: &Request) -> Option<Reply> {
    if request.path != "/queue" {
        return None;
    }
    let last: u64 = request.asked("lastMessageId").and_then(|id| id.parse().ok()).unwrap_or(0);
    let mut guard = state.lock().unwrap();
    if request.header("accept") != ACCEPTED {
        return Some(reply(400, &json!({ "message": "no version of the API is accepted" })));
    }
    if let Some(status) = guard.scale.refuses {
        return Some(reply(status, &Value::Null));
    }
    if guard.scale.broken > 0 {
        guard.scale.broken -= 1;
        return Some(reply(502, &Value::Null));
    }
    let sent = request.header("authorization") == "Bearer queue-token"
        && request.header("x-scalesetmaxcapacity").parse::<u32>().is_ok();
    if !sent || guard.scale.owner.is_none() || std::mem::take(&mut guard.scale.expired) {
        return Some(reply(401, &Value::Null));
    }
    let news = Arc::clone(&guard.scale.news);
    let (guard, _) = news
        .wait_timeout_while(guard, HELD, |state| {
            !state.scale.messages.iter().any(|(id, _)| *id > last) && !state.scale.expired
        })
        .unwrap();
    let next = guard.scale.messages.iter().find(|(id, _)| *id > last);
    Some(next.map_or_else(|| reply(202, &Value::Null), |(_, message)| reply(200, message)))
}

pub fn answer(state: &mut State, request: &Request) -> Option<Reply> {
    let path = request.path.as_str();
    let call = format!("{} {path}", request.method);
    if let ("DELETE", Some(id)) = (request.method.as_str(), path.strip_prefix("/queue/")) {
        let id: u64 = id.parse().unwrap();
        state.scale.messages.retain(|(known, _)| *known != id);
        state.scale.acknowledged.push(id);
        return Some(reply(204, &Value::Null));
    }
    if call == "POST /api/v3/actions/runner-registration" {
        let token = request.header("authorization").strip_prefix("RemoteAuth ").unwrap_or_default();
        if !state.registers(token) || request.json()["runner_event"] != "register" {
            return Some(reply(401, &Value::Null));
        }
        let url = format!("{}/svc/", state.scale.url);
        return Some(reply(200, &json!({ "url": url, "token": "admin-token" })));
    }
    let rest = path.strip_prefix("/svc/_apis/runtime/runnerscalesets")?;
    let good = if rest.ends_with("/acquirejobs") { "queue-token" } else { "admin-token" };
    if request.header("authorization") != format!("Bearer {good}") {
        return Some(reply(401, &Value::Null));
    }
    if request.asked("api-version").as_deref() != Some("6.0-preview") {
        return Some(reply(400, &Value::Null));
    }
    let body = request.json();
    let (status, value) = match (request.method.as_str(), rest) {
        ("GET", "") => {
            let wanted = request.asked("name").unwrap_or_default();
            let found = state.scale.set.iter().filter(|(name, _)| *name == wanted);
            let named = |label: &String| json!({ "id": 1, "name": label, "type": "System" });
            let found: Vec<Value> = found
                .map(|(name, labels)| {
                    let labels: Vec<Value> = labels.iter().map(named).collect();
                    json!({ "id": 5, "name": name, "labels": labels })
                })
                .collect();
            (200, json!({ "count": found.len(), "value": found }))
        }
        ("POST", "") | ("PATCH", "/5") => {
            let labels = body["labels"].as_array().unwrap().iter();
            let labels = labels.map(|label| label["name"].as_str().unwrap().to_owned()).collect();
            state.scale.set = Some((body["name"].as_str().unwrap().to_owned(), labels));
            (200, json!({ "id": 5, "name": body["name"] }))
        }
        ("POST", "/5/sessions") if state.scale.owner.is_some() => {
            (409, json!({ "message": "The session is held by another owner." }))
        }
        ("POST", "/5/sessions") => {
            state.scale.owner = body["ownerName"].as_str().map(str::to_owned);
            state.scale.sessions.0 += 1;
            state.scale.opened.push(Instant::now());
            (200, state.scale.session())
        }
        ("PATCH", "/5/sessions/s-1") => {
            state.scale.sessions.1 += 1;
            (200, state.scale.session())
        }
        ("DELETE", "/5/sessions/s-1") => {
            state.scale.owner = None;
            state.scale.sessions.2 += 1;
            (204, Value::Null)
        }
        ("POST", "/5/acquirejobs") => {
            let ids: Vec<u64> = serde_json::from_value(body).unwrap_or_default();
            let jobs = state.jobs.iter().filter(|job| ids.contains(&job.id)).cloned();
            for job in jobs.collect::<Vec<_>>() {
                state.scale.acquired(&job);
            }
            (200, json!({ "count": ids.len(), "value": ids }))
        }
        ("POST", "/5/generatejitconfig") => {
            let labels = state.scale.set.clone().map(|(_, labels)| labels).unwrap_or_default();
            let runner = state.enrol(body["name"].as_str().unwrap(), labels, 1);
            let config = state.configuration(&runner);
            let row = json!({ "id": runner.id, "name": runner.name, "runnerScaleSetId": 5 });
            (200, json!({ "runner": row, "encodedJITConfig": config }))
        }
        _ => (404, Value::Null),
    };
    Some(reply(status, &value))
}
