//! Migration of VMs. The disks move first, the configuration last.

use serde_json::json;

use super::Cluster;
use super::conf::{self, Drive};
use super::context::{CallContext, failed};
use super::state::State;
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// `GET …/migrate`: what prevents a migration.
pub(crate) fn preconditions(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_vm(&mut state, ctx.vmid);
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    let disks: Vec<_> = conf::drives(&guest.config)
        .into_iter()
        .filter(|(_, drive)| {
            let storage = drive.storage().and_then(|name| state.storages.get(name));
            storage.is_some_and(|storage| !storage.spec.shared)
        })
        .map(|(key, drive)| {
            let cdrom = u8::from(drive.is_cdrom());
            json!({ "drivename": key, "volid": drive.file, "size": drive.size_bytes(), "cdrom": cdrom })
        })
        .collect();
    let others: Vec<&String> = state.nodes.keys().filter(|name| **name != ctx.node).collect();
    Ok(Answer::new(json!({
        "running": u8::from(guest.process.is_some()), "allowed_nodes": others,
        "local_disks": disks, "local_resources": [], "mapped-resources": [],
        "mapped-resource-info": {},
    })))
}

/// `POST …/migrate`: checks the target before the guest.
pub(crate) fn migrate(ctx: &CallContext) -> Outcome {
    let target = ctx.text("target").unwrap_or_default();
    if target == ctx.node {
        let text = "target is local node.";
        return Err(ApiError::parameter("target", text));
    }
    {
        let mut state = ctx.cluster.state();
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        ctx.cluster.refresh_vm(&mut state, ctx.vmid);
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        if guest.process.is_some() && !ctx.flag("online") {
            return Err(failed("can't migrate running VM without --online".into()));
        }
    }
    ctx.require_quorum()?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let with_disks = ctx.flag("with-local-disks");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmigrate", vmid, |worker| async move {
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        let blocking = {
            let mut state = cluster.state();
            let guest = state.vm_mut(&node, vmid)?;
            guest.ensure_unlocked()?;
            let blocking = !with_disks && guest.process.is_some();
            let blocking = if blocking { local_disks(&state, &node, vmid)? } else { Vec::new() };
            if blocking.is_empty() {
                let guest = state.vm_mut(&node, vmid)?;
                guest.config.insert("lock".into(), "migrate".into());
            }
            blocking
        };
        if !blocking.is_empty() {
            return Err(log_local_disks(&worker, &blocking));
        }
        let moved = cluster.move_guest(&worker, vmid, &target).await;
        let mut state = cluster.state();
        let final_node = if moved.is_ok() { target } else { node };
        let guest = state.vm_mut(&final_node, vmid)?;
        guest.config.remove("lock");
        moved
    }))
}

/// The attached disks on local storages. Cloud-init images are rebuilt on the target and do not
/// count.
fn local_disks(state: &State, node: &str, vmid: u32) -> Result<Vec<String>, String> {
    let drives = conf::drives(&state.vm(node, vmid)?.config);
    let is_local = |drive: &Drive| {
        let storage = drive.storage().and_then(|name| state.storages.get(name));
        storage.is_some_and(|storage| !storage.spec.shared)
    };
    let disks = drives.into_iter().map(|(_, drive)| drive);
    let local = disks.filter(|drive| !drive.is_cdrom() && is_local(drive));
    Ok(local.map(|drive| drive.file).collect())
}

/// Logs why a running VM with local disks cannot move; returns the error of the task (qemu-server,
/// QemuMigrate.pm:541, and pve-guest-common, AbstractMigrate.pm).
fn log_local_disks(worker: &Worker, disks: &[String]) -> String {
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
    async fn move_guest(&self, worker: &Worker, vmid: u32, target: &str) -> Result<(), String> {
        let node = worker.node.clone();
        worker.log(format!("starting migration of VM {vmid} to node '{target}'"));
        let (local, bytes) = {
            let state = self.state();
            let drives = conf::drives(&state.vm(&node, vmid)?.config);
            let mut local = Vec::new();
            let mut bytes = 0;
            for (_, drive) in drives {
                let Some(name) = drive.storage().map(str::to_owned) else { continue };
                let storage = state.storage(&name)?;
                if !storage.available_on(target) {
                    return Err(format!("storage '{name}' is not available on node '{target}'"));
                }
                if storage.spec.shared {
                    continue;
                }
                let missing = || format!("volume '{}' does not exist", drive.file);
                let volume = storage.volume(&node, &drive.file).ok_or_else(missing)?;
                bytes += volume.size;
                local.push((name, drive.file.clone()));
            }
            (local, bytes)
        };
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.random)
        };
        if !worker.sleep(span).await {
            return Err("migration aborted".into());
        }
        let mut state = self.state();
        for (name, file) in local {
            let storage = state.storage_mut(&name)?;
            if let Some(volume) = storage.remove_volume(&node, &file) {
                storage.insert_volume(target, &file, volume);
            }
        }
        let guest = state.vm_mut(&node, vmid)?;
        guest.node = target.to_owned();
        guest.broadcast.last = None;
        drop(state);
        worker.log("migration finished successfully");
        Ok(())
    }
}
