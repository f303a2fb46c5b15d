//! Turning a guest into a template: its disks become bases.

use super::ask::Ask;
use super::conf::{self, Drive};
use super::worker::Worker;
use super::{Cluster, storage};
use crate::call::{ApiError, Outcome};

/// `POST …/template`.
pub fn template(ask: &Ask) -> Outcome {
    ask.cluster.may_become_template(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmtemplate", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.may_become_template(&node, vmid)?;
        cluster.work(&node, cluster.latency.template, None).await;
        cluster.make_bases(&node, vmid, Some(&worker))?;
        let mut state = cluster.state();
        state.guest_mut(&node, vmid)?.config.insert("template".into(), "1".into());
        Ok(())
    }))
}

impl Cluster {
    fn may_become_template(&self, node: &str, vmid: u32) -> Result<(), String> {
        let mut state = self.state();
        self.refresh(&mut state, vmid);
        let guest = state.guest(node, vmid)?;
        guest.unlocked()?;
        if !guest.snapshots.is_empty() {
            return Err("unable to create template, because VM contains snapshots".into());
        }
        if guest.is_template() {
            return Err("you can't convert a template to a template".into());
        }
        if guest.run.is_some() {
            return Err("you can't convert a VM to template if VM is running".into());
        }
        Ok(())
    }

    /// Renames a guest's disks to bases where their storage can.
    pub(crate) fn make_bases(
        &self,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let mut lines = Vec::new();
        {
            let mut state = self.state();
            for (key, drive) in conf::drives(&state.guest(node, vmid)?.config) {
                if drive.is_cdrom() || drive.storage().is_none() {
                    continue;
                }
                let name = drive.storage().unwrap_or_default().to_owned();
                let storage = state.storage_mut(&name)?;
                let Some(base) = storage.make_base(node, &drive.file) else { continue };
                if storage.spec.kind == "lvmthin" {
                    let (old, new) = (storage::name_of(&drive.file), storage::name_of(&base));
                    lines.push(format!("  Renamed \"{old}\" to \"{new}\" in volume group \"pve\""));
                }
                let renamed = Drive { file: base, ..drive }.print();
                state.guest_mut(node, vmid)?.config.insert(key, renamed);
            }
        }
        if let Some(worker) = worker {
            lines.iter().for_each(|line| worker.log(line));
        }
        Ok(())
    }
}
