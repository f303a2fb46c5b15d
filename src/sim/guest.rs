//! The interface of a host of guests: what runs when a simulated virtual machine runs.
//!
//! The world starts, stops and asks guests through [`GuestHost`]. It knows nothing of sockets,
//! shells or emulators; `guests` has the implementations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready};

/// The boot of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestBoot {
    pub vmid: u32,
    pub node: String,
    /// The host name that cloud-init sets.
    pub hostname: String,
    /// The configuration at the start; `sshkeys` is still percent-encoded.
    pub config: BTreeMap<String, String>,
    /// The MAC address of net0, upper case.
    pub mac: Option<String>,
    /// The number of this boot among the boots of this disk, from 1. cloud-init makes host keys at
    /// the first.
    pub boot: u32,
    /// Whether the guest resumes from saved memory: it does not boot, and no key is made.
    pub resumed: bool,
    /// Whether the cloud-init keys come from a disc image in one of its drives.
    pub config_from_disc: bool,
    /// The discs in its CD-ROM drives, with the one for cloud-init; empty for a host that reads
    /// none ([`GuestHost::reads_discs`]).
    pub discs: Vec<GuestDisc>,
}

/// A disc in a CD-ROM drive of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisc {
    /// The drive, such as `ide2`.
    pub drive: String,
    /// An ISO 9660 image.
    pub image: Bytes,
}

impl GuestBoot {
    /// The address that cloud-init sets from `ipconfig0`, IPv4 first. None for a guest that uses
    /// DHCP, or has no cloud-init drive.
    #[must_use]
    pub fn static_address(&self) -> Option<IpAddr> {
        let settings = self.config.get("ipconfig0")?;
        let of = |name: &str| {
            let mut parts = settings.split(',').filter_map(|part| part.split_once('='));
            let (_, value) = parts.find(|(key, _)| *key == name)?;
            value.split_once('/')?.0.parse().ok()
        };
        let has_cloud_init =
            self.config_from_disc || self.config.values().any(|value| value.contains("cloudinit"));
        of("ip").or_else(|| of("ip6")).filter(|_| has_cloud_init)
    }
}

/// One command to the guest agent that Proxmox's own checks let through.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentCall {
    /// `guest-ping`.
    Ping,
    /// `guest-info`.
    Info,
    /// `guest-network-get-interfaces`.
    NetworkInterfaces,
    /// Another read-only `guest-get-…` command, by its name in Proxmox, such as `get-osinfo`.
    Get(String),
    /// `guest-exec`: program and arguments, with input.
    Exec { command: Vec<String>, input: Option<Vec<u8>> },
    /// `guest-exec-status`.
    ExecStatus { pid: i64 },
    /// Reads a whole file.
    FileRead { path: String },
    /// Creates or replaces a file.
    FileWrite { path: String, content: Vec<u8> },
}

/// Why the guest agent gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Nothing answers on the channel: the guest has not booted yet, or its service is dead.
    #[error("the guest agent does not answer")]
    NotRunning,
    /// The agent took the command and did not answer in time.
    #[error("the guest agent did not answer in time")]
    Timeout,
    /// The agent itself refused the command.
    #[error("{desc}")]
    Refused {
        /// QEMU's error class, such as `GenericError`.
        class: String,
        desc: String,
    },
}

/// Where a guest's SSH server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAddress {
    pub ip: IpAddr,
    pub port: u16,
}

/// A file of the web that a host keeps for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// The size of the disk in it.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// SHA-512 in lower-case hexadecimal.
    pub sha512: String,
}

/// Work of a host on a guest, which can fail with a text for the task's log.
pub type GuestWork = BoxFuture<'static, Result<(), String>>;

/// A host that runs guests.
pub trait GuestHost: Send + Sync + 'static {
    /// Starts the guest. It returns when the simulated QEMU process runs, long before the guest has
    /// booted.
    ///
    /// # Errors
    /// The text after `start failed: `.
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>>;

    /// Kills the guest; does nothing when it does not run.
    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()>;

    /// Asks the guest to shut down, by agent or ACPI, and returns at once. The guest ends by itself
    /// later, or ignores the request.
    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()>;

    /// Whether the guest's QEMU still runs; a guest can power itself off.
    fn running(&self, vmid: u32) -> bool;

    /// Sends one command to the guest agent and gives the value of `result`; for `FileRead` an
    /// object with `content` (base64) and `bytes-read`.
    ///
    /// # Errors
    /// See [`AgentError`].
    fn agent(
        &self,
        vmid: u32,
        call: AgentCall,
    ) -> BoxFuture<'static, Result<serde_json::Value, AgentError>>;

    /// Where the guest's SSH server listens; none while the guest does not run.
    fn address(&self, vmid: u32) -> Option<GuestAddress>;

    /// The time until the guest's agent answers; none where the host does not know.
    fn agent_ready_in(&self, _vmid: u32) -> Option<Duration> {
        None
    }

    /// The time until a guest that has just started has its address; none where the host does not
    /// know.
    fn reachable_in(&self, _vmid: u32) -> Option<Duration> {
        None
    }

    /// Whether a boot needs the discs in the guest's CD-ROM drives.
    fn reads_discs(&self) -> bool {
        false
    }

    /// Halts the processors of a running guest, or lets them go on. Hosts that do not know how
    /// leave the guest running; the world keeps its agent from answering.
    ///
    /// # Errors
    /// Why the guest cannot be halted.
    fn set_paused(&self, _vmid: u32, _paused: bool) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Resets a running guest as its reset button does. False where the host cannot; the world
    /// then stops and boots the guest.
    fn reset(&self, _vmid: u32) -> BoxFuture<'static, bool> {
        ready(false).boxed()
    }

    /// Saves a running guest with its memory and stops it; its next boot goes on from there. Hosts
    /// without memory only stop the guest.
    ///
    /// # Errors
    /// Why it cannot be saved; it runs on then.
    fn hibernate(&self, vmid: u32) -> GuestWork {
        self.stop(vmid).map(Ok).boxed()
    }

    /// Grows a disk of the guest, which may run.
    ///
    /// # Errors
    /// Why it cannot be grown.
    fn resize_disk(&self, _vmid: u32, _drive: &str, _bytes: u64) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Saves the guest's disks under a snapshot's name, and its memory if asked for.
    ///
    /// # Errors
    /// Why they cannot be saved.
    fn snapshot(&self, _vmid: u32, _name: &str, _with_memory: bool) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Restores the guest's disks from a snapshot. The guest is stopped. A boot that resumes
    /// ([`GuestBoot::resumed`]) then restores the memory.
    ///
    /// # Errors
    /// Why they cannot be restored.
    fn rollback(&self, _vmid: u32, _name: &str) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Deletes a snapshot of the guest.
    ///
    /// # Errors
    /// Why it cannot be deleted.
    fn delete_snapshot(&self, _vmid: u32, _name: &str) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Copies the disks of one guest for a clone; a linked clone keeps only what differs.
    ///
    /// # Errors
    /// Why they cannot be copied.
    fn clone_disk(&self, _from: u32, _to: u32, _linked: bool) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Fetches a file of the web and keeps it under a name, in place of one that is there. None where
    /// the host keeps no content of files, or where it cannot reach the URL: the file then is what
    /// the cluster's description says.
    ///
    /// # Errors
    /// Why the fetch failed.
    fn download(
        &self,
        _url: &str,
        _name: &str,
    ) -> BoxFuture<'static, Result<Option<KeptFile>, String>> {
        ready(Ok(None)).boxed()
    }

    /// A file that the host keeps.
    fn kept_file(&self, _name: &str) -> Option<KeptFile> {
        None
    }

    /// Removes a file that the host keeps.
    fn drop_file(&self, _name: &str) {}

    /// Fills a disk of a guest from a file that the host keeps; without one the disk stays blank.
    ///
    /// # Errors
    /// Why it cannot be made.
    fn import_disk(&self, _vmid: u32, _drive: &str, _file: &str) -> GuestWork {
        ready(Ok(())).boxed()
    }

    /// Removes all data of a destroyed guest.
    fn forget(&self, vmid: u32);
}
