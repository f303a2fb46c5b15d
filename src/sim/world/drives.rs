//! Drives of a guest beyond its configuration: unlinking, moving to another storage, and what can
//! be done with them.

use serde_json::json;

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf::{self, Drive};
use super::reassign::reassign;
use super::storage::{Order, Purpose};
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// `PUT …/unlink`.
pub async fn unlink(ask: &Ask) -> Outcome {
    let _file = ask.cluster.guest_lock(&ask.node, ask.vmid, 10, None).await.map_err(failed)?;
    let running = {
        let mut state = ask.cluster.state();
        ask.cluster.refresh(&mut state, ask.vmid);
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
        guest.run.is_some()
    };
    let keys = ask.text("idlist").unwrap_or_default();
    for key in keys.split([',', ';', ' ']).filter(|key| !key.is_empty()) {
        let force = ask.flag("force");
        ask.cluster.delete_key(&ask.node, ask.vmid, key, force, running, None).await?;
    }
    Ok(Answer::null())
}

/// `POST …/move_disk`.
pub fn move_disk(ask: &Ask) -> Outcome {
    let (storage, other) = (ask.text("storage"), ask.params().0.contains_key("target-vmid"));
    let text = match (&storage, other) {
        (Some(_), true) => "either set 'storage' or 'target-vmid', but not both",
        (None, false) => "both 'storage' and 'target-vmid' missing, either needs to be set",
        (None, true) => return reassign(ask),
        (Some(_), false) => "",
    };
    if !text.is_empty() {
        let mut refusal = ApiError::parameter("storage", text);
        refusal.errors.insert("target-vmid".into(), text.into());
        return Err(refusal);
    }
    let disk = ask.text("disk").unwrap_or_default();
    let target = storage.unwrap_or_default();
    ask.check(&format!("/storage/{target}"), &["Datastore.AllocateSpace"])?;
    let (drive, format) = {
        let state = ask.cluster.state();
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
        guest.digest_is(ask.text("digest").as_deref()).map_err(failed)?;
        let Some(value) = guest.config.get(&disk) else {
            return Err(failed(format!("disk '{disk}' does not exist")));
        };
        let drive = Drive::parse(value);
        if drive.is_cdrom() {
            return Err(failed("you can't move a cdrom".into()));
        }
        state.storage(&target).map_err(failed)?;
        let volume =
            state.storage_of(&drive.file).ok().and_then(|s| s.volume(&ask.node, &drive.file));
        let old = volume.map(|volume| volume.format.clone()).unwrap_or_default();
        let format = ask.text("format").unwrap_or_else(|| old.clone());
        if drive.storage() == Some(target.as_str()) && format == old {
            return Err(failed("you can't move to the same storage with same format".into()));
        }
        (drive, format)
    };
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let delete = ask.flag("delete");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmmove", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        let old = drive.file.clone();
        cluster.copy_to(&worker, vmid, &disk, drive, &target, &format).await?;
        if delete {
            return cluster.free(&node, &old, Some(&worker)).await;
        }
        let mut state = cluster.state();
        state.guest_mut(&node, vmid)?.keep_unused(&Drive { file: old, ..Drive::default() });
        Ok(())
    }))
}

impl Cluster {
    async fn copy_to(
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
        let order = {
            let state = self.state();
            let Some(volume) = state.storage_of(&drive.file)?.volume(&node, &drive.file) else {
                return Err(format!("volume '{}' does not exist", drive.file));
            };
            let known = state.storage(target)?.has_format(format);
            let format = known.then(|| format.to_owned());
            Order { vmid, purpose: Purpose::Disk, format, size: volume.size }
        };
        let made = self.in_storage(&node, target, None, self.latency.allocate, |state| {
            let now = state.clock.unix();
            state.storage_mut(target)?.allocate(&node, &order, now)
        });
        let (volid, line) = made.await?;
        worker.log(line);
        self.transfer(worker, &drive.file, &volid, None).await?;
        let mut state = self.state();
        let moved = Drive { file: volid, ..drive };
        state.guest_mut(&node, vmid)?.config.insert(disk.to_owned(), moved.print());
        Ok(())
    }
}

/// `GET …/feature`: whether all disks allow snapshots, linked clones or copies.
pub fn feature(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guest = state.guest(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    let wanted = ask.text("feature").unwrap_or_default();
    let drives = conf::drives(&guest.config);
    let mut disks = drives.iter().filter(|(_, drive)| !drive.is_cdrom());
    let able = disks.all(|(_, drive)| {
        let Ok(storage) = state.storage_of(&drive.file) else { return false };
        let Some(volume) = storage.volume(&ask.node, &drive.file) else { return false };
        match wanted.as_str() {
            "clone" => storage.links(&drive.file, false),
            "snapshot" => storage.snapshots(&volume.format),
            _ => true,
        }
    });
    let shared = drives.iter().filter_map(|(_, d)| state.storage_of(&d.file).ok());
    let nodes: Vec<&String> = if shared.into_iter().all(|storage| storage.spec.shared) {
        state.nodes.keys().collect()
    } else {
        vec![&ask.node]
    };
    Ok(Answer::new(json!({ "hasFeature": u8::from(able), "nodes": nodes })))
}
