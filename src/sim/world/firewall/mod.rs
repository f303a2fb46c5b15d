//! Firewalls as configuration: options, rules in their order, address sets, aliases and groups of
//! rules, of the cluster, of nodes and of guests. Nothing is filtered.
//!
//! Each firewall is one value in the state, made when it is first written; a guest's goes with the
//! guest. Address sets are in `sets`, aliases in `aliases`; a security group is a list of rules in
//! the cluster's firewall, so that `rules` serves both.

mod aliases;
mod groups;
mod rules;
mod sets;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::sections;
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};

/// What an empty file's digest is: guests without a firewall file have it.
const EMPTY: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

/// One firewall.
#[derive(Debug, Default)]
pub struct Firewall {
    options: Config,
    rules: Vec<Config>,
    sets: BTreeMap<String, sets::Set>,
    aliases: BTreeMap<String, Config>,
    groups: BTreeMap<String, groups::Group>,
}

/// Which firewall a call is about; guests need not exist.
fn scope(ask: &Ask) -> String {
    match (ask.node.as_str(), ask.vmid) {
        ("", _) => "cluster".into(),
        (node, 0) => format!("node/{node}"),
        (_, vmid) => format!("guest/{vmid}"),
    }
}

/// Drops the firewall of a guest that was destroyed.
pub fn forget_guest(state: &mut State, vmid: u32) {
    state.firewalls.remove(&format!("guest/{vmid}"));
}

/// Serves a call below a `firewall` route; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let mut state = ask.cluster.state();
    if let Some(rest) = rest.strip_prefix("groups") {
        return groups::serve(ask, &mut state, rest);
    }
    if rest == "refs" && ask.call.method == "GET" {
        return Some(Ok(Answer::new(sets::references(ask, &state))));
    }
    let group = |state: &State, name: &str| {
        state.firewalls.get("cluster").is_some_and(|own| own.groups.contains_key(name))
    };
    if let Some(action) =
        ask.text("action").filter(|_| ask.text("type").as_deref() == Some("group"))
        && !group(&state, &action)
        && rest.starts_with("rules")
    {
        return Some(Err(groups::missing(&action)));
    }
    let name = scope(ask);
    let mut blank = Firewall::default();
    // What is only read is not made: any number of guests can be asked for.
    let is_blank = ask.call.method == "GET" && !state.firewalls.contains_key(&name);
    let own = if is_blank { &mut blank } else { state.firewalls.entry(name).or_default() };
    let outcome = match (ask.call.method, rest) {
        ("GET", "options") => Ok(Answer::new(options(own))),
        ("PUT", "options") => change_options(ask, &mut own.options),
        (_, rest) if rest.starts_with("rules") => {
            let rest = rest.strip_prefix("rules").unwrap_or_default();
            return rules::serve(ask, rest, &mut own.rules);
        }
        (_, rest) if rest.starts_with("ipset") => {
            return sets::serve(ask, rest, &mut own.sets);
        }
        (_, rest) if rest.starts_with("aliases") => {
            return aliases::serve(ask, rest, &mut own.aliases);
        }
        _ => return None,
    };
    Some(outcome)
}

fn stored(ask: &Ask, left_out: &[&str]) -> Config {
    let never = ["node", "vmid", "delete", "digest", "pos", "moveto", "name", "rename", "group"];
    let keys = ask.params().0.keys().filter(|key| !never.contains(&key.as_str()));
    let keys = keys.filter(|key| !left_out.contains(&key.as_str()));
    keys.filter_map(|key| Some((key.clone(), ask.text(key)?))).collect()
}

/// The options of a firewall: an unknown one is not deleted, and a caller that worked on others
/// changes none (pve-firewall, API2/Firewall/Cluster.pm:146, Host.pm:133, VM.pm:141).
fn change_options(ask: &Ask, options: &mut Config) -> Outcome {
    fresh(ask, &digest_of(options))?;
    let own = ["node", "vmid", "delete", "digest"];
    let is_option = |name: &str| !own.contains(&name) && sections::is_parameter(ask, name);
    let deleted = sections::deleted(ask);
    if let Some(name) = deleted.iter().find(|name| !is_option(name)) {
        return Err(ApiError::parameter("delete", format!("no such option '{name}'")));
    }
    options.retain(|key, _| !deleted.contains(key));
    options.extend(stored(ask, &[]));
    Ok(Answer::null())
}

/// Refuses a caller that worked on another version of what has this digest.
fn fresh(ask: &Ask, digest: &str) -> Result<(), ApiError> {
    match ask.text("digest") {
        Some(wanted) if wanted != digest => Err(failed(
            "detected modified configuration - file changed by other user? Try again.".into(),
        )),
        _ => Ok(()),
    }
}

/// Fields as answers carry them: the files' parsers make numbers of what the schema calls one
/// (pve-firewall, Firewall.pm, parse_*fw_option).
fn shown(config: &Config) -> Map<String, Value> {
    let typed =
        |key: &str, value: &str| sections::typed(|path| path.contains("/firewall/"), key, value);
    config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect()
}

fn digest_of(config: &Config) -> String {
    if config.is_empty() { EMPTY.into() } else { digest(config) }
}

/// The digest of a list: each of its entries carries that of the whole.
fn digest_of_all<'a>(entries: impl IntoIterator<Item = &'a Config>) -> String {
    let all = entries.into_iter().enumerate().flat_map(|(at, entry)| {
        entry.iter().map(move |(key, value)| (format!("{at:06}.{key}"), value.clone()))
    });
    digest_of(&all.collect())
}

fn options(own: &Firewall) -> Value {
    let mut fields = shown(&own.options);
    fields.insert("digest".into(), digest_of(&own.options).into());
    fields.into()
}
