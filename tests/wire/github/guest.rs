//! What the tests' own runner speaks with the fake: not GitHub's protocol, which only its runner
//! knows. It is as strict: one job for each login, the row goes with the job, and a version that is
//! too old is refused at its first poll (as `src/Sdk/WebApi/WebApi/SchedulerHttpClient.cs` of actions/runner
//! 2.336.0 at 258d6c857db3 reads it).

use serde_json::{Value, json};

use super::fake::State;
use super::server::{Reply, Request};

pub fn answer(state: &mut State, request: &Request) -> Option<Reply> {
    let what = request.path.strip_prefix("/guest/")?;
    let body = request.json();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    let (status, value) = match what {
        "register" => register(state, &text("token"), &text("name"), &text("labels")),
        "session" => connect(state, &text("session"), &text("name"), &text("version")),
        "gone" => leave(state, &text("session")),
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

/// A runner is connected, whatever its version.
fn connect(state: &mut State, session: &str, name: &str, version: &str) -> (u16, Value) {
    let Some(at) = position(state, session) else { return (401, Value::Null) };
    let runner = &mut state.runners[at];
    if runner.name != name || version.is_empty() {
        state.faults.push(format!("{name} connects with version `{version}`"));
        return (400, Value::Null);
    }
    runner.online = true;
    runner.version = Some(version.to_owned());
    (200, json!({}))
}

/// It ends its session.
fn leave(state: &mut State, session: &str) -> (u16, Value) {
    let Some(at) = position(state, session) else { return (401, Value::Null) };
    state.runners[at].online = false;
    (200, json!({}))
}

/// How a version is refused.
fn too_old(version: &str) -> Value {
    let reported = format!("Runner version v{version} is deprecated and cannot receive messages.");
    json!({
        "source": "actions-broker-listener", "errorKind": "RunnerVersionTooOld", "statusCode": 403,
        "errorMessage": reported,
    })
}

fn next(state: &mut State, session: &str) -> (u16, Value) {
    let Some(at) = position(state, session) else { return (401, Value::Null) };
    if !state.runners[at].online {
        state.faults.push(format!("{} polls without a session", state.runners[at].name));
    }
    if let Some(version) = &state.runners[at].version
        && state.deprecated.contains(version)
    {
        return (403, too_old(version));
    }
    let (name, labels) = (state.runners[at].name.clone(), state.runners[at].labels.clone());
    let fits = |wanted: &String| labels.iter().any(|label| label.eq_ignore_ascii_case(wanted));
    let waits = |job: &&mut super::fake::Job| job.status == "queued" && job.labels.iter().all(fits);
    let Some(job) = state.jobs.iter_mut().find(waits) else { return (200, json!({})) };
    job.status = "in_progress";
    job.runner = Some(name);
    let job = job.clone();
    state.scale.started(&job);
    (200, json!({ "command": job.command, "name": job.name }))
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
