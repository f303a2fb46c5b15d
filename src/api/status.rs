//! The whole service at a glance.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    AddressPoolOut, AgentOut, BreakerOut, CloudOut, DeclaredMachineOut, FaultOut, ImageBuildOut,
    LeaseOut, LostJobOut, MembersOut, SourceOut, SyncOut, TemplateOut,
};

/// The configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigOut {
    /// Its generation; null before the first.
    pub generation: Option<u64>,
    /// Seconds between two reconciliations of every cloud, as `service` says; null where each cloud
    /// says so itself.
    #[serde(default)]
    pub orphan_cleanup_period_seconds: Option<u64>,
    /// Since when (RFC 3339).
    pub applied_at: Option<String>,
    /// When a newer one was refused (RFC 3339); null when the newest is in force.
    pub refused_at: Option<String>,
    /// What is wrong in it, with places.
    pub refusal: Option<String>,
    /// The faults in it, by their parts; empty where the refusal is about no place in the files.
    #[serde(default)]
    pub faults: Vec<FaultOut>,
    /// The file or directory that the service reads it from.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub path: Option<PathBuf>,
}

/// Something that needs an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AlarmOut {
    /// What it is about, such as `agent 4f8z1c3qx9t2vkab`, `cloud lab` or `configuration`.
    #[serde(default)]
    pub about: String,
    /// The id of the agent; empty where it is about something else.
    pub agent: String,
    /// What is wrong.
    pub text: String,
    /// What to run; empty where the text says what to do.
    pub command: String,
    /// Since when (RFC 3339); null where that is not known.
    pub since: Option<String>,
}

/// The last reconciliation of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReconcileOut {
    /// The fingerprint of the cluster.
    pub cluster: String,
    /// What was found, a line each.
    pub findings: Vec<String>,
    /// Why the cluster could not be read; null where it was.
    pub unread: Option<String>,
    /// When (RFC 3339).
    pub at: String,
}

/// A restart of an actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RestartOut {
    /// The name of the actor.
    pub actor: String,
    /// Restarts within the window.
    pub count: u32,
    /// Whether it was given up.
    pub gave_up: bool,
    /// When (RFC 3339).
    pub at: String,
}

/// Everything at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatusOut {
    /// The version of drover.
    pub version: String,
    /// Whether the service is ready for work.
    pub ready: bool,
    /// Why the journal cannot be written; null when it can. Nothing new is started meanwhile.
    #[serde(default)]
    pub journal: Option<String>,
    /// The configuration in force.
    pub config: ConfigOut,
    /// The part of the configuration that git manages; null where none is.
    #[serde(default)]
    pub sync: Option<SyncOut>,
    /// The members of the store; null where this drover stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MembersOut>,
    /// The configured clouds.
    pub clouds: Vec<CloudOut>,
    /// Each template on each of its clouds.
    pub templates: Vec<TemplateOut>,
    /// Pools of addresses.
    #[serde(default)]
    pub address_pools: Vec<AddressPoolOut>,
    /// The number of agents that are not gone.
    pub agents: Vec<AgentOut>,
    /// Leases that have not ended.
    pub leases: Vec<LeaseOut>,
    /// What needs an administrator: the journal, the configuration, another drover, clouds, images,
    /// templates and agents.
    pub alarms: Vec<AlarmOut>,
    /// What speaks for another drover that uses this installation, and what to do; empty where nothing
    /// does. `alarms` has it, too.
    #[serde(default)]
    pub other_drover: Vec<String>,
    /// Breakers that do not flow.
    #[serde(default)]
    pub breakers: Vec<BreakerOut>,
    /// Sources of demand.
    #[serde(default)]
    pub sources: Vec<SourceOut>,
    /// The last jobs that were lost with their machines.
    #[serde(default)]
    pub lost_jobs: Vec<LostJobOut>,
    /// Builds of images that run, and the last of each image and node where it failed.
    #[serde(default)]
    pub builds: Vec<ImageBuildOut>,
    /// Declared machines, and those that left the configuration and are still there.
    #[serde(default)]
    pub machines: Vec<DeclaredMachineOut>,
    /// The last reconciliation of each cluster.
    pub reconciled: Vec<ReconcileOut>,
    /// The last restarts of actors.
    pub restarts: Vec<RestartOut>,
}
