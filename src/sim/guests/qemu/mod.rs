//! QEMU guests: real machines, with real disks, memory and systems.
//!
//! The host owns the image files of all drives, a loopback address for each guest, and one QEMU for
//! each guest that runs. In: the calls of [`GuestHost`]. Out: a machine with the hardware of its
//! configuration, whose SSH port is reached on its loopback address, and the answers of its own
//! guest agent.
//!
//! ```text
//!   images of the operator        disks of guests                     a guest that runs
//!   tiny.qcow2  <---------------- 1.qcow2 (overlay) <---------------- QEMU <-- QMP
//!               <---------------- 2.qcow2 (overlay) <-- 3.qcow2          |  <-- agent's socket
//!                                                       (linked clone)   +-- 127.77.x.y:2222
//! ```
//!
//! Snapshots are internal to the disks' files, with or without memory. A guest that powers itself
//! off ends its QEMU.
//!
//! Failure paths: a QEMU that does not start fails the boot with what it said. A QEMU that hangs is
//! killed after seconds. No QEMU outlives the host: not when the simulator stops, is dropped, or is
//! killed. What a killed simulator leaves on the disk, the next one removes (`crate::run`).
//!
//! Files beside this one: `host` (the guests), `images` (the operator's), `disks` (files of drives),
//! `download` (files that disks are made of), `firmware` (UEFI), `arguments` (QEMU's command line), `machine` (one QEMU), `qmp` and `agent` (its sockets), `accelerator`.

mod accelerator;
mod agent;
mod arguments;
mod disks;
mod download;
mod firmware;
mod host;
mod images;
mod machine;
mod qmp;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use self::accelerator::AcceleratorChoice;
use self::disks::{Disk, DiskFolder};
use self::host::{Inner, described_guests};
pub(crate) use self::images::{Image, read_images};
use self::machine::SSH_PORT;
use super::address::AddressPool;
use super::spawner::Spawner;
use crate::guest::{
    AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost, GuestWork, KeptFile,
};
use crate::spec::GuestSpec;

/// Why there are no QEMU guests.
#[derive(Debug, thiserror::Error)]
pub enum QemuError {
    #[error("`--guests qemu` needs `--images DIR`: a folder with bootable disk images NAME.qcow2")]
    NoFolder,
    #[error("cannot read the images in `{}`", .folder.display())]
    Images {
        folder: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}` has no disk image NAME.qcow2; tests/vm/image.sh builds one", .folder.display())]
    NoImage { folder: PathBuf },
    #[error(
        "guest {vmid} has no image: `--images` has no `{name}.qcow2`, after the guest's name; its \
         images are: {known}"
    )]
    UnknownImage { vmid: u32, name: String, known: String },
    #[error("cannot run `{program}`; install qemu-system-x86, qemu-utils and util-linux")]
    Program {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("no guest boots under KVM: {0}; use `--accel tcg` or `--accel auto`")]
    Kvm(String),
    #[error("cannot prepare a folder for the guests")]
    Folder(#[source] std::io::Error),
}

/// What a host of QEMU guests starts with.
pub(crate) struct QemuOptions<'a> {
    /// The folder of disks and sockets.
    pub(crate) folder: PathBuf,
    pub(crate) images: &'a [Image],
    /// The guests of the cluster's description. Templates and running guests have the image of
    /// their name.
    pub(crate) guests: &'a [GuestSpec],
    pub(crate) accelerator: AcceleratorChoice,
}

/// A host of QEMU guests.
pub struct QemuGuests {
    inner: Arc<Inner>,
}

impl QemuGuests {
    /// Checks that QEMU is installed, finds the images of guests, and settles the accelerator.
    ///
    /// # Errors
    /// See [`QemuError`].
    pub(crate) async fn start(options: QemuOptions<'_>) -> Result<Self, QemuError> {
        for program in ["qemu-system-x86_64", "qemu-img", "setpriv"] {
            let tried = tokio::process::Command::new(program).arg("--version").output().await;
            tried.map_err(|source| QemuError::Program { program, source })?;
        }
        std::fs::create_dir_all(&options.folder).map_err(QemuError::Folder)?;
        let images: Vec<_> =
            options.images.iter().map(|image| Disk::image(image.path.clone())).collect();
        let inner = Inner {
            disks: DiskFolder::new(options.folder.clone()),
            folder: options.folder,
            guests: Mutex::new(described_guests(options.guests, options.images, &images)?),
            images,
            files: Mutex::default(),
            accelerator: OnceCell::new(),
            spawner: Spawner::start().map_err(QemuError::Folder)?,
            addresses: Mutex::new(AddressPool::new([127, 77])),
        };
        let accelerator = inner.choose_accelerator(options.accelerator).await?;
        let _first = inner.accelerator.set(accelerator);
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl QemuGuests {
    /// Work that outlives the borrow of the host.
    fn work<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Inner>) -> F,
    ) -> BoxFuture<'static, T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        work(Arc::clone(&self.inner)).boxed()
    }
}

impl GuestHost for QemuGuests {
    fn boot(&self, boot: GuestBoot) -> GuestWork {
        self.work(|inner| async move { inner.boot(boot).await })
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.work(move |inner| async move {
            if let Some(machine) = inner.machine(vmid) {
                machine.stop().await;
            }
        })
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.work(move |inner| async move {
            if let Some(machine) = inner.machine(vmid) {
                machine.shut_down().await;
            }
        })
    }

    fn running(&self, vmid: u32) -> bool {
        self.inner.machine(vmid).is_some()
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        self.work(move |inner| async move {
            let machine = inner.machine(vmid).ok_or(AgentError::NotRunning)?;
            machine.agent(call).await
        })
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        let machine = self.inner.machine(vmid)?;
        Some(GuestAddress { ip: IpAddr::V4(machine.address()), port: SSH_PORT })
    }

    fn reads_discs(&self) -> bool {
        true
    }

    fn set_paused(&self, vmid: u32, paused: bool) -> GuestWork {
        self.work(move |inner| async move {
            let Some(machine) = inner.machine(vmid) else { return Ok(()) };
            let command = if paused { "stop" } else { "cont" };
            let done = machine.qmp.execute(command, json!({})).await;
            done.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    fn reset(&self, vmid: u32) -> BoxFuture<'static, bool> {
        self.work(move |inner| async move {
            let Some(machine) = inner.machine(vmid) else { return false };
            machine.qmp.execute("system_reset", json!({})).await.is_ok()
        })
    }

    fn hibernate(&self, vmid: u32) -> GuestWork {
        self.work(move |inner| async move { inner.hibernate(vmid).await })
    }

    fn resize_disk(&self, vmid: u32, drive: &str, bytes: u64) -> GuestWork {
        let drive = drive.to_owned();
        self.work(move |inner| async move { inner.resize_disk(vmid, &drive, bytes).await })
    }

    fn snapshot(&self, vmid: u32, name: &str, with_memory: bool) -> GuestWork {
        let name = name.to_owned();
        self.work(move |inner| async move { inner.snapshot(vmid, &name, with_memory).await })
    }

    fn rollback(&self, vmid: u32, name: &str) -> GuestWork {
        let name = name.to_owned();
        self.work(move |inner| async move { inner.rollback(vmid, &name).await })
    }

    fn delete_snapshot(&self, vmid: u32, name: &str) -> GuestWork {
        let name = name.to_owned();
        self.work(move |inner| async move { inner.delete_snapshot(vmid, &name).await })
    }

    fn clone_disk(&self, from: u32, to: u32, linked: bool) -> GuestWork {
        self.work(move |inner| async move { inner.clone_disks(from, to, linked).await })
    }

    fn download(
        &self,
        url: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<KeptFile>, String>> {
        let (url, name) = (url.to_owned(), name.to_owned());
        self.work(move |inner| async move { inner.download(&url, name).await })
    }

    fn kept_file(&self, name: &str) -> Option<KeptFile> {
        Some(self.inner.files.lock().get(name)?.0.clone())
    }

    fn drop_file(&self, name: &str) {
        let _file = self.inner.files.lock().remove(name);
    }

    fn import_disk(&self, vmid: u32, drive: &str, file: &str) -> GuestWork {
        let (drive, file) = (drive.to_owned(), file.to_owned());
        self.work(move |inner| async move { inner.import_disk(vmid, drive, &file).await })
    }

    fn forget(&self, vmid: u32) {
        let guest = self.inner.guests.lock().remove(&vmid);
        if let Some(machine) = guest.and_then(|guest| guest.machine) {
            machine.kill();
        }
        self.inner.addresses.lock().release(vmid);
    }
}
