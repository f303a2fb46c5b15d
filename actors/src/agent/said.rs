//! What people read of an agent whose node is off, or whose clone finds no space.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::spec::CloneStrategy;

use crate::agent::mind::Mind;
use crate::agent::state::State;

impl Mind {
    /// How it stands while its node is off: what a call says of such a node is no news.
    pub(super) fn parked_text(&self) -> Option<String> {
        let guest = self.guest.as_ref().filter(|_| self.reachability.is_parked())?;
        let node = &guest.node;
        Some(match &self.state {
            State::Draining(_) | State::Retiring { .. } => format!(
                "node {node} is offline: what ran on this machine is lost, and drover destroys it \
                 once the node is back; nothing is left to do here"
            ),
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Resetting { .. }
            | State::Held { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => format!("node {node} is offline; drover waits for it"),
        })
    }

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
        // A template that is named by its id alone is taken without a look at its disks.
        let place = match &named[..] {
            [] => "its template's storage".to_owned(),
            named => format!("storage {}", named.join(" or ")),
        };
        let size = match origin.sizes.cloned(&self.spec).disk_gb {
            0 => String::new(),
            size => format!(" of {size} GiB"),
        };
        let full = match self.spec.clone {
            // A linked clone stays on its template's storage.
            CloneStrategy::Linked => "to set `cloneStrategy: FULL` and",
            CloneStrategy::Full => "to",
        };
        let text = format!(
            "no space for a disk{size} on {place}: somebody has to free some there, or {full} name \
             further storages in `targetStorages` (`headroom` keeps some free): {}",
            fault.text
        );
        Fault { text, ..fault }
    }
}
