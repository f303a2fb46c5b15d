//! The inside of simulated guests: what answers when a virtual machine runs.
//!
//! The world starts, stops and asks guests through [`GuestHost`]; it knows nothing of sockets,
//! shells or emulators.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// A guest about to run.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestBoot {
    /// Its VMID.
    pub vmid: u32,
    /// The node it starts on.
    pub node: String,
    /// The host name cloud-init gives it.
    pub hostname: String,
    /// Its configuration as it stands at the start (`sshkeys` still percent-encoded).
    pub config: BTreeMap<String, String>,
    /// The MAC address of net0, upper case.
    pub mac: Option<String>,
    /// Counts boots of this disk, from 1: cloud-init makes host keys on the first.
    pub boot: u32,
    /// Whether it goes on from saved memory: nothing boots, and no key is made.
    pub resumed: bool,
    /// Whether the cloud-init keys are those of a disc image in one of its drives.
    pub disc: bool,
}

impl GuestBoot {
    /// The address cloud-init gives it by `ipconfig0`, IPv4 first; none where it asks for one, or has
    /// no drive to hear of it.
    #[must_use]
    pub fn static_address(&self) -> Option<IpAddr> {
        let settings = self.config.get("ipconfig0")?;
        let of = |name: &str| {
            let mut parts = settings.split(',').filter_map(|part| part.split_once('='));
            let (_, value) = parts.find(|(key, _)| *key == name)?;
            value.split_once('/')?.0.parse().ok()
        };
        let told = self.disc || self.config.values().any(|value| value.contains("cloudinit"));
        of("ip").or_else(|| of("ip6")).filter(|_| told)
    }
}

/// One command to the guest agent, already past Proxmox's own checks.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentCall {
    /// `guest-ping`.
    Ping,
    /// `guest-info`.
    Info,
    /// `guest-network-get-interfaces`.
    NetworkInterfaces,
    /// Another read-only `guest-get-…` command, by its Proxmox name (`get-osinfo`).
    Get(String),
    /// `guest-exec`: program and arguments, with input.
    Exec {
        /// Program and arguments.
        command: Vec<String>,
        /// What it reads on standard input.
        input: Option<Vec<u8>>,
    },
    /// `guest-exec-status`.
    ExecStatus {
        /// The process asked about.
        pid: i64,
    },
    /// Reads a whole file.
    FileRead {
        /// Its path in the guest.
        path: String,
    },
    /// Replaces a file.
    FileWrite {
        /// Its path in the guest.
        path: String,
        /// Its whole content.
        content: Vec<u8>,
    },
}

/// Why the agent gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// Nobody answers on the channel (not booted yet, service dead).
    #[error("the guest agent does not answer")]
    NotRunning,
    /// The agent took the command and did not answer in time.
    #[error("the guest agent did not answer in time")]
    Timeout,
    /// The agent's own refusal.
    #[error("{desc}")]
    Refused {
        /// QEMU's error class, such as `GenericError`.
        class: String,
        /// Its text.
        desc: String,
    },
}

/// Where a guest can be reached by SSH, when it can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAddress {
    /// Its address.
    pub ip: IpAddr,
    /// The SSH port.
    pub port: u16,
}

/// Runs the insides of guests.
pub trait GuestHost: Send + Sync + 'static {
    /// Starts the guest; done when its (virtual) QEMU runs, long before it has booted.
    ///
    /// # Errors
    /// The text after `start failed: `.
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>>;

    /// Kills the guest; safe when it does not run.
    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()>;

    /// Asks the guest to shut down (agent or ACPI); returns at once. The guest then ends by itself,
    /// or ignores it.
    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()>;

    /// Whether the guest's QEMU still runs: a guest may power itself off.
    fn running(&self, vmid: u32) -> bool;

    /// Sends one command to the guest agent; the result is the value of `result`
    /// (for `FileRead` an object with `content`, base64, and `bytes-read`).
    ///
    /// # Errors
    /// See [`AgentError`].
    fn agent(
        &self,
        vmid: u32,
        call: AgentCall,
    ) -> BoxFuture<'static, Result<serde_json::Value, AgentError>>;

    /// Where the guest's SSH listens, for summaries; none while it does not run.
    fn address(&self, vmid: u32) -> Option<GuestAddress>;

    /// How long it is until the guest's agent answers; none where nobody knows.
    fn answers_in(&self, _vmid: u32) -> Option<Duration> {
        None
    }

    /// How long a guest that has just begun takes until it has an address; none where nobody knows.
    fn reachable_in(&self, _vmid: u32) -> Option<Duration> {
        None
    }

    /// Keeps the guest's disk under a snapshot's name.
    fn snapshot(&self, vmid: u32, name: &str);

    /// Puts the guest's disk back to a snapshot; the guest is stopped when this is called.
    fn rollback(&self, vmid: u32, name: &str);

    /// Copies the disk of one guest for a clone.
    fn clone_disk(&self, from: u32, to: u32);

    /// Removes everything of a destroyed guest.
    fn forget(&self, vmid: u32);
}
