//! Destroying containers.

use std::collections::BTreeSet;

use super::super::Cluster;
use super::super::ask::{Ask, failed};
use super::super::conf::{self, Config};
use super::super::destroy::condemned;
use super::super::state::Kind;
use super::mounts;
use crate::call::Outcome;

/// `DELETE /nodes/{node}/lxc/{vmid}`: locks, a running container and protection refuse at once.
pub async fn destroy(ask: &Ask) -> Outcome {
    let (force, purge) = (ask.flag("force"), ask.flag("purge"));
    let unreferenced = ask.flag("destroy-unreferenced-disks");
    ask.cluster.may_destroy_container(&ask.node, ask.vmid, force, purge).map_err(failed)?;
    ask.quorate()?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzdestroy", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.may_destroy_container(&node, vmid, force, purge)?;
        if cluster.container_runs(&node, vmid)?.is_some() {
            cluster.halt_container(&node, vmid).await?;
        }
        let configs = cluster.condemn_container(&node, vmid)?;
        cluster.work(&node, cluster.latency.destroy, None).await;
        let mut volids: BTreeSet<String> =
            configs.iter().flat_map(mounts).map(|(_, d)| d.file).collect();
        let kept = configs.iter().flat_map(|config| config.iter());
        volids.extend(
            kept.filter(|(key, _)| conf::numbered(key, "unused").is_some()).map(|(_, v)| v.clone()),
        );
        if unreferenced {
            volids.extend(cluster.roots_of(&node, vmid));
        }
        for volid in volids {
            if let Err(error) = cluster.free(&node, &volid, Some(&worker)).await {
                worker.warn(format!("Could not remove disk '{volid}', check manually: {error}"));
            }
        }
        cluster.end_guest(&worker, Kind::Ct, vmid, purge).await
    }))
}

impl Cluster {
    fn may_destroy_container(
        &self,
        node: &str,
        vmid: u32,
        force: bool,
        purge: bool,
    ) -> Result<(), String> {
        let mut state = self.state();
        self.look_at_container(&mut state, vmid);
        let guest = state.container(node, vmid)?;
        guest.unlocked()?;
        if conf::flag(&guest.config, "protection") {
            return Err(format!("can't remove CT {vmid} - protection mode enabled"));
        }
        if !purge && state.ha.manages(&format!("ct:{vmid}")) {
            return Err(format!(
                "unable to remove CT {vmid} - used in HA resources and purge parameter not set."
            ));
        }
        if guest.run.is_some() && !force {
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

    fn condemn_container(&self, node: &str, vmid: u32) -> Result<Vec<Config>, String> {
        let mut state = self.state();
        Ok(condemned(state.container_mut(node, vmid)?))
    }

    fn roots_of(&self, node: &str, vmid: u32) -> Vec<String> {
        let state = self.state();
        let storages = state.storages.values().filter(|storage| storage.on(node));
        let volumes = storages.flat_map(|storage| storage.volumes(node));
        let own = volumes.filter(|(_, v)| v.vmid == Some(vmid) && v.content == "rootdir");
        own.map(|(volid, _)| volid.clone()).collect()
    }
}
