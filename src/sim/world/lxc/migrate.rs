//! Migration of containers: they move while they stand still.

use std::sync::Arc;

use serde_json::json;

use super::super::Cluster;
use super::super::ask::{Ask, failed};
use super::super::worker::Worker;
use super::mounts;
use crate::call::{Answer, ApiError, Outcome};

/// What a restart waits for the container to end.
const SHUTDOWN: u64 = 180;

/// `GET …/migrate` (9.x): where the container could go.
pub fn preconditions(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.look_at_container(&mut state, ask.vmid);
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let others: Vec<&String> = state.nodes.keys().filter(|name| **name != ask.node).collect();
    Ok(Answer::new(json!({
        "running": u8::from(guest.run.is_some()), "allowed-nodes": others,
        "not-allowed-nodes": {}, "dependent-ha-resources": [],
    })))
}

/// `POST …/migrate` (pve-container, API2/LXC.pm:1619 and LXC/Migrate.pm).
pub fn migrate(ask: &Ask) -> Outcome {
    let target = ask.text("target").unwrap_or_default();
    if target == ask.node {
        return Err(ApiError::parameter("target", "target is local node."));
    }
    ask.quorate()?;
    let (online, restart) = (ask.flag("online"), ask.flag("restart"));
    {
        let mut state = ask.cluster.state();
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        ask.cluster.look_at_container(&mut state, ask.vmid);
        let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
        if guest.run.is_some() && !online && !restart {
            let text = "can't migrate running container without --online or --restart";
            return Err(failed(text.into()));
        }
    }
    if ask.params().0.contains_key("target-storage") {
        return Err(ask.unserved("target-storage"));
    }
    let timeout = ask.number("timeout").unwrap_or(SHUTDOWN);
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzmigrate", vmid, |worker| async move {
        let file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        let runs = cluster.container_runs(&node, vmid)?.is_some();
        if runs && online {
            return Err("lxc live migration is currently not implemented".into());
        }
        if runs {
            worker.log(format!("shutdown CT {vmid}"));
            cluster.ask_container_down(&worker, vmid, timeout, true).await?;
        }
        worker.log(format!("starting migration of CT {vmid} to node '{target}'"));
        cluster.carry_container(&worker, vmid, &target).await?;
        drop(file);
        if runs {
            worker.log("start container on target node");
            cluster.launch_container(&target, vmid, Some(&worker)).await?;
        }
        worker.log("migration finished successfully");
        Ok(())
    }))
}

impl Cluster {
    async fn carry_container(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        target: &str,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let (local, span) = {
            let mut state = self.state();
            let volumes = mounts(&state.container(&node, vmid)?.config);
            let (mut local, mut bytes) = (Vec::new(), 0);
            for (_, drive) in volumes {
                let name = drive.storage().unwrap_or_default().to_owned();
                let storage = state.storage(&name)?;
                if !storage.on(target) {
                    return Err(format!("storage '{name}' is not available on node '{target}'"));
                }
                if !storage.spec.shared {
                    bytes += storage.volume(&node, &drive.file).map_or(0, |volume| volume.size);
                    local.push((name, drive.file));
                }
            }
            (local, self.latency.copy_bytes_per_second.transfer(bytes, &mut state.dice))
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
        let guest = state.container_mut(&node, vmid)?;
        guest.node = target.to_owned();
        guest.sight.published = None;
        Ok(())
    }
}
