//! The state of a world behind its one lock: nodes, guests, storages, tasks, chance.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clock::{Clock, Moment, UPTIME_AT_START};
use super::conf::Config;
use super::dice::Dice;
use super::fault::{AgentHealth, Fate, FaultBook};
use super::firewall::Firewall;
use super::ha::Ha;
use super::jobs::Jobs;
use super::mapping::Mappings;
use super::metrics::Servers;
use super::network::Network;
use super::sdn::Sdn;
use super::sight::{Sight, View};
use super::storage::Storage;
use super::task::Tasks;
use crate::spec::{NodeSpec, WebFile};

/// Length of a cycle of the status daemon.
pub const CYCLE: Duration = Duration::from_secs(10);

/// What of a node is in use by something that is no guest, and how it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Others {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub cpus: f64,
    /// Whether high availability has the node in maintenance.
    pub maintenance: bool,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// What it is made of.
    pub spec: NodeSpec,
    /// Its number in the cluster, from 1.
    pub id: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is cut off from the other nodes, and so without quorum.
    pub apart: bool,
    /// When it went down, or its status daemon hung.
    pub frozen: Option<Moment>,
    /// When its status daemon's first cycle ends.
    pub phase: Moment,
    /// When it booted, if that was after the world began.
    pub booted: Option<Moment>,
    /// What else is on it.
    pub others: Others,
    /// Its network interfaces.
    pub network: Network,
    last_pid: u32,
}

impl Node {
    /// A node that has been up for a while.
    pub fn new(spec: NodeSpec, id: u32, phase: Moment) -> Self {
        Self {
            network: Network::of(&spec),
            spec,
            id,
            up: true,
            apart: false,
            frozen: None,
            phase,
            booted: None,
            others: Others::default(),
            last_pid: 1_000,
        }
    }

    /// The end of the last cycle of its status daemon.
    pub fn last_cycle(&self, now: Moment) -> Option<Moment> {
        let now = self.frozen.map_or(now, |frozen| frozen.min(now));
        let since = now.checked_sub(self.phase)?;
        let cycles = since.as_nanos() / CYCLE.as_nanos();
        Some(self.phase + CYCLE * u32::try_from(cycles).unwrap_or(u32::MAX))
    }

    /// Seconds since it booted.
    pub fn uptime(&self, now: Moment) -> u64 {
        match self.booted {
            Some(booted) => now.saturating_sub(booted).as_secs(),
            None => UPTIME_AT_START + now.as_secs(),
        }
    }
}

/// A running guest's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub since: Moment,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was last seen alive.
    pub alive: Moment,
}

/// A change that waits for the guest to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pending {
    /// The key gets this value.
    Set(String),
    /// The key goes; by force its volume as well.
    Delete {
        /// Whether a disk's volume is removed too.
        force: bool,
    },
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The configuration of then; `parent`, `snaptime`, `description` and `vmstate` among it.
    pub config: Config,
    /// Unix seconds.
    pub time: u64,
    /// The volume with the memory.
    pub vmstate: Option<String>,
    /// How often the disk had booted.
    pub boots: u32,
}

/// What a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A virtual machine.
    Vm,
    /// A container.
    Ct,
}

impl Kind {
    /// Its name in messages.
    pub fn short(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::Ct => "CT",
        }
    }

    /// Its name in lists and ids.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vm => "qemu",
            Self::Ct => "lxc",
        }
    }
}

/// A guest.
#[derive(Debug, Clone)]
pub struct Guest {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub vmid: u32,
    /// The node that has its configuration.
    pub node: String,
    /// Its configuration; `lock`, `parent` and `template` among it.
    pub config: Config,
    /// Changes that wait for a stop.
    pub pending: BTreeMap<String, Pending>,
    /// Its snapshots.
    pub snapshots: BTreeMap<String, Snapshot>,
    /// Its process, when it runs.
    pub run: Option<Run>,
    /// How often its disk has booted.
    pub boots: u32,
    /// What the cluster's lists know of it.
    pub sight: Sight,
    /// Its agent.
    pub agent: AgentHealth,
}

impl Guest {
    /// A guest that has just been made.
    pub fn new(vmid: u32, node: &str, config: Config, now: Moment) -> Self {
        Self {
            kind: Kind::Vm,
            vmid,
            node: node.to_owned(),
            config,
            pending: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            run: None,
            boots: 0,
            sight: Sight::new(now),
            agent: AgentHealth::Well,
        }
    }

    /// A container that has just been made.
    pub fn container(vmid: u32, node: &str, config: Config, now: Moment) -> Self {
        Self { kind: Kind::Ct, ..Self::new(vmid, node, config, now) }
    }

    /// What the status daemon would say of it.
    pub fn view(&self) -> View {
        View::of(self)
    }

    /// Refuses when the configuration has a `lock` key.
    ///
    /// # Errors
    /// `VM is locked (x)`.
    pub fn unlocked(&self) -> Result<(), String> {
        match self.config.get("lock") {
            Some(lock) => Err(format!("{} is locked ({lock})", self.kind.short())),
            None => Ok(()),
        }
    }

    /// Whether it is a template.
    pub fn is_template(&self) -> bool {
        super::conf::flag(&self.config, "template")
    }

    /// The digest of its configuration, pending changes and snapshots included.
    pub fn digest(&self) -> String {
        if self.pending.is_empty() && self.snapshots.is_empty() {
            return super::conf::digest(&self.config);
        }
        let mut all = self.config.clone();
        for (key, change) in &self.pending {
            let text = match change {
                Pending::Set(value) => value.clone(),
                Pending::Delete { force } => format!("delete:{force}"),
            };
            all.insert(format!("[PENDING]{key}"), text);
        }
        for (name, snapshot) in &self.snapshots {
            for (key, value) in &snapshot.config {
                all.insert(format!("[{name}]{key}"), value.clone());
            }
        }
        super::conf::digest(&all)
    }

    /// Refuses when the caller worked on another version of the configuration.
    ///
    /// # Errors
    /// The text of behaviour section 6.
    pub fn digest_is(&self, wanted: Option<&str>) -> Result<(), String> {
        match wanted {
            Some(wanted) if wanted != self.digest() => Err(match self.kind {
                Kind::Vm => "checksum mismatch (file change by other user?)".into(),
                Kind::Ct => "detected modified configuration - file changed by other user? Try \
                             again."
                    .into(),
            }),
            _ => Ok(()),
        }
    }
}

/// Everything that changes in a world.
#[derive(Debug)]
pub struct State {
    /// The time.
    pub clock: Clock,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Virtual machines by id: one space with the containers for the whole cluster.
    pub guests: BTreeMap<u32, Guest>,
    /// Containers by id.
    pub containers: BTreeMap<u32, Guest>,
    /// High availability.
    pub ha: Ha,
    /// Software-defined networks.
    pub sdn: Sdn,
    /// Firewalls by what they protect.
    pub firewalls: BTreeMap<String, Firewall>,
    /// Backup jobs.
    pub jobs: Jobs,
    /// Names for devices and directories of the nodes.
    pub mappings: Mappings,
    /// Servers that metrics go to.
    pub metrics: Servers,
    /// How many disks backups have kept.
    pub kept_disks: u32,
    /// Files that nodes can download.
    pub web: Vec<WebFile>,
    /// Storages by name.
    pub storages: BTreeMap<String, Storage>,
    /// Tasks.
    pub tasks: Tasks,
    /// Chance.
    pub dice: Dice,
    /// What goes wrong.
    pub faults: FaultBook,
}

impl State {
    /// A guest's configuration on a node.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub fn guest(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let guest = self.guests.get(&vmid).filter(|guest| guest.node == node);
        guest.ok_or_else(|| no_file(node, vmid))
    }

    /// The same, worded as by calls that first ask whether the guest runs.
    ///
    /// # Errors
    /// `unable to find configuration file for VM … on node '…'`.
    pub fn find_guest(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let missing =
            |_| format!("unable to find configuration file for VM {vmid} on node '{node}'");
        self.guest(node, vmid).map_err(missing)
    }

    /// A guest that is about to be changed: what the lists show of it is settled first.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub fn guest_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Guest, String> {
        let now = self.clock.now();
        let cycle = self.nodes.get(node).and_then(|node| node.last_cycle(now));
        let guest = self.guests.get_mut(&vmid).filter(|guest| guest.node == node);
        let guest = guest.ok_or_else(|| no_file(node, vmid))?;
        guest.settle(cycle);
        guest.sight.changed = now;
        Ok(guest)
    }

    /// A container's configuration on a node.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub fn container(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let guest = self.containers.get(&vmid).filter(|guest| guest.node == node);
        guest.ok_or_else(|| no_container(node, vmid))
    }

    /// A container that is about to be changed, as [`State::guest_mut`].
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub fn container_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Guest, String> {
        let now = self.clock.now();
        let cycle = self.nodes.get(node).and_then(|node| node.last_cycle(now));
        let guest = self.containers.get_mut(&vmid).filter(|guest| guest.node == node);
        let guest = guest.ok_or_else(|| no_container(node, vmid))?;
        guest.settle(cycle);
        guest.sight.changed = now;
        Ok(guest)
    }

    /// Virtual machines, then containers.
    pub fn everyone(&self) -> impl Iterator<Item = &Guest> {
        self.guests.values().chain(self.containers.values())
    }

    /// Who has an id.
    pub fn holder(&self, vmid: u32) -> Option<&Guest> {
        self.guests.get(&vmid).or_else(|| self.containers.get(&vmid))
    }

    /// Refuses an id that is taken anywhere.
    ///
    /// # Errors
    /// `VM 101 already exists on node 'pve1'`, or the same of a container.
    pub fn id_is_free(&self, vmid: u32) -> Result<(), String> {
        match self.holder(vmid) {
            Some(other) => Err(format!(
                "{} {vmid} already exists on node '{}'",
                other.kind.short(),
                other.node
            )),
            None => Ok(()),
        }
    }

    /// A storage.
    ///
    /// # Errors
    /// `storage 'x' does not exist`.
    pub fn storage(&self, name: &str) -> Result<&Storage, String> {
        self.storages.get(name).ok_or_else(|| format!("storage '{name}' does not exist"))
    }

    /// A storage, to be changed.
    ///
    /// # Errors
    /// `storage 'x' does not exist`.
    pub fn storage_mut(&mut self, name: &str) -> Result<&mut Storage, String> {
        self.storages.get_mut(name).ok_or_else(|| format!("storage '{name}' does not exist"))
    }

    /// The storage of a volume id.
    ///
    /// # Errors
    /// When it is no volume id, or the storage does not exist.
    pub fn storage_of(&self, volid: &str) -> Result<&Storage, String> {
        let Some(name) = super::conf::storage_of(volid) else {
            return Err(format!("unable to parse volume ID '{volid}'"));
        };
        self.storage(name)
    }

    /// Whether a node is in the part of the cluster that has quorum.
    pub fn quorate(&self, node: &str) -> bool {
        let here = self.nodes.keys().filter(|other| self.online(node, other)).count();
        here * 2 > self.nodes.len()
    }

    /// Whether a node is up as another one sees it; one that is cut off sees itself alone.
    pub fn online(&self, from: &str, name: &str) -> bool {
        let apart = |name: &str| self.nodes.get(name).is_some_and(|node| node.apart);
        let up = self.nodes.get(name).is_some_and(|node| node.up);
        up && (from == name || !apart(from) && !apart(name))
    }

    /// A process id and its start in ticks.
    pub fn new_process(&mut self, node: &str) -> (u32, u64) {
        let now = self.clock.now();
        let Some(node) = self.nodes.get_mut(node) else { return (1, 1) };
        node.last_pid += 1;
        let ticks = node.uptime(now) * 100 + u64::from(now.subsec_millis() / 10);
        (node.last_pid, ticks)
    }

    /// What happens to a task that is forked.
    pub fn task_fate(&mut self, node: &str, kind: &str) -> Fate {
        self.faults.task(node, kind, &mut self.dice)
    }
}

/// The text for a guest whose configuration is not on a node.
pub fn no_file(node: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
}

fn no_container(node: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{node}/lxc/{vmid}.conf' does not exist")
}
