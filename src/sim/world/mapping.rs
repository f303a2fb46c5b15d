//! Mappings of the cluster: names for devices and directories, of which each node has its own
//! (pve-manager, API2/Cluster/Mapping/*.pm). A check finds the devices that `machine` lists, and no
//! others; of directories nothing is known, so that every one is taken for there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::machine;
use super::sections::{self, Keys};
use super::state::State;
use crate::api;
use crate::call::{Answer, Outcome};

/// The mappings, by what they map and their ids.
#[derive(Debug, Default)]
pub struct Mappings(BTreeMap<&'static str, BTreeMap<String, Config>>);

/// What is mapped.
const KINDS: [&str; 3] = ["dir", "pci", "usb"];
/// One of these lets a caller see a mapping.
const SEE: [&str; 3] = ["Mapping.Modify", "Mapping.Use", "Mapping.Audit"];

fn keys(kind: &str) -> Keys {
    let more: &'static [&'static str] =
        if kind == "pci" { &["live-migration-capable", "mdev"] } else { &[] };
    Keys { required: &["map"], optional: &["description"], more, fixed: &[] }
}

/// What is said of a write that fails under the lock.
fn failing(kind: &str, verb: &str) -> String {
    let what = if kind == "dir" { "directory" } else { "hardware" };
    format!("{verb} {what} mapping failed")
}

/// Serves a call below `/cluster/mapping`; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let (kind, is_one) = match rest.strip_suffix("/{id}") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let kind = KINDS.into_iter().find(|own| kind.strip_prefix('/') == Some(*own))?;
    Some(match (ask.call.method, is_one) {
        ("GET", false) => list(ask, kind),
        ("POST", false) => create(ask, kind),
        ("GET", true) => one(ask, kind),
        ("PUT", true) => change(ask, kind),
        ("DELETE", true) => remove(ask, kind),
        _ => return None,
    })
}

fn sections_of<'a>(state: &'a mut State, kind: &'static str) -> &'a mut BTreeMap<String, Config> {
    state.mappings.0.entry(kind).or_default()
}

/// The digest of the file that has all mappings of a kind.
fn digest_of(all: &BTreeMap<String, Config>) -> String {
    let lines = all.iter().map(|(id, config)| (id.clone(), format!("{config:?}")));
    digest(&lines.collect::<Config>())
}

fn line(kind: &str, config: &Config, digest: &str) -> Map<String, Value> {
    let route = format!("/cluster/mapping/{kind}");
    let typed = |key: &str, text: &str| sections::typed(|path| path == route, key, text);
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, text)| (key.clone(), typed(key, text))).collect();
    entry.insert("type".into(), kind.into());
    entry.insert("digest".into(), digest.into());
    entry
}

fn list(ask: &Ask, kind: &'static str) -> Outcome {
    let mut state = ask.cluster.state();
    let node = match ask.text("check-node") {
        Some(node) if node == "localhost" => Some(ask.call.received_by.clone()),
        Some(node) if !state.nodes.contains_key(&node) => {
            return Err(failed(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: \
                 Name or service not known"
            )));
        }
        node => node,
    };
    let all: &BTreeMap<String, Config> = sections_of(&mut state, kind);
    let digest = digest_of(all);
    let mut lines: Vec<Value> = Vec::new();
    for (id, config) in all {
        let path = format!("/mapping/{kind}/{id}");
        if !SEE.iter().any(|privilege| ask.has(&path, privilege)) {
            continue;
        }
        let mut entry = line(kind, config, &digest);
        entry.insert("id".into(), id.clone().into());
        if let Some(node) = &node {
            let name = if kind == "usb" { "errors" } else { "checks" };
            entry.insert(name.into(), checks(kind, id, config, node).into());
        }
        lines.push(entry.into());
    }
    Ok(Answer::new(lines.into()))
}

/// The parts of a mapping, each as an object.
fn parts(kind: &str, config: &Config) -> Vec<Value> {
    let format = format!("{kind}-map");
    let items = config.get("map").map(String::as_str).unwrap_or_default().lines();
    items.map(|item| api::property_string_object(&format, item)).collect()
}

/// What is amiss with a mapping on a node.
fn checks(kind: &str, id: &str, config: &Config, node: &str) -> Vec<Value> {
    let own: Vec<Value> =
        parts(kind, config).into_iter().filter(|part| part["node"] == node).collect();
    if own.is_empty() {
        let text = format!("No mapping for node {node}.");
        return vec![json!({ "severity": "warning", "message": text })];
    }
    let faults = own.iter().filter_map(|part| fault(kind, id, part));
    let line = |fault: String| {
        let text = format!("Invalid configuration: {fault}\n");
        json!({ "severity": "error", "message": text })
    };
    faults.map(line).collect()
}

/// Why a part of a mapping does not fit its node (pve-guest-common, Mapping/*.pm, assert_valid).
fn fault(kind: &str, id: &str, part: &Value) -> Option<String> {
    let text = |key: &str| part[key].as_str().unwrap_or_default();
    match kind {
        "pci" => text("path").split(';').find_map(|path| {
            let whole = path.contains('.').then(|| path.to_owned());
            let path = whole.unwrap_or_else(|| format!("{path}.0"));
            match machine::pci_id(&path) {
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

fn one(ask: &Ask, kind: &'static str) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    let mut state = ask.cluster.state();
    let all = sections_of(&mut state, kind);
    match all.get(&id) {
        Some(config) => Ok(Answer::new(line(kind, config, &digest_of(all)).into())),
        None => Err(failed(format!("mapping '{id}' not found"))),
    }
}

/// Refuses a directory that a node has twice (pve-guest-common, Mapping/Dir.pm,
/// assert_valid_map_list).
fn once_each(kind: &str, set: &Config) -> Result<(), String> {
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

fn create(ask: &Ask, kind: &'static str) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    let set = sections::stored(ask, &["id"]);
    keys(kind).check_new(&set).map_err(failed)?;
    once_each(kind, &set).map_err(failed)?;
    ask.quorate()?;
    let mut state = ask.cluster.state();
    let all = sections_of(&mut state, kind);
    if all.contains_key(&id) {
        let what = failing(kind, "create");
        return Err(failed(format!("{what}: {kind} ID '{id}' already defined")));
    }
    all.insert(id, set);
    Ok(Answer::null())
}

fn change(ask: &Ask, kind: &'static str) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    let set = sections::stored(ask, &["id", "digest", "delete"]);
    let what = failing(kind, "update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    ask.quorate()?;
    let mut state = ask.cluster.state();
    let all = sections_of(&mut state, kind);
    if ask.text("digest").is_some_and(|wanted| wanted != digest_of(all)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let Some(config) = all.get_mut(&id) else {
        return Err(fail(format!("{kind} ID '{id}' does not exist")));
    };
    // A change is checked as if it were new: it says the whole map.
    keys(kind).check_new(&set).map_err(fail)?;
    once_each(kind, &set).map_err(fail)?;
    let deleted = sections::deleted(ask);
    keys(kind).check_delete(&deleted).map_err(fail)?;
    sections::set_apart(ask, &deleted).map_err(fail)?;
    config.retain(|key, _| !deleted.contains(key));
    config.extend(set);
    Ok(Answer::null())
}

/// Removes a mapping; one that is not there is none to complain of.
fn remove(ask: &Ask, kind: &'static str) -> Outcome {
    let id = ask.text("id").unwrap_or_default();
    ask.quorate()?;
    sections_of(&mut ask.cluster.state(), kind).remove(&id);
    Ok(Answer::null())
}
