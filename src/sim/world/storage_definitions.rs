//! Storage definitions of the cluster: read, create, change and delete.

mod types;

use serde_json::{Value, json};

use super::conf::{Config, digest};
use super::context::{CallContext, failed};
use super::sections::{self, typed};
use super::state::State;
use super::storage::Storage;
use super::storage_content::may_see_storage;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::StorageSpec;

/// The size of a storage that is created through the API, since no call contains it [I].
const DEFAULT_SIZE_BYTES: u64 = 1 << 40;

/// Options that answers never show.
const SECRET_KEYS: &[&str] = &["password", "encryption-key", "keyring", "master-pubkey"];

/// The digest of the file with all storages.
fn digest_of(state: &State) -> String {
    let line = |own: &Storage| format!("{:?} {:?}", own.spec, own.options);
    let all = state.storages.iter().map(|(name, own)| (name.clone(), line(own)));
    digest(&all.collect::<Config>())
}

fn definition(storage: &Storage, digest: &str) -> Value {
    let spec = &storage.spec;
    let mut entry = json!({
        "storage": spec.name, "type": spec.kind, "content": spec.content.join(","),
        "digest": digest,
    });
    match spec.kind.as_str() {
        "dir" => entry["path"] = storage.root_dir().into(),
        "nfs" => {
            entry["path"] = storage.root_dir().into();
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
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let (storages, digest) = {
        let state = ctx.cluster.state();
        (state.storages.values().cloned().collect::<Vec<Storage>>(), digest_of(&state))
    };
    let kind = ctx.text("type");
    let visible = storages.iter().filter(|storage| may_see_storage(ctx, &storage.spec.name));
    let wanted = visible.filter(|storage| kind.as_ref().is_none_or(|k| *k == storage.spec.kind));
    let entries: Vec<Value> = wanted.map(|storage| definition(storage, &digest)).collect();
    Ok(Answer::new(entries.into()))
}

/// `GET /storage/{storage}`.
pub(crate) fn get(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let state = ctx.cluster.state();
    let storage = state.storage(&name).map_err(ApiError::failed)?;
    Ok(Answer::new(definition(storage, &digest_of(&state))))
}

fn list_items(text: &str) -> Vec<String> {
    sections::list_items(text).map(str::to_owned).collect()
}

/// The options that a call sets.
fn set_parameters(ctx: &CallContext) -> Config {
    sections::stored_parameters(ctx, &["storage", "type", "digest", "delete"])
}

/// The options that answers show and for which the spec has no field.
fn shown_options(mut set: Config) -> Config {
    let fields = ["content", "nodes", "disable"];
    set.retain(|key, _| !fields.contains(&key.as_str()) && !SECRET_KEYS.contains(&key.as_str()));
    set
}

/// Checks the path of a storage and removes trailing slashes (pve-storage, Storage/DirPlugin.pm,
/// check_config).
fn check_path(set: &mut Config) -> Result<(), String> {
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
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let kind = ctx.text("type").unwrap_or_default();
    let Some(storage_type) = types::find(&kind) else {
        return Err(failed(format!("unknown section type '{kind}'")));
    };
    let mut set = set_parameters(ctx);
    if storage_type.mounted {
        set.entry("path".into()).or_insert_with(|| format!("/mnt/pve/{name}"));
    }
    storage_type.keys.check_new(&set).map_err(failed)?;
    check_path(&mut set).map_err(failed)?;
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    if state.storages.contains_key(&name) {
        let text = format!("create storage failed: storage ID '{name}' already defined");
        return Err(failed(text));
    }
    let spec = StorageSpec {
        name: name.clone(),
        kind: kind.clone(),
        content: list_items(
            &ctx.text("content").unwrap_or_else(|| storage_type.content.to_owned()),
        ),
        shared: storage_type.shared || ctx.flag("shared"),
        nodes: list_items(&ctx.text("nodes").unwrap_or_default()),
        size_bytes: DEFAULT_SIZE_BYTES,
        disabled: ctx.flag("disable"),
    };
    let mut storage = Storage::new(spec);
    storage.options = shown_options(set);
    state.storages.insert(name.clone(), storage);
    drop(state);
    answer(&name, &kind)
}

/// `PUT /storage/{storage}`.
pub(crate) fn change(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    ctx.require_quorum()?;
    let fail = |text: String| failed(format!("update storage failed: {text}"));
    let mut state = ctx.cluster.state();
    if ctx.text("digest").is_some_and(|wanted| wanted != digest_of(&state)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let storage = state.storage_mut(&name).map_err(fail)?;
    let kind = storage.spec.kind.clone();
    let Some(storage_type) = types::find(&kind) else {
        return Err(fail(format!("unknown section type '{kind}'")));
    };
    let set = set_parameters(ctx);
    storage_type.keys.check_change(&set).map_err(fail)?;
    let deleted = sections::deleted_keys(ctx);
    storage_type.keys.check_delete(&deleted).map_err(fail)?;
    sections::check_set_and_delete(ctx, &deleted).map_err(fail)?;
    for key in deleted {
        match key.as_str() {
            "content" => storage.spec.content = list_items(storage_type.content),
            "nodes" => storage.spec.nodes.clear(),
            "disable" => storage.spec.disabled = false,
            "shared" => storage.spec.shared = storage_type.shared,
            _ => {}
        }
        storage.options.remove(&key);
    }
    if let Some(content) = ctx.text("content") {
        storage.spec.content = list_items(&content);
    }
    if let Some(nodes) = ctx.text("nodes") {
        storage.spec.nodes = list_items(&nodes);
    }
    if ctx.params().0.contains_key("disable") {
        storage.spec.disabled = ctx.flag("disable");
    }
    if ctx.params().0.contains_key("shared") {
        storage.spec.shared = ctx.flag("shared") || storage_type.shared;
    }
    storage.options.extend(shown_options(set));
    drop(state);
    answer(&name, &kind)
}

/// `DELETE /storage/{storage}`: its volumes disappear from all lists.
pub(crate) fn remove(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    match state.storages.remove(&name) {
        Some(_) => Ok(Answer::null()),
        None => Err(failed(format!("delete storage failed: storage '{name}' does not exist"))),
    }
}
