//! Moving a container's volume to another storage.

use std::sync::Arc;

use super::super::Cluster;
use super::super::conf::{Drive, numbered, print_size};
use super::super::context::{CallContext, failed};
use super::super::storage::{VolumePurpose, VolumeRequest};
use super::super::worker::Worker;
use crate::call::Outcome;

/// `POST …/move_volume` (pve-container, API2/LXC.pm:2480).
pub(crate) fn move_volume(ctx: &CallContext) -> Outcome {
    if ctx.params().0.contains_key("target-vmid") {
        return Err(ctx.unsupported_parameter("target-vmid"));
    }
    let key = ctx.text("volume").unwrap_or_default();
    let Some(target) = ctx.text("storage") else {
        return Err(failed("missing storage parameter".into()));
    };
    ctx.check(&format!("/storage/{target}"), &["Datastore.AllocateSpace"])?;
    let drive = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_container(&mut state, ctx.vmid);
        let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        if guest.process.is_some() {
            return Err(failed("cannot move volumes of a running container".into()));
        }
        if numbered(&key, "unused").is_some() {
            return Err(failed(format!(
                "cannot move volume '{key}', only configured volumes can be moved to another \
                 storage"
            )));
        }
        guest.check_digest(ctx.text("digest").as_deref()).map_err(failed)?;
        let Some(value) = guest.config.get(&key) else {
            return Err(failed(format!("volume '{key}' does not exist")));
        };
        let drive = Drive::parse(value);
        state.storage(&target).map_err(failed)?;
        let guest = state.container_mut(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.config.insert("lock".into(), "disk".into());
        drive
    };
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let delete = ctx.flag("delete");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "move_volume", vmid, |worker| async move {
        worker.catch_signals();
        let old = drive.file.clone();
        let moved = cluster.copy_to_storage(&worker, vmid, drive, &target).await;
        {
            let mut state = cluster.state();
            let guest = state.container_mut(&node, vmid)?;
            guest.config.remove("lock");
            guest.config.insert(key, moved?.print());
            if !delete {
                guest.add_unused(&Drive { file: old.clone(), ..Drive::default() });
            }
        }
        if delete { cluster.free_volume(&node, &old, Some(&worker)).await } else { Ok(()) }
    }))
}

impl Cluster {
    async fn copy_to_storage(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        drive: Drive,
        target: &str,
    ) -> Result<Drive, String> {
        let node = worker.node.clone();
        let (size, span) = {
            let mut state = self.state();
            let volume = state.storage_of(&drive.file)?.volume(&node, &drive.file);
            let size = volume.map(|volume| volume.size);
            let size = size.ok_or_else(|| format!("volume '{}' does not exist", drive.file))?;
            (size, self.latency.copy_bytes_per_second.transfer(size, &mut state.random))
        };
        let request = VolumeRequest { vmid, purpose: VolumePurpose::Root, format: None, size };
        let spread = self.latency.allocate;
        let created = self.with_storage_lock(&node, target, Some(worker), spread, |state| {
            let now = state.clock.unix();
            state.storage_mut(target)?.allocate(&node, &request, now)
        });
        let (volid, line) = created.await?;
        worker.log(line);
        if !worker.sleep(span).await {
            self.free_volumes(&node, &[volid], Some(worker)).await;
            return Err("interrupted by signal".into());
        }
        let mut options = drive.options;
        options.insert("size".into(), print_size(size));
        Ok(Drive { file: volid, options })
    }
}
