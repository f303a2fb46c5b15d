//! Nodes, storages and guests in the cluster's list, as placement needs them.

use std::collections::BTreeMap;

use drover_model::id::{NodeName, VmId};
use drover_model::placement::{
    Fleet, GuestObservation, NodeFigures, NodeObservation, Sizes, StorageObservation,
};
use proxmox_client::types::{Resource, VmConfig};

use crate::client::Client;
use crate::client::Failure;
use crate::configure::split_tags;
use crate::list::LIST_SHARED_FOR;

const GIB: u64 = 1 << 30;

/// Reads the list: one call, or none when a recent list is at hand.
pub async fn read_fleet(client: &Client) -> Result<Fleet, Failure> {
    Ok(of_rows(&client.list(LIST_SHARED_FOR).await?.rows))
}

/// The fleet in the rows of a list.
pub(crate) fn of_rows(rows: &[Resource]) -> Fleet {
    let (mut nodes, mut storages) = (BTreeMap::new(), Vec::new());
    let mut guests = BTreeMap::new();
    for row in rows {
        let Some(node) = row.node.as_deref().map(NodeName::new) else { continue };
        match row.kind.as_str() {
            "node" => {
                nodes.insert(node, node_of(row));
            }
            "storage" => storages.extend(storage_of(row, node)),
            "qemu" | "lxc" => guests.extend(guest_of(row, node)),
            _ => {}
        }
    }
    Fleet::new(nodes, storages, guests)
}

fn node_of(row: &Resource) -> NodeObservation {
    let figures = row.max_mem.zip(row.max_cpu).map(|(memory, cpus)| NodeFigures {
        cpus: to_u64(cpus).try_into().unwrap_or(u32::MAX),
        busy: to_u64(row.cpu.unwrap_or_default() * cpus * 1000.0),
        memory: to_u64(memory),
        used: to_u64(row.mem.unwrap_or_default()),
    });
    NodeObservation {
        offline: row.status.as_deref() == Some("offline"),
        // The node's status by Proxmox's HA manager; not in any recording (to be checked on a real
        // one).
        maintenance: row.ha_state.as_deref() == Some("maintenance"),
        figures: figures.filter(|figures| figures.memory > 0),
    }
}

fn storage_of(row: &Resource, node: NodeName) -> Option<StorageObservation> {
    let reached = row.status.as_deref() == Some("available");
    let space = row.disk.zip(row.max_disk).map(|(used, size)| (to_u64(used), to_u64(size)));
    let content = row.content.as_deref().unwrap_or_default();
    let takes = |wanted: &str| content.split(',').any(|kind| kind.trim() == wanted);
    Some(StorageObservation {
        node,
        name: row.storage.clone()?,
        shared: row.shared,
        kind: row.plugin_type.clone().unwrap_or_default(),
        images: takes("images"),
        containers: takes("rootdir"),
        reached,
        space: space.filter(|(_, size)| reached && *size > 0),
    })
}

fn guest_of(row: &Resource, node: NodeName) -> Option<(VmId, GuestObservation)> {
    let vmid = VmId(u32::try_from(row.vmid?).ok()?);
    let used = row.mem.unwrap_or_default().max(row.mem_host.unwrap_or_default());
    let cpus = row.max_cpu.unwrap_or_default();
    let guest = GuestObservation {
        node,
        // A guest whose status is not known yet may run.
        running: !matches!(row.status.as_deref(), Some("stopped" | "unknown") | None),
        template: row.template,
        memory: to_u64(row.max_mem.unwrap_or_default()),
        used: to_u64(used),
        cpus: to_u64(cpus).try_into().unwrap_or(u32::MAX),
        busy: to_u64(row.cpu.unwrap_or_default() * cpus * 1000.0),
        disk: to_u64(row.max_disk.unwrap_or_default()),
        tags: split_tags(row.tags.as_deref().unwrap_or_default()).into_iter().collect(),
    };
    Some((vmid, guest))
}

/// The size of a template: from its configuration if that was read, else from the list.
pub fn template_sizes(guest: Option<&GuestObservation>, config: Option<&VmConfig>) -> Sizes {
    let listed = guest.map(|guest| Sizes {
        cores: guest.cpus,
        memory_mb: guest.memory >> 20,
        disk_gb: guest.disk.div_ceil(GIB),
    });
    let listed = listed.unwrap_or_default();
    let Some(config) = config else { return listed };
    let number = |key: &str| config.get(key).and_then(|text| text.trim().parse::<u32>().ok());
    let memory = config.get("memory").map(|text| {
        let first = text.split(',').next().unwrap_or(text);
        first.strip_prefix("current=").unwrap_or(first).trim().parse::<u64>().unwrap_or(0)
    });
    let cores = number("cores").unwrap_or(1).saturating_mul(number("sockets").unwrap_or(1));
    Sizes {
        cores,
        // Proxmox's own default.
        memory_mb: memory.filter(|memory| *memory > 0).unwrap_or(512),
        disk_gb: listed.disk_gb,
    }
}

fn to_u64(value: f64) -> u64 {
    // A cast turns negative numbers and NaN into zero.
    value.round() as u64
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    fn rows(rows: serde_json::Value) -> Vec<Resource> {
        serde_json::from_value(rows).unwrap()
    }

    // Invariant: every spelling in the list is read, and what it lacks is not invented.

    #[test]
    fn a_list_mentions_nodes_storages_and_guests() {
        let fleet = of_rows(&rows(json!([
            {"type": "node", "node": "pve1", "status": "online", "cpu": "0.25", "maxcpu": 16,
             "mem": 1_073_741_824_u64, "maxmem": "68719476736"},
            {"type": "node", "node": "pve2", "status": "online"},
            {"type": "node", "node": "pve3", "status": "offline", "hastate": "maintenance"},
            {"type": "storage", "node": "pve1", "storage": "nfs", "shared": 1, "disk": 5,
             "maxdisk": 50, "status": "available", "plugintype": "nfs", "content": "iso,images"},
            {"type": "storage", "node": "pve1", "storage": "lvm", "disk": 0, "maxdisk": 0,
             "status": "unknown", "plugintype": "lvm", "content": "images"},
            {"type": "qemu", "node": "pve1", "vmid": 100, "status": "running", "maxmem": 2048,
             "mem": 512, "memhost": 600, "maxcpu": 2, "cpu": 0.5, "tags": "b;a"},
            {"type": "lxc", "node": "pve1", "vmid": "101", "status": "unknown", "cpu": "odd"},
        ])));
        let pve1 = fleet.nodes()[&NodeName::new("pve1")].figures.unwrap();
        assert_eq!((pve1.cpus, pve1.busy, pve1.memory, pve1.used), (16, 4000, 64 << 30, 1 << 30));
        assert_eq!(fleet.nodes()[&NodeName::new("pve2")].figures, None);
        let pve3 = fleet.nodes()[&NodeName::new("pve3")];
        assert!(pve3.offline && pve3.maintenance);
        let node = NodeName::new("pve1");
        assert_eq!(fleet.storage("nfs", &node).unwrap().space, Some((5, 50)));
        assert_eq!(fleet.storage("lvm", &node).unwrap().space, None);
        assert!(fleet.is_shared("nfs") && !fleet.is_shared("lvm"));
        let guest = &fleet.guests()[&VmId(100)];
        assert_eq!((guest.used, guest.busy, guest.running), (600, 1000, true));
        assert_eq!(guest.tags, ["a", "b"]);
        assert_eq!(fleet.guests()[&VmId(101)].memory, 0);
    }

    #[test]
    fn a_template_is_as_big_as_its_configuration_says() {
        let config = VmConfig::new([("memory", "current=4096"), ("cores", "2"), ("sockets", "2")]);
        let size = template_sizes(None, Some(&config));
        assert_eq!((size.cores, size.memory_mb, size.disk_gb), (4, 4096, 0));
        let bare = template_sizes(None, Some(&VmConfig::new([("name", "x")])));
        assert_eq!((bare.cores, bare.memory_mb), (1, 512));
    }
}
