//! Resource mappings: cluster-wide names for devices and directories, with one entry per node
//! (pve-manager, API2/Cluster/Mapping/*.pm). The check knows the devices that `node_info` lists; it
//! accepts every directory.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::conf::{Config, digest, numbered};
use super::context::{CallContext, failed};
use super::node_info;
use super::sections::{self, Keys};
use super::state::State;
use crate::api;
use crate::call::{Answer, Outcome};

/// The mappings by kind and id.
#[derive(Debug, Default)]
pub(crate) struct Mappings(BTreeMap<&'static str, BTreeMap<String, Config>>);

impl Mappings {
    /// The paths of a mapping's devices on a node, or why a VM that names it does not start.
    pub(crate) fn paths(&self, kind: &str, id: &str, node: &str) -> Result<Vec<String>, String> {
        let what = kind.to_uppercase();
        let config = self.0.get(kind).and_then(|all| all.get(id));
        let parts = config.map(|config| parts(kind, config)).unwrap_or_default();
        let own: Vec<Value> = parts.into_iter().filter(|part| part["node"] == node).collect();
        if own.is_empty() {
            return Err(format!("{what} device mapping not found for '{id}'"));
        }
        // The simulated nodes list no USB devices to compare with.
        let fault =
            own.iter().filter(|_| kind == "pci").find_map(|one| invalid_reason(kind, id, one));
        if let Some(fault) = fault {
            return Err(format!(
                "{what} device mapping invalid (hardware probably changed): {fault}"
            ));
        }
        Ok(own.iter().map(|one| one["path"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

/// The kind and the mapping that the setting of a VM's device names.
pub(crate) fn named<'a>(key: &str, value: &'a str) -> Option<(&'static str, &'a str)> {
    let kinds = [("hostpci", "pci"), ("usb", "usb")];
    let (_, kind) = kinds.into_iter().find(|(stem, _)| numbered(key, stem).is_some())?;
    let id = value.split(',').find_map(|part| part.strip_prefix("mapping="))?;
    Some((kind, id))
}

const KINDS: [&str; 3] = ["dir", "pci", "usb"];
/// Each of these privileges lets a caller see a mapping.
const VIEW_PRIVILEGES: [&str; 3] = ["Mapping.Modify", "Mapping.Use", "Mapping.Audit"];

fn keys(kind: &str) -> Keys {
    let more: &'static [&'static str] =
        if kind == "pci" { &["live-migration-capable", "mdev"] } else { &[] };
    Keys { required: &["map"], optional: &["description"], more, fixed: &[] }
}

/// The prefix of an error that occurs under the lock of the file.
fn error_prefix(kind: &str, verb: &str) -> String {
    let what = if kind == "dir" { "directory" } else { "hardware" };
    format!("{verb} {what} mapping failed")
}

/// Serves a call below `/cluster/mapping`; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str) -> Option<Outcome> {
    let (kind, is_one) = match rest.strip_suffix("/{id}") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let kind = KINDS.into_iter().find(|own| kind.strip_prefix('/') == Some(*own))?;
    Some(match (ctx.call.method, is_one) {
        ("GET", false) => list(ctx, kind),
        ("POST", false) => create(ctx, kind),
        ("GET", true) => get(ctx, kind),
        ("PUT", true) => change(ctx, kind),
        ("DELETE", true) => remove(ctx, kind),
        _ => return None,
    })
}

fn mappings_mut<'a>(state: &'a mut State, kind: &'static str) -> &'a mut BTreeMap<String, Config> {
    state.mappings.0.entry(kind).or_default()
}

/// The digest of the file with all mappings of a kind.
fn digest_of(all: &BTreeMap<String, Config>) -> String {
    let lines = all.iter().map(|(id, config)| (id.clone(), format!("{config:?}")));
    digest(&lines.collect::<Config>())
}

fn mapping_entry(kind: &str, config: &Config, digest: &str) -> Map<String, Value> {
    let route = format!("/cluster/mapping/{kind}");
    let typed = |key: &str, text: &str| sections::typed(|path| path == route, key, text);
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, text)| (key.clone(), typed(key, text))).collect();
    entry.insert("type".into(), kind.into());
    entry.insert("digest".into(), digest.into());
    entry
}

fn list(ctx: &CallContext, kind: &'static str) -> Outcome {
    let mut state = ctx.cluster.state();
    let node = match ctx.text("check-node") {
        Some(node) if node == "localhost" => Some(ctx.call.received_by.clone()),
        Some(node) if !state.nodes.contains_key(&node) => {
            return Err(failed(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: \
                 Name or service not known"
            )));
        }
        node => node,
    };
    let all: &BTreeMap<String, Config> = mappings_mut(&mut state, kind);
    let digest = digest_of(all);
    let mut lines: Vec<Value> = Vec::new();
    for (id, config) in all {
        let path = format!("/mapping/{kind}/{id}");
        if !VIEW_PRIVILEGES.iter().any(|privilege| ctx.has(&path, privilege)) {
            continue;
        }
        let mut entry = mapping_entry(kind, config, &digest);
        entry.insert("id".into(), id.clone().into());
        if let Some(node) = &node {
            let name = if kind == "usb" { "errors" } else { "checks" };
            entry.insert(name.into(), check_messages(kind, id, config, node).into());
        }
        lines.push(entry.into());
    }
    Ok(Answer::new(lines.into()))
}

/// The entries of a mapping as objects.
fn parts(kind: &str, config: &Config) -> Vec<Value> {
    let format = format!("{kind}-map");
    let items = config.get("map").map(String::as_str).unwrap_or_default().lines();
    items.map(|item| api::property_string_object(&format, item)).collect()
}

/// The problems of a mapping on a node.
fn check_messages(kind: &str, id: &str, config: &Config, node: &str) -> Vec<Value> {
    let own: Vec<Value> =
        parts(kind, config).into_iter().filter(|part| part["node"] == node).collect();
    if own.is_empty() {
        let text = format!("No mapping for node {node}.");
        return vec![json!({ "severity": "warning", "message": text })];
    }
    let faults = own.iter().filter_map(|part| invalid_reason(kind, id, part));
    let line = |fault: String| {
        let text = format!("Invalid configuration: {fault}\n");
        json!({ "severity": "error", "message": text })
    };
    faults.map(line).collect()
}

/// Why an entry does not fit its node (pve-guest-common, Mapping/*.pm, assert_valid).
fn invalid_reason(kind: &str, id: &str, part: &Value) -> Option<String> {
    let text = |key: &str| part[key].as_str().unwrap_or_default();
    match kind {
        "pci" => text("path").split(';').find_map(|path| {
            let with_function = path.contains('.').then(|| path.to_owned());
            let path = with_function.unwrap_or_else(|| format!("{path}.0"));
            match node_info::pci_id(&path) {
                None => Some(format!("pci device '{path}' not found")),
                Some(found) if found != text("id") => {
                    Some(format!("'id' does not match for '{id}' ({found} != {})", text("id")))
                }
                Some(_) => None,
            }
        }),
        "usb" => {
            let place = if text("path").is_empty() { text("id") } else { text("path") };
            Some(format!("usb device '{place}' not found"))
        }
        _ => None,
    }
}

fn get(ctx: &CallContext, kind: &'static str) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let mut state = ctx.cluster.state();
    let all = mappings_mut(&mut state, kind);
    match all.get(&id) {
        Some(config) => Ok(Answer::new(mapping_entry(kind, config, &digest_of(all)).into())),
        None => Err(failed(format!("mapping '{id}' not found"))),
    }
}

/// Refuses a directory mapping with two entries for a node (pve-guest-common, Mapping/Dir.pm,
/// assert_valid_map_list).
fn check_one_per_node(kind: &str, set: &Config) -> Result<(), String> {
    let all = parts(kind, set);
    let mut seen = BTreeSet::new();
    for part in all.iter().filter(|_| kind == "dir") {
        let node = part["node"].as_str().unwrap_or_default();
        if !seen.insert(node) {
            let count = all.iter().filter(|part| part["node"] == node).count();
            return Err(format!("Node '{node}' is specified {count} times."));
        }
    }
    Ok(())
}

fn create(ctx: &CallContext, kind: &'static str) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let set = sections::stored_parameters(ctx, &["id"]);
    keys(kind).check_new(&set).map_err(failed)?;
    check_one_per_node(kind, &set).map_err(failed)?;
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let all = mappings_mut(&mut state, kind);
    if all.contains_key(&id) {
        let what = error_prefix(kind, "create");
        return Err(failed(format!("{what}: {kind} ID '{id}' already defined")));
    }
    all.insert(id, set);
    Ok(Answer::null())
}

fn change(ctx: &CallContext, kind: &'static str) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let set = sections::stored_parameters(ctx, &["id", "digest", "delete"]);
    let what = error_prefix(kind, "update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let all = mappings_mut(&mut state, kind);
    if ctx.text("digest").is_some_and(|wanted| wanted != digest_of(all)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let Some(config) = all.get_mut(&id) else {
        return Err(fail(format!("{kind} ID '{id}' does not exist")));
    };
    // A change sends the whole map, so it is checked like a new mapping.
    keys(kind).check_new(&set).map_err(fail)?;
    check_one_per_node(kind, &set).map_err(fail)?;
    let deleted = sections::deleted_keys(ctx);
    keys(kind).check_delete(&deleted).map_err(fail)?;
    sections::check_set_and_delete(ctx, &deleted).map_err(fail)?;
    config.retain(|key, _| !deleted.contains(key));
    config.extend(set);
    Ok(Answer::null())
}

/// Deletes a mapping; deleting a missing one is no error.
fn remove(ctx: &CallContext, kind: &'static str) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    ctx.require_quorum()?;
    mappings_mut(&mut ctx.cluster.state(), kind).remove(&id);
    Ok(Answer::null())
}
