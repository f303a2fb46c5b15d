//! What others may know of an agent.
//!
//! An [`AgentStatus`] is made by the agent and travels unchanged: in its report to the template, in
//! the roster, through the cloud to the herd, and into the scheduler's view of the agent. Anyone who
//! needs more than that keeps it beside the status, not in a copy of its fields.

use crate::id::LeaseId;
use crate::journal_state::AgentEntry;
use crate::overrides::Overrides;
use crate::phase::AgentPhase;
use crate::record::Owner;

/// What an agent means for permits and for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// On its way to Ready.
    Coming,
    /// Ready, or leased with executors free: this many more uses fit.
    Free {
        executors: u32,
        /// Whether no lease is on it.
        idle: bool,
    },
    /// Leased in full, draining or held.
    Busy,
    /// Going; still holds its permit.
    Leaving,
    /// On an offline node: reservations stay, the slot left the caps. Or its clone came to nothing,
    /// and whether that left volumes will only be known later.
    Parked,
    /// Gone: the permit is free, the actor ends.
    Gone,
}

/// An agent as others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentStatus {
    pub phase: AgentPhase,
    pub standing: Standing,
    /// Leases on it.
    pub leases: Vec<LeaseId>,
    /// What holds for it instead of what its template says.
    pub overrides: Overrides,
    /// The only one it serves from here on, when it is kept for one.
    pub owner: Option<Owner>,
}

impl AgentStatus {
    /// An agent without leases, kept for nobody.
    pub fn new(phase: AgentPhase, standing: Standing) -> Self {
        let (leases, overrides, owner) = (Vec::new(), Overrides::default(), None);
        Self { phase, standing, leases, overrides, owner }
    }

    /// An agent that the journal knows and that has not reported yet: without leases it counts as on
    /// its way.
    pub fn of(entry: &AgentEntry) -> Self {
        let phase = entry.phase();
        let standing = match (&entry.retiring, entry.leases.is_empty()) {
            (Some(_), _) => Standing::Leaving,
            (None, true) if phase != AgentPhase::Held => Standing::Coming,
            (None, _) => Standing::Busy,
        };
        Self {
            phase,
            standing,
            leases: entry.leases.keys().cloned().collect(),
            overrides: entry.commands.overrides,
            owner: entry.owner.clone().filter(|_| entry.spec.reset.is_some()),
        }
    }

    /// Whether it is ready and no lease is on it.
    pub fn is_idle(&self) -> bool {
        matches!(self.standing, Standing::Free { idle: true, .. })
    }
}
