//! Sets of addresses and their members, and the list of what rules can refer to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::conf::Config;
use super::super::context::{CallContext, failed};
use super::super::state::State;
use super::{digest_of_all, json_fields, scope, stored_parameters};
use crate::call::{Answer, ApiError, Outcome};

#[derive(Debug, Default)]
pub(crate) struct AddressSet {
    comment: Option<String>,
    members: BTreeMap<String, Config>,
}

type AddressSets = BTreeMap<String, AddressSet>;

/// Serves a call on the address sets; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str, sets: &mut AddressSets) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "ipset") => Ok(Answer::new(list(sets))),
        ("POST", "ipset") => add(ctx, sets),
        ("GET", "ipset/{name}") => {
            requested_set(ctx, sets).map(|set| Answer::new(member_entries(set)))
        }
        ("POST", "ipset/{name}") => add_member(ctx, sets),
        ("DELETE", "ipset/{name}") => remove(ctx, sets),
        ("GET", "ipset/{name}/{cidr}") => member(ctx, sets),
        ("PUT", "ipset/{name}/{cidr}") => change_member(ctx, sets),
        ("DELETE", "ipset/{name}/{cidr}") => remove_member(ctx, sets),
        _ => return None,
    };
    Some(outcome)
}

fn list(sets: &AddressSets) -> Value {
    let entries: Vec<Config> = sets
        .iter()
        .map(|(name, set)| {
            let comment = set.comment.clone().filter(|comment| !comment.is_empty());
            let comment = comment.map(|comment| ("comment".to_owned(), comment));
            std::iter::once(("name".to_owned(), name.clone())).chain(comment).collect()
        })
        .collect();
    entries_with_digest(&entries)
}

/// Entries as in answers, each with the digest of the whole list.
pub(crate) fn entries_with_digest(entries: &[Config]) -> Value {
    let digest = digest_of_all(entries);
    let line = |entry: &Config| {
        let mut fields = json_fields(entry);
        fields.insert("digest".into(), digest.clone().into());
        Value::from(fields)
    };
    entries.iter().map(line).collect()
}

fn requested_set<'a>(
    ctx: &CallContext,
    sets: &'a mut AddressSets,
) -> Result<&'a mut AddressSet, ApiError> {
    let name = ctx.text("name").unwrap_or_default();
    let missing = || failed(format!("no such IPSet '{name}'"));
    sets.get_mut(&name).ok_or_else(missing)
}

/// Creates a set, or changes the name or comment of one (pve-firewall, API2/Firewall/IPSet.pm,
/// create_ipset).
fn add(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let name = ctx.text("name").unwrap_or_default();
    let comment = ctx.text("comment");
    if let Some(old) = ctx.text("rename") {
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
    sets.insert(name, AddressSet { comment, members: BTreeMap::new() });
    Ok(Answer::null())
}

fn member_entries(set: &AddressSet) -> Value {
    let entries: Vec<Config> = set.members.values().cloned().collect();
    entries_with_digest(&entries)
}

/// An address without the prefix length of a single host.
fn without_host_prefix(cidr: &str) -> String {
    let bare = cidr.strip_suffix("/32").filter(|ip| !ip.contains(':'));
    bare.or_else(|| cidr.strip_suffix("/128")).unwrap_or(cidr).to_owned()
}

fn add_member(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let cidr = without_host_prefix(&ctx.text("cidr").unwrap_or_default());
    let mut config = stored_parameters(ctx, &["cidr"]);
    config.retain(|key, value| !(value.is_empty() || key == "nomatch" && value == "0"));
    config.insert("cidr".into(), cidr.clone());
    let members = &mut requested_set(ctx, sets)?.members;
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

fn unknown_member() -> ApiError {
    ApiError::parameter("cidr", "no such IP/Network")
}

fn member(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let cidr = ctx.text("cidr").unwrap_or_default();
    let set = requested_set(ctx, sets)?;
    let config = set.members.get(&cidr).ok_or_else(unknown_member)?;
    let mut fields = json_fields(config);
    fields.insert("digest".into(), digest_of_all(set.members.values()).into());
    Ok(Answer::new(fields.into()))
}

fn change_member(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let cidr = ctx.text("cidr").unwrap_or_default();
    let mut replacement = stored_parameters(ctx, &["cidr"]);
    replacement.retain(|key, value| !(value.is_empty() || key == "nomatch" && value == "0"));
    replacement.insert("cidr".into(), cidr.clone());
    let config = requested_set(ctx, sets)?.members.get_mut(&cidr).ok_or_else(unknown_member)?;
    // A change replaces all fields: omitted ones are deleted (API2/Firewall/IPSet.pm, update_ip).
    *config = replacement;
    Ok(Answer::null())
}

fn remove(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let name = ctx.text("name").unwrap_or_default();
    if !requested_set(ctx, sets)?.members.is_empty() && !ctx.flag("force") {
        return Err(failed(format!("IPSet '{name}' is not empty")));
    }
    sets.remove(&name);
    Ok(Answer::null())
}

fn remove_member(ctx: &CallContext, sets: &mut AddressSets) -> Outcome {
    let cidr = ctx.text("cidr").unwrap_or_default();
    requested_set(ctx, sets)?.members.remove(&cidr);
    Ok(Answer::null())
}

/// The sets and aliases that rules of a firewall can refer to: its own and those of the cluster.
pub(crate) fn references(ctx: &CallContext, state: &State) -> Value {
    let kind = ctx.text("type");
    let own = scope(ctx);
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
