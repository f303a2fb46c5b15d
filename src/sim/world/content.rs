//! Storages as the API shows them on a node: status, and the volumes on them.

use serde_json::{Value, json};

use super::archive::{self, Archive};
use super::ask::Ask;
use super::checks::content_of;
use super::conf::parse_size;
use super::storage::{Storage, Volume, owner_in_name};
use crate::call::{Answer, ApiError, Outcome};

const SEE: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];

/// Whether the caller may know of a storage.
pub(super) fn sees(ask: &Ask, storage: &str) -> bool {
    let path = format!("/storage/{storage}");
    SEE.iter().any(|privilege| ask.has(&path, privilege))
}

fn figures(storage: &Storage, node: &str) -> Value {
    let (total, used) = (storage.spec.size_bytes, storage.used(node));
    let enabled = !storage.spec.disabled;
    let active = enabled && storage.reachable;
    let shown = |bytes: u64| if active { bytes } else { 0 };
    json!({
        "type": storage.spec.kind, "content": storage.spec.content.join(","),
        "shared": u8::from(storage.spec.shared), "enabled": u8::from(enabled),
        "active": u8::from(active),
        "total": shown(total), "used": shown(used), "avail": shown(total - used),
    })
}

/// `GET /nodes/{node}/storage`.
pub fn storages(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let one = ask.text("storage");
    let no_such = |name: &String| state.storages.get(name).is_none_or(|s| !s.on(&ask.node));
    if one.as_ref().is_some_and(no_such) {
        return Err(ApiError::parameter("storage", "No such storage."));
    }
    let contents = ask.text("content");
    let target = ask.text("target").filter(|target| *target != ask.node);
    let mut entries = Vec::new();
    for (name, storage) in &state.storages {
        let takes = contents
            .as_ref()
            .is_none_or(|list| list.split([',', ';', ' ']).any(|content| storage.takes(content)));
        let reaches = target.as_ref().is_none_or(|node| storage.spec.shared && storage.on(node));
        let asked = one.as_ref().is_none_or(|one| one == name)
            && !(ask.flag("enabled") && storage.spec.disabled);
        if !(storage.on(&ask.node) && takes && reaches && asked && sees(ask, name)) {
            continue;
        }
        let mut entry = figures(storage, &ask.node);
        entry["storage"] = name.clone().into();
        let share = storage.used(&ask.node) as f64 / storage.spec.size_bytes.max(1) as f64;
        entry["used_fraction"] = share.into();
        entries.push(entry);
    }
    Ok(Answer::new(entries.into()))
}

/// `GET /nodes/{node}/storage/{storage}/status`.
pub fn status(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let state = ask.cluster.state();
    match state.storages.get(&name).filter(|storage| storage.on(&ask.node)) {
        Some(storage) => Ok(Answer::new(figures(storage, &ask.node))),
        None => Err(ApiError::parameter("storage", "No such storage.")),
    }
}

/// `GET /nodes/{node}/storage/{storage}/content`.
pub fn list(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let state = ask.cluster.state();
    let storage = state.storage(&name).map_err(ApiError::failed)?;
    let vmid = ask.id("vmid");
    let content = ask.text("content");
    let mut entries = Vec::new();
    for (volid, volume) in storage.volumes(&ask.node) {
        // Only what can have an owner is chosen by it (pve-storage, Storage/Plugin.pm, list_volumes).
        let ownerless = matches!(volume.content.as_str(), "iso" | "vztmpl" | "snippets" | "import");
        let asked = vmid.is_none_or(|vmid| ownerless || volume.vmid == Some(vmid))
            && content.as_ref().is_none_or(|content| *content == volume.content);
        if asked && may_see(ask, &name, volid, volume) {
            entries.push(line(storage, &ask.node, volid, volume));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// What a guest owns shows only to those who may change its disks or back it up, snippets to nobody
/// but those who may do all on the storage; so does each volume to them.
fn may_see(ask: &Ask, storage: &str, volid: &str, volume: &Volume) -> bool {
    let path = format!("/storage/{storage}");
    if ask.has(&path, "Datastore.Allocate") {
        return true;
    }
    let owner = volume.vmid.or_else(|| owner_in_name(volid));
    let of_owner =
        |privilege| owner.is_some_and(|vmid| ask.has(&format!("/vms/{vmid}"), privilege));
    match volume.content.as_str() {
        "images" | "rootdir" => ask.has(&path, "Datastore.Audit") && of_owner("VM.Config.Disk"),
        "backup" => ask.has(&path, "Datastore.AllocateSpace") && of_owner("VM.Backup"),
        "snippets" => false,
        _ => true,
    }
}

fn line(storage: &Storage, node: &str, volid: &str, volume: &Volume) -> Value {
    let file = storage.file(node, volid);
    let mut entry = json!({
        "volid": volid, "content": volume.content, "format": volume.format, "size": volume.size,
        "ctime": volume.ctime,
    });
    if let Some(vmid) = volume.vmid {
        entry["vmid"] = vmid.into();
    }
    if let Some((kind, _)) = archive::owner(volid).filter(|_| volume.content == "backup") {
        entry["subtype"] = kind.into();
        if let Some(notes) = file.and_then(Archive::of).and_then(|archive| archive.notes) {
            entry["notes"] = notes.into();
        }
    }
    if volume.content == "images" && storage.is_files() {
        entry["used"] = storage.occupied(volume).into();
        let base = volume.base.as_deref().and_then(|base| base.split_once(':'));
        entry["parent"] = base.map(|(_, inner)| format!("../{inner}")).into();
    } else if let Some(base) = &volume.base {
        entry["parent"] = base.clone().into();
    }
    entry
}

/// The volume of a call: an id, or a name on the call's storage.
fn volid(ask: &Ask) -> String {
    let volume = ask.text("volume").unwrap_or_default();
    if volume.contains(':') {
        return volume;
    }
    format!("{}:{volume}", ask.text("storage").unwrap_or_default())
}

/// `GET …/content/{volume}`.
pub fn volume(ask: &Ask) -> Outcome {
    let volid = volid(ask);
    let state = ask.cluster.state();
    let storage = state.storage_of(&volid).map_err(ApiError::failed)?;
    let Some(volume) = storage.volume(&ask.node, &volid) else {
        return Err(ApiError::failed(format!("volume_size_info on '{volid}' failed - no format")));
    };
    let format = if content_of(&volid) == "images" { volume.format.as_str() } else { "raw" };
    Ok(Answer::new(json!({
        "path": storage.path(&volid), "size": volume.size, "used": storage.occupied(volume),
        "format": format,
    })))
}

/// `POST …/content`: makes a volume of a given name.
pub async fn allocate(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let filename = ask.text("filename").unwrap_or_default();
    let vmid = ask.vmid;
    let size = match ask.params().int("size") {
        // A bare number is kibibytes here.
        Some(kib) => u64::try_from(kib).unwrap_or(0) << 10,
        None => {
            let text = ask.text("size").unwrap_or_default();
            let unit = if text.ends_with(|c: char| c.is_ascii_digit()) { "K" } else { "" };
            parse_size(&format!("{text}{unit}")).unwrap_or(0)
        }
    };
    let format = ask.text("format");
    let spread = ask.cluster.latency.allocate;
    let made = ask.cluster.in_storage(&ask.node, &name, None, spread, |state| {
        let now = state.clock.unix();
        let storage = state.storage_mut(&name)?;
        let (volid, format) = named(storage, vmid, &filename, format.as_deref())?;
        if storage.volume(&ask.node, &volid).is_some() {
            return Err(format!("disk image '{}' already exists", storage.path(&volid)));
        }
        storage.put(
            &ask.node,
            &volid,
            Volume {
                size,
                vmid: Some(vmid),
                format,
                content: "images".into(),
                ctime: now,
                base: None,
                stuck: None,
                snapshots: std::collections::BTreeSet::new(),
            },
        );
        Ok(volid)
    });
    Ok(Answer::new(made.await.map_err(ApiError::failed)?.into()))
}

fn named(
    storage: &Storage,
    vmid: u32,
    filename: &str,
    format: Option<&str>,
) -> Result<(String, String), String> {
    let name = &storage.spec.name;
    if owner_in_name(filename) != Some(vmid) {
        return Err(format!("unable to parse volume filename '{filename}'"));
    }
    if !storage.is_files() {
        return Ok((format!("{name}:{filename}"), "raw".into()));
    }
    match filename.rsplit_once('.') {
        Some((_, suffix)) if storage.has_format(suffix) => {
            Ok((format!("{name}:{vmid}/{filename}"), suffix.to_owned()))
        }
        None if format.is_none() => Ok((format!("{name}:{vmid}/{filename}"), "raw".into())),
        _ => Err(format!("unable to parse volume filename '{filename}'")),
    }
}

/// `DELETE …/content/{volume}`: a task, waited for when the caller says how long.
pub async fn delete(ask: &Ask) -> Outcome {
    let volid = volid(ask);
    let storage = super::conf::storage_of(&volid).unwrap_or_default().to_owned();
    may_delete(ask, &storage, &volid)?;
    ask.cluster.state().storage(&storage).map_err(ApiError::failed)?;
    let (cluster, node) = (ask.cluster.clone(), ask.node.clone());
    let id = super::storage::owner_in_name(&volid)
        .map_or(storage.clone(), |vmid| format!("{vmid}@{storage}"));
    let answer = ask.cluster.fork(&ask.call.caller, &ask.node, "imgdel", id, |worker| async move {
        let backup = cluster.archive(&node, &volid).ok();
        let line = cluster.in_storage(&node, &storage, Some(&worker), cluster.latency.free, |s| {
            s.storage_mut(&storage)?.free(&node, &volid)
        });
        if let Some(line) = line.await? {
            worker.log(line);
        }
        cluster.forget_archive(backup);
        worker.log(format!("Removed volume '{volid}'"));
        Ok(())
    });
    let Some(delay) = ask.number("delay") else { return Ok(answer) };
    let upid = answer.data.as_str().unwrap_or_default().to_owned();
    let wait = std::time::Duration::from_secs(delay);
    match ask.cluster.await_end(&upid, wait).await {
        None => Ok(answer),
        Some(status) if status == "OK" => Ok(Answer::null()),
        Some(status) => Err(ApiError::failed(status)),
    }
}

fn may_delete(ask: &Ask, storage: &str, volid: &str) -> Result<(), ApiError> {
    let path = format!("/storage/{storage}");
    // Who may upload an ISO image or a template may not remove it for that reason.
    let backup = content_of(volid) == "backup";
    let needed = if backup { "Datastore.AllocateSpace" } else { "Datastore.Allocate" };
    if ask.has(&path, "Datastore.Allocate") {
        return Ok(());
    }
    ask.check(&path, &[needed])
}
