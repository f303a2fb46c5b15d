//! How a machine is, as the herd and people see it.

use drover_model::id::AgentId;
use drover_model::phase::DeclaredPhase;
use drover_model::status::DeclaredStatus;

use super::make::NO_TEMPLATE;
use super::mind::{Guest, Mind};

impl Mind {
    /// What people read of where it is.
    pub fn phase(&self) -> DeclaredPhase {
        match self.state.phase() {
            DeclaredPhase::Kept | DeclaredPhase::Missing | DeclaredPhase::Foreign
                if !self.is_declared() =>
            {
                DeclaredPhase::Left
            }
            phase @ (DeclaredPhase::Waiting
            | DeclaredPhase::Blocked
            | DeclaredPhase::Creating
            | DeclaredPhase::Configuring
            | DeclaredPhase::Starting
            | DeclaredPhase::Kept
            | DeclaredPhase::Correcting
            | DeclaredPhase::Missing
            | DeclaredPhase::Foreign
            | DeclaredPhase::Left
            | DeclaredPhase::Removing
            | DeclaredPhase::Removed) => phase,
        }
    }

    /// How it is.
    pub fn status(&self) -> DeclaredStatus {
        let id = |guest: &Guest| -> AgentId { guest.marks.agent.clone() };
        DeclaredStatus {
            name: self.birth.name.clone(),
            id: self.guest.as_ref().map(id),
            cloud: self.cloud().clone(),
            node: self.guest.as_ref().map(|guest| guest.node.clone()),
            vmid: self.vmid(),
            source: self.guest.as_ref().map(|guest| guest.source).filter(|id| *id != NO_TEMPLATE),
            phase: self.phase(),
            since: self.since,
            declared: self.is_declared(),
            wanted: self.spec.power,
            power: self.power,
            addresses: self.addresses.clone(),
            drift: self.drift.clone(),
            detail: self.detail.clone(),
            corrected: self.corrected.clone(),
            on_removal: self.spec.on_removal,
            last_seen: self.last_seen.filter(|_| self.unseen),
            lacks_image: self.lacks_image && self.state.phase() == DeclaredPhase::Waiting,
        }
    }
}
