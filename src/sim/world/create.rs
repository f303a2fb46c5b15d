//! Creating VMs, and the volumes of their drives.
//!
//! The request checks privileges and takes the VMID with a configuration that contains only the
//! lock `create`. The task then allocates a volume for each drive and completes the configuration.
//! A failure frees the volumes and the VMID.

use std::sync::Arc;

use super::Cluster;
use super::checks;
use super::conf::{self, Config, Drive, Nic, numbered, parse_size, print_size};
use super::context::CallContext;
use super::restore;
use super::state::Guest;
use super::storage::{CLOUDINIT_SIZE, VolumePurpose, VolumeRequest};
use super::worker::Worker;
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// What the value of a drive in a call requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DriveRequest {
    /// No volume: `none` or `cdrom`.
    NoVolume,
    /// A new disk: `STORAGE:GIB`.
    NewDisk { storage: String, size: u64 },
    /// A copy of a volume: `import-from`.
    Import {
        storage: String,
        /// The volume to copy.
        source: String,
    },
    /// A new cloud-init image: `STORAGE:cloudinit`.
    Cloudinit { storage: String },
    /// A volume that exists, or a path.
    Existing(String),
}

impl DriveRequest {
    /// Reads the request in the value of a drive.
    pub(crate) fn of(drive: &Drive) -> Self {
        if matches!(drive.file.as_str(), "none" | "cdrom" | "") {
            return Self::NoVolume;
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
                Self::NewDisk { storage, size: (gib * (1u64 << 30) as f64) as u64 }
            }
            _ => Self::Existing(drive.file.clone()),
        }
    }
}

impl Cluster {
    /// Allocates the volume that a drive requests. Returns the drive as stored, and the volume if
    /// it is new.
    pub(crate) async fn allocate_drive(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        key: &str,
        drive: &Drive,
        worker: Option<&Worker>,
    ) -> Result<(Drive, Option<String>), String> {
        let mut file = None;
        let (storage, purpose, size) = match DriveRequest::of(drive) {
            DriveRequest::NoVolume => return Ok((drive.clone(), None)),
            DriveRequest::Existing(volid) => {
                return self.attach_existing(node, &volid, drive).map(|d| (d, None));
            }
            DriveRequest::NewDisk { storage, size } => {
                (storage, VolumePurpose::Disk, fixed_disk_bytes(key).unwrap_or(size))
            }
            DriveRequest::Cloudinit { storage } => {
                (storage, VolumePurpose::Cloudinit, CLOUDINIT_SIZE)
            }
            DriveRequest::Import { storage, source } => {
                let size = self.source_size(node, &source)?;
                let span = {
                    let mut state = self.state();
                    self.latency.copy_bytes_per_second.transfer(size, &mut state.random)
                };
                tokio::time::sleep(span).await;
                file = Some(self.kept_name(node, &source));
                (storage, VolumePurpose::Disk, size)
            }
        };
        let cloudinit = purpose == VolumePurpose::Cloudinit;
        let format = drive.options.get("format").cloned();
        let request = VolumeRequest { vmid, purpose, format, size };
        let created =
            self.with_storage_lock(node, &storage, worker, self.latency.allocate, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(node, &request, now)
            });
        let (volid, line) = created.await?;
        if let Some(file) = file
            && let Err(error) = self.guest_host.import_disk(vmid, key, &file).await
        {
            self.free_volumes(node, &[volid], worker).await;
            return Err(error);
        }
        let mut created = Drive { file: volid.clone(), options: drive.options.clone() };
        created.options.remove("format");
        created.options.remove("import-from");
        if cloudinit {
            created.options.insert("media".into(), "cdrom".into());
        } else {
            created.options.insert("size".into(), print_size(size));
        }
        if let Some(worker) = worker {
            worker.log(line);
            worker.log(format!("{key}: successfully created disk '{}'", created.print()));
        }
        Ok((created, Some(volid)))
    }

    /// The name by which the host of the guests keeps a file. On a shared storage all nodes have the
    /// same file.
    pub(crate) fn kept_name(&self, node: &str, volid: &str) -> String {
        let shared = self.state().storage_of(volid).is_ok_and(|storage| storage.spec.shared);
        if shared { volid.to_owned() } else { format!("{node}/{volid}") }
    }

    fn source_size(&self, node: &str, volid: &str) -> Result<u64, String> {
        let state = self.state();
        let storage = state.storage_of(volid)?;
        match storage.volume(node, volid) {
            Some(volume) => Ok(volume.size),
            None => Err(format!("failed to stat '{}'", storage.path(volid))),
        }
    }

    fn attach_existing(&self, node: &str, volid: &str, drive: &Drive) -> Result<Drive, String> {
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

    /// Frees the volumes of a failed task; errors go to its log.
    pub(crate) async fn free_volumes(
        self: &Arc<Self>,
        node: &str,
        volids: &[String],
        worker: Option<&Worker>,
    ) {
        for volid in volids {
            if let Err(error) = self.free_volume(node, volid, worker).await
                && let Some(worker) = worker
            {
                worker.log(error);
            }
        }
    }

    pub(crate) async fn free_volume(
        self: &Arc<Self>,
        node: &str,
        volid: &str,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let Some(storage) = conf::storage_name(volid) else { return Ok(()) };
        let backup = self.read_archive(node, volid).ok();
        let line = self.with_storage_lock(node, storage, None, self.latency.free, |state| {
            state.storage_mut(storage)?.free(node, volid)
        });
        if let (Some(line), Some(worker)) = (line.await?, worker) {
            worker.log(line);
        }
        self.guest_host.drop_file(&self.kept_name(node, volid));
        self.drop_archived_disk(backup);
        Ok(())
    }
}

fn fixed_disk_bytes(key: &str) -> Option<u64> {
    match key {
        "efidisk0" => parse_size("528K"),
        "tpmstate0" => parse_size("4M"),
        _ => None,
    }
}

/// `POST /nodes/{node}/qemu`.
pub(crate) async fn create(ctx: &CallContext) -> Outcome {
    if ctx.params().0.contains_key("archive") {
        return restore::restore(ctx).await;
    }
    let (vmid, node) = (ctx.vmid, ctx.node.clone());
    let pool = ctx.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ctx.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let in_pool = pool.as_ref().is_some_and(|p| ctx.has(&format!("/pool/{p}"), "VM.Allocate"));
    if !in_pool && !ctx.has(&format!("/vms/{vmid}"), "VM.Allocate") {
        return Err(ApiError::denied(""));
    }
    let wanted = ctx.requested_config();
    checks::check_ssh_keys(&wanted)?;
    ctx.check_may_use_storages(&wanted)?;
    ctx.check_may_change(pool.as_deref(), &wanted, &[], &Config::new())?;
    ctx.check_may_use_bridges(&wanted)?;
    ctx.require_quorum()?;
    let file = ctx.cluster.vm_lock(&node, vmid, 5, None).await;
    let file = file.map_err(|e| ApiError::failed(format!("unable to create VM {vmid} - {e}")))?;
    reserve_id(ctx)?;
    drop(file);
    let (cluster, start) = (ctx.cluster.clone(), ctx.flag("start"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &node.clone(), "qmcreate", vmid, |worker| async move {
        let fail = |error: String| format!("unable to create VM {vmid} - {error}");
        let _file = cluster.vm_lock(&node, vmid, 1, Some(&worker)).await.map_err(fail)?;
        cluster.create_guest(&worker, &node, vmid, wanted).await.map_err(fail)?;
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

fn reserve_id(ctx: &CallContext) -> Result<(), ApiError> {
    let mut state = ctx.cluster.state();
    let fail = |text| ApiError::failed(format!("unable to create VM {} - {text}", ctx.vmid));
    state.ensure_id_free(ctx.vmid).map_err(fail)?;
    let now = state.clock.now();
    let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
    state.vms.insert(ctx.vmid, Guest::new(ctx.vmid, &ctx.node, locked, now));
    Ok(())
}

impl Cluster {
    async fn create_guest(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        wanted: Config,
    ) -> Result<(), String> {
        let mut config = wanted;
        config.retain(|key, value| key != "description" || !value.trim().is_empty());
        let mut created = Vec::new();
        let blank = is_blank(&config);
        for (key, drive) in conf::drives(&config) {
            match self.allocate_drive(node, vmid, &key, &drive, Some(worker)).await {
                Ok((drive, volid)) => {
                    created.extend(volid);
                    config.insert(key, drive.print());
                }
                Err(error) => {
                    self.free_volumes(node, &created, Some(worker)).await;
                    self.state().vms.remove(&vmid);
                    self.guest_host.forget(vmid);
                    return Err(error);
                }
            }
        }
        let mut state = self.state();
        fill_defaults(&mut config, &mut state, self.version);
        let guest = state.vm_mut(node, vmid)?;
        (guest.config, guest.blank) = (config, blank);
        Ok(())
    }

    /// Adds a guest to a pool, under the lock of the access control file.
    pub(crate) async fn join_pool(
        &self,
        pool: &str,
        vmid: u32,
        worker: &Worker,
    ) -> Result<(), String> {
        let name = super::LockName::cfs("file-user_cfg");
        let wait = super::STORAGE_LOCK_TIMEOUT;
        let _hold = self.lock(name, super::LockMode::Exclusive, wait, Some(worker)).await?;
        self.rights.join_pool(pool, vmid);
        Ok(())
    }
}

/// Whether the disks that a new guest boots from are empty.
fn is_blank(config: &Config) -> bool {
    let order = config.get("boot").map_or("", |boot| boot.trim_start_matches("order="));
    let all = conf::drives(config);
    let disks: Vec<&Drive> = all
        .iter()
        .filter(|(key, drive)| !drive.is_cdrom() && order.split(';').any(|one| one == key))
        .map(|(_, drive)| drive)
        .collect();
    let is_new = |drive: &&Drive| matches!(DriveRequest::of(drive), DriveRequest::NewDisk { .. });
    !disks.is_empty() && disks.iter().all(is_new)
}

/// Adds the keys that Proxmox adds to a new configuration.
pub(crate) fn fill_defaults(
    config: &mut Config,
    state: &mut super::state::State,
    version: PveVersion,
) {
    let request = conf::default_boot(config);
    config.entry("boot".into()).or_insert_with(|| {
        if request.is_empty() { " ".into() } else { format!("order={}", request.join(";")) }
    });
    let qemu = match version {
        PveVersion::V7_4 => "7.2.0",
        PveVersion::V8_4 => "9.2.0",
        PveVersion::V9_2 => "11.0.0",
    };
    let now = state.clock.unix();
    config.entry("meta".into()).or_insert_with(|| format!("creation-qemu={qemu},ctime={now}"));
    config.entry("smbios1".into()).or_insert_with(|| format!("uuid={}", state.random.uuid()));
    config.entry("vmgenid".into()).or_insert_with(|| state.random.uuid());
    for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
        if let Some(nic) = with_mac(value, state) {
            *value = nic;
        }
    }
}

/// A network device as it is stored; it gets a MAC address if it has none.
pub(crate) fn with_mac(text: &str, state: &mut super::state::State) -> Option<String> {
    let mut nic = Nic::parse(text)?;
    if nic.mac.is_none() {
        nic.mac = Some(state.random.mac());
    }
    Some(nic.print())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_drives() {
        let cases = [
            ("none,media=cdrom", DriveRequest::NoVolume),
            ("s:0.5,format=raw", DriveRequest::NewDisk { storage: "s".into(), size: 1 << 29 }),
            ("s:cloudinit", DriveRequest::Cloudinit { storage: "s".into() }),
            ("s:100/vm-100-disk-0.raw", DriveRequest::Existing("s:100/vm-100-disk-0.raw".into())),
            ("/dev/sda", DriveRequest::Existing("/dev/sda".into())),
        ];
        for (text, request) in cases {
            assert_eq!(DriveRequest::of(&Drive::parse(text)), request, "{text}");
        }
    }
}
