//! Calls on the drives of a VM beside its configuration: unlink a drive, move a disk to another
//! storage, and list the features of the disks.

use serde_json::json;

use super::Cluster;
use super::conf::{self, Drive};
use super::context::{CallContext, failed};
use super::reassign::reassign;
use super::storage::{VolumePurpose, VolumeRequest};
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// `PUT …/unlink`.
pub(crate) async fn unlink(ctx: &CallContext) -> Outcome {
    let _file = ctx.cluster.vm_write_lock(&ctx.node, ctx.vmid, 10, None).await.map_err(failed)?;
    let running = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_vm(&mut state, ctx.vmid);
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        guest.process.is_some()
    };
    let keys = ctx.text("idlist").unwrap_or_default();
    for key in keys.split([',', ';', ' ']).filter(|key| !key.is_empty()) {
        let force = ctx.flag("force");
        ctx.cluster.delete_key(&ctx.node, ctx.vmid, key, force, running, None).await?;
    }
    Ok(Answer::null())
}

/// `POST …/move_disk`.
pub(crate) fn move_disk(ctx: &CallContext) -> Outcome {
    let (storage, other) = (ctx.text("storage"), ctx.params().0.contains_key("target-vmid"));
    let text = match (&storage, other) {
        (Some(_), true) => "either set 'storage' or 'target-vmid', but not both",
        (None, false) => "both 'storage' and 'target-vmid' missing, either needs to be set",
        (None, true) => return reassign(ctx),
        (Some(_), false) => "",
    };
    if !text.is_empty() {
        let mut refusal = ApiError::parameter("storage", text);
        refusal.errors.insert("target-vmid".into(), text.into());
        return Err(refusal);
    }
    let disk = ctx.text("disk").unwrap_or_default();
    let target = storage.unwrap_or_default();
    ctx.check(&format!("/storage/{target}"), &["Datastore.AllocateSpace"])?;
    let (drive, format) = {
        let state = ctx.cluster.state();
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        guest.check_digest(ctx.text("digest").as_deref()).map_err(failed)?;
        let Some(value) = guest.config.get(&disk) else {
            return Err(failed(format!("disk '{disk}' does not exist")));
        };
        let drive = Drive::parse(value);
        if drive.is_cdrom() {
            return Err(failed("you can't move a cdrom".into()));
        }
        state.storage(&target).map_err(failed)?;
        let volume =
            state.storage_of(&drive.file).ok().and_then(|s| s.volume(&ctx.node, &drive.file));
        let old = volume.map(|volume| volume.format.clone()).unwrap_or_default();
        let format = ctx.text("format").unwrap_or_else(|| old.clone());
        if drive.storage() == Some(target.as_str()) && format == old {
            return Err(failed("you can't move to the same storage with same format".into()));
        }
        (drive, format)
    };
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let delete = ctx.flag("delete");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmmove", vmid, |worker| async move {
        let _file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        let old = drive.file.clone();
        cluster.copy_disk(&worker, vmid, &disk, drive, &target, &format).await?;
        if delete {
            return cluster.free_volume(&node, &old, Some(&worker)).await;
        }
        let mut state = cluster.state();
        state.vm_mut(&node, vmid)?.add_unused(&Drive { file: old, ..Drive::default() });
        Ok(())
    }))
}

impl Cluster {
    async fn copy_disk(
        &self,
        worker: &Worker,
        vmid: u32,
        disk: &str,
        drive: Drive,
        target: &str,
        format: &str,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        worker.log(format!("create full clone of drive {disk} ({})", drive.file));
        let request = {
            let state = self.state();
            let Some(volume) = state.storage_of(&drive.file)?.volume(&node, &drive.file) else {
                return Err(format!("volume '{}' does not exist", drive.file));
            };
            let known = state.storage(target)?.has_format(format);
            let format = known.then(|| format.to_owned());
            VolumeRequest { vmid, purpose: VolumePurpose::Disk, format, size: volume.size }
        };
        let created = self.with_storage_lock(&node, target, None, self.latency.allocate, |state| {
            let now = state.clock.unix();
            state.storage_mut(target)?.allocate(&node, &request, now)
        });
        let (volid, line) = created.await?;
        worker.log(line);
        self.transfer(worker, &drive.file, &volid, None).await?;
        let mut state = self.state();
        let moved = Drive { file: volid, ..drive };
        state.vm_mut(&node, vmid)?.config.insert(disk.to_owned(), moved.print());
        Ok(())
    }
}

/// `GET …/feature`: whether all disks support snapshots, linked clones or copies.
pub(crate) fn feature(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    let wanted = ctx.text("feature").unwrap_or_default();
    let drives = conf::drives(&guest.config);
    let mut disks = drives.iter().filter(|(_, drive)| !drive.is_cdrom());
    let supported = disks.all(|(_, drive)| {
        let Ok(storage) = state.storage_of(&drive.file) else { return false };
        let Some(volume) = storage.volume(&ctx.node, &drive.file) else { return false };
        match wanted.as_str() {
            "clone" => storage.can_link(&drive.file, false),
            "snapshot" => storage.supports_snapshots(&volume.format),
            _ => true,
        }
    });
    let shared = drives.iter().filter_map(|(_, d)| state.storage_of(&d.file).ok());
    let nodes: Vec<&String> = if shared.into_iter().all(|storage| storage.spec.shared) {
        state.nodes.keys().collect()
    } else {
        vec![&ctx.node]
    };
    Ok(Answer::new(json!({ "hasFeature": u8::from(supported), "nodes": nodes })))
}
