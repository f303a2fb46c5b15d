//! Growing disks.

use super::Cluster;
use super::ask::Ask;
use super::conf::{Drive, parse_size, print_size};
use super::worker::Worker;
use crate::call::Outcome;

/// `PUT …/resize`: a task.
pub fn resize(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let disk = ask.text("disk").unwrap_or_default();
    let size = ask.text("size").unwrap_or_default();
    let (digest, skiplock) = (ask.text("digest"), ask.flag("skiplock"));
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "resize", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        {
            let mut state = cluster.state();
            cluster.refresh(&mut state, vmid);
            let guest = state.guest(&node, vmid)?;
            guest.digest_is(digest.as_deref())?;
            if !skiplock {
                guest.unlocked()?;
            }
        }
        cluster.grow(&worker, vmid, &disk, &size).await
    }))
}

impl Cluster {
    async fn grow(&self, worker: &Worker, vmid: u32, disk: &str, size: &str) -> Result<(), String> {
        let node = worker.node.clone();
        let (drive, running) = {
            let state = self.state();
            let guest = state.guest(&node, vmid)?;
            let Some(value) = guest.config.get(disk) else {
                return Err(format!("disk '{disk}' does not exist"));
            };
            (Drive::parse(value), guest.run.is_some())
        };
        if drive.is_cdrom() {
            return Err("you can't resize a cdrom".into());
        }
        let present = self.volume_size(&node, &drive)?;
        let wanted = match size.strip_prefix('+') {
            Some(more) => present + parse_size(more).unwrap_or(0),
            None => parse_size(size).unwrap_or(0),
        };
        // Images grow in whole sectors.
        let wanted = wanted.div_ceil(1024) * 1024;
        if wanted < present {
            return Err("shrinking disks is not supported".into());
        }
        if wanted == present {
            return Ok(());
        }
        self.work(&node, self.latency.resize, None).await;
        self.write_size(worker, vmid, disk, drive, wanted, running)
    }

    fn volume_size(&self, node: &str, drive: &Drive) -> Result<u64, String> {
        let state = self.state();
        match state.storage_of(&drive.file)?.volume(node, &drive.file) {
            Some(volume) => Ok(volume.size),
            None => Err(format!("volume '{}' does not exist", drive.file)),
        }
    }

    fn write_size(
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
            let files = storage.is_files();
            let path = storage.path(&drive.file);
            let format = match storage.volume_mut(&node, &drive.file) {
                Some(volume) => volume.format.clone(),
                None => return Err(format!("volume '{}' does not exist", drive.file)),
            };
            if files && super::storage::name_of(&drive.file).starts_with("base-") {
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
            state.guest_mut(&node, vmid)?.config.insert(disk.to_owned(), drive.print());
            files.then_some("Image resized.")
        };
        if let Some(line) = line.filter(|_| !running) {
            worker.log(line);
        }
        Ok(())
    }
}
