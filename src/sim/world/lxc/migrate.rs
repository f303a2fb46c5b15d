//! Migration of containers: a running container is stopped, moved and started again.

use std::sync::Arc;

use serde_json::json;

use super::super::Cluster;
use super::super::context::{CallContext, failed};
use super::super::worker::Worker;
use super::mounts;
use crate::call::{Answer, ApiError, Outcome};

/// How long a migration with `restart` waits for the container to stop.
const RESTART_SHUTDOWN_SECS: u64 = 180;

/// `GET …/migrate` (9.x): the possible target nodes.
pub(crate) fn preconditions(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_container(&mut state, ctx.vmid);
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let others: Vec<&String> = state.nodes.keys().filter(|name| **name != ctx.node).collect();
    Ok(Answer::new(json!({
        "running": u8::from(guest.process.is_some()), "allowed-nodes": others,
        "not-allowed-nodes": {}, "dependent-ha-resources": [],
    })))
}

/// `POST …/migrate` (pve-container, API2/LXC.pm:1619 and LXC/Migrate.pm).
pub(crate) fn migrate(ctx: &CallContext) -> Outcome {
    let target = ctx.text("target").unwrap_or_default();
    if target == ctx.node {
        return Err(ApiError::parameter("target", "target is local node."));
    }
    ctx.require_quorum()?;
    let (online, restart) = (ctx.flag("online"), ctx.flag("restart"));
    {
        let mut state = ctx.cluster.state();
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        ctx.cluster.refresh_container(&mut state, ctx.vmid);
        let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
        if guest.process.is_some() && !online && !restart {
            let text = "can't migrate running container without --online or --restart";
            return Err(failed(text.into()));
        }
    }
    if ctx.params().0.contains_key("target-storage") {
        return Err(ctx.unsupported_parameter("target-storage"));
    }
    let timeout = ctx.number("timeout").unwrap_or(RESTART_SHUTDOWN_SECS);
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzmigrate", vmid, |worker| async move {
        let file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        let running = cluster.container_process(&node, vmid)?.is_some();
        if running && online {
            return Err("lxc live migration is currently not implemented".into());
        }
        if running {
            worker.log(format!("shutdown CT {vmid}"));
            cluster.shut_down_container(&worker, vmid, timeout, true).await?;
        }
        worker.log(format!("starting migration of CT {vmid} to node '{target}'"));
        cluster.move_container(&worker, vmid, &target).await?;
        drop(file);
        if running {
            worker.log("start container on target node");
            cluster.start_container(&target, vmid, Some(&worker)).await?;
        }
        worker.log("migration finished successfully");
        Ok(())
    }))
}

impl Cluster {
    async fn move_container(
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
                if !storage.available_on(target) {
                    return Err(format!("storage '{name}' is not available on node '{target}'"));
                }
                if !storage.spec.shared {
                    bytes += storage.volume(&node, &drive.file).map_or(0, |volume| volume.size);
                    local.push((name, drive.file));
                }
            }
            (local, self.latency.copy_bytes_per_second.transfer(bytes, &mut state.random))
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
        let guest = state.container_mut(&node, vmid)?;
        guest.node = target.to_owned();
        guest.broadcast.last = None;
        Ok(())
    }
}
