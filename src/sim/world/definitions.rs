//! Storages as they are defined in the cluster: read, made, changed and removed.

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::content::sees;
use super::sections::{self, typed};
use super::storage::Storage;
use crate::sim::call::{Answer, ApiError, Outcome};
use crate::sim::spec::StorageSpec;

/// The size of a storage that is made through the API: no call says it [I].
const SIZE: u64 = 1 << 40;

/// What each type cannot be defined without, and what it holds when nothing is said: `fixed`
/// options and the defaults of `content` (pve-storage, Storage/*Plugin.pm).
const TYPES: &[(&str, &[&str], &str)] = &[
    ("btrfs", &["path"], "images,rootdir"),
    ("cephfs", &[], "backup"),
    ("cifs", &["server", "share"], "images"),
    ("dir", &["path"], "images,rootdir"),
    ("esxi", &["server", "username"], "import"),
    ("iscsi", &["portal", "target"], "images"),
    ("iscsidirect", &["portal", "target"], "images"),
    ("lvm", &["vgname"], "images"),
    ("lvmthin", &["thinpool", "vgname"], "images,rootdir"),
    ("nfs", &["server", "export"], "images"),
    ("pbs", &["server", "datastore"], "backup"),
    ("rbd", &[], "images"),
    ("zfs", &["portal", "target", "pool", "blocksize", "iscsiprovider"], "images"),
    ("zfspool", &["pool"], "images,rootdir"),
];

/// Types whose volumes every node sees.
const SHARED: &[&str] =
    &["cephfs", "cifs", "esxi", "iscsi", "iscsidirect", "nfs", "pbs", "rbd", "zfs"];

/// Options that are never shown again.
const SECRET: &[&str] = &["password", "encryption-key", "keyring", "master-pubkey"];

fn definition_of(ask: &Ask, storage: &Storage) -> Value {
    let state = ask.cluster.state();
    let kinds: Config =
        state.storages.iter().map(|(name, own)| (name.clone(), own.spec.kind.clone())).collect();
    let spec = &storage.spec;
    let mut entry = json!({
        "storage": spec.name, "type": spec.kind, "content": spec.content.join(","),
        "digest": digest(&kinds),
    });
    match spec.kind.as_str() {
        "dir" => entry["path"] = storage.root().into(),
        "nfs" => {
            entry["path"] = storage.root().into();
            entry["server"] = "192.0.2.200".into();
            entry["export"] = format!("/export/{}", spec.name).into();
        }
        "lvmthin" => {
            entry["vgname"] = "pve".into();
            entry["thinpool"] = "data".into();
        }
        "lvm" => entry["vgname"] = "pve".into(),
        "zfspool" | "rbd" => entry["pool"] = spec.name.clone().into(),
        _ if storage.options.is_empty() => entry["pool"] = spec.name.clone().into(),
        _ => {}
    }
    if spec.shared && spec.kind == "lvm" {
        entry["shared"] = 1.into();
    }
    if !spec.nodes.is_empty() {
        entry["nodes"] = spec.nodes.join(",").into();
    }
    if spec.disabled {
        entry["disable"] = 1.into();
    }
    for (key, value) in &storage.options {
        entry[key] = typed(|path| path.starts_with("/storage"), key, value);
    }
    entry
}

/// `GET /storage`.
pub fn list(ask: &Ask) -> Outcome {
    let storages: Vec<Storage> = ask.cluster.state().storages.values().cloned().collect();
    let kind = ask.text("type");
    let visible = storages.iter().filter(|storage| sees(ask, &storage.spec.name));
    let wanted = visible.filter(|storage| kind.as_ref().is_none_or(|k| *k == storage.spec.kind));
    let entries: Vec<Value> = wanted.map(|storage| definition_of(ask, storage)).collect();
    Ok(Answer::new(entries.into()))
}

/// `GET /storage/{storage}`.
pub fn one(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let storage = ask.cluster.state().storage(&name).cloned().map_err(ApiError::failed)?;
    Ok(Answer::new(definition_of(ask, &storage)))
}

fn words(text: &str) -> Vec<String> {
    sections::words(text).map(str::to_owned).collect()
}

/// Options of a call that the description of a storage has no field for.
fn options(ask: &Ask) -> Config {
    let fields = ["storage", "type", "content", "nodes", "disable", "digest", "delete"];
    sections::stored(ask, &[&fields[..], SECRET].concat())
}

fn answer(name: &str, kind: &str) -> Outcome {
    Ok(Answer::new(json!({ "storage": name, "type": kind })))
}

/// `POST /storage` (pve-storage, API2/Storage/Config.pm, create).
pub fn create(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let kind = ask.text("type").unwrap_or_default();
    let Some((_, needed, content)) = TYPES.iter().find(|(known, ..)| *known == kind) else {
        return Err(failed(format!("unknown section type '{kind}'")));
    };
    if let Some(key) = needed.iter().find(|key| !ask.params().0.contains_key(**key)) {
        return Err(failed(format!("missing value for required option '{key}'")));
    }
    ask.quorate()?;
    let mut state = ask.cluster.state();
    if state.storages.contains_key(&name) {
        let text = format!("create storage failed: storage ID '{name}' already defined");
        return Err(failed(text));
    }
    let spec = StorageSpec {
        name: name.clone(),
        kind: kind.clone(),
        content: words(&ask.text("content").unwrap_or_else(|| (*content).to_owned())),
        shared: SHARED.contains(&kind.as_str()) || ask.flag("shared"),
        nodes: words(&ask.text("nodes").unwrap_or_default()),
        size_bytes: SIZE,
        disabled: ask.flag("disable"),
    };
    let mut storage = Storage::new(spec);
    storage.options = options(ask);
    state.storages.insert(name.clone(), storage);
    drop(state);
    answer(&name, &kind)
}

/// `PUT /storage/{storage}`.
pub fn change(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    ask.quorate()?;
    let fail = |text: String| failed(format!("update storage failed: {text}"));
    let mut state = ask.cluster.state();
    let storage = state.storage_mut(&name).map_err(fail)?;
    let kind = storage.spec.kind.clone();
    let known = TYPES.iter().find(|(known, ..)| *known == kind);
    let (needed, content) = known.map_or((&[][..], ""), |found| (found.1, found.2));
    let own = ["storage", "type", "digest", "delete"];
    let deleted = sections::deleted(ask, &own, needed).map_err(fail)?;
    sections::set_apart(ask, &deleted).map_err(fail)?;
    for key in deleted {
        match key.as_str() {
            "content" => storage.spec.content = words(content),
            "nodes" => storage.spec.nodes.clear(),
            "disable" => storage.spec.disabled = false,
            "shared" => storage.spec.shared = SHARED.contains(&kind.as_str()),
            _ => {}
        }
        storage.options.remove(&key);
    }
    if let Some(content) = ask.text("content") {
        storage.spec.content = words(&content);
    }
    if let Some(nodes) = ask.text("nodes") {
        storage.spec.nodes = words(&nodes);
    }
    if ask.params().0.contains_key("disable") {
        storage.spec.disabled = ask.flag("disable");
    }
    if ask.params().0.contains_key("shared") {
        storage.spec.shared = ask.flag("shared") || SHARED.contains(&kind.as_str());
    }
    let set = options(ask);
    storage.options.extend(set);
    drop(state);
    answer(&name, &kind)
}

/// `DELETE /storage/{storage}`: volumes on it are no longer seen.
pub fn remove(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    ask.quorate()?;
    let mut state = ask.cluster.state();
    match state.storages.remove(&name) {
        Some(_) => Ok(Answer::null()),
        None => Err(failed(format!("delete storage failed: storage '{name}' does not exist"))),
    }
}
