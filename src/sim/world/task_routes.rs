//! The task routes: lists, status, log pages and stop. Each checks whether the caller owns the task
//! or may audit the node.

use serde_json::{Value, json};

use super::context::CallContext;
use super::task::{Task, Upid};
use crate::call::{Answer, ApiError, Caller, Outcome};

/// The default number of lines or entries of an answer.
const DEFAULT_PAGE_LEN: u64 = 50;

/// Whether the caller owns a task: a token owns its own tasks, a user also those of the user's
/// tokens.
fn owns(caller: &Caller, upid: &Upid) -> bool {
    let (user, token) = upid.user_and_token();
    user == caller.userid && (caller.token.is_none() || caller.token.as_deref() == token)
}

fn upid_parameter(ctx: &CallContext) -> Result<Upid, ApiError> {
    let text = ctx.text("upid").unwrap_or_default();
    let unknown = || ApiError::parameter("upid", "unable to parse worker upid");
    Upid::parse(&text).ok_or_else(unknown)
}

/// The UPID of a call, if the caller may see the task.
fn visible_upid(ctx: &CallContext) -> Result<Upid, ApiError> {
    let upid = upid_parameter(ctx)?;
    if !owns(&ctx.call.caller, &upid) {
        ctx.check(&format!("/nodes/{}", ctx.node), &["Sys.Audit"])?;
    }
    Ok(upid)
}

/// `GET /nodes/{node}/tasks`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let audit = ctx.has(&format!("/nodes/{}", ctx.node), "Sys.Audit");
    let source = ctx.text("source").unwrap_or_else(|| "archive".into());
    let state = ctx.cluster.state();
    let wanted =
        |task: &&Task| (audit || owns(&ctx.call.caller, &task.upid)) && matches_filters(ctx, task);
    let mut tasks: Vec<&Task> = Vec::new();
    if source != "archive" {
        tasks.extend(state.tasks.running(&ctx.node).filter(wanted));
    }
    if source != "active" {
        tasks.extend(state.tasks.finished(&ctx.node).filter(wanted));
    }
    let total = tasks.len();
    let start = usize::try_from(ctx.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit =
        usize::try_from(ctx.number("limit").unwrap_or(DEFAULT_PAGE_LEN)).unwrap_or(usize::MAX);
    let line = |task: &Task| {
        if task.end.is_none() { task.active_list_json() } else { task.node_list_json() }
    };
    let page: Vec<Value> = tasks.into_iter().skip(start).take(limit).map(line).collect();
    // Recorded: Proxmox omits the total of an empty list.
    if total == 0 {
        return Ok(Answer::new(page.into()));
    }
    Ok(Answer::with_total(page.into(), total as u64))
}

fn matches_filters(ctx: &CallContext, task: &Task) -> bool {
    let upid = &task.upid;
    let status = task.end.as_ref().map_or("RUNNING", |end| end.status.as_str());
    let kind = match status {
        "OK" => "ok",
        "unexpected status" | "RUNNING" => "unknown",
        text if text.starts_with("WARNINGS: ") => "warning",
        _ => "error",
    };
    let wanted = ctx.text("statusfilter");
    ctx.text("vmid").is_none_or(|vmid| upid.id == vmid)
        && ctx.text("typefilter").is_none_or(|wanted| upid.kind == wanted)
        && ctx.text("userfilter").is_none_or(|part| upid.user.contains(&part))
        && ctx.number("since").is_none_or(|since| upid.starttime >= since)
        && ctx.number("until").is_none_or(|until| upid.starttime <= until)
        && (!ctx.flag("errors") || (task.end.is_some() && kind != "ok" && kind != "warning"))
        && wanted.is_none_or(|list| list.split([',', ';', ' ']).any(|word| word == kind))
}

/// `GET /cluster/tasks`: the tasks that each node broadcasts.
pub(crate) fn cluster(ctx: &CallContext) -> Outcome {
    let audit = ctx.has("/", "Sys.Audit");
    // Proxmox compares the caller's full id with a user without the token id, so a token never sees
    // its own tasks here.
    let caller_id = ctx.call.caller.full_id();
    let state = ctx.cluster.state();
    let mut tasks: Vec<&Task> =
        state.nodes.keys().flat_map(|node| state.tasks.recent(node)).collect();
    tasks.retain(|task| audit || task.upid.user_and_token().0 == caller_id);
    tasks.sort_by_key(|task| std::cmp::Reverse(task.upid.starttime));
    Ok(Answer::of_texts(tasks.into_iter().map(Task::cluster_list_json)))
}

/// `GET …/tasks/{upid}/status`.
pub(crate) fn status(ctx: &CallContext) -> Outcome {
    let upid = visible_upid(ctx)?;
    let state = ctx.cluster.state();
    match state.tasks.get(&upid.to_string()) {
        Some(task) => Ok(Answer::new(task.status_json())),
        None => Err(ApiError::parameter("upid", "no such task")),
    }
}

/// `GET …/tasks/{upid}/log`.
pub(crate) fn log(ctx: &CallContext) -> Outcome {
    let upid = visible_upid(ctx)?;
    let state = ctx.cluster.state();
    let Some(task) = state.tasks.get(&upid.to_string()) else {
        let text = "unable to open file - No such file or directory";
        return Ok(Answer::with_total(json!({ "n": 1, "t": text }), 1));
    };
    if ctx.flag("download") {
        let text: String = task.log.iter().map(|line| format!("{line}\n")).collect();
        return Ok(Answer::new(text.into()));
    }
    let start = usize::try_from(ctx.number("start").unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = match ctx.number("limit").unwrap_or(DEFAULT_PAGE_LEN) {
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

/// `DELETE …/tasks/{upid}`: waits until the worker has ended.
pub(crate) async fn stop(ctx: &CallContext) -> Outcome {
    let upid = upid_parameter(ctx)?;
    if !owns(&ctx.call.caller, &upid) {
        ctx.check(&format!("/nodes/{}", ctx.node), &["Sys.Modify"])?;
    }
    ctx.cluster.stop_task(&upid.to_string()).await;
    Ok(Answer::null())
}
