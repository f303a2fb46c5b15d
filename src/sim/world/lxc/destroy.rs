use std::collections::BTreeSet;

use super::super::Cluster;
use super::super::conf::{self, Config};
use super::super::context::{CallContext, failed};
use super::super::destroy::replace_config_with_lock;
use super::super::state::GuestType;
use super::mounts;
use crate::call::Outcome;

/// `DELETE /nodes/{node}/lxc/{vmid}`: a lock, a running container or protection refuses it at once.
pub(crate) async fn destroy(ctx: &CallContext) -> Outcome {
    let (force, purge) = (ctx.flag("force"), ctx.flag("purge"));
    let unreferenced = ctx.flag("destroy-unreferenced-disks");
    ctx.cluster.check_may_destroy_container(&ctx.node, ctx.vmid, force, purge).map_err(failed)?;
    ctx.require_quorum()?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzdestroy", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.check_may_destroy_container(&node, vmid, force, purge)?;
        if cluster.container_process(&node, vmid)?.is_some() {
            cluster.stop_container(&node, vmid).await?;
        }
        let configs = cluster.lock_container_for_destroy(&node, vmid)?;
        cluster.simulate_work(&node, cluster.latency.destroy, None).await;
        let mut volids: BTreeSet<String> =
            configs.iter().flat_map(mounts).map(|(_, d)| d.file).collect();
        let kept = configs.iter().flat_map(|config| config.iter());
        volids.extend(
            kept.filter(|(key, _)| conf::numbered(key, "unused").is_some()).map(|(_, v)| v.clone()),
        );
        if unreferenced {
            volids.extend(cluster.root_volumes_of(&node, vmid));
        }
        for volid in volids {
            if let Err(error) = cluster.free_volume(&node, &volid, Some(&worker)).await {
                worker.warn(format!("Could not remove disk '{volid}', check manually: {error}"));
            }
        }
        cluster.remove_guest(&worker, GuestType::Ct, vmid, purge).await
    }))
}

impl Cluster {
    fn check_may_destroy_container(
        &self,
        node: &str,
        vmid: u32,
        force: bool,
        purge: bool,
    ) -> Result<(), String> {
        let mut state = self.state();
        self.refresh_container(&mut state, vmid);
        let guest = state.container(node, vmid)?;
        guest.ensure_unlocked()?;
        if conf::flag(&guest.config, "protection") {
            return Err(format!("can't remove CT {vmid} - protection mode enabled"));
        }
        if !purge && state.ha.manages(&format!("ct:{vmid}")) {
            return Err(format!(
                "unable to remove CT {vmid} - used in HA resources and purge parameter not set."
            ));
        }
        if guest.process.is_some() && !force {
            return Err(format!("unable to destroy CT {vmid} - container is running"));
        }
        for (_, drive) in mounts(&guest.config) {
            let Ok(storage) = state.storage_of(&drive.file) else { continue };
            if guest.is_template() && storage.is_base_in_use(node, &drive.file) {
                let volid = &drive.file;
                return Err(format!("base volume '{volid}' is still in use by linked cloned"));
            }
        }
        Ok(())
    }

    fn lock_container_for_destroy(&self, node: &str, vmid: u32) -> Result<Vec<Config>, String> {
        let mut state = self.state();
        Ok(replace_config_with_lock(state.container_mut(node, vmid)?))
    }

    fn root_volumes_of(&self, node: &str, vmid: u32) -> Vec<String> {
        let state = self.state();
        let storages = state.storages.values().filter(|storage| storage.available_on(node));
        let volumes = storages.flat_map(|storage| storage.volumes(node));
        let own = volumes.filter(|(_, v)| v.vmid == Some(vmid) && v.content == "rootdir");
        own.map(|(volid, _)| volid.clone()).collect()
    }
}
