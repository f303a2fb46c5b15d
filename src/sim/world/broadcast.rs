//! What `pvestatd` of a node reports to the cluster about its guests.
//!
//! The lists of the cluster show a guest as of the last cycle of the status daemon on its node.
//! Nothing runs every 10 s: a guest's status is brought up to the last cycle just before it is read
//! or changed.

use std::time::Duration;

use super::clock::Moment;
use super::conf;
use super::state::{Guest, GuestType};

/// The age at which the cluster drops the status of a silent node (book: proxmox, section 8).
const BROADCAST_LIFETIME: Duration = Duration::from_secs(300);

/// The status that the daemon broadcasts for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestStatus {
    /// `running`, `stopped` or `paused`.
    pub(crate) run_state: &'static str,
    pub(crate) name: String,
    pub(crate) template: bool,
    pub(crate) started_at: Option<Moment>,
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u64,
    /// The size of the boot disk of a VM, or of the root volume of a container.
    pub(crate) disk_bytes: u64,
}

impl GuestStatus {
    /// The present status of a guest.
    pub(crate) fn of(guest: &Guest) -> Self {
        let config = &guest.config;
        let run_state = match &guest.process {
            None => "stopped",
            Some(process) if process.paused => "paused",
            Some(_) => "running",
        };
        Self {
            run_state,
            name: guest_name(guest),
            template: conf::flag(config, "template"),
            started_at: guest.process.as_ref().map(|process| process.started_at),
            memory_bytes: conf::memory_bytes(config),
            cpus: conf::cpus(config),
            disk_bytes: match guest.kind {
                GuestType::Vm => conf::boot_disk_bytes(config),
                GuestType::Ct => {
                    config.get("rootfs").map_or(0, |root| conf::Drive::parse(root).size_bytes())
                }
            },
        }
    }
}

fn guest_name(guest: &Guest) -> String {
    let key = match guest.kind {
        GuestType::Vm => "name",
        GuestType::Ct => "hostname",
    };
    let name = guest.config.get(key).cloned();
    name.unwrap_or_else(|| match guest.kind {
        GuestType::Vm => format!("VM {}", guest.vmid),
        GuestType::Ct => format!("CT{}", guest.vmid),
    })
}

/// The status that the cluster knows of a guest, and when the guest last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusBroadcast {
    /// The status as of the last cycle, and the time of that cycle.
    pub(crate) last: Option<(Moment, GuestStatus)>,
    /// The time of the last change.
    pub(crate) changed_at: Moment,
}

impl StatusBroadcast {
    /// The state of a guest before its first broadcast.
    pub(crate) fn new(now: Moment) -> Self {
        Self { last: None, changed_at: now }
    }

    /// The last status, unless it is too old.
    pub(crate) fn unexpired(&self, now: Moment) -> Option<&(Moment, GuestStatus)> {
        self.last.as_ref().filter(|(at, _)| now.saturating_sub(*at) <= BROADCAST_LIFETIME)
    }
}

impl Guest {
    /// Broadcasts the present status unless the guest has changed since the last cycle of the
    /// daemon.
    pub(crate) fn broadcast_status(&mut self, cycle: Option<Moment>) {
        let Some(cycle) = cycle else { return };
        if self.broadcast.changed_at <= cycle {
            self.broadcast.last = Some((cycle, self.status()));
        }
    }
}
