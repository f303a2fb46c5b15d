//! Virtual hardware of a template's agents that differs from its template image's (`hardware`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::NodeName;
use crate::image::Bios;

/// What an agent's machine has beside cores, memory, boot disk and network cards; what is not given
/// stays as in the template image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareSpec {
    /// Proxmox's `machine`, such as `q35`.
    pub machine: Option<String>,
    pub bios: Option<Bios>,
    /// Proxmox's `cpu`, such as `host`.
    pub cpu: Option<String>,
    /// Processor sockets, each with the template's cores.
    pub sockets: Option<u32>,
    /// Whether the guest sees NUMA nodes.
    pub numa: Option<bool>,
    /// What Proxmox changes while the guest runs (`hotplug`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hotplug: Option<Vec<HotPlug>>,
    /// The cores of each socket that the guest can have without a restart: it is made with so many, and
    /// starts with the template's `cores` of them (Proxmox's `vcpus`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cores: Option<u32>,
    /// The node's processors that the guest may use, such as `0-3,8` (Proxmox's `affinity`).
    pub affinity: Option<String>,
    /// Disks beside those of the template image, in order.
    pub disks: Vec<DiskSpec>,
    /// PCI devices, by the ids of their resource mappings.
    pub pci: Vec<String>,
    /// USB devices, likewise.
    pub usb: Vec<String>,
}

/// A kind of hardware that Proxmox changes while a guest runs (qemu-server, `pve-hotplug-features`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HotPlug {
    Network,
    Disk,
    Usb,
    Cpu,
    Memory,
}

impl HotPlug {
    pub const ALL: [Self; 5] = [Self::Network, Self::Disk, Self::Usb, Self::Cpu, Self::Memory];

    /// The word that the key `hotplug` has for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Usb => "usb",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    /// Whether a configuration's `hotplug` has this kind. Without the key, and with `1`, it has those of
    /// Proxmox's default; with `0` it has none.
    pub fn is_in(self, hotplug: Option<&str>) -> bool {
        match hotplug.map(str::trim) {
            None | Some("1" | "") => matches!(self, Self::Network | Self::Disk | Self::Usb),
            Some(list) => list.split([',', ';', ' ']).any(|word| word == self.word()),
        }
    }
}

/// The least memory of a guest with memory hot-plug, in MiB: it starts with that much, and Proxmox plugs
/// the rest as modules (qemu-server, Memory.pm; not in the recorded answers).
pub const PLUGGED_MEMORY_MB: u32 = 1024;

/// An empty disk that each agent gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpec {
    /// The storage that it is on.
    pub storage: String,
    /// Its size in GiB.
    pub size_gb: u32,
}

/// The kind of a resource mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Pci,
    Usb,
}

impl DeviceKind {
    /// The word of Proxmox's paths: `pci`, `usb`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pci => "pci",
            Self::Usb => "usb",
        }
    }
}

/// A resource mapping: the cluster's name for devices of one kind on its nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceMapping {
    pub kind: DeviceKind,
    /// Its id in Proxmox, such as `gpu`.
    pub id: String,
}

impl std::fmt::Display for DeviceMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.id)
    }
}

impl HardwareSpec {
    /// The GiB of its disks on a storage.
    pub fn disks_on(&self, storage: &str) -> u64 {
        let there = self.disks.iter().filter(|disk| disk.storage == storage);
        there.map(|disk| u64::from(disk.size_gb)).sum()
    }

    /// How many devices of each mapping an agent takes.
    pub fn devices(&self) -> BTreeMap<DeviceMapping, u32> {
        let kinds = [(DeviceKind::Pci, &self.pci), (DeviceKind::Usb, &self.usb)];
        let mut counts = BTreeMap::new();
        for (kind, id) in
            kinds.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| (kind, id)))
        {
            *counts.entry(DeviceMapping { kind, id: id.clone() }).or_default() += 1;
        }
        counts
    }
}

/// The devices behind each mapping that drover may see, by node; none for a mapping whose devices
/// are shared by any number of guests (`mdev`).
pub type Devices = BTreeMap<DeviceMapping, Option<BTreeMap<NodeName, u32>>>;

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each device that an agent takes is counted, by its kind and mapping.

    #[test]
    fn a_mapping_named_twice_takes_two_devices() {
        let spec = HardwareSpec {
            pci: vec!["gpu".into(), "gpu".into()],
            usb: vec!["gpu".into()],
            ..HardwareSpec::default()
        };
        let counts: Vec<String> =
            spec.devices().iter().map(|(mapping, count)| format!("{mapping} {count}")).collect();
        assert_eq!(counts, ["pci/gpu 2", "usb/gpu 1"]);
    }
}
