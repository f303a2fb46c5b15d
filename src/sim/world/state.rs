//! The state of a world behind its single mutex: nodes, guests, storages, tasks, faults and chance.
//!
//! `State` is plain data; handlers and tasks lock it for short, and never across an await. The
//! services of the cluster keep their part in a value of their own (`Ha`, `Sdn`, `Firewall`,
//! `BackupJobs`, `Mappings`, `MetricServers`), defined beside their handlers.
//!
//! `vm`, `container` and `storage` find an entry or return Proxmox's error text. `vm_mut` and
//! `container_mut` broadcast the guest's old status before they hand it out, so that the lists of
//! the cluster stay as of the last cycle. VMs and containers share the type `Guest` and one range
//! of VMIDs.
//!
//! A guest that runs has a `GuestProcess`. Changes that its process cannot take are
//! `PendingChange`s, which take effect when the process ends.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_nocloud::iso::Disc;

use super::backup_jobs::BackupJobs;
use super::broadcast::{GuestStatus, StatusBroadcast};
use super::clock::{Clock, Moment, UPTIME_AT_START};
use super::conf::Config;
use super::faults::{AgentHealth, FaultInjector, InjectedTaskFault};
use super::firewall::Firewall;
use super::ha::Ha;
use super::installer::Installer;
use super::mapping::Mappings;
use super::metric_servers::MetricServers;
use super::network::Network;
use super::random::Random;
use super::sdn::Sdn;
use super::storage::Storage;
use super::task::Tasks;
use crate::spec::{NodeSpec, WebFile};

/// The length of a cycle of `pvestatd`.
pub(crate) const STATUS_CYCLE: Duration = Duration::from_secs(10);

/// What a test sets for a node: load that is not a guest's, and maintenance.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NodeOverrides {
    /// Memory in use beside the guests.
    pub memory_bytes: u64,
    /// Busy processors beside the guests.
    pub cpus: f64,
    pub maintenance: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) spec: NodeSpec,
    /// The number of the node in the cluster, from 1.
    pub(crate) id: u32,
    pub(crate) up: bool,
    /// Whether the node is cut off from the others; it then has no quorum.
    pub(crate) partitioned: bool,
    /// When the node went down or its status daemon hung.
    pub(crate) status_frozen_at: Option<Moment>,
    /// When the first cycle of the status daemon ends.
    pub(crate) first_cycle_end: Moment,
    /// When the node booted; none if that was before the start of the world.
    pub(crate) booted_at: Option<Moment>,
    pub(crate) overrides: NodeOverrides,
    pub(crate) network: Network,
    last_pid: u32,
}

impl Node {
    /// A node that has been up for `UPTIME_AT_START`.
    pub(crate) fn new(spec: NodeSpec, id: u32, first_cycle_end: Moment) -> Self {
        Self {
            network: Network::of(&spec),
            spec,
            id,
            up: true,
            partitioned: false,
            status_frozen_at: None,
            first_cycle_end,
            booted_at: None,
            overrides: NodeOverrides::default(),
            last_pid: 1_000,
        }
    }

    /// The end of the last cycle of the status daemon.
    pub(crate) fn last_cycle(&self, now: Moment) -> Option<Moment> {
        let now = self.status_frozen_at.map_or(now, |status_frozen_at| status_frozen_at.min(now));
        let since = now.checked_sub(self.first_cycle_end)?;
        let cycles = since.as_nanos() / STATUS_CYCLE.as_nanos();
        Some(self.first_cycle_end + STATUS_CYCLE * u32::try_from(cycles).unwrap_or(u32::MAX))
    }

    /// Seconds since the boot.
    pub(crate) fn uptime(&self, now: Moment) -> u64 {
        match self.booted_at {
            Some(booted_at) => now.saturating_sub(booted_at).as_secs(),
            None => UPTIME_AT_START + now.as_secs(),
        }
    }
}

/// The process of a running guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestProcess {
    pub(crate) pid: u32,
    pub(crate) started_at: Moment,
    pub(crate) paused: bool,
    pub(crate) last_seen_alive: Moment,
    /// Paths of the PCI devices that resource mappings gave it.
    pub(crate) devices: Vec<String>,
    /// The installer that it runs; none where it runs from its disk.
    pub(crate) installer: Option<Installer>,
}

/// A change that takes effect when the guest stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PendingChange {
    /// The key gets this value.
    Set(String),
    /// The key is deleted.
    Delete {
        /// Whether the volume of a disk is deleted, too.
        force: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The configuration at that time, with `parent`, `snaptime`, `description` and `vmstate`.
    pub(crate) config: Config,
    /// Unix seconds of its creation.
    pub(crate) time: u64,
    /// The volume with the memory, if it was saved.
    pub(crate) vmstate: Option<String>,
    /// How often the disk had booted at that time.
    pub(crate) boots: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestType {
    Vm,
    Ct,
}

impl GuestType {
    /// The type in messages.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::Ct => "CT",
        }
    }

    /// The type in lists and ids.
    pub(crate) fn api_name(self) -> &'static str {
        match self {
            Self::Vm => "qemu",
            Self::Ct => "lxc",
        }
    }
}

/// A VM or a container.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) kind: GuestType,
    pub(crate) vmid: u32,
    /// The node that has the configuration.
    pub(crate) node: String,
    /// The configuration, with `lock`, `parent` and `template`.
    pub(crate) config: Config,
    /// Changes that take effect when the guest stops.
    pub(crate) pending: BTreeMap<String, PendingChange>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    /// The process, while the guest runs.
    pub(crate) process: Option<GuestProcess>,
    /// Whether there is nothing on its disk yet.
    pub(crate) blank: bool,
    /// What its installer left for cloud-init on the disk.
    pub(crate) answers: Option<Disc>,
    /// How often the disk has booted.
    pub(crate) boots: u32,
    /// What the cluster knows of the guest.
    pub(crate) broadcast: StatusBroadcast,
    /// The condition of the agent, until the next boot.
    pub(crate) agent_health: AgentHealth,
}

impl Guest {
    /// A new VM.
    pub(crate) fn new(vmid: u32, node: &str, config: Config, now: Moment) -> Self {
        Self {
            kind: GuestType::Vm,
            vmid,
            node: node.to_owned(),
            config,
            pending: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            process: None,
            blank: false,
            answers: None,
            boots: 0,
            broadcast: StatusBroadcast::new(now),
            agent_health: AgentHealth::Well,
        }
    }

    /// A new container.
    pub(crate) fn container(vmid: u32, node: &str, config: Config, now: Moment) -> Self {
        Self { kind: GuestType::Ct, ..Self::new(vmid, node, config, now) }
    }

    /// The present status, as the status daemon would broadcast it.
    pub(crate) fn status(&self) -> GuestStatus {
        GuestStatus::of(self)
    }

    /// Refuses a guest whose configuration has a `lock` key.
    ///
    /// # Errors
    /// `VM is locked (x)`.
    pub(crate) fn ensure_unlocked(&self) -> Result<(), String> {
        match self.config.get("lock") {
            Some(lock) => Err(format!("{} is locked ({lock})", self.kind.label())),
            None => Ok(()),
        }
    }

    pub(crate) fn is_template(&self) -> bool {
        super::conf::flag(&self.config, "template")
    }

    /// The digest of the configuration with pending changes and snapshots.
    pub(crate) fn digest(&self) -> String {
        if self.pending.is_empty() && self.snapshots.is_empty() {
            return super::conf::digest(&self.config);
        }
        let mut all = self.config.clone();
        for (key, change) in &self.pending {
            let text = match change {
                PendingChange::Set(value) => value.clone(),
                PendingChange::Delete { force } => format!("delete:{force}"),
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

    /// Refuses a call whose digest differs from the present one.
    ///
    /// # Errors
    /// The text of book: proxmox, section 6.
    pub(crate) fn check_digest(&self, wanted: Option<&str>) -> Result<(), String> {
        match wanted {
            Some(wanted) if wanted != self.digest() => Err(match self.kind {
                GuestType::Vm => "checksum mismatch (file change by other user?)".into(),
                GuestType::Ct => {
                    "detected modified configuration - file changed by other user? Try \
                             again."
                        .into()
                }
            }),
            _ => Ok(()),
        }
    }
}

/// Everything that changes in a world.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// VMs by VMID; VMs and containers of the whole cluster share one range of VMIDs.
    pub(crate) vms: BTreeMap<u32, Guest>,
    /// Containers by VMID.
    pub(crate) containers: BTreeMap<u32, Guest>,
    pub(crate) ha: Ha,
    pub(crate) sdn: Sdn,
    /// Firewalls by scope: `cluster`, `node/NAME` or `guest/VMID`.
    pub(crate) firewalls: BTreeMap<String, Firewall>,
    pub(crate) jobs: BackupJobs,
    pub(crate) mappings: Mappings,
    pub(crate) metrics: MetricServers,
    /// The number of disk ids given to backups.
    pub(crate) archived_disks: u32,
    /// Files that nodes can download.
    pub(crate) web_files: Vec<WebFile>,
    pub(crate) storages: BTreeMap<String, Storage>,
    pub(crate) tasks: Tasks,
    pub(crate) random: Random,
    pub(crate) faults: FaultInjector,
}

impl State {
    /// The VM with this id on a node.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub(crate) fn vm(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let guest = self.vms.get(&vmid).filter(|guest| guest.node == node);
        guest.ok_or_else(|| missing_vm_config(node, vmid))
    }

    /// The same with the error of calls that first ask whether the VM runs.
    ///
    /// # Errors
    /// `unable to find configuration file for VM … on node '…'`.
    pub(crate) fn find_vm(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let missing =
            |_| format!("unable to find configuration file for VM {vmid} on node '{node}'");
        self.vm(node, vmid).map_err(missing)
    }

    /// The VM to change; its old status is broadcast first.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub(crate) fn vm_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Guest, String> {
        let now = self.clock.now();
        let cycle = self.nodes.get(node).and_then(|node| node.last_cycle(now));
        let guest = self.vms.get_mut(&vmid).filter(|guest| guest.node == node);
        let guest = guest.ok_or_else(|| missing_vm_config(node, vmid))?;
        guest.broadcast_status(cycle);
        guest.broadcast.changed_at = now;
        Ok(guest)
    }

    /// The container with this id on a node.
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub(crate) fn container(&self, node: &str, vmid: u32) -> Result<&Guest, String> {
        let guest = self.containers.get(&vmid).filter(|guest| guest.node == node);
        guest.ok_or_else(|| missing_container_config(node, vmid))
    }

    /// The container to change; see [`State::vm_mut`].
    ///
    /// # Errors
    /// `Configuration file '…' does not exist`.
    pub(crate) fn container_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Guest, String> {
        let now = self.clock.now();
        let cycle = self.nodes.get(node).and_then(|node| node.last_cycle(now));
        let guest = self.containers.get_mut(&vmid).filter(|guest| guest.node == node);
        let guest = guest.ok_or_else(|| missing_container_config(node, vmid))?;
        guest.broadcast_status(cycle);
        guest.broadcast.changed_at = now;
        Ok(guest)
    }

    /// All VMs, then all containers.
    pub(crate) fn all_guests(&self) -> impl Iterator<Item = &Guest> {
        self.vms.values().chain(self.containers.values())
    }

    /// The VM or container with this id.
    pub(crate) fn guest_by_id(&self, vmid: u32) -> Option<&Guest> {
        self.vms.get(&vmid).or_else(|| self.containers.get(&vmid))
    }

    /// The same to be changed.
    pub(crate) fn guest_by_id_mut(&mut self, vmid: u32) -> Option<&mut Guest> {
        let guest = self.guest_by_id(vmid)?;
        let (node, container) = (guest.node.clone(), self.containers.contains_key(&vmid));
        match container {
            true => self.container_mut(&node, vmid).ok(),
            false => self.vm_mut(&node, vmid).ok(),
        }
    }

    /// Refuses a VMID that exists anywhere in the cluster.
    ///
    /// # Errors
    /// `VM 101 already exists on node 'pve1'`, or `CT` for a container.
    pub(crate) fn ensure_id_free(&self, vmid: u32) -> Result<(), String> {
        match self.guest_by_id(vmid) {
            Some(other) => Err(format!(
                "{} {vmid} already exists on node '{}'",
                other.kind.label(),
                other.node
            )),
            None => Ok(()),
        }
    }

    /// The storage of this name.
    ///
    /// # Errors
    /// `storage 'x' does not exist`.
    pub(crate) fn storage(&self, name: &str) -> Result<&Storage, String> {
        self.storages.get(name).ok_or_else(|| format!("storage '{name}' does not exist"))
    }

    /// The storage of this name, to change it.
    ///
    /// # Errors
    /// `storage 'x' does not exist`.
    pub(crate) fn storage_mut(&mut self, name: &str) -> Result<&mut Storage, String> {
        self.storages.get_mut(name).ok_or_else(|| format!("storage '{name}' does not exist"))
    }

    /// The storage of a volume id.
    ///
    /// # Errors
    /// The text is not a volume id, or the storage does not exist.
    pub(crate) fn storage_of(&self, volid: &str) -> Result<&Storage, String> {
        let Some(name) = super::conf::storage_name(volid) else {
            return Err(format!("unable to parse volume ID '{volid}'"));
        };
        self.storage(name)
    }

    /// Whether a node belongs to the majority of the cluster.
    pub(crate) fn has_quorum(&self, node: &str) -> bool {
        let here = self.nodes.keys().filter(|other| self.online(node, other)).count();
        here * 2 > self.nodes.len()
    }

    /// Whether a node is up as another node sees it; a partitioned node sees only itself.
    pub(crate) fn online(&self, from: &str, name: &str) -> bool {
        let partitioned = |name: &str| self.nodes.get(name).is_some_and(|node| node.partitioned);
        let up = self.nodes.get(name).is_some_and(|node| node.up);
        up && (from == name || !partitioned(from) && !partitioned(name))
    }

    /// A new process id, and its start in clock ticks since boot.
    pub(crate) fn new_process(&mut self, node: &str) -> (u32, u64) {
        let now = self.clock.now();
        let Some(node) = self.nodes.get_mut(node) else { return (1, 1) };
        node.last_pid += 1;
        let ticks = node.uptime(now) * 100 + u64::from(now.subsec_millis() / 10);
        (node.last_pid, ticks)
    }

    /// The injected fault of a new task.
    pub(crate) fn injected_task_fault(&mut self, node: &str, kind: &str) -> InjectedTaskFault {
        self.faults.inject_task_fault(node, kind, &mut self.random)
    }
}

/// The error of a VM that is not on a node.
pub(crate) fn missing_vm_config(node: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
}

fn missing_container_config(node: &str, vmid: u32) -> String {
    format!("Configuration file 'nodes/{node}/lxc/{vmid}.conf' does not exist")
}
