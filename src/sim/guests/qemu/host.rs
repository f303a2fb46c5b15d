//! The guests of a host: their disks, snapshots and machines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OnceCell;

use super::accelerator::Accelerator;
use super::arguments::{GuestFiles, arguments, node_name};
use super::disks::{Disk, DiskFolder, SnapshotAct};
use super::firmware::{EFI_DISK, Uefi};
use super::machine::{self, Launch, Machine};
use super::{Image, QemuError, download};
use crate::conf;
use crate::guest::{GuestBoot, KeptFile};
use crate::guests::address::AddressPool;
use crate::guests::spawner::Spawner;
use crate::spec::GuestSpec;

/// The internal snapshot of a guest that hibernates. A dot is in no name of Proxmox's snapshots.
const HIBERNATION: &str = ".hibernation";

pub(super) struct Inner {
    /// The folder of disks, and of each running guest's sockets.
    pub folder: PathBuf,
    /// The images of the operator.
    pub images: Vec<Arc<Disk>>,
    pub disks: DiskFolder,
    /// Files that nodes downloaded, by the names that the world has for them.
    pub files: Mutex<BTreeMap<String, (KeptFile, Arc<Disk>)>>,
    /// Settled at the start.
    pub accelerator: OnceCell<Accelerator>,
    pub spawner: Spawner,
    pub addresses: Mutex<AddressPool>,
    pub guests: Mutex<BTreeMap<u32, Guest>>,
}

/// A guest, whether it runs or not.
#[derive(Default, Clone)]
pub(super) struct Guest {
    disks: BTreeMap<String, Arc<Disk>>,
    /// The drives that each snapshot has.
    snapshots: BTreeMap<String, Vec<String>>,
    /// The snapshot whose memory the next boot goes on with.
    resume_from: Option<String>,
    pub machine: Option<Arc<Machine>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The thread's end ends every QEMU.
        self.spawner.close();
    }
}

/// The guests of a cluster's description, with the image of their name as their first disk.
pub(super) fn described_guests(
    guests: &[GuestSpec],
    images: &[Image],
    disks: &[Arc<Disk>],
) -> Result<BTreeMap<u32, Guest>, QemuError> {
    let needs_image = |guest: &&GuestSpec| guest.template || guest.running;
    let described = guests.iter().filter(needs_image).map(|guest| {
        let name = guest.config.get("name").cloned().unwrap_or_default();
        let image = images.iter().position(|image| image.name == name);
        let Some(disk) = image.and_then(|at| disks.get(at)) else {
            let known: Vec<_> = images.iter().map(|image| image.name.as_str()).collect();
            let known = known.join(", ");
            return Err(QemuError::UnknownImage { vmid: guest.vmid, name, known });
        };
        let drives = conf::drives(&guest.config);
        let first = drives.into_iter().find(|(_, drive)| is_disk(drive));
        let disks = first.map(|(key, _)| (key, Arc::clone(disk))).into_iter().collect();
        Ok((guest.vmid, Guest { disks, ..Guest::default() }))
    });
    described.collect()
}

/// Whether a drive is a disk with a volume.
fn is_disk(drive: &conf::Drive) -> bool {
    !drive.is_cdrom() && drive.storage().is_some()
}

impl Inner {
    fn guest(&self, vmid: u32) -> Guest {
        self.guests.lock().get(&vmid).cloned().unwrap_or_default()
    }

    fn change(&self, vmid: u32, change: impl FnOnce(&mut Guest)) {
        change(self.guests.lock().entry(vmid).or_default());
    }

    /// The machine of a guest that runs.
    pub(super) fn machine(&self, vmid: u32) -> Option<Arc<Machine>> {
        let machine = self.guests.lock().get(&vmid)?.machine.clone()?;
        machine.is_running().then_some(machine)
    }

    pub(super) async fn boot(&self, boot: GuestBoot) -> Result<(), String> {
        let vmid = boot.vmid;
        if self.machine(vmid).is_some() {
            return Err("the guest is already running".to_owned());
        }
        let disks = self.prepare_disks(&boot).await?;
        let resume_from = self.guest(vmid).resume_from;
        let hibernates = resume_from.as_deref() == Some(HIBERNATION);
        let memory = resume_from.filter(|_| boot.resumed || hibernates);
        let accelerator = self.accelerator.get().copied().unwrap_or(Accelerator::Emulation);
        let machine = self.launch(&boot, &disks, memory.as_deref(), accelerator).await?;
        let machine = Arc::new(machine);
        self.change(vmid, |guest| {
            guest.machine = Some(Arc::clone(&machine));
            guest.resume_from = None;
        });
        if hibernates {
            self.delete_snapshot(vmid, HIBERNATION).await?;
        }
        Ok(())
    }

    /// Makes the disks of the configuration that the guest does not have yet, and gives each its
    /// size.
    async fn prepare_disks(&self, boot: &GuestBoot) -> Result<BTreeMap<String, Arc<Disk>>, String> {
        let mut disks = BTreeMap::new();
        let guest = self.guest(boot.vmid);
        for (key, drive) in conf::drives(&boot.config) {
            if !is_disk(&drive) || key.starts_with("tpmstate") || key == EFI_DISK {
                continue;
            }
            let disk = match guest.disks.get(&key) {
                Some(disk) if disk.is_own() => Arc::clone(disk),
                Some(image) => self.disks.overlay(image).await?,
                None => self.disks.blank(drive.size_bytes()).await?,
            };
            disk.grow(drive.size_bytes()).await?;
            disks.insert(key, disk);
        }
        if disks.is_empty() && boot.discs.is_empty() {
            return Err("a QEMU guest boots from a drive, and this one has none".to_owned());
        }
        let kept = boot.config.contains_key(EFI_DISK);
        let variables = match Uefi::of(&boot.config) {
            Some(uefi) => Some(self.variables(&guest, &uefi).await?),
            None => None,
        };
        // Without an EFI disk, Proxmox forgets them at the guest's end.
        disks.extend(variables.clone().filter(|_| kept).map(|disk| (EFI_DISK.to_owned(), disk)));
        self.change(boot.vmid, |guest| guest.disks.extend(disks.clone()));
        disks.extend(variables.map(|disk| (EFI_DISK.to_owned(), disk)));
        Ok(disks)
    }

    /// The disk of a guest's UEFI variables; a new one begins with those of the firmware.
    async fn variables(&self, guest: &Guest, uefi: &Uefi) -> Result<Arc<Disk>, String> {
        uefi.check()?;
        match guest.disks.get(EFI_DISK) {
            Some(disk) if disk.is_own() => Ok(Arc::clone(disk)),
            Some(base) => self.disks.overlay(base).await,
            None => self.disks.copy(&Disk::image(uefi.variables.clone())).await,
        }
    }

    /// Starts QEMU with what it needs in a folder of its own.
    pub(super) async fn launch(
        &self,
        boot: &GuestBoot,
        disks: &BTreeMap<String, Arc<Disk>>,
        resume_from: Option<&str>,
        accelerator: Accelerator,
    ) -> Result<Machine, String> {
        let io = |error: std::io::Error| format!("cannot write to the guest's folder: {error}");
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", boot.vmid))
            .tempdir_in(&self.folder)
            .map_err(io)?;
        let path = folder.path();
        let mut discs = BTreeMap::new();
        for disc in &boot.discs {
            let image = path.join(format!("{}.iso", disc.drive));
            std::fs::write(&image, &disc.image).map_err(io)?;
            discs.insert(disc.drive.clone(), image);
        }
        let paths = disks.iter().map(|(key, disk)| (key.clone(), disk.path().to_owned())).collect();
        let files = GuestFiles {
            disks: &paths,
            discs: &discs,
            qmp_socket: &machine::qmp_socket(path),
            agent_socket: &machine::agent_socket(path),
            console: &machine::console(path),
            resume_from,
        };
        let launch = Launch {
            vmid: boot.vmid,
            arguments: arguments(boot, &files, accelerator),
            folder,
            has_agent: conf::agent_enabled(&boot.config),
            mac: boot.mac.clone(),
            static_address: boot.static_address(),
        };
        Machine::start(launch, &self.spawner, &self.addresses).await
    }

    pub(super) async fn download(
        &self,
        url: &str,
        name: String,
    ) -> Result<Option<KeptFile>, String> {
        let disk = self.disks.new_disk(None);
        let file = download::fetch(url, disk.path()).await?;
        if let Some(file) = &file {
            self.files.lock().insert(name, (file.clone(), disk));
        }
        Ok(file)
    }

    /// Gives a guest a disk with what a file has. Nobody writes to the file.
    pub(super) async fn import_disk(
        &self,
        vmid: u32,
        drive: String,
        file: &str,
    ) -> Result<(), String> {
        let source = self.files.lock().get(file).map(|(_, disk)| Arc::clone(disk));
        let Some(source) = source else { return Ok(()) };
        let disk = self.disks.overlay(&source).await?;
        self.change(vmid, |guest| {
            guest.disks.insert(drive, disk);
        });
        Ok(())
    }

    pub(super) async fn hibernate(&self, vmid: u32) -> Result<(), String> {
        self.snapshot(vmid, HIBERNATION, true).await?;
        if let Some(machine) = self.machine(vmid) {
            machine.stop().await;
        }
        self.change(vmid, |guest| guest.resume_from = Some(HIBERNATION.to_owned()));
        Ok(())
    }

    pub(super) async fn resize_disk(
        &self,
        vmid: u32,
        drive: &str,
        bytes: u64,
    ) -> Result<(), String> {
        let size = json!({ "node-name": node_name(drive), "size": bytes });
        if let Some(machine) = self.machine(vmid) {
            let resized = machine.qmp.execute("block_resize", size).await;
            return resized.map(|_| ()).map_err(|error| error.to_string());
        }
        match self.guest(vmid).disks.get(drive).filter(|disk| disk.is_own()) {
            Some(disk) => disk.grow(bytes).await,
            // Its first boot makes it with that size.
            None => Ok(()),
        }
    }

    pub(super) async fn snapshot(
        &self,
        vmid: u32,
        name: &str,
        with_memory: bool,
    ) -> Result<(), String> {
        self.take_over_images(vmid).await?;
        let disks = self.guest(vmid).disks;
        let drives: Vec<String> = disks.keys().cloned().collect();
        match self.machine(vmid) {
            Some(machine) if with_memory => {
                let nodes: Vec<_> = drives.iter().map(|drive| node_name(drive)).collect();
                let saved = json!({ "tag": name, "vmstate": nodes.first(), "devices": nodes });
                let job = machine.qmp.run_job("snapshot-save", saved).await;
                job.map_err(|error| error.to_string())?;
            }
            Some(machine) => {
                machine.freeze(true).await;
                let taken = snapshot_disks(&machine, &drives, name).await;
                machine.freeze(false).await;
                taken?;
            }
            None => {
                for disk in disks.values() {
                    disk.snapshot(SnapshotAct::Create, name).await?;
                }
            }
        }
        self.change(vmid, |guest| {
            guest.snapshots.insert(name.to_owned(), drives);
        });
        Ok(())
    }

    /// Gives a guest that has never run disks of its own.
    async fn take_over_images(&self, vmid: u32) -> Result<(), String> {
        for (key, disk) in self.guest(vmid).disks.into_iter().filter(|(_, disk)| !disk.is_own()) {
            let own = self.disks.overlay(&disk).await?;
            self.change(vmid, |guest| {
                guest.disks.insert(key, own);
            });
        }
        Ok(())
    }

    pub(super) async fn rollback(&self, vmid: u32, name: &str) -> Result<(), String> {
        let guest = self.guest(vmid);
        for disk in guest.disks_of(name) {
            disk.snapshot(SnapshotAct::Apply, name).await?;
        }
        self.change(vmid, |guest| guest.resume_from = Some(name.to_owned()));
        Ok(())
    }

    pub(super) async fn delete_snapshot(&self, vmid: u32, name: &str) -> Result<(), String> {
        let guest = self.guest(vmid);
        match self.machine(vmid) {
            Some(machine) => {
                let drives = guest.snapshots.get(name).into_iter().flatten();
                let nodes: Vec<_> = drives.map(|drive| node_name(drive)).collect();
                let job = json!({ "tag": name, "devices": nodes });
                let deleted = machine.qmp.run_job("snapshot-delete", job).await;
                deleted.map_err(|error| error.to_string())?;
            }
            None => {
                for disk in guest.disks_of(name) {
                    disk.snapshot(SnapshotAct::Delete, name).await?;
                }
            }
        }
        self.change(vmid, |guest| {
            guest.snapshots.remove(name);
        });
        Ok(())
    }

    pub(super) async fn clone_disks(&self, from: u32, to: u32, linked: bool) -> Result<(), String> {
        let source = self.guest(from);
        let mut disks = BTreeMap::new();
        for (key, disk) in &source.disks {
            let copy = match (linked, self.machine(from)) {
                (true, _) => self.disks.overlay(disk).await?,
                (false, Some(machine)) => {
                    let copy = self.disks.new_disk(None);
                    let backup = json!({
                        "device": node_name(key), "target": copy.path(), "format": "qcow2",
                        "sync": "full", "auto-dismiss": false,
                    });
                    let job = machine.qmp.run_job("drive-backup", backup).await;
                    job.map_err(|error| error.to_string())?;
                    copy
                }
                (false, None) => self.disks.copy(disk).await?,
            };
            disks.insert(key.clone(), copy);
        }
        self.change(to, |guest| *guest = Guest { disks, ..Guest::default() });
        Ok(())
    }
}

impl Guest {
    /// The disks that a snapshot has.
    fn disks_of(&self, snapshot: &str) -> impl Iterator<Item = &Arc<Disk>> {
        let drives = self.snapshots.get(snapshot).into_iter().flatten();
        drives.filter_map(|drive| self.disks.get(drive))
    }
}

async fn snapshot_disks(machine: &Machine, drives: &[String], name: &str) -> Result<(), String> {
    for drive in drives {
        let wanted = json!({ "device": node_name(drive), "name": name });
        let taken = machine.qmp.execute("blockdev-snapshot-internal-sync", wanted).await;
        taken.map_err(|error| error.to_string())?;
    }
    Ok(())
}
