//! Nodes: what is free on them, cordons and drains.

use drover_model::placement::NEARLY_FULL_PERCENT;
use serde::{Deserialize, Serialize};

/// A node of a cluster, with its room, and whether an operator cordoned or drained it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeOut {
    /// The fingerprint of its cluster.
    pub cluster: String,
    /// The name in Proxmox.
    pub node: String,
    /// `online`, `offline`, `maintenance`, `cordoned` or `drained`; or why its breaker is closed.
    pub state: String,
    /// Drover's own agents on it.
    pub agents: usize,
    /// Running guests of others.
    pub guests: usize,
    /// What of it is free; null where the token may not see that (`Sys.Audit`).
    pub room: Option<RoomOut>,
    /// Its storages that take disks of virtual machines or volumes of containers, by name.
    #[serde(default)]
    pub storages: Vec<StorageOut>,
    /// Templates that begin nothing on it, each with why.
    pub refuses: Vec<RefusesOut>,
    /// Who cordoned or drained it; left out where nobody did, or where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_out_by: Option<KeptOutBy>,
}

/// Who gave an order about a node, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct KeptOutBy {
    /// Such as `token:ci`.
    pub by: String,
    /// When (RFC 3339).
    pub at: String,
}

/// A storage as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StorageOut {
    /// The name in Proxmox.
    pub storage: String,
    /// Proxmox's type of it, such as `lvmthin`.
    pub kind: String,
    /// Whether all nodes see the same one.
    pub shared: bool,
    /// Whether the node reaches it.
    pub reached: bool,
    /// How full it is; null while the node does not reach it, and where Proxmox does not know it.
    pub space: Option<SpaceOut>,
}

/// How full a storage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SpaceOut {
    /// What is in use, in MiB.
    pub used_mb: u64,
    /// What there is, in MiB.
    pub size_mb: u64,
}

impl SpaceOut {
    /// What is in use, of a hundred parts.
    pub fn percent(self) -> u64 {
        self.used_mb.saturating_mul(100).checked_div(self.size_mb).unwrap_or(100)
    }

    /// Whether so little is free that a clone may soon not fit.
    pub fn is_nearly_full(self) -> bool {
        self.free_mb().saturating_mul(100) < self.size_mb.saturating_mul(NEARLY_FULL_PERCENT)
    }

    /// What is free, in MiB.
    pub fn free_mb(self) -> u64 {
        self.size_mb.saturating_sub(self.used_mb)
    }
}

/// What of a node is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomOut {
    /// Its memory in MiB.
    pub memory_mb: u64,
    /// What others take of it.
    pub others_mb: u64,
    /// What drover's own agents take of it, those on their way included.
    pub reserved_mb: u64,
    /// What is left; below zero where more is promised than there is.
    pub free_mb: i64,
    /// What of its memory is in use at this moment, by its own figures.
    #[serde(default)]
    pub used_mb: u64,
    /// Its processor threads.
    pub cpus: f64,
    /// What of them is busy at this moment, by its own figures.
    #[serde(default)]
    pub busy_cpus: f64,
    /// What is left of them.
    pub free_cpus: f64,
}

/// A template that begins nothing on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusesOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// The reason in words.
    pub why: String,
}

/// The answer to a list of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodesOut {
    /// Nodes by cluster and name.
    pub nodes: Vec<NodeOut>,
    /// Clusters that could not be read.
    pub unread: Vec<UnreadOut>,
}

/// A cluster that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreadOut {
    /// The cluster; `unknown` where no cloud has led to it yet.
    pub cluster: String,
    /// The cloud through which it was to be read, where only one was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// The reason in words.
    pub why: String,
}

/// How to drain a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainIn {
    /// A cloud of its cluster, where several clusters have such a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// Whether it is used again instead, after a drain or a cordon.
    pub undrain: bool,
}

/// How to cordon a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CordonIn {
    /// A cloud of its cluster, where several clusters have such a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
}

/// What came of a cordon or a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainOut {
    /// The fingerprint of its cluster.
    pub cluster: String,
    /// The name of the node.
    pub node: String,
    /// Whether it is drained: nothing starts there, idle agents go, busy ones finish.
    pub drained: bool,
    /// Whether it is cordoned: nothing starts there, and agents there stay.
    #[serde(default)]
    pub cordoned: bool,
    /// Whether the order changed anything: false where the node was so already.
    #[serde(default = "changed")]
    pub changed: bool,
    /// Agents on it at this moment.
    pub agents: usize,
}

/// What an older drover, which does not say it, is taken for.
fn changed() -> bool {
    true
}
