//! Restoring VMs: a create with `archive`.
//!
//! The task allocates a volume for each disk of the archive, then writes the configuration: that of
//! the archive with a new generation id, with new MAC addresses if `unique` is set, and with the
//! values of the call on top. As in Proxmox, a failed restore leaves an unlocked VM without its
//! disks behind.

use std::sync::Arc;

use super::Cluster;
use super::archive::Archive;
use super::checks;
use super::conf::{self, Config, Drive, Nic, numbered, print_size};
use super::context::{CallContext, failed};
use super::state::Guest;
use super::storage::{CLOUDINIT_SIZE, VolumePurpose, VolumeRequest};
use super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// The parameters of a restore.
#[derive(Debug)]
struct RestoreJob {
    archive: String,
    storage: Option<String>,
    unique: bool,
    set: Config,
}

impl CallContext {
    /// Checks that the caller may create a guest in the pool or with the VMID of the call.
    ///
    /// # Errors
    /// 403 without the privilege or the pool.
    pub(super) fn check_may_create(&self) -> Result<(), ApiError> {
        let pool = self.text("pool");
        if let Some(pool) = pool.as_deref().filter(|pool| !self.cluster.rights.pool_exists(pool)) {
            return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
        }
        if let Some(storage) = self.text("storage") {
            self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        }
        let in_pool =
            pool.as_ref().is_some_and(|pool| self.has(&format!("/pool/{pool}"), "VM.Allocate"));
        let own = format!("/vms/{}", self.vmid);
        let overwrites =
            self.flag("force") && self.cluster.state().guest_by_id(self.vmid).is_some();
        let may_overwrite = overwrites && self.has(&own, "VM.Backup");
        if in_pool || may_overwrite || self.has(&own, "VM.Allocate") {
            return Ok(());
        }
        Err(ApiError::denied(""))
    }
}

/// `POST /nodes/{node}/qemu` with `archive` (qemu-server, API2/Qemu.pm, create_vm).
pub(crate) async fn restore(ctx: &CallContext) -> Outcome {
    let (vmid, node) = (ctx.vmid, ctx.node.clone());
    ctx.require_quorum()?;
    ctx.check_may_create()?;
    let set = ctx.requested_config();
    if let Some(key) = set.keys().find(|key| conf::is_drive(key)) {
        return Err(ApiError::parameter(key, "option conflicts with option 'archive'"));
    }
    if ctx.flag("live-restore") {
        return Err(ctx.unsupported_parameter("live-restore"));
    }
    let archive = ctx.text("archive").unwrap_or_default();
    if archive == "-" {
        return Err(failed("pipe requires cli environment".into()));
    }
    ctx.check_may_use_backup(&archive)?;
    checks::check_ssh_keys(&set)?;
    ctx.check_may_change(ctx.text("pool").as_deref(), &set, &[], &Config::new())?;
    ctx.check_may_use_bridges(&set)?;
    if !archive.starts_with('/') {
        let state = ctx.cluster.state();
        let storage = state.storage_of(&archive).map_err(failed)?;
        if storage.volume(&node, &archive).is_none() {
            return Err(failed(format!("volume '{archive}' does not exist")));
        }
    }
    let file = ctx.cluster.vm_lock(&node, vmid, 5, None).await;
    let file = file.map_err(|error| failed(format!("unable to restore VM {vmid} - {error}")))?;
    let old = reserve_or_lock_guest(ctx)?;
    drop(file);
    let job = RestoreJob { archive, storage: ctx.text("storage"), unique: ctx.flag("unique"), set };
    let (cluster, start, pool) = (ctx.cluster.clone(), ctx.flag("start"), ctx.text("pool"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmrestore", vmid, |worker| async move {
        let file = cluster.vm_lock(&node, vmid, 1, Some(&worker)).await;
        let restored = match &file {
            Ok(_) => cluster.restore_guest(&worker, vmid, &job, &old).await,
            Err(error) => Err(error.clone()),
        };
        if let Ok(guest) = cluster.state().vm_mut(&node, vmid) {
            guest.config.remove("lock");
        }
        if let Err(error) = restored {
            worker.log(format!(
                "error before or during data restore, some or all disks were not completely \
                 restored. VM {vmid} state is NOT cleaned up."
            ));
            return Err(error);
        }
        if let Some(pool) = pool {
            cluster.join_pool(&pool, vmid, &worker).await?;
        }
        if start {
            worker.log("Execute autostart");
            if let Err(error) = cluster.start_vm(&node, vmid, Some(&worker)).await {
                worker.log(error);
            }
        }
        Ok(())
    }))
}

/// Takes the VMID, or with `force` locks the VM that has it; returns the old configuration.
fn reserve_or_lock_guest(ctx: &CallContext) -> Result<Config, ApiError> {
    let (vmid, node) = (ctx.vmid, &ctx.node);
    let fail = |text: String| failed(format!("unable to restore VM {vmid} - {text}"));
    let mut state = ctx.cluster.state();
    let own = ctx.flag("force") && state.vm(node, vmid).is_ok();
    let locked = ("lock".to_owned(), "create".to_owned());
    if !own {
        state.ensure_id_free(vmid).map_err(fail)?;
        let now = state.clock.now();
        state.vms.insert(vmid, Guest::new(vmid, node, Config::from([locked]), now));
        return Ok(Config::new());
    }
    let guest = state.vm_mut(node, vmid).map_err(failed)?;
    guest.ensure_unlocked().map_err(fail)?;
    let old = guest.config.clone();
    guest.config.extend([locked]);
    Ok(old)
}

impl Cluster {
    async fn restore_guest(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &RestoreJob,
        old: &Config,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        if conf::flag(old, "protection") {
            return Err(format!("unable to restore VM {vmid} - - protection mode enabled"));
        }
        if self.vm_process(&node, vmid)?.is_some() {
            return Err(format!("unable to restore VM {vmid} - vm is running"));
        }
        let archive = self.read_archive(&node, &job.archive)?;
        if archive.kind != "qemu" {
            return Err(format!("'{}' is not a backup of a virtual machine", job.archive));
        }
        worker.log(format!("restore vma archive: {}", job.archive));
        // The new cloud-init image gets the name of the old one.
        for (_, drive) in conf::drives(old).iter().filter(|(_, drive)| drive.is_cloudinit()) {
            self.free_volume(&node, &drive.file, Some(worker)).await?;
        }
        let mut created = Vec::new();
        let disks = self.restore_disks(worker, vmid, job, &archive, &mut created).await;
        let disks = match disks {
            Ok(disks) => disks,
            Err(error) => {
                self.free_volumes(&node, &created, Some(worker)).await;
                return Err(error);
            }
        };
        // Restored disks replace those of the same key; other disks become unused.
        for (key, drive) in conf::drives(old) {
            if drive.storage().is_none() || drive.is_cdrom() || drive.is_cloudinit() {
                continue;
            }
            if disks.contains_key(&key) {
                self.free_volume(&node, &drive.file, Some(worker)).await?;
            } else {
                self.state().vm_mut(&node, vmid)?.add_unused(&drive);
            }
        }
        if !old.is_empty() {
            self.guest_host.forget(vmid);
        }
        self.guest_host.clone_disk(archive.disk, vmid, false).await?;
        let mut state = self.state();
        let mut config = archive.config;
        config.retain(|key, value| {
            let omitted = numbered(key, "unused").is_some()
                || matches!(key.as_str(), "lock" | "parent" | "snaptime" | "vmstate");
            let drive = conf::is_drive(key).then(|| Drive::parse(value));
            let kept = drive.is_none_or(|drive| {
                disks.contains_key(key) || drive.is_cdrom() && !drive.is_cloudinit()
            });
            !omitted && kept
        });
        config.extend(disks);
        if let Some(value) = config.get_mut("vmgenid").filter(|value| *value != "0") {
            *value = state.random.uuid();
        }
        if job.unique {
            renew_identity(&mut config, &mut state);
        }
        config.extend(job.set.clone());
        for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
            *value = super::create::with_mac(value, &mut state).unwrap_or_else(|| value.clone());
        }
        let guest = state.vm_mut(&node, vmid)?;
        let unused = guest.config.iter().filter(|(key, _)| numbered(key, "unused").is_some());
        config.extend(unused.map(|(key, value)| (key.clone(), value.clone())).collect::<Config>());
        guest.config = config;
        guest.pending.clear();
        guest.snapshots.clear();
        Ok(())
    }

    /// Allocates a volume for each disk of an archive and for its cloud-init drive.
    async fn restore_disks(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &RestoreJob,
        archive: &Archive,
        created: &mut Vec<String>,
    ) -> Result<Config, String> {
        let node = worker.node.clone();
        let mut disks = Config::new();
        for (key, drive) in conf::drives(&archive.config) {
            let (purpose, size) = match archive.sizes.get(&key) {
                Some(size) => (VolumePurpose::Disk, *size),
                None if drive.is_cloudinit() => (VolumePurpose::Cloudinit, CLOUDINIT_SIZE),
                None => continue,
            };
            let own = drive.storage().unwrap_or("local").to_owned();
            let storage = job.storage.clone().unwrap_or(own);
            let format = {
                let state = self.state();
                let found = state.storage(&storage)?;
                if !found.accepts("images") {
                    let text = "Content type 'images' is not available on storage";
                    return Err(format!("{text} '{storage}'"));
                }
                let requested = drive.options.get("format").cloned().or_else(|| {
                    let (_, ending) = drive.file.rsplit_once('.')?;
                    Some(ending.to_owned())
                });
                requested.filter(|format| found.has_format(format))
            };
            let request = VolumeRequest { vmid, purpose, format, size };
            let spread = self.latency.allocate;
            let volume = self.with_storage_lock(&node, &storage, Some(worker), spread, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(&node, &request, now)
            });
            let (volid, _) = volume.await?;
            worker.log(format!("new volume ID is '{volid}'"));
            created.push(volid.clone());
            let mut drive = Drive { file: volid, options: drive.options };
            drive.options.remove("format");
            if drive.is_cloudinit() {
                drive.options.insert("media".into(), "cdrom".into());
            } else {
                drive.options.insert("size".into(), print_size(size));
            }
            disks.insert(key, drive.print());
        }
        let bytes: u64 = archive.sizes.values().sum();
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.random)
        };
        worker.catch_signals();
        let completed = worker.sleep(span).await;
        worker.release_signals();
        if !completed {
            return Err("interrupted by signal".into());
        }
        worker.log(format!("progress 100% (read {bytes} bytes)"));
        Ok(disks)
    }
}

/// Gives a restored VM new MAC addresses and a new UUID.
fn renew_identity(config: &mut Config, state: &mut super::state::State) {
    for (key, value) in config.iter_mut() {
        if numbered(key, "net").is_some()
            && let Some(nic) = Nic::parse(value)
        {
            *value = Nic { mac: Some(state.random.mac()), ..nic }.print();
        } else if key == "smbios1" {
            *value = super::clone::with_new_uuid(value, &state.random.uuid());
        }
    }
}
