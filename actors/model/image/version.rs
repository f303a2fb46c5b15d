//! The versions on a cluster, and what a build or pruning comes to.

use std::collections::BTreeSet;

use crate::id::{AgentId, ClusterId, NodeName, TemplateId, VmId};
use crate::marks::Marks;

/// One version on a cluster, by the marks of its template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageVersion {
    pub node: NodeName,
    pub vmid: VmId,
    pub marks: Marks,
    /// When its guest was created, in Unix seconds; none when Proxmox does not say.
    pub created: Option<u64>,
    /// The storages of its volumes.
    pub storages: BTreeSet<String>,
    /// Whether all nodes reach these storages.
    pub shared: bool,
}

/// What a command to build comes to on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePlan {
    /// The recipe's version is there already.
    UpToDate { node: NodeName, vmid: VmId, version: AgentId },
    /// A build of the image runs there, and serves this caller too.
    Running { node: NodeName, build: AgentId, version: AgentId },
    /// A build starts there.
    Starts { node: NodeName, build: AgentId, version: AgentId },
    /// A build would start there.
    WouldStart { node: NodeName, version: AgentId },
}

/// A version that pruning looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPrune {
    pub image: TemplateId,
    pub cluster: ClusterId,
    pub version: ImageVersion,
    /// Why it stays; none where it goes.
    pub kept: Option<String>,
}

/// What pruning comes to.
pub type PrunePlan = Vec<PlannedPrune>;
