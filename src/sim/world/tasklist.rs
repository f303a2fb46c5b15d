//! Tasks as the API shows them: lists, status, log with paging, and stopping; each behind the
//! question whose task it is.

use serde_json::{Value, json};

use super::ask::Ask;
use super::task::{Task, Upid};
use crate::call::{Answer, ApiError, Caller, Outcome};

/// How many lines or entries are answered when nothing is said.
const PAGE: u64 = 50;

/// A token sees its own tasks, a user his and his tokens'.
fn owns(caller: &Caller, upid: &Upid) -> bool {
    let (user, token) = upid.user_and_token();
    user == caller.userid && (caller.token.is_none() || caller.token.as_deref() == token)
}

fn parsed(ask: &Ask) -> Result<Upid, ApiError> {
    let text = ask.text("upid").unwrap_or_default();
    let unknown = || ApiError::parameter("upid", "unable to parse worker upid");
    Upid::parse(&text).ok_or_else(unknown)
}

/// The UPID of a call whose task the caller may look at.
fn visible(ask: &Ask) -> Result<Upid, ApiError> {
    let upid = parsed(ask)?;
    if !owns(&ask.call.caller, &upid) {
        ask.check(&format!("/nodes/{}", ask.node), &["Sys.Audit"])?;
    }
    Ok(upid)
}

/// `GET /nodes/{node}/tasks`.
pub fn list(ask: &Ask) -> Outcome {
    let audit = ask.has(&format!("/nodes/{}", ask.node), "Sys.Audit");
    let source = ask.text("source").unwrap_or_else(|| "archive".into());
    let state = ask.cluster.state();
    let wanted =
        |task: &&Task| (audit || owns(&ask.call.caller, &task.upid)) && matches_filters(ask, task);
    let mut tasks: Vec<&Task> = Vec::new();
    if source != "archive" {
        tasks.extend(state.tasks.running(&ask.node).filter(wanted));
    }
    if source != "active" {
        tasks.extend(state.tasks.finished(&ask.node).filter(wanted));
    }
    let total = tasks.len();
    let start = usize::try_from(ask.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = usize::try_from(ask.number("limit").unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let line = |task: &Task| if task.end.is_none() { task.active() } else { task.listed() };
    let page: Vec<Value> = tasks.into_iter().skip(start).take(limit).map(line).collect();
    // Recorded: no total where there is nothing to count.
    if total == 0 {
        return Ok(Answer::new(page.into()));
    }
    Ok(Answer::with_total(page.into(), total as u64))
}

fn matches_filters(ask: &Ask, task: &Task) -> bool {
    let upid = &task.upid;
    let status = task.end.as_ref().map_or("RUNNING", |end| end.status.as_str());
    let kind = match status {
        "OK" => "ok",
        "unexpected status" | "RUNNING" => "unknown",
        text if text.starts_with("WARNINGS: ") => "warning",
        _ => "error",
    };
    let wanted = ask.text("statusfilter");
    ask.text("vmid").is_none_or(|vmid| upid.id == vmid)
        && ask.text("typefilter").is_none_or(|wanted| upid.kind == wanted)
        && ask.text("userfilter").is_none_or(|part| upid.user.contains(&part))
        && ask.number("since").is_none_or(|since| upid.starttime >= since)
        && ask.number("until").is_none_or(|until| upid.starttime <= until)
        && (!ask.flag("errors") || (task.end.is_some() && kind != "ok" && kind != "warning"))
        && wanted.is_none_or(|list| list.split([',', ';', ' ']).any(|word| word == kind))
}

/// `GET /cluster/tasks`: what every node tells the others.
pub fn cluster(ask: &Ask) -> Outcome {
    let audit = ask.has("/", "Sys.Audit");
    // The caller's whole name is compared with a user cut off before the token: a token's own
    // tasks never match.
    let me = ask.call.caller.full_id();
    let state = ask.cluster.state();
    let mut tasks: Vec<&Task> =
        state.nodes.keys().flat_map(|node| state.tasks.recent(node)).collect();
    tasks.retain(|task| audit || task.upid.user_and_token().0 == me);
    tasks.sort_by_key(|task| std::cmp::Reverse(task.upid.starttime));
    Ok(Answer::of_texts(tasks.into_iter().map(Task::recent)))
}

/// `GET …/tasks/{upid}/status`.
pub fn status(ask: &Ask) -> Outcome {
    let upid = visible(ask)?;
    let state = ask.cluster.state();
    match state.tasks.get(&upid.to_string()) {
        Some(task) => Ok(Answer::new(task.status())),
        None => Err(ApiError::parameter("upid", "no such task")),
    }
}

/// `GET …/tasks/{upid}/log`.
pub fn log(ask: &Ask) -> Outcome {
    let upid = visible(ask)?;
    let state = ask.cluster.state();
    let Some(task) = state.tasks.get(&upid.to_string()) else {
        let text = "unable to open file - No such file or directory";
        return Ok(Answer::with_total(json!({ "n": 1, "t": text }), 1));
    };
    if ask.flag("download") {
        let text: String = task.log.iter().map(|line| format!("{line}\n")).collect();
        return Ok(Answer::new(text.into()));
    }
    let start = usize::try_from(ask.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = match ask.number("limit").unwrap_or(PAGE) {
        0 => usize::MAX,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    if task.log.is_empty() {
        return Ok(Answer::with_total(json!([{ "n": 1, "t": "no content" }]), 1));
    }
    let lines = task.log.iter().zip(1u64..).skip(start).take(limit);
    let lines: Vec<Value> = lines.map(|(text, n)| json!({ "n": n, "t": text })).collect();
    Ok(Answer::with_total(lines.into(), task.log.len() as u64))
}

/// `DELETE …/tasks/{upid}`: blocks until the worker has gone.
pub async fn stop(ask: &Ask) -> Outcome {
    let upid = parsed(ask)?;
    if !owns(&ask.call.caller, &upid) {
        ask.check(&format!("/nodes/{}", ask.node), &["Sys.Modify"])?;
    }
    ask.cluster.stop_task(&upid.to_string()).await;
    Ok(Answer::null())
}
