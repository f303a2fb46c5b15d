//! What people read of an agent whose node is off, or whose clone finds no space.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::NodeName;

use super::mind::Mind;

/// How an agent stands that is destroyed as soon as its node is back.
pub(super) fn parked_away(node: &NodeName) -> String {
    format!(
        "node {node} is offline: what ran on this machine is lost, and drover destroys it once the \
         node is back; nothing is left to do here"
    )
}

impl Mind {
    /// A clone's fault; where space is missing, with the storage, the size and what helps.
    pub(super) fn with_storage(&self, fault: Fault) -> Fault {
        let is_node = matches!(fault.culprit, Culprit::Node(_));
        let origin = self.spec.origin.as_ref();
        let Some(origin) = origin.filter(|_| fault.kind == FaultKind::Capacity && !is_node) else {
            return fault;
        };
        let named: Vec<String> = match (&fault.culprit, &origin.target) {
            (Culprit::Storage(storage), _) | (_, Some(storage)) => vec![format!("`{storage}`")],
            (_, None) => origin.storages.iter().map(|storage| format!("`{storage}`")).collect(),
        };
        if named.is_empty() {
            return fault;
        }
        let size = match origin.sizes.cloned(&self.spec).disk_gb {
            0 => String::new(),
            size => format!(" of {size} GiB"),
        };
        let text = format!(
            "no space for a disk{size} on storage {}: somebody has to free some there, or to name \
             further storages in `targetStorages` (`headroom` keeps some free): {}",
            named.join(" or "),
            fault.text
        );
        Fault { text, ..fault }
    }
}
