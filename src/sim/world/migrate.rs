//! Migration of virtual machines: the disks go along, the configuration last.

use serde_json::json;

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf::{self, Drive};
use super::state::State;
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// `GET …/migrate`: what keeps a guest where it is.
pub fn preconditions(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.refresh(&mut state, ask.vmid);
    let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
    let disks: Vec<_> = conf::drives(&guest.config)
        .into_iter()
        .filter(|(_, drive)| {
            let storage = drive.storage().and_then(|name| state.storages.get(name));
            storage.is_some_and(|storage| !storage.spec.shared)
        })
        .map(|(key, drive)| {
            let cdrom = u8::from(drive.is_cdrom());
            json!({ "drivename": key, "volid": drive.file, "size": drive.size(), "cdrom": cdrom })
        })
        .collect();
    let others: Vec<&String> = state.nodes.keys().filter(|name| **name != ask.node).collect();
    Ok(Answer::new(json!({
        "running": u8::from(guest.run.is_some()), "allowed_nodes": others,
        "local_disks": disks, "local_resources": [], "mapped-resources": [],
        "mapped-resource-info": {},
    })))
}

/// `POST …/migrate`: the target's name is looked at before the guest.
pub fn migrate(ask: &Ask) -> Outcome {
    let target = ask.text("target").unwrap_or_default();
    if target == ask.node {
        let text = "target is local node.";
        return Err(ApiError::parameter("target", text));
    }
    {
        let mut state = ask.cluster.state();
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        ask.cluster.refresh(&mut state, ask.vmid);
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
        if guest.run.is_some() && !ask.flag("online") {
            return Err(failed("can't migrate running VM without --online".into()));
        }
    }
    ask.quorate()?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let with_disks = ask.flag("with-local-disks");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmigrate", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        let bound = {
            let mut state = cluster.state();
            let guest = state.guest_mut(&node, vmid)?;
            guest.unlocked()?;
            let bound = !with_disks && guest.run.is_some();
            let bound = if bound { local_disks(&state, &node, vmid)? } else { Vec::new() };
            if bound.is_empty() {
                let guest = state.guest_mut(&node, vmid)?;
                guest.config.insert("lock".into(), "migrate".into());
            }
            bound
        };
        if !bound.is_empty() {
            return Err(refuse_disks(&worker, &bound));
        }
        let moved = cluster.carry(&worker, vmid, &target).await;
        let mut state = cluster.state();
        let place = if moved.is_ok() { target } else { node };
        let guest = state.guest_mut(&place, vmid)?;
        guest.config.remove("lock");
        moved
    }))
}

/// The attached disks of a guest that are on storages of its node; images of cloud-init are made
/// again and do not count.
fn local_disks(state: &State, node: &str, vmid: u32) -> Result<Vec<String>, String> {
    let drives = conf::drives(&state.guest(node, vmid)?.config);
    let is_local = |drive: &Drive| {
        let storage = drive.storage().and_then(|name| state.storages.get(name));
        storage.is_some_and(|storage| !storage.spec.shared)
    };
    let disks = drives.into_iter().map(|(_, drive)| drive);
    let local = disks.filter(|drive| !drive.is_cdrom() && is_local(drive));
    Ok(local.map(|drive| drive.file).collect())
}

/// Says why a running guest stays where it is (qemu-server, QemuMigrate.pm:541, and
/// pve-guest-common, AbstractMigrate.pm); the end of its task.
fn refuse_disks(worker: &Worker, disks: &[String]) -> String {
    let text = "can't live migrate attached local disks without with-local-disks option";
    for disk in disks {
        worker.log(format!("can't migrate local disk '{disk}': {text}"));
    }
    let text = "Problem found while scanning volumes - can't migrate VM - check log";
    worker.log(format!("ERROR: {text}"));
    worker.log(format!("ERROR: migration aborted (duration 00:00:00): {text}"));
    "migration aborted".into()
}

impl Cluster {
    async fn carry(&self, worker: &Worker, vmid: u32, target: &str) -> Result<(), String> {
        let node = worker.node.clone();
        worker.log(format!("starting migration of VM {vmid} to node '{target}'"));
        let (local, bytes) = {
            let state = self.state();
            let drives = conf::drives(&state.guest(&node, vmid)?.config);
            let mut local = Vec::new();
            let mut bytes = 0;
            for (_, drive) in drives {
                let Some(name) = drive.storage().map(str::to_owned) else { continue };
                let storage = state.storage(&name)?;
                if !storage.on(target) {
                    return Err(format!("storage '{name}' is not available on node '{target}'"));
                }
                if storage.spec.shared {
                    continue;
                }
                let gone = || format!("volume '{}' does not exist", drive.file);
                let volume = storage.volume(&node, &drive.file).ok_or_else(gone)?;
                bytes += volume.size;
                local.push((name, drive.file.clone()));
            }
            (local, bytes)
        };
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.dice)
        };
        if !worker.sleep(span).await {
            return Err("migration aborted".into());
        }
        let mut state = self.state();
        for (name, file) in local {
            let storage = state.storage_mut(&name)?;
            if let Some(volume) = storage.take(&node, &file) {
                storage.put(target, &file, volume);
            }
        }
        let guest = state.guest_mut(&node, vmid)?;
        guest.node = target.to_owned();
        guest.sight.published = None;
        drop(state);
        worker.log("migration finished successfully");
        Ok(())
    }
}
