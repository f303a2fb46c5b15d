//! Snapshots of containers: they hold no memory, and not every storage has them.

use serde_json::Value;

use super::super::ask::{Ask, failed};
use super::super::conf::Config;
use super::super::snapshot::{entries, forget, may_go_back, may_take, missing};
use super::super::state::Snapshot;
use super::super::storage::Storage;
use super::super::{Cluster, checks};
use super::create::typed;
use super::{KEYS, description, mounts};
use crate::call::{Answer, ApiError, Outcome};

/// Whether a container's root on this storage can be snapshotted: images of directories can not.
pub fn possible(storage: &Storage) -> bool {
    matches!(storage.spec.kind.as_str(), "lvmthin" | "zfspool" | "rbd" | "btrfs")
}

/// `GET …/snapshot`.
pub fn list(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.look_at_container(&mut state, ask.vmid);
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    Ok(Answer::new(entries(guest).into()))
}

/// `GET …/snapshot/{snapname}/config`.
pub fn read(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let state = ask.cluster.state();
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let snapshot = guest.snapshots.get(&name).ok_or_else(|| failed(missing(&name)))?;
    let keys = snapshot.config.iter().filter(|(key, _)| *key != KEYS);
    let fields: serde_json::Map<String, Value> =
        keys.map(|(key, value)| (key.clone(), typed(key, value))).collect();
    Ok(Answer::new(fields.into()))
}

/// `POST …/snapshot`.
pub fn create(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    if matches!(name.as_str(), "current" | "pending" | "vzdump") {
        let text = format!("unable to use snapshot name '{name}' (reserved name)");
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let description = ask.text("description").and_then(|text| description(&text));
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzsnapshot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.may_snapshot_container(&node, vmid, &name)?;
        cluster.work(&node, cluster.latency.snapshot, None).await;
        cluster.mark_volumes(&node, vmid, &name, true)?;
        cluster.guests.snapshot(vmid, &name);
        let mut state = cluster.state();
        let time = state.clock.unix();
        let guest = state.container_mut(&node, vmid)?;
        let mut then: Config = guest.config.clone();
        then.remove("lock");
        then.remove("description");
        then.insert("snaptime".into(), time.to_string());
        then.extend(description.map(|text| ("description".to_owned(), text)));
        let snapshot = Snapshot { config: then, time, vmstate: None, boots: guest.boots };
        guest.snapshots.insert(name.clone(), snapshot);
        guest.config.insert("parent".into(), name);
        Ok(())
    }))
}

/// `DELETE …/snapshot/{snapname}`.
pub fn delete(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzdelsnapshot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        {
            let state = cluster.state();
            let guest = state.container(&node, vmid)?;
            guest.unlocked()?;
            if !guest.snapshots.contains_key(&name) {
                return Err(missing(&name));
            }
        }
        cluster.work(&node, cluster.latency.snapshot, None).await;
        cluster.mark_volumes(&node, vmid, &name, false)?;
        let mut state = cluster.state();
        let guest = state.container_mut(&node, vmid)?;
        forget(guest, &name).map(drop)
    }))
}

/// `POST …/snapshot/{snapname}/rollback`.
pub fn rollback(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let start = ask.flag("start");
    if start {
        ask.check(&format!("/vms/{}", ask.vmid), &["VM.PowerMgmt"])?;
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzrollback", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.may_roll_back_container(&node, vmid, &name)?;
        if cluster.container_runs(&node, vmid)?.is_some() {
            cluster.halt_container(&node, vmid).await?;
        }
        cluster.work(&node, cluster.latency.snapshot, None).await;
        cluster.guests.rollback(vmid, &name);
        {
            let mut state = cluster.state();
            let guest = state.container_mut(&node, vmid)?;
            let Some(snapshot) = guest.snapshots.get(&name) else { return Err(missing(&name)) };
            let mut config = snapshot.config.clone();
            config.retain(|key, _| !matches!(key.as_str(), "snaptime" | "parent" | "description"));
            let kept = guest.config.get("description").cloned();
            config.extend(kept.map(|text| ("description".to_owned(), text)));
            config.insert("parent".into(), name.clone());
            guest.boots = snapshot.boots;
            guest.pending.clear();
            guest.config = config;
        }
        if start { cluster.launch_container(&node, vmid, Some(&worker)).await } else { Ok(()) }
    }))
}

impl Cluster {
    fn may_snapshot_container(&self, node: &str, vmid: u32, name: &str) -> Result<(), String> {
        let state = self.state();
        let guest = state.container(node, vmid)?;
        may_take(guest, name)?;
        for (_, drive) in mounts(&guest.config) {
            if !possible(state.storage_of(&drive.file)?) {
                return Err("snapshot feature is not available".into());
            }
        }
        Ok(())
    }

    fn may_roll_back_container(&self, node: &str, vmid: u32, name: &str) -> Result<(), String> {
        let state = self.state();
        may_go_back(&state, state.container(node, vmid)?, name, mounts)
    }

    fn mark_volumes(&self, node: &str, vmid: u32, name: &str, there: bool) -> Result<(), String> {
        let mut state = self.state();
        let drives = mounts(&state.container(node, vmid)?.config);
        for (_, drive) in drives {
            if checks::content_of(&drive.file) != "images" {
                continue;
            }
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(node, &drive.file) {
                if there {
                    volume.snapshots.insert(name.to_owned());
                } else {
                    volume.snapshots.remove(name);
                }
            }
        }
        Ok(())
    }
}
