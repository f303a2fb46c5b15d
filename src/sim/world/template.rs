//! Converting a VM to a template: its disks become bases.

use super::conf::{self, Drive};
use super::context::CallContext;
use super::worker::Worker;
use super::{Cluster, storage};
use crate::call::{ApiError, Outcome};

/// `POST …/template`.
pub(crate) fn template(ctx: &CallContext) -> Outcome {
    ctx.cluster.check_may_become_template(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmtemplate", vmid, |worker| async move {
        let _file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.check_may_become_template(&node, vmid)?;
        cluster.simulate_work(&node, cluster.latency.template, None).await;
        cluster.make_bases(&node, vmid, Some(&worker))?;
        let mut state = cluster.state();
        state.vm_mut(&node, vmid)?.config.insert("template".into(), "1".into());
        Ok(())
    }))
}

impl Cluster {
    fn check_may_become_template(&self, node: &str, vmid: u32) -> Result<(), String> {
        let mut state = self.state();
        self.refresh_vm(&mut state, vmid);
        let guest = state.vm(node, vmid)?;
        guest.ensure_unlocked()?;
        if !guest.snapshots.is_empty() {
            return Err("unable to create template, because VM contains snapshots".into());
        }
        if guest.is_template() {
            return Err("you can't convert a template to a template".into());
        }
        if guest.process.is_some() {
            return Err("you can't convert a VM to template if VM is running".into());
        }
        Ok(())
    }

    /// Converts the disks of a VM to bases where the storage supports it.
    pub(crate) fn make_bases(
        &self,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let mut lines = Vec::new();
        {
            let mut state = self.state();
            for (key, drive) in conf::drives(&state.vm(node, vmid)?.config) {
                if drive.is_cdrom() || drive.storage().is_none() {
                    continue;
                }
                let name = drive.storage().unwrap_or_default().to_owned();
                let storage = state.storage_mut(&name)?;
                let Some(base) = storage.make_base(node, &drive.file) else { continue };
                if storage.spec.kind == "lvmthin" {
                    let (old, new) =
                        (storage::volume_name(&drive.file), storage::volume_name(&base));
                    lines.push(format!("  Renamed \"{old}\" to \"{new}\" in volume group \"pve\""));
                }
                let renamed = Drive { file: base, ..drive }.print();
                state.vm_mut(node, vmid)?.config.insert(key, renamed);
            }
        }
        if let Some(worker) = worker {
            lines.iter().for_each(|line| worker.log(line));
        }
        Ok(())
    }
}
