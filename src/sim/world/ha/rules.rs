//! HA rules (9.x): their checks, and the removal of a guest that is no longer managed
//! (pve-ha-manager, API2/HA/Rules.pm).

use std::collections::BTreeMap;

use super::super::conf::Config;
use super::super::sections::{Keys, list_items};
use super::super::state::State;

/// The keys of a rule (pve-ha-manager, HA/Rules/*Affinity.pm, options).
pub(crate) fn keys(rule: &Config) -> Keys {
    let (required, optional): (&'static [&'static str], &'static [&'static str]) =
        match rule.get("type").map(String::as_str) {
            Some("resource-affinity") => (&["resources", "affinity"], &["disable", "comment"]),
            _ => (&["resources", "nodes"], &["strict", "disable", "comment"]),
        };
    Keys { required, optional, ..Keys::default() }
}

/// Refuses guests that are not managed and nodes that do not exist.
///
/// # Errors
/// The text that follows the prefix of the lock.
pub(crate) fn check_rule(state: &State, set: &Config) -> Result<(), String> {
    let list = |key: &str| set.get(key).map(|text| list_items(text).collect::<Vec<_>>());
    if let Some(resources) = list("resources") {
        if resources.is_empty() {
            return Err("no resources were specified".into());
        }
        let unmanaged = resources.into_iter().filter(|sid| !state.ha.manages(sid));
        let unmanaged: Vec<&str> = unmanaged.collect();
        if !unmanaged.is_empty() {
            return Err(format!("cannot use unmanaged resource(s) {}.", unmanaged.join(", ")));
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

pub(crate) fn names_guest(rule: &Config, sid: &str) -> bool {
    rule.get("resources").is_some_and(|list| list_items(list).any(|own| own == sid))
}

/// Removes a guest from all rules; a rule without guests is deleted (pve-ha-manager, HA/Config.pm,
/// delete_service_from_config).
pub(crate) fn remove_guest(rules: &mut BTreeMap<String, Config>, sid: &str) {
    rules.retain(|_, rule| {
        let Some(list) = rule.get_mut("resources") else { return true };
        let left: Vec<&str> = list_items(list).filter(|own| *own != sid).collect();
        let left = left.join(",");
        *list = left;
        !list.is_empty()
    });
}
