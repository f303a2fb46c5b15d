//! Restoring containers: a create with `restore`, from a backup instead of a template.

use std::sync::Arc;
use std::time::Duration;

use super::super::Cluster;
use super::super::archive::Archive;
use super::super::conf::{Config, Drive, numbered, print_size};
use super::super::context::{CallContext, failed};
use super::super::locks::{LockMode, LockName};
use super::super::storage::{VolumePurpose, VolumeRequest};
use super::super::worker::Worker;
use super::create::{requested_config, reserve_container_id, with_mac_address};
use super::mounts;
use crate::call::Outcome;

/// The parameters of a restore.
#[derive(Debug)]
struct ContainerRestoreJob {
    archive: String,
    storage: Option<String>,
    unique: bool,
    set: Config,
}

/// `POST /nodes/{node}/lxc` with `restore` (pve-container, API2/LXC.pm, create_vm).
pub(crate) async fn restore(ctx: &CallContext) -> Outcome {
    let (vmid, node) = (ctx.vmid, ctx.node.clone());
    ctx.check_may_create()?;
    if ctx.flag("force") && ctx.cluster.state().guest_by_id(vmid).is_some() {
        return Err(ctx.unsupported_parameter("force"));
    }
    let set = requested_config(ctx);
    let archive = ctx.text("ostemplate").unwrap_or_default();
    ctx.check_may_use_backup(&archive)?;
    ctx.check_may_change_container(ctx.text("pool").as_deref(), &set, &[])?;
    ctx.check_may_mount(&set)?;
    ctx.require_quorum()?;
    ctx.cluster.read_archive(&node, &archive).map_err(failed)?;
    reserve_container_id(ctx)?;
    let job = ContainerRestoreJob {
        archive,
        storage: ctx.text("storage"),
        unique: ctx.flag("unique"),
        set,
    };
    let (cluster, start, pool) = (ctx.cluster.clone(), ctx.flag("start"), ctx.text("pool"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzrestore", vmid, |worker| async move {
        let fail = |error: String| format!("unable to restore CT {vmid} - {error}");
        let (name, wait) = (LockName::container(&node, vmid), Duration::from_secs(10));
        let file =
            cluster.lock(name, LockMode::Exclusive, wait, Some(&worker)).await.map_err(fail)?;
        if let Err(error) = cluster.restore_container(&worker, vmid, job).await {
            cluster.state().containers.remove(&vmid);
            return Err(fail(error));
        }
        drop(file);
        if let Some(pool) = pool {
            cluster.join_pool(&pool, vmid, &worker).await?;
        }
        if start { cluster.start_container(&node, vmid, Some(&worker)).await } else { Ok(()) }
    }))
}

impl Cluster {
    async fn restore_container(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: ContainerRestoreJob,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let archive = self.read_archive(&node, &job.archive)?;
        if archive.kind != "lxc" {
            return Err(format!("'{}' is not a backup of a container", job.archive));
        }
        worker.log("recovering backed-up configuration from archive");
        let mut created = Vec::new();
        let volumes = match self.restore_mounts(worker, vmid, &job, &archive, &mut created).await {
            Ok(volumes) => volumes,
            Err(error) => {
                self.free_volumes(&node, &created, Some(worker)).await;
                return Err(error);
            }
        };
        self.guest_host.clone_disk(archive.disk, vmid, false).await?;
        let mut state = self.state();
        let mut config = archive.config;
        config.retain(|key, value| {
            let is_volume = key == "rootfs" || numbered(key, "mp").is_some();
            let omitted = numbered(key, "unused").is_some()
                || matches!(key.as_str(), "lock" | "parent" | "snaptime");
            !omitted && (!is_volume || Drive::parse(value).storage().is_none())
        });
        config.extend(job.set);
        config.extend(volumes);
        for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
            let mut nic = Drive::parse(value);
            if job.unique {
                nic.options.remove("hwaddr");
            }
            let pairs = nic.options.iter().map(|(key, value)| format!("{key}={value}"));
            *value = with_mac_address(&pairs.collect::<Vec<_>>().join(","), &mut state);
        }
        state.container_mut(&node, vmid)?.config = config;
        Ok(())
    }

    /// Creates the volumes of a container: those that the call names, else those of the archive.
    async fn restore_mounts(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &ContainerRestoreJob,
        archive: &Archive,
        created: &mut Vec<String>,
    ) -> Result<Config, String> {
        let node = worker.node.clone();
        let mut volumes = Config::new();
        let named = mounts(&job.set);
        for (key, drive) in &named {
            let drive = self.allocate_mount(&node, vmid, drive, Some(worker)).await?;
            created.push(drive.file.clone());
            volumes.insert(key.clone(), drive.print());
        }
        for (key, drive) in mounts(&archive.config) {
            let Some(size) = archive.sizes.get(&key).filter(|_| named.is_empty()) else { continue };
            let own = drive.storage().unwrap_or("local").to_owned();
            let storage = job.storage.clone().unwrap_or(own);
            let request =
                VolumeRequest { vmid, purpose: VolumePurpose::Root, format: None, size: *size };
            let spread = self.latency.allocate;
            let volume = self.with_storage_lock(&node, &storage, Some(worker), spread, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(&node, &request, now)
            });
            let (volid, line) = volume.await?;
            worker.log(line);
            created.push(volid.clone());
            let mut options = drive.options;
            options.insert("size".into(), print_size(*size));
            volumes.insert(key, Drive { file: volid, options }.print());
        }
        worker.log(format!("extracting archive '{}'", job.archive));
        let span = {
            let mut state = self.state();
            let bytes = archive.sizes.values().sum();
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.random)
        };
        if worker.sleep(span).await { Ok(volumes) } else { Err("interrupted by signal".into()) }
    }
}
