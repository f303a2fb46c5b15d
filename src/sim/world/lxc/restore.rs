//! Restoring containers: `restore` of a create, with a backup in place of a template.

use std::sync::Arc;
use std::time::Duration;

use super::super::Cluster;
use super::super::archive::Archive;
use super::super::ask::{Ask, failed};
use super::super::conf::{Config, Drive, numbered, print_size};
use super::super::lock::{LockName, Mode};
use super::super::storage::{Order, Purpose};
use super::super::worker::Worker;
use super::create::{take_id, wanted_config, with_address};
use super::mounts;
use crate::call::Outcome;

/// What a call asks of a restore.
#[derive(Debug)]
struct Job {
    archive: String,
    storage: Option<String>,
    unique: bool,
    set: Config,
}

/// `POST /nodes/{node}/lxc` with `restore` (pve-container, API2/LXC.pm, create_vm).
pub async fn restore(ask: &Ask) -> Outcome {
    let (vmid, node) = (ask.vmid, ask.node.clone());
    ask.may_create()?;
    if ask.flag("force") && ask.cluster.state().holder(vmid).is_some() {
        return Err(ask.unserved("force"));
    }
    let set = wanted_config(ask);
    let archive = ask.text("ostemplate").unwrap_or_default();
    ask.may_use_backup(&archive)?;
    ask.may_change_container(ask.text("pool").as_deref(), &set, &[])?;
    ask.may_mount(&set)?;
    ask.quorate()?;
    ask.cluster.archive(&node, &archive).map_err(failed)?;
    take_id(ask)?;
    let job = Job { archive, storage: ask.text("storage"), unique: ask.flag("unique"), set };
    let (cluster, start, pool) = (ask.cluster.clone(), ask.flag("start"), ask.text("pool"));
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzrestore", vmid, |worker| async move {
        let fail = |error: String| format!("unable to restore CT {vmid} - {error}");
        let (name, wait) = (LockName::container(&node, vmid), Duration::from_secs(10));
        let file = cluster.lock(name, Mode::Exclusive, wait, Some(&worker)).await.map_err(fail)?;
        if let Err(error) = cluster.restore_container(&worker, vmid, job).await {
            cluster.state().containers.remove(&vmid);
            return Err(fail(error));
        }
        drop(file);
        if let Some(pool) = pool {
            cluster.join_pool(&pool, vmid, &worker).await?;
        }
        if start { cluster.launch_container(&node, vmid, Some(&worker)).await } else { Ok(()) }
    }))
}

impl Cluster {
    async fn restore_container(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: Job,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let archive = self.archive(&node, &job.archive)?;
        if archive.kind != "lxc" {
            return Err(format!("'{}' is no backup of a container", job.archive));
        }
        worker.log("recovering backed-up configuration from archive");
        let mut made = Vec::new();
        let volumes = match self.restore_mounts(worker, vmid, &job, &archive, &mut made).await {
            Ok(volumes) => volumes,
            Err(error) => {
                self.free_all(&node, &made, Some(worker)).await;
                return Err(error);
            }
        };
        self.guests.clone_disk(archive.disk, vmid);
        let mut state = self.state();
        let mut config = archive.config;
        config.retain(|key, value| {
            let is_volume = key == "rootfs" || numbered(key, "mp").is_some();
            let left_out = numbered(key, "unused").is_some()
                || matches!(key.as_str(), "lock" | "parent" | "snaptime");
            !left_out && (!is_volume || Drive::parse(value).storage().is_none())
        });
        config.extend(job.set);
        config.extend(volumes);
        for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
            let mut nic = Drive::parse(value);
            if job.unique {
                nic.options.remove("hwaddr");
            }
            let pairs = nic.options.iter().map(|(key, value)| format!("{key}={value}"));
            *value = with_address(&pairs.collect::<Vec<_>>().join(","), &mut state);
        }
        state.container_mut(&node, vmid)?.config = config;
        Ok(())
    }

    /// Makes the volumes of a container: those that the call names, or else the archive's.
    async fn restore_mounts(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &Job,
        archive: &Archive,
        made: &mut Vec<String>,
    ) -> Result<Config, String> {
        let node = worker.node.clone();
        let mut volumes = Config::new();
        let named = mounts(&job.set);
        for (key, drive) in &named {
            let drive = self.make_mount(&node, vmid, drive, Some(worker)).await?;
            made.push(drive.file.clone());
            volumes.insert(key.clone(), drive.print());
        }
        for (key, drive) in mounts(&archive.config) {
            let Some(size) = archive.sizes.get(&key).filter(|_| named.is_empty()) else { continue };
            let own = drive.storage().unwrap_or("local").to_owned();
            let storage = job.storage.clone().unwrap_or(own);
            let order = Order { vmid, purpose: Purpose::Root, format: None, size: *size };
            let spread = self.latency.allocate;
            let volume = self.in_storage(&node, &storage, Some(worker), spread, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(&node, &order, now)
            });
            let (volid, line) = volume.await?;
            worker.log(line);
            made.push(volid.clone());
            let mut options = drive.options;
            options.insert("size".into(), print_size(*size));
            volumes.insert(key, Drive { file: volid, options }.print());
        }
        worker.log(format!("extracting archive '{}'", job.archive));
        let span = {
            let mut state = self.state();
            let bytes = archive.sizes.values().sum();
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.dice)
        };
        if worker.sleep(span).await { Ok(volumes) } else { Err("interrupted by signal".into()) }
    }
}
