//! What operators see of nodes, and of why templates start nothing on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{AgentId, ClusterId, NodeName, TemplateId};
use crate::phase::{NodeOrder, NodeStatus, OrderedBy};
use crate::placement::StorageObservation;
use crate::time::WallTime;

/// One node as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub state: NodeStatus,
    /// Drover's own agents on it, those on their way included.
    pub agents: usize,
    /// Running guests of others.
    pub guests: usize,
    /// Whether its figures may be seen.
    pub known: bool,
    /// Its memory, in MiB.
    pub memory_mb: u64,
    /// What others take of it.
    pub others_mb: u64,
    /// What drover's own agents take of it.
    pub own_mb: u64,
    /// What is free; below zero where more is promised than there is.
    pub free_mb: i64,
    /// What of its memory is in use, by its own figures.
    pub used_mb: u64,
    /// Its processors, in thousandths.
    pub cpus: u64,
    /// What of them is busy, by its own figures.
    pub busy_cpus: u64,
    /// What of them is free.
    pub free_cpus: i64,
    /// Its storages that take disks of virtual machines or volumes of containers, by name.
    pub storages: Vec<StorageObservation>,
    /// Templates that begin nothing on it at this moment, each with why.
    pub refuses: Vec<(TemplateId, String)>,
    /// Who cordoned or drained it; none where nobody did, or that is not known.
    pub kept_out_by: Option<OrderedBy>,
}

/// Why a template begins nothing, or where it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyReport {
    pub template: TemplateId,
    /// What keeps it from beginning agents that is no matter of nodes, if anything.
    pub waits: Option<String>,
    /// What would be cloned where at this moment, or why nothing would.
    pub verdict: Result<String, String>,
    /// Each node it may be on with what keeps it from there; none where nothing does.
    pub nodes: Vec<(NodeName, Option<String>)>,
    /// The other nodes of the cluster, which it never tries, each with why.
    pub untried: Vec<(NodeName, String)>,
    /// The keys of the configuration without whose change no node ever takes one, where that is so.
    pub keys: BTreeSet<&'static str>,
    /// Agents that are handed out to nobody, of whatever template: another drover may own them.
    pub doubtful: BTreeSet<AgentId>,
}

/// A node that an operator cordoned or drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeKeptOut {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub order: NodeOrder,
    /// Who did; none where that is not known.
    pub by: Option<OrderedBy>,
}

/// A node that is offline by the last list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOffline {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub since: WallTime,
}

/// What is known of nodes without a look at any cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodesKnown {
    /// Nodes that operators cordoned or drained.
    pub kept_out: Vec<NodeKeptOut>,
    pub offline: Vec<NodeOffline>,
    /// Nodes that a template never tries, since it names others, each with why.
    pub untried: BTreeMap<TemplateId, Vec<(NodeName, String)>>,
}
