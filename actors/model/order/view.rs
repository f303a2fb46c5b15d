//! What one look at a machine shows.

use std::net::IpAddr;

use super::{Taken, TakenSnapshots, is_own_snapshot};
use crate::id::{NodeName, VmId};
use crate::phase::Power;

/// A machine as its cluster showed it at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineView {
    pub node: NodeName,
    pub vmid: VmId,
    pub power: Power,
    /// Proxmox's own word for that: QEMU's where the machine has a process.
    pub word: String,
    /// Proxmox's `lock` of its configuration, such as `backup`.
    pub lock: Option<String>,
    /// Seconds since its process started.
    pub uptime_secs: u64,
    /// The busy part of its processors, from 0 to 1.
    pub cpu: Option<f64>,
    pub cpus: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used: Option<f64>,
    /// All its memory, in bytes.
    pub memory: Option<f64>,
    /// Addresses that its guest agent reports, without loopback and link-local ones.
    pub addresses: Vec<IpAddr>,
    /// Why no address is known; none where some are.
    pub no_address: Option<String>,
    /// The page of Proxmox with its console.
    pub console_url: String,
    /// Hardware, with changes that wait for a restart.
    pub config: Vec<ConfigValue>,
    /// Tags and cloud-init values, keys of logins decoded. Nobody is shown them as they are.
    pub given: Vec<ConfigValue>,
    /// Bytes of the disk it boots from; none where its configuration does not say.
    pub disk: Option<u64>,
    /// Snapshots, drover's own too.
    pub snapshots: Vec<SnapshotView>,
    /// The snapshot that its present state comes from.
    pub parent: Option<String>,
}

impl MachineView {
    /// Keeps drover's own snapshots and these, and those that are not finished. Any other was taken by
    /// hand, maybe in an earlier use of the machine, and is not the holder's to know.
    pub fn keep_snapshots(&mut self, known: &TakenSnapshots) {
        let is_known = |one: &SnapshotView| match known.is(&one.name, one.taken) {
            Taken::Same | Taken::Untimed => true,
            Taken::Namesake(_) | Taken::No => is_own_snapshot(&one.name),
        };
        let shown: Vec<String> =
            self.snapshots.iter().filter(|one| is_known(one)).map(|one| one.name.clone()).collect();
        let shown = |name: &str| shown.iter().any(|one| one == name);
        self.snapshots.retain(|one| shown(&one.name) || one.unfinished.is_some());
        for one in &mut self.snapshots {
            one.parent = one.parent.take().filter(|parent| shown(parent));
        }
        self.parent = self.parent.take().filter(|parent| shown(parent));
    }
}

/// One key of a machine's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigValue {
    pub key: String,
    /// What holds now; none where nothing does.
    pub value: Option<String>,
    /// What holds from the next start on; none where nothing changes.
    pub pending: Option<String>,
    /// Whether the next start takes the key away.
    pub deleted: bool,
}

/// A snapshot of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotView {
    pub name: String,
    pub description: String,
    /// When it was taken, in Unix seconds.
    pub taken: Option<u64>,
    /// Whether it holds the memory too.
    pub memory: bool,
    /// The snapshot that it comes from.
    pub parent: Option<String>,
    /// `prepare` or `delete` where it was started and not finished.
    pub unfinished: Option<String>,
}
