//! Security groups: lists of rules that rules elsewhere name (pve-firewall,
//! API2/Firewall/Groups.pm).

use super::super::ask::{Ask, failed};
use super::super::conf::Config;
use super::super::state::State;
use super::rules;
use super::sets::lines;
use crate::call::{Answer, ApiError, Outcome};

/// A security group.
#[derive(Debug, Default)]
pub struct Group {
    comment: Option<String>,
    rules: Vec<Config>,
}

/// What is said of a rule that names a group which is not there.
pub fn missing(name: &str) -> ApiError {
    ApiError::parameter("action", format!("no such security group '{name}'"))
}

/// Serves a call below `groups`; none for routes that are not served.
pub fn serve(ask: &Ask, state: &mut State, rest: &str) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "") => list(state),
        ("POST", "") if ask.params().0.contains_key("rename") => rename(ask, state),
        ("POST", "") => add(ask, state),
        ("DELETE", "/{group}") => remove(ask, state),
        (_, rest) => {
            let rest = rest.strip_prefix("/{group}")?;
            let name = ask.text("group").unwrap_or_default();
            let cluster = state.firewalls.entry("cluster".into()).or_default();
            let Some(group) = cluster.groups.get_mut(&name) else {
                return Some(Err(failed(format!("no such security group '{name}'"))));
            };
            if ask.text("type").is_some_and(|kind| kind == "group") {
                let text = "security groups not allowed";
                return Some(Err(ApiError::parameter("type", text)));
            }
            return rules::serve(ask, rest, &mut group.rules);
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
    Ok(Answer::new(lines(&entries)))
}

fn add(ask: &Ask, state: &mut State) -> Outcome {
    let name = ask.text("group").unwrap_or_default();
    let cluster = state.firewalls.entry("cluster".into()).or_default();
    if cluster.groups.contains_key(&name) {
        let text = format!("Security group '{name}' already exists");
        return Err(ApiError::parameter("group", text));
    }
    cluster.groups.insert(name, Group { comment: ask.text("comment"), rules: Vec::new() });
    Ok(Answer::null())
}

/// Another name or comment; rules of all firewalls follow.
fn rename(ask: &Ask, state: &mut State) -> Outcome {
    let (name, old) =
        (ask.text("group").unwrap_or_default(), ask.text("rename").unwrap_or_default());
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
    group.comment = ask.text("comment").or(group.comment);
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

fn remove(ask: &Ask, state: &mut State) -> Outcome {
    let name = ask.text("group").unwrap_or_default();
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
