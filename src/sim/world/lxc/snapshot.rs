//! Snapshots of containers. They contain no memory, and not every storage supports them.

use serde_json::Value;

use super::super::conf::Config;
use super::super::context::{CallContext, failed};
use super::super::snapshot::{
    check_may_roll_back, check_may_snapshot, missing_snapshot, remove_snapshot, snapshot_entries,
};
use super::super::state::Snapshot;
use super::super::storage::Storage;
use super::super::{Cluster, checks};
use super::create::json_value;
use super::{SSH_KEYS_PARAMETER, mounts, stored_description};
use crate::call::{Answer, ApiError, Outcome};

/// Whether a storage supports snapshots of containers: image files on directory storages do not.
pub(crate) fn supports_snapshots(storage: &Storage) -> bool {
    matches!(storage.spec.kind.as_str(), "lvmthin" | "zfspool" | "rbd" | "btrfs")
}

/// `GET …/snapshot`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_container(&mut state, ctx.vmid);
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    Ok(Answer::new(snapshot_entries(guest).into()))
}

/// `GET …/snapshot/{snapname}/config`.
pub(crate) fn read(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let state = ctx.cluster.state();
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let snapshot = guest.snapshots.get(&name).ok_or_else(|| failed(missing_snapshot(&name)))?;
    let keys = snapshot.config.iter().filter(|(key, _)| *key != SSH_KEYS_PARAMETER);
    let fields: serde_json::Map<String, Value> =
        keys.map(|(key, value)| (key.clone(), json_value(key, value))).collect();
    Ok(Answer::new(fields.into()))
}

/// `POST …/snapshot`.
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    if matches!(name.as_str(), "current" | "pending" | "vzdump") {
        let text = format!("unable to use snapshot name '{name}' (reserved name)");
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let description = ctx.text("description").and_then(|text| stored_description(&text));
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzsnapshot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.check_may_snapshot_container(&node, vmid, &name)?;
        cluster.simulate_work(&node, cluster.latency.snapshot, None).await;
        cluster.set_volume_snapshot(&node, vmid, &name, true)?;
        cluster.guest_host.snapshot(vmid, &name, false).await?;
        let mut state = cluster.state();
        let time = state.clock.unix();
        let guest = state.container_mut(&node, vmid)?;
        let mut snapshot_config: Config = guest.config.clone();
        snapshot_config.remove("lock");
        snapshot_config.remove("description");
        snapshot_config.insert("snaptime".into(), time.to_string());
        snapshot_config.extend(description.map(|text| ("description".to_owned(), text)));
        let snapshot =
            Snapshot { config: snapshot_config, time, vmstate: None, boots: guest.boots };
        guest.snapshots.insert(name.clone(), snapshot);
        guest.config.insert("parent".into(), name);
        Ok(())
    }))
}

/// `DELETE …/snapshot/{snapname}`.
pub(crate) fn delete(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzdelsnapshot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        {
            let state = cluster.state();
            let guest = state.container(&node, vmid)?;
            guest.ensure_unlocked()?;
            if !guest.snapshots.contains_key(&name) {
                return Err(missing_snapshot(&name));
            }
        }
        cluster.simulate_work(&node, cluster.latency.snapshot, None).await;
        cluster.set_volume_snapshot(&node, vmid, &name, false)?;
        let mut state = cluster.state();
        let guest = state.container_mut(&node, vmid)?;
        remove_snapshot(guest, &name).map(drop)
    }))
}

/// `POST …/snapshot/{snapname}/rollback`.
pub(crate) fn rollback(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let start = ctx.flag("start");
    if start {
        ctx.check(&format!("/vms/{}", ctx.vmid), &["VM.PowerMgmt"])?;
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzrollback", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.check_may_roll_back_container(&node, vmid, &name)?;
        if cluster.container_process(&node, vmid)?.is_some() {
            cluster.stop_container(&node, vmid).await?;
        }
        cluster.simulate_work(&node, cluster.latency.snapshot, None).await;
        cluster.guest_host.rollback(vmid, &name).await?;
        {
            let mut state = cluster.state();
            let guest = state.container_mut(&node, vmid)?;
            let Some(snapshot) = guest.snapshots.get(&name) else {
                return Err(missing_snapshot(&name));
            };
            let mut config = snapshot.config.clone();
            config.retain(|key, _| !matches!(key.as_str(), "snaptime" | "parent" | "description"));
            let kept = guest.config.get("description").cloned();
            config.extend(kept.map(|text| ("description".to_owned(), text)));
            config.insert("parent".into(), name.clone());
            guest.boots = snapshot.boots;
            guest.pending.clear();
            guest.config = config;
        }
        if start { cluster.start_container(&node, vmid, Some(&worker)).await } else { Ok(()) }
    }))
}

impl Cluster {
    fn check_may_snapshot_container(
        &self,
        node: &str,
        vmid: u32,
        name: &str,
    ) -> Result<(), String> {
        let state = self.state();
        let guest = state.container(node, vmid)?;
        check_may_snapshot(guest, name)?;
        for (_, drive) in mounts(&guest.config) {
            if !supports_snapshots(state.storage_of(&drive.file)?) {
                return Err("snapshot feature is not available".into());
            }
        }
        Ok(())
    }

    fn check_may_roll_back_container(
        &self,
        node: &str,
        vmid: u32,
        name: &str,
    ) -> Result<(), String> {
        let state = self.state();
        check_may_roll_back(&state, state.container(node, vmid)?, name, mounts)
    }

    fn set_volume_snapshot(
        &self,
        node: &str,
        vmid: u32,
        name: &str,
        present: bool,
    ) -> Result<(), String> {
        let mut state = self.state();
        let drives = mounts(&state.container(node, vmid)?.config);
        for (_, drive) in drives {
            if checks::content_of(&drive.file) != "images" {
                continue;
            }
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(node, &drive.file) {
                if present {
                    volume.snapshots.insert(name.to_owned());
                } else {
                    volume.snapshots.remove(name);
                }
            }
        }
        Ok(())
    }
}
