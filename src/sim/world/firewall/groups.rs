//! Security groups: lists of rules that other rules refer to (pve-firewall,
//! API2/Firewall/Groups.pm).

use super::super::conf::Config;
use super::super::context::{CallContext, failed};
use super::super::state::State;
use super::rules;
use super::sets::entries_with_digest;
use crate::call::{Answer, ApiError, Outcome};

#[derive(Debug, Default)]
pub(crate) struct SecurityGroup {
    comment: Option<String>,
    rules: Vec<Config>,
}

/// The error of a rule that names an unknown group.
pub(crate) fn unknown_group(name: &str) -> ApiError {
    ApiError::parameter("action", format!("no such security group '{name}'"))
}

/// Serves a call below `groups`; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, state: &mut State, rest: &str) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "") => list(state),
        ("POST", "") if ctx.params().0.contains_key("rename") => rename(ctx, state),
        ("POST", "") => add(ctx, state),
        ("DELETE", "/{group}") => remove(ctx, state),
        (_, rest) => {
            let rest = rest.strip_prefix("/{group}")?;
            let name = ctx.text("group").unwrap_or_default();
            let cluster = state.firewalls.entry("cluster".into()).or_default();
            let Some(group) = cluster.groups.get_mut(&name) else {
                return Some(Err(failed(format!("no such security group '{name}'"))));
            };
            if ctx.text("type").is_some_and(|kind| kind == "group") {
                let text = "security groups not allowed";
                return Some(Err(ApiError::parameter("type", text)));
            }
            return rules::serve(ctx, rest, &mut group.rules);
        }
    };
    Some(outcome)
}

fn list(state: &mut State) -> Outcome {
    let cluster = state.firewalls.entry("cluster".into()).or_default();
    let entries: Vec<Config> = cluster
        .groups
        .iter()
        .map(|(name, group)| {
            let comment = group.comment.clone().filter(|comment| !comment.is_empty());
            let comment = comment.map(|comment| ("comment".to_owned(), comment));
            std::iter::once(("group".to_owned(), name.clone())).chain(comment).collect()
        })
        .collect();
    Ok(Answer::new(entries_with_digest(&entries)))
}

fn add(ctx: &CallContext, state: &mut State) -> Outcome {
    let name = ctx.text("group").unwrap_or_default();
    let cluster = state.firewalls.entry("cluster".into()).or_default();
    if cluster.groups.contains_key(&name) {
        let text = format!("Security group '{name}' already exists");
        return Err(ApiError::parameter("group", text));
    }
    cluster.groups.insert(name, SecurityGroup { comment: ctx.text("comment"), rules: Vec::new() });
    Ok(Answer::null())
}

/// Changes the name or comment of a group, and the rules of all firewalls that refer to it.
fn rename(ctx: &CallContext, state: &mut State) -> Outcome {
    let (name, old) =
        (ctx.text("group").unwrap_or_default(), ctx.text("rename").unwrap_or_default());
    let cluster = state.firewalls.entry("cluster".into()).or_default();
    if !cluster.groups.contains_key(&old) {
        let text = format!("Security group '{old}' does not exist");
        return Err(ApiError::parameter("group", text));
    }
    if name != old && cluster.groups.contains_key(&name) {
        let text = format!("Security group '{name}' does already exist");
        return Err(ApiError::parameter("group", text));
    }
    let mut group = cluster.groups.remove(&old).unwrap_or_default();
    group.comment = ctx.text("comment").or(group.comment);
    cluster.groups.insert(name.clone(), group);
    for firewall in state.firewalls.values_mut() {
        for rule in &mut firewall.rules {
            let names_it = rule.get("type").is_some_and(|kind| kind == "group")
                && rule.get("action") == Some(&old);
            if names_it {
                rule.insert("action".into(), name.clone());
            }
        }
    }
    Ok(Answer::null())
}

fn remove(ctx: &CallContext, state: &mut State) -> Outcome {
    let name = ctx.text("group").unwrap_or_default();
    let cluster = state.firewalls.entry("cluster".into()).or_default();
    match cluster.groups.get(&name) {
        None => Err(failed(format!("no such security group '{name}'"))),
        Some(group) if !group.rules.is_empty() => {
            Err(failed(format!("Security group '{name}' is not empty")))
        }
        Some(_) => {
            cluster.groups.remove(&name);
            Ok(Answer::null())
        }
    }
}
