//! Clouds, and the confirmation of a cluster whose root CA is new.

use drover_model::phase::CloudHealth;
use serde::{Deserialize, Serialize};

use crate::CloudOverridesOut;

// Not `CloudStatus`: the time of its last report is beside it, spelled.
/// A cloud and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CloudOut {
    /// Its key in the configuration.
    pub id: String,
    /// Its cluster, once known.
    pub cluster: Option<String>,
    pub health: CloudHealth,
    /// Proxmox's version, once known.
    pub version: Option<String>,
    /// What is wrong.
    pub detail: String,
    /// Agents that count against its cap.
    pub agents: u32,
    /// The most agents; null for no limit.
    pub cap: Option<u32>,
    /// What operators say against the configuration; left out where they say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<CloudOverridesOut>,
    /// The commit of git that manages it; null where none does.
    #[serde(default)]
    pub managed_by: Option<String>,
    /// When the cloud last reported (RFC 3339).
    #[serde(rename = "toldAt")]
    pub reported_at: String,
}

/// The answer to a list of clouds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CloudsOut {
    /// The configured clouds.
    pub clouds: Vec<CloudOut>,
}

/// How a cluster is confirmed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfirmIn {
    /// That drover has no guest there whose marks could prove it.
    pub no_guests: bool,
}

/// A cluster that was confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfirmOut {
    /// The name of the cloud.
    pub cloud: String,
    /// The id by which drover knows its cluster, as before.
    pub cluster: String,
    /// What the fingerprint of its root CA says now.
    pub fingerprint: String,
    /// Guests whose marks prove it.
    pub guests: usize,
}
