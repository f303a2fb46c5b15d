//! The devices behind Proxmox's resource mappings.

use std::collections::BTreeMap;

use drover_model::hardware::{DeviceKind, DeviceMapping, Devices};
use drover_model::id::NodeName;
use proxmox_client::types::ResourceMapping;

use crate::client::{Client, Failure};

/// Reads the mappings that the login may see: those with `Mapping.Use`.
pub async fn read(client: &Client) -> Result<Devices, Failure> {
    let mut devices = Devices::new();
    for kind in [DeviceKind::Pci, DeviceKind::Usb] {
        for row in client.resource_mappings(kind.word()).await? {
            let counts = counted(&row);
            devices.insert(DeviceMapping { kind, id: row.id }, counts);
        }
    }
    Ok(devices)
}

/// The devices by node: each item of a mapping is one, or several functions of one. None where
/// guests share the devices.
fn counted(row: &ResourceMapping) -> Option<BTreeMap<NodeName, u32>> {
    let mut counts = BTreeMap::new();
    for item in &row.map {
        let node = item.split(',').find_map(|part| part.strip_prefix("node="));
        if let Some(node) = node {
            *counts.entry(NodeName::new(node)).or_insert(0) += 1;
        }
    }
    (!row.mdev).then_some(counts)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;

    // Invariant: what is counted is what one guest alone can have.

    #[test]
    fn the_items_of_a_mapping_are_counted_by_node() {
        let read = |mdev: u8| -> Option<BTreeMap<NodeName, u32>> {
            let row = json!({
                "id": "gpu", "type": "pci", "mdev": mdev,
                "map": [
                    "id=1af4:1042,node=pve1,path=0000:00:01.0",
                    "node=pve1,id=1af4:1041,path=0000:00:02.0;0000:00:02.1",
                    "id=1af4:1042,node=pve2,path=0000:00:01.0",
                ],
            });
            counted(&serde_json::from_value(row).unwrap())
        };
        let counts: BTreeMap<NodeName, u32> =
            [(NodeName::new("pve1"), 2), (NodeName::new("pve2"), 1)].into();
        assert_eq!(read(0), Some(counts));
        assert_eq!(read(1), None);
    }
}
