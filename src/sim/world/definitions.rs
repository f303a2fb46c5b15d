//! Storages as they are defined in the cluster: read, made, changed and removed.

mod types;

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::content::sees;
use super::sections::{self, typed};
use super::state::State;
use super::storage::Storage;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::StorageSpec;

/// The size of a storage that is made through the API: no call says it [I].
const SIZE: u64 = 1 << 40;

/// Options that are never shown again.
const SECRET: &[&str] = &["password", "encryption-key", "keyring", "master-pubkey"];

/// The digest of the file that has all storages.
fn digest_of(state: &State) -> String {
    let line = |own: &Storage| format!("{:?} {:?}", own.spec, own.options);
    let all = state.storages.iter().map(|(name, own)| (name.clone(), line(own)));
    digest(&all.collect::<Config>())
}

fn definition_of(storage: &Storage, digest: &str) -> Value {
    let spec = &storage.spec;
    let mut entry = json!({
        "storage": spec.name, "type": spec.kind, "content": spec.content.join(","),
        "digest": digest,
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
    let (storages, digest) = {
        let state = ask.cluster.state();
        (state.storages.values().cloned().collect::<Vec<Storage>>(), digest_of(&state))
    };
    let kind = ask.text("type");
    let visible = storages.iter().filter(|storage| sees(ask, &storage.spec.name));
    let wanted = visible.filter(|storage| kind.as_ref().is_none_or(|k| *k == storage.spec.kind));
    let entries: Vec<Value> = wanted.map(|storage| definition_of(storage, &digest)).collect();
    Ok(Answer::new(entries.into()))
}

/// `GET /storage/{storage}`.
pub fn one(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let state = ask.cluster.state();
    let storage = state.storage(&name).map_err(ApiError::failed)?;
    Ok(Answer::new(definition_of(storage, &digest_of(&state))))
}

fn words(text: &str) -> Vec<String> {
    sections::words(text).map(str::to_owned).collect()
}

/// What a call sets.
fn stored(ask: &Ask) -> Config {
    sections::stored(ask, &["storage", "type", "digest", "delete"])
}

/// The options among it that the description of a storage has no field for, and that are shown.
fn options(mut set: Config) -> Config {
    let fields = ["content", "nodes", "disable"];
    set.retain(|key, _| !fields.contains(&key.as_str()) && !SECRET.contains(&key.as_str()));
    set
}

/// The path of a storage that has one, without slashes at its end (pve-storage,
/// Storage/DirPlugin.pm, check_config).
fn sound_path(set: &mut Config) -> Result<(), String> {
    let Some(path) = set.get_mut("path") else { return Ok(()) };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-/_.@".contains(letter);
    if !path.starts_with('/') || path.len() < 2 || !path.chars().all(is_plain) {
        return Err(format!("illegal path for directory storage: {path}"));
    }
    let tidy = path.trim_end_matches('/').to_owned();
    *path = if tidy.is_empty() { "/".into() } else { tidy };
    Ok(())
}

fn answer(name: &str, kind: &str) -> Outcome {
    Ok(Answer::new(json!({ "storage": name, "type": kind })))
}

/// `POST /storage` (pve-storage, API2/Storage/Config.pm, create).
pub fn create(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let kind = ask.text("type").unwrap_or_default();
    let Some(known) = types::of(&kind) else {
        return Err(failed(format!("unknown section type '{kind}'")));
    };
    let mut set = stored(ask);
    if known.mounted {
        set.entry("path".into()).or_insert_with(|| format!("/mnt/pve/{name}"));
    }
    known.keys.check_new(&set).map_err(failed)?;
    sound_path(&mut set).map_err(failed)?;
    ask.quorate()?;
    let mut state = ask.cluster.state();
    if state.storages.contains_key(&name) {
        let text = format!("create storage failed: storage ID '{name}' already defined");
        return Err(failed(text));
    }
    let spec = StorageSpec {
        name: name.clone(),
        kind: kind.clone(),
        content: words(&ask.text("content").unwrap_or_else(|| known.content.to_owned())),
        shared: known.shared || ask.flag("shared"),
        nodes: words(&ask.text("nodes").unwrap_or_default()),
        size_bytes: SIZE,
        disabled: ask.flag("disable"),
    };
    let mut storage = Storage::new(spec);
    storage.options = options(set);
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
    if ask.text("digest").is_some_and(|wanted| wanted != digest_of(&state)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let storage = state.storage_mut(&name).map_err(fail)?;
    let kind = storage.spec.kind.clone();
    let Some(known) = types::of(&kind) else {
        return Err(fail(format!("unknown section type '{kind}'")));
    };
    let set = stored(ask);
    known.keys.check_change(&set).map_err(fail)?;
    let deleted = sections::deleted(ask);
    known.keys.check_delete(&deleted).map_err(fail)?;
    sections::set_apart(ask, &deleted).map_err(fail)?;
    for key in deleted {
        match key.as_str() {
            "content" => storage.spec.content = words(known.content),
            "nodes" => storage.spec.nodes.clear(),
            "disable" => storage.spec.disabled = false,
            "shared" => storage.spec.shared = known.shared,
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
        storage.spec.shared = ask.flag("shared") || known.shared;
    }
    storage.options.extend(options(set));
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
