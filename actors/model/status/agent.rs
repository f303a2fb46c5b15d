//! What others may know of an agent.
//!
//! ```text
//!             ┌─▶ template ─▶ cloud ─▶ herd ─▶ scheduler    where `decides_alike` says no
//! agent ──────┤
//!  (one Arc)  └─▶ fact ─▶ view, events, metrics, log        where `shows_alike` says no
//! ```

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, LeaseId, NodeName, TemplateId, VmId};
use crate::order::MachineOrders;
use crate::os::Os;
use crate::overrides::Overrides;
use crate::phase::{AgentPhase, LoginPhase};
use crate::record::{HoldOwner, Owner};
use crate::size::Size;
use crate::spec::SshSpec;
use crate::time::WallTime;

/// What an agent means for permits and for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
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

/// What drover needs, beside the address, to log in to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WayIn {
    /// The login, and the key that the agent was made with.
    pub ssh: SshSpec,
    /// What runs there.
    pub os: Os,
}

/// An agent as others know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    pub agent: AgentId,
    pub template: TemplateId,
    pub phase: AgentPhase,
    /// When that phase started.
    pub since: WallTime,
    pub standing: Standing,
    /// Its VMID, once chosen.
    pub vmid: Option<VmId>,
    /// Its node, once chosen.
    pub node: Option<NodeName>,
    /// Its address, once known.
    pub address: Option<String>,
    /// Its SSH port and login.
    pub ssh: Option<(u16, String)>,
    /// Its SSH host keys, public key lines.
    pub host_keys: Vec<String>,
    /// With which key drover itself logs in, and what runs there; none where an older drover reported it.
    #[serde(default)]
    pub way_in: Option<WayIn>,
    /// Leases on it.
    pub leases: Vec<LeaseId>,
    /// Uses so far.
    pub uses: u32,
    /// What holds for it instead of what its template says.
    pub overrides: Overrides,
    /// The only one it serves from here on, when it is kept for one.
    pub owner: Option<Owner>,
    /// Until when it is held for debugging, once it is.
    pub held_until: Option<WallTime>,
    /// Whether its operator can log in, while it is held.
    pub login: Option<LoginPhase>,
    /// Who asked for its hold; none where nobody did, or the journal does not say.
    pub hold_owner: Option<HoldOwner>,
    /// Whether it was made for trial, and serves nobody.
    pub on_trial: bool,
    /// How large it is, where a job or lease asked for that size.
    pub size: Size,
    /// What was ordered of its machine.
    pub machine: MachineOrders,
    /// Whether its machine may be lost, though nothing ordered that: it does not run, its node is offline, or its
    /// SSH is silent. What runs there may go on. No where an older drover reported it.
    #[serde(default)]
    pub may_be_lost: bool,
    /// A line for people about what it waits for or why it goes.
    pub detail: String,
    /// Milliseconds spent in each part of its life so far, in order: the waterfall. A part is a
    /// phase, or a step of one; [`AgentPhase::of_part`] says which.
    pub phases: Vec<(String, u64)>,
}

impl AgentStatus {
    /// An agent that was just started: queued, and nothing else is known of it.
    pub fn started(agent: AgentId, template: TemplateId, at: WallTime) -> Self {
        Self {
            agent,
            template,
            phase: AgentPhase::Queued,
            since: at,
            standing: Standing::Coming,
            vmid: None,
            node: None,
            address: None,
            ssh: None,
            host_keys: Vec::new(),
            way_in: None,
            leases: Vec::new(),
            uses: 0,
            overrides: Overrides::default(),
            owner: None,
            held_until: None,
            login: None,
            hold_owner: None,
            on_trial: false,
            size: Size::NONE,
            machine: MachineOrders::default(),
            may_be_lost: false,
            detail: String::new(),
            phases: Vec::new(),
        }
    }

    /// Whether it is ready and no lease is on it.
    pub fn is_idle(&self) -> bool {
        matches!(self.standing, Standing::Free { idle: true, .. })
    }

    /// Whether nobody decides differently by this one than by an earlier one of the same agent.
    pub fn decides_alike(&self, earlier: &Self) -> bool {
        self.decisive() == earlier.decisive()
    }

    /// Whether people see the same in this one as in an earlier one of the same agent.
    pub fn shows_alike(&self, earlier: &Self) -> bool {
        self.visible() == earlier.visible()
    }

    fn decisive(&self) -> impl PartialEq + '_ {
        (self.phase, self.standing, &self.leases, self.overrides, &self.owner, &self.machine)
    }

    fn visible(&self) -> impl PartialEq + '_ {
        // Each field is named, so that a new one has to be thought about.
        let Self { agent: _, template: _, phase, since, standing: _, .. } = self;
        let Self { vmid, node, address, ssh, host_keys, way_in: _, .. } = self;
        let Self { leases, uses, overrides, owner: _, held_until, login, hold_owner, .. } = self;
        let Self { on_trial, size: _, machine, may_be_lost, detail, phases: _, .. } = self;
        let reach = (vmid, node, address, ssh, host_keys);
        let hold = (held_until, login, hold_owner);
        (phase, since, reach, leases, uses, overrides, hold, on_trial, machine, may_be_lost, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CloudId;

    fn status() -> AgentStatus {
        let template = TemplateId::new(CloudId::new("c"), "t");
        AgentStatus::started(AgentId::new("a"), template, WallTime(0))
    }

    // Invariant: a change is reported to those whom it concerns, and to nobody else.

    #[test]
    fn what_decides_is_reported_and_what_people_see_is_shown() {
        let (same, differs) = (true, false);
        for (later, decides_alike, shows_alike) in [
            (status(), same, same),
            (AgentStatus { phase: AgentPhase::Cloning, ..status() }, differs, differs),
            (AgentStatus { leases: vec![LeaseId::new("l")], ..status() }, differs, differs),
            (AgentStatus { standing: Standing::Parked, ..status() }, differs, same),
            (AgentStatus { detail: "waits".into(), ..status() }, same, differs),
            (AgentStatus { since: WallTime(1), ..status() }, same, differs),
            (AgentStatus { login: Some(LoginPhase::Open), ..status() }, same, differs),
            // Time alone is no news.
            (AgentStatus { phases: vec![("Queued".into(), 5)], ..status() }, same, same),
        ] {
            assert_eq!(later.decides_alike(&status()), decides_alike, "{later:?}");
            assert_eq!(later.shows_alike(&status()), shows_alike, "{later:?}");
        }
    }
}
