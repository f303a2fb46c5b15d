//! Making guests: the request that takes the id, the task that makes the disks, and how a drive
//! as the caller wishes it becomes one with a volume.

use std::sync::Arc;

use super::Cluster;
use super::ask::Ask;
use super::checks;
use super::conf::{self, Config, Drive, Nic, numbered, parse_size, print_size};
use super::restore;
use super::state::Guest;
use super::storage::{CLOUDINIT_SIZE, Order, Purpose};
use super::worker::Worker;
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// What a drive in a call asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// No volume: `none`, `cdrom`.
    Nothing,
    /// A new disk.
    New {
        /// Where.
        storage: String,
        /// Its size in bytes.
        size: u64,
    },
    /// A copy of a volume.
    Import {
        /// Where.
        storage: String,
        /// Of what.
        source: String,
    },
    /// A cloud-init drive.
    Cloudinit {
        /// Where.
        storage: String,
    },
    /// A volume that is there.
    Existing(String),
}

impl Wish {
    /// Reads a drive's wish.
    pub fn of(drive: &Drive) -> Self {
        if matches!(drive.file.as_str(), "none" | "cdrom" | "") {
            return Self::Nothing;
        }
        if drive.file.starts_with('/') {
            return Self::Existing(drive.file.clone());
        }
        let Some((storage, rest)) = drive.file.split_once(':') else {
            return Self::Existing(drive.file.clone());
        };
        let storage = storage.to_owned();
        if rest == "cloudinit" {
            return Self::Cloudinit { storage };
        }
        match (rest.parse::<f64>(), drive.options.get("import-from")) {
            (Ok(_), Some(source)) => Self::Import { storage, source: source.clone() },
            (Ok(gib), None) if gib >= 0.0 => {
                Self::New { storage, size: (gib * (1u64 << 30) as f64) as u64 }
            }
            _ => Self::Existing(drive.file.clone()),
        }
    }
}

impl Cluster {
    /// Makes the volume a drive wishes for; the drive as it is stored, and the volume if it is new.
    pub(crate) async fn make_drive(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        key: &str,
        drive: &Drive,
        worker: Option<&Worker>,
    ) -> Result<(Drive, Option<String>), String> {
        let (storage, purpose, size) = match Wish::of(drive) {
            Wish::Nothing => return Ok((drive.clone(), None)),
            Wish::Existing(volid) => return self.adopt(node, &volid, drive).map(|d| (d, None)),
            Wish::New { storage, size } => {
                (storage, Purpose::Disk, fixed_size(key).unwrap_or(size))
            }
            Wish::Cloudinit { storage } => (storage, Purpose::Cloudinit, CLOUDINIT_SIZE),
            Wish::Import { storage, source } => {
                let size = self.size_of(node, &source)?;
                let span = {
                    let mut state = self.state();
                    self.latency.copy_bytes_per_second.transfer(size, &mut state.dice)
                };
                tokio::time::sleep(span).await;
                (storage, Purpose::Disk, size)
            }
        };
        let cloudinit = purpose == Purpose::Cloudinit;
        let format = drive.options.get("format").cloned();
        let order = Order { vmid, purpose, format, size };
        let made = self.in_storage(node, &storage, worker, self.latency.allocate, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(node, &order, now)
        });
        let (volid, line) = made.await?;
        let mut made = Drive { file: volid.clone(), options: drive.options.clone() };
        made.options.remove("format");
        made.options.remove("import-from");
        if cloudinit {
            made.options.insert("media".into(), "cdrom".into());
        } else {
            made.options.insert("size".into(), print_size(size));
        }
        if let Some(worker) = worker {
            worker.log(line);
            worker.log(format!("{key}: successfully created disk '{}'", made.print()));
        }
        Ok((made, Some(volid)))
    }

    fn size_of(&self, node: &str, volid: &str) -> Result<u64, String> {
        let state = self.state();
        let storage = state.storage_of(volid)?;
        match storage.volume(node, volid) {
            Some(volume) => Ok(volume.size),
            None => Err(format!("failed to stat '{}'", storage.path(volid))),
        }
    }

    fn adopt(&self, node: &str, volid: &str, drive: &Drive) -> Result<Drive, String> {
        let mut drive = drive.clone();
        if volid.starts_with('/') || checks::content_of(volid) != "images" {
            return Ok(drive);
        }
        let state = self.state();
        let Some(volume) = state.storage_of(volid)?.volume(node, volid) else {
            return Err(format!("volume '{volid}' does not exist"));
        };
        if !drive.is_cdrom() {
            drive.options.insert("size".into(), print_size(volume.size));
        }
        Ok(drive)
    }

    /// Frees volumes of something that failed; errors are for the log.
    pub(crate) async fn free_all(
        self: &Arc<Self>,
        node: &str,
        volids: &[String],
        worker: Option<&Worker>,
    ) {
        for volid in volids {
            if let Err(error) = self.free(node, volid, worker).await
                && let Some(worker) = worker
            {
                worker.log(error);
            }
        }
    }

    /// Frees one volume.
    pub(crate) async fn free(
        self: &Arc<Self>,
        node: &str,
        volid: &str,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let Some(storage) = conf::storage_of(volid) else { return Ok(()) };
        let backup = self.archive(node, volid).ok();
        let line = self.in_storage(node, storage, None, self.latency.free, |state| {
            state.storage_mut(storage)?.free(node, volid)
        });
        if let (Some(line), Some(worker)) = (line.await?, worker) {
            worker.log(line);
        }
        self.forget_archive(backup);
        Ok(())
    }
}

fn fixed_size(key: &str) -> Option<u64> {
    match key {
        "efidisk0" => parse_size("528K"),
        "tpmstate0" => parse_size("4M"),
        _ => None,
    }
}

/// `POST /nodes/{node}/qemu`.
pub async fn create(ask: &Ask) -> Outcome {
    if ask.params().0.contains_key("archive") {
        return restore::restore(ask).await;
    }
    let (vmid, node) = (ask.vmid, ask.node.clone());
    let pool = ask.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ask.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let in_pool = pool.as_ref().is_some_and(|p| ask.has(&format!("/pool/{p}"), "VM.Allocate"));
    if !in_pool && !ask.has(&format!("/vms/{vmid}"), "VM.Allocate") {
        return Err(ApiError::denied(""));
    }
    let wanted = ask.wanted_config();
    checks::ssh_keys(&wanted)?;
    ask.may_use_storages(&wanted)?;
    ask.may_change(pool.as_deref(), &wanted, &[], &Config::new())?;
    ask.may_use_bridges(&wanted)?;
    ask.quorate()?;
    let file = ask.cluster.guest_lock(&node, vmid, 5, None).await;
    let file = file.map_err(|e| ApiError::failed(format!("unable to create VM {vmid} - {e}")))?;
    take_id(ask)?;
    drop(file);
    let (cluster, start) = (ask.cluster.clone(), ask.flag("start"));
    Ok(ask.cluster.fork(&ask.call.caller, &node.clone(), "qmcreate", vmid, |worker| async move {
        let fail = |error: String| format!("unable to create VM {vmid} - {error}");
        let _file = cluster.guest_lock(&node, vmid, 1, Some(&worker)).await.map_err(fail)?;
        cluster.build(&worker, &node, vmid, wanted).await.map_err(fail)?;
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

fn take_id(ask: &Ask) -> Result<(), ApiError> {
    let mut state = ask.cluster.state();
    let fail = |text| ApiError::failed(format!("unable to create VM {} - {text}", ask.vmid));
    state.id_is_free(ask.vmid).map_err(fail)?;
    let now = state.clock.now();
    let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
    state.guests.insert(ask.vmid, Guest::new(ask.vmid, &ask.node, locked, now));
    Ok(())
}

impl Cluster {
    async fn build(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        wanted: Config,
    ) -> Result<(), String> {
        let mut config = wanted;
        config.retain(|key, value| key != "description" || !value.trim().is_empty());
        let mut made = Vec::new();
        for (key, drive) in conf::drives(&config) {
            match self.make_drive(node, vmid, &key, &drive, Some(worker)).await {
                Ok((drive, volid)) => {
                    made.extend(volid);
                    config.insert(key, drive.print());
                }
                Err(error) => {
                    self.free_all(node, &made, Some(worker)).await;
                    self.state().guests.remove(&vmid);
                    return Err(error);
                }
            }
        }
        let mut state = self.state();
        complete(&mut config, &mut state, self.version);
        state.guest_mut(node, vmid)?.config = config;
        Ok(())
    }

    /// Puts a guest into a pool, under the lock of the access control file.
    pub(crate) async fn join_pool(
        &self,
        pool: &str,
        vmid: u32,
        worker: &Worker,
    ) -> Result<(), String> {
        let name = super::LockName::cfs("file-user_cfg");
        let wait = super::STORAGE_WAIT;
        let _hold = self.lock(name, super::Mode::Exclusive, wait, Some(worker)).await?;
        self.rights.join_pool(pool, vmid);
        Ok(())
    }
}

/// Fills in what Proxmox adds to a new configuration.
pub fn complete(config: &mut Config, state: &mut super::state::State, version: PveVersion) {
    let order = conf::default_boot(config);
    config.entry("boot".into()).or_insert_with(|| {
        if order.is_empty() { " ".into() } else { format!("order={}", order.join(";")) }
    });
    let qemu = match version {
        PveVersion::V7_4 => "7.2.0",
        PveVersion::V8_4 => "9.2.0",
        PveVersion::V9_2 => "11.0.0",
    };
    let now = state.clock.unix();
    config.entry("meta".into()).or_insert_with(|| format!("creation-qemu={qemu},ctime={now}"));
    config.entry("smbios1".into()).or_insert_with(|| format!("uuid={}", state.dice.uuid()));
    config.entry("vmgenid".into()).or_insert_with(|| state.dice.uuid());
    for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
        if let Some(nic) = with_mac(value, state) {
            *value = nic;
        }
    }
}

/// A network device as it is stored, with an address.
pub fn with_mac(text: &str, state: &mut super::state::State) -> Option<String> {
    let mut nic = Nic::parse(text)?;
    if nic.mac.is_none() {
        nic.mac = Some(state.dice.mac());
    }
    Some(nic.print())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_from_drives() {
        let cases = [
            ("none,media=cdrom", Wish::Nothing),
            ("s:0.5,format=raw", Wish::New { storage: "s".into(), size: 1 << 29 }),
            ("s:cloudinit", Wish::Cloudinit { storage: "s".into() }),
            ("s:100/vm-100-disk-0.raw", Wish::Existing("s:100/vm-100-disk-0.raw".into())),
            ("/dev/sda", Wish::Existing("/dev/sda".into())),
        ];
        for (text, wish) in cases {
            assert_eq!(Wish::of(&Drive::parse(text)), wish, "{text}");
        }
    }
}
