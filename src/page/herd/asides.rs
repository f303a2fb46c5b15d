//! What the page of the herd has beside the status.

use std::collections::BTreeMap;

use drover_api::{AccountOut, AgentOut, AlarmOut, KeptOutBy, LeaseOut, UntriedOut};

/// What the herd's page has beside the status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HerdAsides {
    pub leases: LeaseCounts,
    /// What sources and leases wait for.
    pub waits: Vec<AccountOut>,
    /// Nodes that operators keep out.
    pub kept_out: Vec<KeptOutNode>,
    /// Nodes that are offline.
    pub offline: Vec<NodeOffline>,
    /// Agents that do not go on.
    pub stuck: Vec<AgentOut>,
    /// Leases that lost their machines lately.
    pub lost_leases: Vec<LeaseOut>,
    /// All that stands as an alarm, by [`crate::standing_alarms`].
    pub alarms: Vec<AlarmOut>,
    /// Nodes that are offline, where agents are on them.
    pub down: Vec<NodeDown>,
    /// How many more need a look than are here.
    pub more_looks: usize,
    /// Agents that somebody holds.
    pub held: Vec<HeldAgent>,
    /// How many agents of a template drain and are in nobody's use.
    pub let_go: BTreeMap<String, u32>,
    /// Nodes that a template never tries.
    pub untried: BTreeMap<String, Vec<UntriedOut>>,
}

/// A node that an operator cordoned or drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutNode {
    pub cluster: String,
    pub node: String,
    /// Whether it is drained, and not cordoned alone.
    pub is_drained: bool,
    /// Who did that; none where that is not known.
    pub by: Option<KeptOutBy>,
}

/// A node that is offline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOffline {
    pub cluster: String,
    pub node: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// A node that is offline, with the agents on it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDown {
    pub at: NodeOffline,
    /// The first of its agents.
    pub agents: Vec<AgentOut>,
    /// How many there are.
    pub count: usize,
}

/// An agent that somebody holds.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldAgent {
    pub agent: AgentOut,
    /// Who; none where the caller may not know it.
    pub by: Option<String>,
}

/// Leases by how they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    pub waiting: usize,
    /// Those that have an agent.
    pub granted: usize,
}
