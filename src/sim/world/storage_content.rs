//! Storages of a node: list, status, and the volumes on them.

use serde_json::{Value, json};

use super::archive::{self, Archive};
use super::checks::content_of;
use super::conf::parse_size;
use super::context::CallContext;
use super::storage::{Storage, Volume, owner_in_name};
use crate::call::{Answer, ApiError, Outcome};

const VIEW_PRIVILEGES: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];

/// Whether the caller may see a storage.
pub(super) fn may_see_storage(ctx: &CallContext, storage: &str) -> bool {
    let path = format!("/storage/{storage}");
    VIEW_PRIVILEGES.iter().any(|privilege| ctx.has(&path, privilege))
}

fn usage(storage: &Storage, node: &str) -> Value {
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
pub(crate) fn storages(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let one = ctx.text("storage");
    let no_such =
        |name: &String| state.storages.get(name).is_none_or(|s| !s.available_on(&ctx.node));
    if one.as_ref().is_some_and(no_such) {
        return Err(ApiError::parameter("storage", "No such storage."));
    }
    let contents = ctx.text("content");
    let target = ctx.text("target").filter(|target| *target != ctx.node);
    let mut entries = Vec::new();
    for (name, storage) in &state.storages {
        let takes = contents
            .as_ref()
            .is_none_or(|list| list.split([',', ';', ' ']).any(|content| storage.accepts(content)));
        let target_has_it =
            target.as_ref().is_none_or(|node| storage.spec.shared && storage.available_on(node));
        let requested = one.as_ref().is_none_or(|one| one == name)
            && !(ctx.flag("enabled") && storage.spec.disabled);
        if !(storage.available_on(&ctx.node)
            && takes
            && target_has_it
            && requested
            && may_see_storage(ctx, name))
        {
            continue;
        }
        let mut entry = usage(storage, &ctx.node);
        entry["storage"] = name.clone().into();
        let share = storage.used(&ctx.node) as f64 / storage.spec.size_bytes.max(1) as f64;
        entry["used_fraction"] = share.into();
        entries.push(entry);
    }
    Ok(Answer::new(entries.into()))
}

/// `GET /nodes/{node}/storage/{storage}/status`.
pub(crate) fn status(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let state = ctx.cluster.state();
    match state.storages.get(&name).filter(|storage| storage.available_on(&ctx.node)) {
        Some(storage) => Ok(Answer::new(usage(storage, &ctx.node))),
        None => Err(ApiError::parameter("storage", "No such storage.")),
    }
}

/// `GET /nodes/{node}/storage/{storage}/content`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let state = ctx.cluster.state();
    let storage = state.storage(&name).map_err(ApiError::failed)?;
    let vmid = ctx.id("vmid");
    let content = ctx.text("content");
    let mut entries = Vec::new();
    for (volid, volume) in storage.volumes(&ctx.node) {
        // `vmid` filters only volumes that can have an owner (pve-storage, Storage/Plugin.pm,
        // list_volumes).
        let ownerless = matches!(volume.content.as_str(), "iso" | "vztmpl" | "snippets" | "import");
        let requested = vmid.is_none_or(|vmid| ownerless || volume.vmid == Some(vmid))
            && content.as_ref().is_none_or(|content| *content == volume.content);
        if requested && may_see(ctx, &name, volid, volume) {
            entries.push(volume_entry(storage, &ctx.node, volid, volume));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// Whether the caller may see a volume. Volumes of a guest need a privilege on the guest's disks or
/// backups. Snippets are visible only to callers who may allocate on the storage; these callers see
/// all volumes.
fn may_see(ctx: &CallContext, storage: &str, volid: &str, volume: &Volume) -> bool {
    let path = format!("/storage/{storage}");
    if ctx.has(&path, "Datastore.Allocate") {
        return true;
    }
    let owner = volume.vmid.or_else(|| owner_in_name(volid));
    let of_owner =
        |privilege| owner.is_some_and(|vmid| ctx.has(&format!("/vms/{vmid}"), privilege));
    match volume.content.as_str() {
        "images" | "rootdir" => ctx.has(&path, "Datastore.Audit") && of_owner("VM.Config.Disk"),
        "backup" => ctx.has(&path, "Datastore.AllocateSpace") && of_owner("VM.Backup"),
        "snippets" => false,
        _ => true,
    }
}

fn volume_entry(storage: &Storage, node: &str, volid: &str, volume: &Volume) -> Value {
    let file = storage.file(node, volid);
    let mut entry = json!({
        "volid": volid, "content": volume.content, "format": volume.format, "size": volume.size,
        "ctime": volume.ctime,
    });
    if let Some(vmid) = volume.vmid {
        entry["vmid"] = vmid.into();
    }
    if let Some((kind, _)) = archive::guest_in_name(volid).filter(|_| volume.content == "backup") {
        entry["subtype"] = kind.into();
        if let Some(notes) = file.and_then(Archive::parse).and_then(|archive| archive.notes) {
            entry["notes"] = notes.into();
        }
    }
    if volume.content == "images" && storage.is_file_based() {
        entry["used"] = storage.occupied(volume).into();
        let base = volume.base.as_deref().and_then(|base| base.split_once(':'));
        entry["parent"] = base.map(|(_, inner)| format!("../{inner}")).into();
    } else if let Some(base) = &volume.base {
        entry["parent"] = base.clone().into();
    }
    entry
}

/// The volume id of a call: complete, or a name on the storage of the call.
fn requested_volid(ctx: &CallContext) -> String {
    let volume = ctx.text("volume").unwrap_or_default();
    if volume.contains(':') {
        return volume;
    }
    format!("{}:{volume}", ctx.text("storage").unwrap_or_default())
}

/// `GET …/content/{volume}`.
pub(crate) fn volume(ctx: &CallContext) -> Outcome {
    let volid = requested_volid(ctx);
    let state = ctx.cluster.state();
    let storage = state.storage_of(&volid).map_err(ApiError::failed)?;
    let Some(volume) = storage.volume(&ctx.node, &volid) else {
        return Err(ApiError::failed(format!("volume_size_info on '{volid}' failed - no format")));
    };
    let format = if content_of(&volid) == "images" { volume.format.as_str() } else { "raw" };
    Ok(Answer::new(json!({
        "path": storage.path(&volid), "size": volume.size, "used": storage.occupied(volume),
        "format": format,
    })))
}

/// `POST …/content`: allocates a volume with the given name.
pub(crate) async fn allocate(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let filename = ctx.text("filename").unwrap_or_default();
    let vmid = ctx.vmid;
    let size = match ctx.params().int("size") {
        // A number without a unit is KiB here.
        Some(kib) => u64::try_from(kib).unwrap_or(0) << 10,
        None => {
            let text = ctx.text("size").unwrap_or_default();
            let unit = if text.ends_with(|c: char| c.is_ascii_digit()) { "K" } else { "" };
            parse_size(&format!("{text}{unit}")).unwrap_or(0)
        }
    };
    let format = ctx.text("format");
    let spread = ctx.cluster.latency.allocate;
    let created = ctx.cluster.with_storage_lock(&ctx.node, &name, None, spread, |state| {
        let now = state.clock.unix();
        let storage = state.storage_mut(&name)?;
        let (volid, format) = checked_volid(storage, vmid, &filename, format.as_deref())?;
        if storage.volume(&ctx.node, &volid).is_some() {
            return Err(format!("disk image '{}' already exists", storage.path(&volid)));
        }
        storage.insert_volume(
            &ctx.node,
            &volid,
            Volume {
                size,
                vmid: Some(vmid),
                format,
                content: "images".into(),
                ctime: now,
                base: None,
                free_error: None,
                snapshots: std::collections::BTreeSet::new(),
            },
        );
        Ok(volid)
    });
    Ok(Answer::new(created.await.map_err(ApiError::failed)?.into()))
}

fn checked_volid(
    storage: &Storage,
    vmid: u32,
    filename: &str,
    format: Option<&str>,
) -> Result<(String, String), String> {
    let name = &storage.spec.name;
    if owner_in_name(filename) != Some(vmid) {
        return Err(format!("unable to parse volume filename '{filename}'"));
    }
    if !storage.is_file_based() {
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

/// `DELETE …/content/{volume}`: a task; with `delay` the call waits for its end.
pub(crate) async fn delete(ctx: &CallContext) -> Outcome {
    let volid = requested_volid(ctx);
    let storage = super::conf::storage_name(&volid).unwrap_or_default().to_owned();
    check_may_delete(ctx, &storage, &volid)?;
    ctx.cluster.state().storage(&storage).map_err(ApiError::failed)?;
    let (cluster, node) = (ctx.cluster.clone(), ctx.node.clone());
    let id = super::storage::owner_in_name(&volid)
        .map_or(storage.clone(), |vmid| format!("{vmid}@{storage}"));
    let answer = ctx.cluster.fork(&ctx.call.caller, &ctx.node, "imgdel", id, |worker| async move {
        let backup = cluster.read_archive(&node, &volid).ok();
        let line =
            cluster.with_storage_lock(&node, &storage, Some(&worker), cluster.latency.free, |s| {
                s.storage_mut(&storage)?.free(&node, &volid)
            });
        if let Some(line) = line.await? {
            worker.log(line);
        }
        cluster.drop_archived_disk(backup);
        worker.log(format!("Removed volume '{volid}'"));
        Ok(())
    });
    let Some(delay) = ctx.number("delay") else { return Ok(answer) };
    let upid = answer.data.as_str().unwrap_or_default().to_owned();
    let wait = std::time::Duration::from_secs(delay);
    match ctx.cluster.wait_for_task(&upid, wait).await {
        None => Ok(answer),
        Some(status) if status == "OK" => Ok(Answer::null()),
        Some(status) => Err(ApiError::failed(status)),
    }
}

fn check_may_delete(ctx: &CallContext, storage: &str, volid: &str) -> Result<(), ApiError> {
    let path = format!("/storage/{storage}");
    // The privilege to upload an ISO image or a template does not include its deletion.
    let backup = content_of(volid) == "backup";
    let needed = if backup { "Datastore.AllocateSpace" } else { "Datastore.Allocate" };
    if ctx.has(&path, "Datastore.Allocate") {
        return Ok(());
    }
    ctx.check(&path, &[needed])
}
