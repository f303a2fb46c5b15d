//! What one read of the cluster's list (`/cluster/resources`) says of nodes, storages and guests.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::Thickness;
use crate::container::GuestType;
use crate::hardware::{DeviceMapping, Devices};
use crate::id::{NodeName, VmId};

/// How much of a node is there and in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Processor threads, not cores or sockets.
    pub cpus: u32,
    /// Thousandths of a processor thread in use.
    pub busy: u64,
    /// Memory, in bytes.
    pub memory: u64,
    /// Memory in use, in bytes.
    pub used: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeObservation {
    /// Whether it is offline.
    pub offline: bool,
    /// Whether Proxmox's high availability has it in maintenance.
    pub maintenance: bool,
    /// Its figures; none where they may not be seen, or it is offline.
    pub figures: Option<NodeFigures>,
}

/// A storage with a smaller free share, in per cent, is nearly full.
pub const NEARLY_FULL_PERCENT: u64 = 10;

/// A storage as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageObservation {
    pub node: NodeName,
    pub name: String,
    /// Whether all nodes see the same one.
    pub shared: bool,
    /// Proxmox's type of it, such as `lvmthin`.
    pub kind: String,
    /// Whether it takes disks of virtual machines.
    pub images: bool,
    /// Whether it takes volumes of containers.
    pub containers: bool,
    /// Whether the node reaches it.
    pub reached: bool,
    /// Bytes in use and bytes in all; none while the node does not reach it, and where Proxmox does not know them.
    pub space: Option<(u64, u64)>,
}

impl StorageObservation {
    /// Whether its volumes take their whole size at once.
    pub fn thickness(&self) -> Thickness {
        match self.kind.as_str() {
            "lvm" | "iscsi" | "iscsidirect" | "zfs" => Thickness::Thick,
            _ => Thickness::Thin,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestObservation {
    /// The node it is on.
    pub node: NodeName,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is a template.
    pub template: bool,
    /// Its memory, in bytes; 0 while the list does not say.
    pub memory: u64,
    /// What of it is in use, in bytes.
    pub used: u64,
    /// Its processors; 0 while the list does not say.
    pub cpus: u32,
    /// Thousandths of a processor in use.
    pub busy: u64,
    /// The size of the disk it boots from, in bytes; 0 while the list does not say.
    pub disk: u64,
    pub tags: Vec<String>,
}

/// What all running guests of a node come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Their memory, in bytes.
    pub memory: u64,
    pub guests: usize,
}

/// One reading of a whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    nodes: BTreeMap<NodeName, NodeObservation>,
    storages: BTreeMap<NodeName, Vec<StorageObservation>>,
    /// Storages that all nodes see as one.
    shared: BTreeSet<String>,
    guests: BTreeMap<VmId, GuestObservation>,
    sums: BTreeMap<NodeName, Sums>,
    /// Devices behind resource mappings; none where they were not read.
    devices: Option<Devices>,
}

impl Fleet {
    /// A reading of these.
    pub fn new(
        nodes: BTreeMap<NodeName, NodeObservation>,
        storages: Vec<StorageObservation>,
        guests: BTreeMap<VmId, GuestObservation>,
    ) -> Self {
        let mut sums: BTreeMap<NodeName, Sums> = BTreeMap::new();
        for guest in guests.values().filter(|guest| guest.running && !guest.template) {
            match sums.get_mut(&guest.node) {
                Some(sum) => {
                    sum.memory += guest.memory;
                    sum.guests += 1;
                }
                None => {
                    sums.insert(guest.node.clone(), Sums { memory: guest.memory, guests: 1 });
                }
            }
        }
        let shared = storages.iter().filter(|one| one.shared).map(|one| one.name.clone()).collect();
        let mut by_node: BTreeMap<NodeName, Vec<StorageObservation>> = BTreeMap::new();
        for storage in storages {
            by_node.entry(storage.node.clone()).or_default().push(storage);
        }
        Self { nodes, storages: by_node, shared, guests, sums, devices: None }
    }

    /// The same, with the devices behind resource mappings.
    pub fn with_devices(self, devices: Devices) -> Self {
        Self { devices: Some(devices), ..self }
    }

    /// The same, with the devices of another reading.
    pub fn with_devices_of(self, other: &Self) -> Self {
        Self { devices: other.devices.clone(), ..self }
    }

    /// How many devices of a mapping a node has; none where that is not known, or nothing to count.
    pub fn devices(&self, mapping: &DeviceMapping, node: &NodeName) -> Option<u32> {
        let Some(nodes) = self.devices.as_ref()?.get(mapping) else { return Some(0) };
        nodes.as_ref().map(|nodes| nodes.get(node).copied().unwrap_or(0))
    }

    pub fn nodes(&self) -> &BTreeMap<NodeName, NodeObservation> {
        &self.nodes
    }

    pub fn guests(&self) -> &BTreeMap<VmId, GuestObservation> {
        &self.guests
    }

    /// What the running guests of a node come to.
    pub fn sums(&self, node: &NodeName) -> Sums {
        self.sums.get(node).copied().unwrap_or_default()
    }

    /// Whether a node is known to be offline.
    pub fn is_offline(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| node.offline)
    }

    /// Whether every node sees a storage of this name as the same one.
    pub fn is_shared(&self, storage: &str) -> bool {
        self.shared.contains(storage)
    }

    /// A storage as a node sees it.
    pub fn storage(&self, name: &str, node: &NodeName) -> Option<&StorageObservation> {
        self.storages.get(node)?.iter().find(|one| one.name == name)
    }

    /// Storages of a node that take disks of virtual machines, by name.
    pub fn for_images(&self, node: &NodeName) -> impl Iterator<Item = &StorageObservation> {
        self.storages(node).filter(|one| one.images)
    }

    /// Storages of a node that take volumes of such guests, by name.
    pub fn for_guests(
        &self,
        node: &NodeName,
        guest: GuestType,
    ) -> impl Iterator<Item = &StorageObservation> {
        self.storages(node).filter(move |one| match guest {
            GuestType::Vm => one.images,
            GuestType::Container => one.containers,
        })
    }

    /// All storages of a node.
    pub fn storages(&self, node: &NodeName) -> impl Iterator<Item = &StorageObservation> {
        self.storages.get(node).into_iter().flatten()
    }
}
