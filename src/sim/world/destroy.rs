//! Destroying guests: what refuses it at once, what the task removes, and what it leaves behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ask::Ask;
use super::conf::{self, Config, Drive, numbered};
use super::lock::{LockName, Mode};
use super::state::{Guest, Kind, State};
use super::worker::Worker;
use super::{Cluster, STORAGE_WAIT, firewall};
use crate::call::{ApiError, Outcome};

/// `DELETE /nodes/{node}/qemu/{vmid}`.
pub fn destroy(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    ask.cluster.may_destroy(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    if !ask.flag("purge") && ask.cluster.state().ha.manages(&format!("vm:{}", ask.vmid)) {
        let vmid = ask.vmid;
        let text = format!(
            "unable to remove VM {vmid} - used in HA resources and purge parameter not set."
        );
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let (purge, skiplock) = (ask.flag("purge"), ask.flag("skiplock"));
    let unreferenced = ask.flag("destroy-unreferenced-disks");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmdestroy", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.may_destroy(&node, vmid)?;
        let config = cluster.condemn(&node, vmid, skiplock)?;
        cluster.work(&node, cluster.latency.destroy, None).await;
        cluster.free_guest(&worker, vmid, &config, unreferenced).await;
        cluster.end_guest(&worker, Kind::Vm, vmid, purge).await
    }))
}

/// What is left of a guest's configuration is a lock; gives what was there, snapshots too.
pub(super) fn condemned(guest: &mut Guest) -> Vec<Config> {
    let locked = Config::from([("lock".to_owned(), "destroyed".to_owned())]);
    let config = std::mem::replace(&mut guest.config, locked);
    let snapshots = std::mem::take(&mut guest.snapshots);
    std::iter::once(config).chain(snapshots.into_values().map(|s| s.config)).collect()
}

impl Cluster {
    /// Takes a guest without volumes out of everything that names it; its id is free then.
    pub(super) async fn end_guest(
        &self,
        worker: &Worker,
        kind: Kind,
        vmid: u32,
        purge: bool,
    ) -> Result<(), String> {
        if purge {
            let shown = kind.short();
            worker.log(format!("purging {shown} {vmid} from related configurations.."));
        }
        let user_config = LockName::cfs("file-user_cfg");
        let access = self.lock(user_config, Mode::Exclusive, STORAGE_WAIT, Some(worker)).await?;
        self.rights.forget_guest(vmid);
        drop(access);
        self.guests.forget(vmid);
        let mut state = self.state();
        firewall::forget_guest(&mut state, vmid);
        match kind {
            Kind::Vm => {
                state.ha.forget(&format!("vm:{vmid}"));
                state.guests.remove(&vmid);
            }
            Kind::Ct => {
                state.ha.forget(&format!("ct:{vmid}"));
                state.containers.remove(&vmid);
            }
        }
        Ok(())
    }

    fn may_destroy(&self, node: &str, vmid: u32) -> Result<(), String> {
        let mut state = self.state();
        self.refresh(&mut state, vmid);
        let guest = state.guest(node, vmid)?;
        if conf::flag(&guest.config, "protection") {
            return Err(format!("can't remove VM {vmid} - protection mode enabled"));
        }
        if guest.run.is_some() {
            return Err(format!("VM {vmid} is running - destroy failed"));
        }
        Ok(())
    }

    /// The last checks; what is left of the configuration is a lock.
    fn condemn(&self, node: &str, vmid: u32, skiplock: bool) -> Result<Vec<Config>, String> {
        let mut state = self.state();
        let guest = state.guest(node, vmid)?;
        if !skiplock && guest.config.get("lock").is_none_or(|lock| lock != "suspended") {
            guest.unlocked()?;
        }
        if guest.is_template() {
            for (_, drive) in conf::drives(&guest.config) {
                let Ok(storage) = state.storage_of(&drive.file) else { continue };
                if storage.is_base_in_use(node, &drive.file) {
                    return Err(format!(
                        "base volume '{}' is still in use by linked cloned",
                        drive.file
                    ));
                }
            }
        }
        Ok(condemned(state.guest_mut(node, vmid)?))
    }

    /// Frees the volumes; one that can not be freed is a warning and stays.
    async fn free_guest(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        configs: &[Config],
        unreferenced: bool,
    ) {
        let node = worker.node.clone();
        let mut volids = BTreeSet::new();
        for config in configs {
            let own = config.iter().filter(|(key, _)| {
                conf::is_drive(key) || numbered(key, "unused").is_some() || *key == "vmstate"
            });
            let drives = own.map(|(_, value)| Drive::parse(value));
            volids.extend(drives.filter(is_own).map(|drive| drive.file));
        }
        if unreferenced {
            volids.extend(self.volumes_of(&node, vmid));
        }
        for volid in volids {
            let (known, fault) = {
                let mut state = self.state();
                let storage = state.storage_of(&volid).ok();
                let known = storage.is_some_and(|s| s.volume(&node, &volid).is_some());
                let State { faults, dice, .. } = &mut *state;
                let storage = conf::storage_of(&volid).filter(|_| known);
                (known, storage.and_then(|storage| faults.free(storage, dice)))
            };
            if !known {
                continue;
            }
            let freed = match fault {
                Some(error) => Err(error),
                None => self.free(&node, &volid, Some(worker)).await,
            };
            if let Err(error) = freed {
                worker.warn(format!("Could not remove disk '{volid}', check manually: {error}"));
            }
        }
    }

    fn volumes_of(&self, node: &str, vmid: u32) -> Vec<String> {
        let state = self.state();
        let storages = state.storages.values().filter(|storage| storage.on(node));
        let volumes = storages.flat_map(|storage| storage.volumes(node));
        let own = volumes.filter(|(_, v)| v.vmid == Some(vmid) && v.content == "images");
        own.map(|(volid, _)| volid.clone()).collect()
    }
}

/// Whether a drive's volume belongs to the guest: no ISO image, no `none`.
fn is_own(drive: &Drive) -> bool {
    drive.storage().is_some() && super::checks::content_of(&drive.file) == "images"
}
