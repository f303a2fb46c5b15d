//! What the tests' own runner speaks with the fake: not GitHub's protocol, which only its runner
//! knows. It is as strict: one job for each login, and the row goes with the job.

use serde_json::{Value, json};

use super::fake::State;
use super::server::{Reply, Request};

pub fn answer(state: &mut State, request: &Request) -> Option<Reply> {
    let what = request.path.strip_prefix("/guest/")?;
    let body = request.json();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let (status, value) = match what {
        "register" => register(state, &text("token"), &text("name"), &text("labels")),
        "next" => next(state, &text("session")),
        "done" => done(state, &text("session"), body["ok"] == true),
        _ => (404, Value::Null),
    };
    Some(Reply::json(status, &value))
}

fn register(state: &mut State, token: &str, name: &str, labels: &str) -> (u16, Value) {
    if !state.registers(token) {
        return (401, Value::Null);
    }
    let mut labels: Vec<String> = labels.split(',').map(str::to_owned).collect();
    labels.push("self-hosted".into());
    let runner = state.enrol(name, labels, 1);
    (200, json!({ "config": state.configuration(&runner) }))
}

/// Whose login this is.
fn position(state: &State, session: &str) -> Option<usize> {
    state.runners.iter().position(|runner| runner.session() == session)
}

fn next(state: &mut State, session: &str) -> (u16, Value) {
    let Some(at) = position(state, session) else { return (401, Value::Null) };
    state.runners[at].online = true;
    let (name, labels) = (state.runners[at].name.clone(), state.runners[at].labels.clone());
    let fits = |wanted: &String| labels.iter().any(|label| label.eq_ignore_ascii_case(wanted));
    let waits = |job: &&mut super::fake::Job| job.status == "queued" && job.labels.iter().all(fits);
    let Some(job) = state.jobs.iter_mut().find(waits) else { return (200, json!({})) };
    job.status = "in_progress";
    job.runner = Some(name);
    let command = job.command.clone();
    let job = job.clone();
    state.scale.started(&job);
    (200, json!({ "command": command }))
}

fn done(state: &mut State, session: &str, ok: bool) -> (u16, Value) {
    let Some(at) = position(state, session) else { return (401, Value::Null) };
    let runner = state.runners.remove(at);
    let on = |job: &&mut super::fake::Job| {
        job.status == "in_progress" && job.runner.as_deref() == Some(runner.name.as_str())
    };
    if let Some(job) = state.jobs.iter_mut().find(on) {
        job.status = "completed";
        job.conclusion = Some(if ok { "success" } else { "failure" });
        let job = job.clone();
        state.scale.ended(&job);
    }
    (200, json!({}))
}
