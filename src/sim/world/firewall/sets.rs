//! Sets of addresses, with their members; and what rules can refer to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::ask::{Ask, failed};
use super::super::conf::Config;
use super::super::state::State;
use super::{digest_of_all, scope, shown, stored};
use crate::call::{Answer, ApiError, Outcome};

/// A set of addresses.
#[derive(Debug, Default)]
pub struct Set {
    comment: Option<String>,
    members: BTreeMap<String, Config>,
}

type Sets = BTreeMap<String, Set>;

/// Serves a call on the address sets; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str, sets: &mut Sets) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "ipset") => Ok(Answer::new(list(sets))),
        ("POST", "ipset") => add(ask, sets),
        ("GET", "ipset/{name}") => set(ask, sets).map(|set| Answer::new(members(set))),
        ("POST", "ipset/{name}") => add_member(ask, sets),
        ("DELETE", "ipset/{name}") => remove(ask, sets),
        ("GET", "ipset/{name}/{cidr}") => member(ask, sets),
        ("PUT", "ipset/{name}/{cidr}") => change_member(ask, sets),
        ("DELETE", "ipset/{name}/{cidr}") => remove_member(ask, sets),
        _ => return None,
    };
    Some(outcome)
}

fn list(sets: &Sets) -> Value {
    let entries: Vec<Config> = sets
        .iter()
        .map(|(name, set)| {
            let comment = set.comment.clone().filter(|comment| !comment.is_empty());
            let comment = comment.map(|comment| ("comment".to_owned(), comment));
            std::iter::once(("name".to_owned(), name.clone())).chain(comment).collect()
        })
        .collect();
    lines(&entries)
}

/// Entries as answers carry them, each with the digest of all.
pub fn lines(entries: &[Config]) -> Value {
    let digest = digest_of_all(entries);
    let line = |entry: &Config| {
        let mut fields = shown(entry);
        fields.insert("digest".into(), digest.clone().into());
        Value::from(fields)
    };
    entries.iter().map(line).collect()
}

fn set<'a>(ask: &Ask, sets: &'a mut Sets) -> Result<&'a mut Set, ApiError> {
    let name = ask.text("name").unwrap_or_default();
    let missing = || failed(format!("no such IPSet '{name}'"));
    sets.get_mut(&name).ok_or_else(missing)
}

/// A new set, or another name or comment for one that is there (pve-firewall,
/// API2/Firewall/IPSet.pm, create_ipset).
fn add(ask: &Ask, sets: &mut Sets) -> Outcome {
    let name = ask.text("name").unwrap_or_default();
    let comment = ask.text("comment");
    if let Some(old) = ask.text("rename") {
        if !sets.contains_key(&old) {
            return Err(ApiError::parameter("name", format!("IPSet '{old}' does not exist")));
        }
        if name != old && sets.contains_key(&name) {
            return Err(ApiError::parameter("name", format!("IPSet '{name}' does already exist")));
        }
        let mut set = sets.remove(&old).unwrap_or_default();
        set.comment = comment.or(set.comment);
        sets.insert(name, set);
        return Ok(Answer::null());
    }
    if sets.contains_key(&name) {
        return Err(ApiError::parameter("name", format!("IPSet '{name}' already exists")));
    }
    sets.insert(name, Set { comment, members: BTreeMap::new() });
    Ok(Answer::null())
}

fn members(set: &Set) -> Value {
    let entries: Vec<Config> = set.members.values().cloned().collect();
    lines(&entries)
}

/// An address without the length that says nothing.
fn tidy(cidr: &str) -> String {
    let bare = cidr.strip_suffix("/32").filter(|ip| !ip.contains(':'));
    bare.or_else(|| cidr.strip_suffix("/128")).unwrap_or(cidr).to_owned()
}

fn add_member(ask: &Ask, sets: &mut Sets) -> Outcome {
    let cidr = tidy(&ask.text("cidr").unwrap_or_default());
    let mut config = stored(ask, &["cidr"]);
    config.retain(|key, value| !(value.is_empty() || key == "nomatch" && value == "0"));
    config.insert("cidr".into(), cidr.clone());
    let members = &mut set(ask, sets)?.members;
    if members.contains_key(&cidr) {
        let text = format!("address '{cidr}' already exists");
        return Err(ApiError::parameter("cidr", text));
    }
    if cidr.split_once('/').is_some_and(|(_, bits)| bits.trim_start_matches('0').is_empty()) {
        let text = "a zero prefix is not allowed in ipset entries";
        return Err(ApiError::parameter("cidr", text));
    }
    members.insert(cidr, config);
    Ok(Answer::null())
}

fn no_member() -> ApiError {
    ApiError::parameter("cidr", "no such IP/Network")
}

fn member(ask: &Ask, sets: &mut Sets) -> Outcome {
    let cidr = ask.text("cidr").unwrap_or_default();
    let set = set(ask, sets)?;
    let config = set.members.get(&cidr).ok_or_else(no_member)?;
    let mut fields = shown(config);
    fields.insert("digest".into(), digest_of_all(set.members.values()).into());
    Ok(Answer::new(fields.into()))
}

fn change_member(ask: &Ask, sets: &mut Sets) -> Outcome {
    let cidr = ask.text("cidr").unwrap_or_default();
    let mut fresh = stored(ask, &["cidr"]);
    fresh.retain(|key, value| !(value.is_empty() || key == "nomatch" && value == "0"));
    fresh.insert("cidr".into(), cidr.clone());
    let config = set(ask, sets)?.members.get_mut(&cidr).ok_or_else(no_member)?;
    // What is not said is gone (API2/Firewall/IPSet.pm, update_ip).
    *config = fresh;
    Ok(Answer::null())
}

fn remove(ask: &Ask, sets: &mut Sets) -> Outcome {
    let name = ask.text("name").unwrap_or_default();
    if !set(ask, sets)?.members.is_empty() && !ask.flag("force") {
        return Err(failed(format!("IPSet '{name}' is not empty")));
    }
    sets.remove(&name);
    Ok(Answer::null())
}

fn remove_member(ask: &Ask, sets: &mut Sets) -> Outcome {
    let cidr = ask.text("cidr").unwrap_or_default();
    set(ask, sets)?.members.remove(&cidr);
    Ok(Answer::null())
}

/// What the rules of a call's firewall can refer to: its own sets and aliases, and the cluster's.
pub fn references(ask: &Ask, state: &State) -> Value {
    let kind = ask.text("type");
    let own = scope(ask);
    let mut lines = Vec::new();
    for name in ["cluster", own.as_str()].iter().take(if own == "cluster" { 1 } else { 2 }) {
        let Some(firewall) = state.firewalls.get(*name) else { continue };
        let scope = if *name == "cluster" { "dc" } else { "guest" };
        let mut push = |kind: &str, name: &str, mark: &str, comment: Option<&String>| {
            let reference = format!("{mark}{scope}/{name}");
            let mut line = json!({ "type": kind, "name": name, "ref": reference, "scope": scope });
            if let Some(comment) = comment {
                line["comment"] = comment.clone().into();
            }
            lines.push(line);
        };
        if kind.as_deref().is_none_or(|kind| kind == "ipset") {
            for (name, set) in &firewall.sets {
                push("ipset", name, "+", set.comment.as_ref());
            }
        }
        if kind.as_deref().is_none_or(|kind| kind == "alias") {
            for alias in firewall.aliases.values() {
                let name = alias.get("name").map(String::as_str).unwrap_or_default();
                push("alias", name, "", alias.get("comment"));
            }
        }
    }
    lines.into()
}
