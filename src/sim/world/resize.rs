//! Growing disks of VMs.

use super::Cluster;
use super::conf::{Drive, parse_size, print_size};
use super::context::CallContext;
use super::worker::Worker;
use crate::call::Outcome;

/// `PUT …/resize`: a task.
pub(crate) fn resize(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let disk = ctx.text("disk").unwrap_or_default();
    let size = ctx.text("size").unwrap_or_default();
    let (digest, skiplock) = (ctx.text("digest"), ctx.flag("skiplock"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "resize", vmid, |worker| async move {
        let _file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        {
            let mut state = cluster.state();
            cluster.refresh_vm(&mut state, vmid);
            let guest = state.vm(&node, vmid)?;
            guest.check_digest(digest.as_deref())?;
            if !skiplock {
                guest.ensure_unlocked()?;
            }
        }
        cluster.grow_disk(&worker, vmid, &disk, &size).await
    }))
}

impl Cluster {
    async fn grow_disk(
        &self,
        worker: &Worker,
        vmid: u32,
        disk: &str,
        size: &str,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let (drive, running) = {
            let state = self.state();
            let guest = state.vm(&node, vmid)?;
            let Some(value) = guest.config.get(disk) else {
                return Err(format!("disk '{disk}' does not exist"));
            };
            (Drive::parse(value), guest.process.is_some())
        };
        if drive.is_cdrom() {
            return Err("you can't resize a cdrom".into());
        }
        let current = self.volume_size(&node, &drive)?;
        let wanted = match size.strip_prefix('+') {
            Some(more) => current + parse_size(more).unwrap_or(0),
            None => parse_size(size).unwrap_or(0),
        };
        // Proxmox rounds up to whole KiB.
        let wanted = wanted.div_ceil(1024) * 1024;
        if wanted < current {
            return Err("shrinking disks is not supported".into());
        }
        if wanted == current {
            return Ok(());
        }
        self.simulate_work(&node, self.latency.resize, None).await;
        self.guest_host.resize_disk(vmid, disk, wanted).await?;
        self.store_size(worker, vmid, disk, drive, wanted, running)
    }

    fn volume_size(&self, node: &str, drive: &Drive) -> Result<u64, String> {
        let state = self.state();
        match state.storage_of(&drive.file)?.volume(node, &drive.file) {
            Some(volume) => Ok(volume.size),
            None => Err(format!("volume '{}' does not exist", drive.file)),
        }
    }

    fn store_size(
        &self,
        worker: &Worker,
        vmid: u32,
        disk: &str,
        mut drive: Drive,
        size: u64,
        running: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let line = {
            let mut state = self.state();
            let name = drive.storage().unwrap_or_default().to_owned();
            let storage = state.storage_mut(&name)?;
            let files = storage.is_file_based();
            let path = storage.path(&drive.file);
            let format = match storage.volume_mut(&node, &drive.file) {
                Some(volume) => volume.format.clone(),
                None => return Err(format!("volume '{}' does not exist", drive.file)),
            };
            if files && super::storage::volume_name(&drive.file).starts_with("base-") {
                drop(state);
                worker.log(format!(
                    "qemu-img: Could not open '{path}': Could not open '{path}': Operation not \
                     permitted"
                ));
                return Err(format!(
                    "command '/usr/bin/qemu-img resize -f {format} {path} {size}' failed: exit \
                     code 1"
                ));
            }
            if let Some(volume) = storage.volume_mut(&node, &drive.file) {
                volume.size = size;
            }
            drive.options.insert("size".into(), print_size(size));
            state.vm_mut(&node, vmid)?.config.insert(disk.to_owned(), drive.print());
            files.then_some("Image resized.")
        };
        if let Some(line) = line.filter(|_| !running) {
            worker.log(line);
        }
        Ok(())
    }
}
