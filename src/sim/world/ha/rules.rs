//! Rules of high availability (9.x): what one must say, and what becomes of those that name a
//! guest which is not managed any more (pve-ha-manager, API2/HA/Rules.pm).

use std::collections::BTreeMap;

use super::super::conf::Config;
use super::super::sections::{Keys, words};
use super::super::state::State;

/// The keys of a rule (pve-ha-manager, HA/Rules/*Affinity.pm, options).
pub fn keys(rule: &Config) -> Keys {
    let (required, optional): (&'static [&'static str], &'static [&'static str]) =
        match rule.get("type").map(String::as_str) {
            Some("resource-affinity") => (&["resources", "affinity"], &["disable", "comment"]),
            _ => (&["resources", "nodes"], &["strict", "disable", "comment"]),
        };
    Keys { required, optional, ..Keys::default() }
}

/// Refuses guests that are not managed, and nodes that are not there.
///
/// # Errors
/// The text after that of the lock.
pub fn sound(state: &State, set: &Config) -> Result<(), String> {
    let list = |key: &str| set.get(key).map(|text| words(text).collect::<Vec<_>>());
    if let Some(resources) = list("resources") {
        if resources.is_empty() {
            return Err("no resources were specified".into());
        }
        let strange = resources.into_iter().filter(|sid| !state.ha.manages(sid));
        let strange: Vec<&str> = strange.collect();
        if !strange.is_empty() {
            return Err(format!("cannot use unmanaged resource(s) {}.", strange.join(", ")));
        }
    }
    if let Some(nodes) = list("nodes") {
        if nodes.is_empty() {
            return Err("no nodes were specified".into());
        }
        // A node may have a priority: `pve1:2`.
        let names = nodes.into_iter().map(|node| node.split(':').next().unwrap_or(node));
        let missing: Vec<&str> = names.filter(|name| !state.nodes.contains_key(*name)).collect();
        if !missing.is_empty() {
            return Err(format!("cannot use non-existent node(s) {}.", missing.join(", ")));
        }
    }
    Ok(())
}

/// Whether a rule is about a guest.
pub fn names(rule: &Config, sid: &str) -> bool {
    rule.get("resources").is_some_and(|list| words(list).any(|own| own == sid))
}

/// Takes a guest out of all rules; a rule about no other goes (pve-ha-manager, HA/Config.pm,
/// delete_service_from_config).
pub fn purge(rules: &mut BTreeMap<String, Config>, sid: &str) {
    rules.retain(|_, rule| {
        let Some(list) = rule.get_mut("resources") else { return true };
        let left: Vec<&str> = words(list).filter(|own| *own != sid).collect();
        let left = left.join(",");
        *list = left;
        !list.is_empty()
    });
}
