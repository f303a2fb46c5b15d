//! Destroying VMs: the checks that refuse it, what the task removes, and what stays behind.
//!
//! The configuration is replaced by the lock `destroyed` before the first volume is freed. A volume
//! that cannot be freed is a warning and stays behind; the VMID is free at the end of the task in
//! any case.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::conf::{self, Config, Drive, numbered};
use super::context::CallContext;
use super::locks::{LockMode, LockName};
use super::state::{Guest, GuestType, State};
use super::worker::Worker;
use super::{Cluster, STORAGE_LOCK_TIMEOUT, firewall};
use crate::call::{ApiError, Outcome};

/// `DELETE /nodes/{node}/qemu/{vmid}`.
pub(crate) fn destroy(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    ctx.cluster.check_may_destroy(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    if !ctx.flag("purge") && ctx.cluster.state().ha.manages(&format!("vm:{}", ctx.vmid)) {
        let vmid = ctx.vmid;
        let text = format!(
            "unable to remove VM {vmid} - used in HA resources and purge parameter not set."
        );
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let (purge, skiplock) = (ctx.flag("purge"), ctx.flag("skiplock"));
    let unreferenced = ctx.flag("destroy-unreferenced-disks");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmdestroy", vmid, |worker| async move {
        let _file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.check_may_destroy(&node, vmid)?;
        let config = cluster.lock_for_destroy(&node, vmid, skiplock)?;
        cluster.simulate_work(&node, cluster.latency.destroy, None).await;
        cluster.free_guest_volumes(&worker, vmid, &config, unreferenced).await;
        cluster.remove_guest(&worker, GuestType::Vm, vmid, purge).await
    }))
}

/// Replaces the configuration by the lock `destroyed`; returns the old configuration and those of
/// the snapshots.
pub(super) fn replace_config_with_lock(guest: &mut Guest) -> Vec<Config> {
    let locked = Config::from([("lock".to_owned(), "destroyed".to_owned())]);
    let config = std::mem::replace(&mut guest.config, locked);
    let snapshots = std::mem::take(&mut guest.snapshots);
    std::iter::once(config).chain(snapshots.into_values().map(|s| s.config)).collect()
}

impl Cluster {
    /// Removes a guest without volumes from everything that refers to it, and frees its VMID.
    pub(super) async fn remove_guest(
        &self,
        worker: &Worker,
        kind: GuestType,
        vmid: u32,
        purge: bool,
    ) -> Result<(), String> {
        if purge {
            let label = kind.label();
            worker.log(format!("purging {label} {vmid} from related configurations.."));
        }
        let user_config = LockName::cfs("file-user_cfg");
        let access =
            self.lock(user_config, LockMode::Exclusive, STORAGE_LOCK_TIMEOUT, Some(worker)).await?;
        self.rights.forget_guest(vmid);
        drop(access);
        self.guest_host.forget(vmid);
        let mut state = self.state();
        firewall::forget_guest(&mut state, vmid);
        match kind {
            GuestType::Vm => {
                state.ha.remove_guest(&format!("vm:{vmid}"));
                state.vms.remove(&vmid);
            }
            GuestType::Ct => {
                state.ha.remove_guest(&format!("ct:{vmid}"));
                state.containers.remove(&vmid);
            }
        }
        Ok(())
    }

    fn check_may_destroy(&self, node: &str, vmid: u32) -> Result<(), String> {
        let mut state = self.state();
        self.refresh_vm(&mut state, vmid);
        let guest = state.vm(node, vmid)?;
        if conf::flag(&guest.config, "protection") {
            return Err(format!("can't remove VM {vmid} - protection mode enabled"));
        }
        if guest.process.is_some() {
            return Err(format!("VM {vmid} is running - destroy failed"));
        }
        Ok(())
    }

    /// Makes the last checks, then replaces the configuration by a lock.
    fn lock_for_destroy(
        &self,
        node: &str,
        vmid: u32,
        skiplock: bool,
    ) -> Result<Vec<Config>, String> {
        let mut state = self.state();
        let guest = state.vm(node, vmid)?;
        if !skiplock && guest.config.get("lock").is_none_or(|lock| lock != "suspended") {
            guest.ensure_unlocked()?;
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
        Ok(replace_config_with_lock(state.vm_mut(node, vmid)?))
    }

    /// Frees the volumes. A volume that cannot be freed is a warning and stays behind.
    async fn free_guest_volumes(
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
            volids.extend(drives.filter(is_guest_volume).map(|drive| drive.file));
        }
        if unreferenced {
            volids.extend(self.volumes_of(&node, vmid));
        }
        for volid in volids {
            let (exists, fault) = {
                let mut state = self.state();
                let storage = state.storage_of(&volid).ok();
                let exists = storage.is_some_and(|s| s.volume(&node, &volid).is_some());
                let State { faults, random, .. } = &mut *state;
                let storage = conf::storage_name(&volid).filter(|_| exists);
                (exists, storage.and_then(|storage| faults.inject_free_fault(storage, random)))
            };
            if !exists {
                continue;
            }
            let freed = match fault {
                Some(error) => Err(error),
                None => self.free_volume(&node, &volid, Some(worker)).await,
            };
            if let Err(error) = freed {
                worker.warn(format!("Could not remove disk '{volid}', check manually: {error}"));
            }
        }
    }

    fn volumes_of(&self, node: &str, vmid: u32) -> Vec<String> {
        let state = self.state();
        let storages = state.storages.values().filter(|storage| storage.available_on(node));
        let volumes = storages.flat_map(|storage| storage.volumes(node));
        let own = volumes.filter(|(_, v)| v.vmid == Some(vmid) && v.content == "images");
        own.map(|(volid, _)| volid.clone()).collect()
    }
}

/// Whether the volume of a drive belongs to the guest: neither an ISO image nor `none`.
fn is_guest_volume(drive: &Drive) -> bool {
    drive.storage().is_some() && super::checks::content_of(&drive.file) == "images"
}
