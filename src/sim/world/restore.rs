//! Restoring virtual machines: `archive` of a create.
//!
//! The task allocates a volume for each disk of the archive, then writes the configuration: that of
//! the archive, with a new generation, with new addresses where `unique` asks for them, and with
//! what the call sets over it. What fails leaves an unlocked guest without its disks behind, as
//! Proxmox does.

use std::sync::Arc;

use super::Cluster;
use super::archive::Archive;
use super::ask::{Ask, failed};
use super::checks;
use super::conf::{self, Config, Drive, Nic, numbered, print_size};
use super::state::Guest;
use super::storage::{CLOUDINIT_SIZE, Order, Purpose};
use super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// What a call asks of a restore.
#[derive(Debug)]
struct Job {
    archive: String,
    storage: Option<String>,
    unique: bool,
    set: Config,
}

impl Ask {
    /// Requires that a guest may be made in the call's pool, or under its id.
    ///
    /// # Errors
    /// 403.
    pub(super) fn may_create(&self) -> Result<(), ApiError> {
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
        let over = self.flag("force") && self.cluster.state().holder(self.vmid).is_some();
        let backs_up = over && self.has(&own, "VM.Backup");
        if in_pool || backs_up || self.has(&own, "VM.Allocate") {
            return Ok(());
        }
        Err(ApiError::denied(""))
    }
}

/// `POST /nodes/{node}/qemu` with `archive` (qemu-server, API2/Qemu.pm, create_vm).
pub async fn restore(ask: &Ask) -> Outcome {
    let (vmid, node) = (ask.vmid, ask.node.clone());
    ask.quorate()?;
    ask.may_create()?;
    let set = ask.wanted_config();
    if let Some(key) = set.keys().find(|key| conf::is_drive(key)) {
        return Err(ApiError::parameter(key, "option conflicts with option 'archive'"));
    }
    if ask.flag("live-restore") {
        return Err(ask.unserved("live-restore"));
    }
    let archive = ask.text("archive").unwrap_or_default();
    if archive == "-" {
        return Err(failed("pipe requires cli environment".into()));
    }
    ask.may_use_backup(&archive)?;
    checks::ssh_keys(&set)?;
    ask.may_change(ask.text("pool").as_deref(), &set, &[], &Config::new())?;
    ask.may_use_bridges(&set)?;
    if !archive.starts_with('/') {
        let state = ask.cluster.state();
        let storage = state.storage_of(&archive).map_err(failed)?;
        if storage.volume(&node, &archive).is_none() {
            return Err(failed(format!("volume '{archive}' does not exist")));
        }
    }
    let file = ask.cluster.guest_lock(&node, vmid, 5, None).await;
    let file = file.map_err(|error| failed(format!("unable to restore VM {vmid} - {error}")))?;
    let old = take_over(ask)?;
    drop(file);
    let job = Job { archive, storage: ask.text("storage"), unique: ask.flag("unique"), set };
    let (cluster, start, pool) = (ask.cluster.clone(), ask.flag("start"), ask.text("pool"));
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmrestore", vmid, |worker| async move {
        let file = cluster.guest_lock(&node, vmid, 1, Some(&worker)).await;
        let restored = match &file {
            Ok(_) => cluster.restore_guest(&worker, vmid, &job, &old).await,
            Err(error) => Err(error.clone()),
        };
        if let Ok(guest) = cluster.state().guest_mut(&node, vmid) {
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
            if let Err(error) = cluster.launch(&node, vmid, Some(&worker)).await {
                worker.log(error);
            }
        }
        Ok(())
    }))
}

/// Takes the id, or with `force` the guest that has it; the configuration of before.
fn take_over(ask: &Ask) -> Result<Config, ApiError> {
    let (vmid, node) = (ask.vmid, &ask.node);
    let fail = |text: String| failed(format!("unable to restore VM {vmid} - {text}"));
    let mut state = ask.cluster.state();
    let own = ask.flag("force") && state.guest(node, vmid).is_ok();
    let locked = ("lock".to_owned(), "create".to_owned());
    if !own {
        state.id_is_free(vmid).map_err(fail)?;
        let now = state.clock.now();
        state.guests.insert(vmid, Guest::new(vmid, node, Config::from([locked]), now));
        return Ok(Config::new());
    }
    let guest = state.guest_mut(node, vmid).map_err(failed)?;
    guest.unlocked().map_err(fail)?;
    let old = guest.config.clone();
    guest.config.extend([locked]);
    Ok(old)
}

impl Cluster {
    async fn restore_guest(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &Job,
        old: &Config,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        if conf::flag(old, "protection") {
            return Err(format!("unable to restore VM {vmid} - - protection mode enabled"));
        }
        if self.runs(&node, vmid)?.is_some() {
            return Err(format!("unable to restore VM {vmid} - vm is running"));
        }
        let archive = self.archive(&node, &job.archive)?;
        if archive.kind != "qemu" {
            return Err(format!("'{}' is no backup of a virtual machine", job.archive));
        }
        worker.log(format!("restore vma archive: {}", job.archive));
        // The new cloud-init image has the name of the old one.
        for (_, drive) in conf::drives(old).iter().filter(|(_, drive)| drive.is_cloudinit()) {
            self.free(&node, &drive.file, Some(worker)).await?;
        }
        let mut made = Vec::new();
        let disks = self.restore_disks(worker, vmid, job, &archive, &mut made).await;
        let disks = match disks {
            Ok(disks) => disks,
            Err(error) => {
                self.free_all(&node, &made, Some(worker)).await;
                return Err(error);
            }
        };
        // Disks that come back take the place of those that are there; others become unused.
        for (key, drive) in conf::drives(old) {
            if drive.storage().is_none() || drive.is_cdrom() || drive.is_cloudinit() {
                continue;
            }
            if disks.contains_key(&key) {
                self.free(&node, &drive.file, Some(worker)).await?;
            } else {
                self.state().guest_mut(&node, vmid)?.keep_unused(&drive);
            }
        }
        if !old.is_empty() {
            self.guests.forget(vmid);
        }
        self.guests.clone_disk(archive.disk, vmid);
        let mut state = self.state();
        let mut config = archive.config;
        config.retain(|key, value| {
            let left_out = numbered(key, "unused").is_some()
                || matches!(key.as_str(), "lock" | "parent" | "snaptime" | "vmstate");
            let drive = conf::is_drive(key).then(|| Drive::parse(value));
            let kept = drive.is_none_or(|drive| {
                disks.contains_key(key) || drive.is_cdrom() && !drive.is_cloudinit()
            });
            !left_out && kept
        });
        config.extend(disks);
        if let Some(value) = config.get_mut("vmgenid").filter(|value| *value != "0") {
            *value = state.dice.uuid();
        }
        if job.unique {
            renew(&mut config, &mut state);
        }
        config.extend(job.set.clone());
        for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
            *value = super::create::with_mac(value, &mut state).unwrap_or_else(|| value.clone());
        }
        let guest = state.guest_mut(&node, vmid)?;
        let unused = guest.config.iter().filter(|(key, _)| numbered(key, "unused").is_some());
        config.extend(unused.map(|(key, value)| (key.clone(), value.clone())).collect::<Config>());
        guest.config = config;
        guest.pending.clear();
        guest.snapshots.clear();
        Ok(())
    }

    /// Makes a volume for each disk of an archive, and for its cloud-init drive.
    async fn restore_disks(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        job: &Job,
        archive: &Archive,
        made: &mut Vec<String>,
    ) -> Result<Config, String> {
        let node = worker.node.clone();
        let mut disks = Config::new();
        for (key, drive) in conf::drives(&archive.config) {
            let (purpose, size) = match archive.sizes.get(&key) {
                Some(size) => (Purpose::Disk, *size),
                None if drive.is_cloudinit() => (Purpose::Cloudinit, CLOUDINIT_SIZE),
                None => continue,
            };
            let own = drive.storage().unwrap_or("local").to_owned();
            let storage = job.storage.clone().unwrap_or(own);
            let format = {
                let state = self.state();
                let found = state.storage(&storage)?;
                if !found.takes("images") {
                    let text = "Content type 'images' is not available on storage";
                    return Err(format!("{text} '{storage}'"));
                }
                let wish = drive.options.get("format").cloned().or_else(|| {
                    let (_, ending) = drive.file.rsplit_once('.')?;
                    Some(ending.to_owned())
                });
                wish.filter(|format| found.has_format(format))
            };
            let order = Order { vmid, purpose, format, size };
            let spread = self.latency.allocate;
            let volume = self.in_storage(&node, &storage, Some(worker), spread, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(&node, &order, now)
            });
            let (volid, _) = volume.await?;
            worker.log(format!("new volume ID is '{volid}'"));
            made.push(volid.clone());
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
            self.latency.copy_bytes_per_second.transfer(bytes, &mut state.dice)
        };
        worker.catch_signals();
        let whole = worker.sleep(span).await;
        worker.release_signals();
        if !whole {
            return Err("interrupted by signal".into());
        }
        worker.log(format!("progress 100% (read {bytes} bytes)"));
        Ok(disks)
    }
}

/// Gives a restored guest addresses and an id of its own.
fn renew(config: &mut Config, state: &mut super::state::State) {
    for (key, value) in config.iter_mut() {
        if numbered(key, "net").is_some()
            && let Some(nic) = Nic::parse(value)
        {
            *value = Nic { mac: Some(state.dice.mac()), ..nic }.print();
        } else if key == "smbios1" {
            *value = super::clone::new_uuid(value, &state.dice.uuid());
        }
    }
}
