//! Commands to the service itself: reap, resync, reload, the level of the log.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::UnreadOut;

/// What to reap.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReapIn {
    /// Whether the warm minimum goes too.
    pub all: bool,
}

/// What a reap did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReapOut {
    /// Agents that drover retires.
    pub retired: u32,
}

/// How to resync.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResyncIn {
    /// Whether orphans may go although the journal is older than the world.
    pub confirm_older_journal: bool,
    /// Whether this machine is the only one with this state directory, which was moved.
    pub confirm_machine: bool,
}

/// What a reconciliation found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResyncOut {
    /// Findings of each cluster that was read, a line each.
    pub clusters: BTreeMap<String, Vec<String>>,
    /// Clusters that could not be read: nothing was compared there. Absent when all were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadOut>,
    /// Why the configuration was not reloaded; absent when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What the next reconciliation would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResyncPlanOut {
    /// What would be done in each cluster that was read, the gravest first.
    pub clusters: BTreeMap<String, Vec<FoundOut>>,
    /// Clusters that could not be read: nobody knows what would be done there. Absent when all were
    /// read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadOut>,
}

/// One thing that a reconciliation found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundOut {
    /// `destroy`, `remove`, `retire`, `follow`, `park`, `leave` or `report`.
    pub does: String,
    /// The guest it is about; null when it is about none of its own.
    pub vmid: Option<u32>,
    /// What was found, and why that follows.
    pub why: String,
}

/// What a reload brought into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReloadOut {
    /// The generation in force.
    pub generation: u64,
    /// The file or directory that the service has read, as an absolute path.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub path: PathBuf,
    /// The keys whose values take effect at the next start only.
    #[serde(default)]
    pub restart_due: Vec<String>,
}

/// The level of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLevelIn {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,proxmox_client=debug`.
    pub level: String,
}

/// The body of a request that takes no fields.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Nothing {}

/// Why an agent is retired.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetireIn {
    /// Whether the trial is over that the agent was made for, rather than that somebody wants it gone.
    #[serde(default)]
    pub trial_over: bool,
}
