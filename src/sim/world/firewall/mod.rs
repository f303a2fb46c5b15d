//! The configuration of firewalls: options, ordered rules, address sets, aliases and security
//! groups of the cluster, of nodes and of guests. The simulator filters no traffic.
//!
//! Input: the calls below a `firewall` route. Output: answers; a change takes effect at once, without
//! a task.
//!
//! Each firewall is one value in the state, by scope (`cluster`, `node/NAME`, `guest/VMID`). The
//! first write creates it, a read does not; the firewall of a guest is deleted with the guest. A
//! security group is a list of rules in the firewall of the cluster, so `rules` serves both kinds
//! of lists.
//!
//! Failure paths: every list carries a digest, and a write with another digest is refused. A rule
//! cannot name an unknown security group. A set or group that is not empty is not deleted; `force`
//! deletes a set.
//!
//! Files beside it:
//!
//! - `rules`: ordered rules of a firewall or of a security group
//! - `sets`: address sets, their members, and the list of what rules can refer to
//! - `aliases`: names for addresses
//! - `groups`: security groups

mod aliases;
mod groups;
mod rules;
mod sets;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::conf::{Config, digest};
use super::context::{CallContext, failed};
use super::sections;
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};

/// The digest of an empty file, as of a guest without a firewall file.
const EMPTY_FILE_DIGEST: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

/// The configuration of one firewall.
#[derive(Debug, Default)]
pub(crate) struct Firewall {
    options: Config,
    rules: Vec<Config>,
    sets: BTreeMap<String, sets::AddressSet>,
    aliases: BTreeMap<String, Config>,
    groups: BTreeMap<String, groups::SecurityGroup>,
}

/// The key of the firewall that a call is about; the guest need not exist.
fn scope(ctx: &CallContext) -> String {
    match (ctx.node.as_str(), ctx.vmid) {
        ("", _) => "cluster".into(),
        (node, 0) => format!("node/{node}"),
        (_, vmid) => format!("guest/{vmid}"),
    }
}

/// Deletes the firewall of a destroyed guest.
pub(crate) fn forget_guest(state: &mut State, vmid: u32) {
    state.firewalls.remove(&format!("guest/{vmid}"));
}

/// Serves a call below a `firewall` route; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str) -> Option<Outcome> {
    let mut state = ctx.cluster.state();
    if let Some(rest) = rest.strip_prefix("groups") {
        return groups::serve(ctx, &mut state, rest);
    }
    if rest == "refs" && ctx.call.method == "GET" {
        return Some(Ok(Answer::new(sets::references(ctx, &state))));
    }
    let group_exists = |state: &State, name: &str| {
        state.firewalls.get("cluster").is_some_and(|own| own.groups.contains_key(name))
    };
    if let Some(action) =
        ctx.text("action").filter(|_| ctx.text("type").as_deref() == Some("group"))
        && !group_exists(&state, &action)
        && rest.starts_with("rules")
    {
        return Some(Err(groups::unknown_group(&action)));
    }
    let name = scope(ctx);
    let mut empty = Firewall::default();
    // A read does not create a firewall: a client can read those of any number of guests.
    let is_unwritten = ctx.call.method == "GET" && !state.firewalls.contains_key(&name);
    let own = if is_unwritten { &mut empty } else { state.firewalls.entry(name).or_default() };
    let outcome = match (ctx.call.method, rest) {
        ("GET", "options") => Ok(Answer::new(options_with_digest(own))),
        ("PUT", "options") => change_options(ctx, &mut own.options),
        (_, rest) if rest.starts_with("rules") => {
            let rest = rest.strip_prefix("rules").unwrap_or_default();
            return rules::serve(ctx, rest, &mut own.rules);
        }
        (_, rest) if rest.starts_with("ipset") => {
            return sets::serve(ctx, rest, &mut own.sets);
        }
        (_, rest) if rest.starts_with("aliases") => {
            return aliases::serve(ctx, rest, &mut own.aliases);
        }
        _ => return None,
    };
    Some(outcome)
}

fn stored_parameters(ctx: &CallContext, omitted: &[&str]) -> Config {
    let never = ["node", "vmid", "delete", "digest", "pos", "moveto", "name", "rename", "group"];
    let keys = ctx.params().0.keys().filter(|key| !never.contains(&key.as_str()));
    let keys = keys.filter(|key| !omitted.contains(&key.as_str()));
    keys.filter_map(|key| Some((key.clone(), ctx.text(key)?))).collect()
}

/// Changes the options of a firewall. Unknown options cannot be deleted, and the digest must match
/// (pve-firewall, API2/Firewall/Cluster.pm:146, Host.pm:133, VM.pm:141).
fn change_options(ctx: &CallContext, options: &mut Config) -> Outcome {
    check_digest(ctx, &digest_of(options))?;
    let own = ["node", "vmid", "delete", "digest"];
    let is_option = |name: &str| !own.contains(&name) && sections::is_parameter(ctx, name);
    let deleted = sections::deleted_keys(ctx);
    if let Some(name) = deleted.iter().find(|name| !is_option(name)) {
        return Err(ApiError::parameter("delete", format!("no such option '{name}'")));
    }
    options.retain(|key, _| !deleted.contains(key));
    options.extend(stored_parameters(ctx, &[]));
    Ok(Answer::null())
}

/// Refuses a call whose `digest` differs from the present one.
fn check_digest(ctx: &CallContext, digest: &str) -> Result<(), ApiError> {
    match ctx.text("digest") {
        Some(wanted) if wanted != digest => Err(failed(
            "detected modified configuration - file changed by other user? Try again.".into(),
        )),
        _ => Ok(()),
    }
}

/// Fields in the JSON types of answers. The parsers of the files convert to a number what the
/// schema calls a number (pve-firewall, Firewall.pm, parse_*fw_option).
fn json_fields(config: &Config) -> Map<String, Value> {
    let typed =
        |key: &str, value: &str| sections::typed(|path| path.contains("/firewall/"), key, value);
    config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect()
}

fn digest_of(config: &Config) -> String {
    if config.is_empty() { EMPTY_FILE_DIGEST.into() } else { digest(config) }
}

/// The digest of a list; each entry carries the digest of the whole list.
fn digest_of_all<'a>(entries: impl IntoIterator<Item = &'a Config>) -> String {
    let all = entries.into_iter().enumerate().flat_map(|(at, entry)| {
        entry.iter().map(move |(key, value)| (format!("{at:06}.{key}"), value.clone()))
    });
    digest_of(&all.collect())
}

fn options_with_digest(own: &Firewall) -> Value {
    let mut fields = json_fields(&own.options);
    fields.insert("digest".into(), digest_of(&own.options).into());
    fields.into()
}
