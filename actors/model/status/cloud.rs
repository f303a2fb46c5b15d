//! What others may know of a cloud.

use serde::{Deserialize, Serialize};

use crate::id::{CloudId, ClusterId};
use crate::overridden::CloudOverrides;
use crate::phase::CloudHealth;

/// A cloud at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudStatus {
    pub cloud: CloudId,
    /// Its cluster, once known.
    pub cluster: Option<ClusterId>,
    pub health: CloudHealth,
    /// Proxmox's version, once known.
    pub version: Option<String>,
    /// What is wrong.
    pub detail: String,
    /// Agents that count against its cap.
    pub agents: u32,
    pub cap: Option<u32>,
    /// What operators say against the configuration.
    #[serde(default, skip_serializing_if = "CloudOverrides::is_empty")]
    pub overrides: CloudOverrides,
}
