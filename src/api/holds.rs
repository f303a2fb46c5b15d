//! Holds of agents for debugging.

use serde::{Deserialize, Serialize};

/// A hold as it is asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldIn {
    /// How long from the moment it is held, at most a week; two hours when it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The public key to let in; without one a key pair is made for this hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<String>,
}

/// A hold that is written down.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldOut {
    /// The id of the agent.
    pub agent: String,
    /// How long from the moment it is held.
    pub seconds: u64,
    /// The public key that is let in.
    pub ssh_public_key: String,
    /// The private key made for this hold, shown here and nowhere else; null for a key of the
    /// caller's.
    pub private_key: Option<String>,
}

/// A hold of the next failure of a template that is written down.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldNextOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// How long from the moment an agent is held.
    pub seconds: u64,
    /// The public key that is let in.
    pub ssh_public_key: String,
    /// The private key made for this hold, shown here and nowhere else; null for a key of the
    /// caller's.
    pub private_key: Option<String>,
}

/// A copy of a machine that is started, with its hold written down.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CloneOut {
    /// The id of the agent that is the copy.
    pub agent: String,
    /// The id of the agent whose machine is copied.
    pub of: String,
    /// The template of both, `cloud/template`.
    pub template: String,
    /// How long from the moment the copy is ready.
    pub seconds: u64,
    /// The public key that is let in.
    pub ssh_public_key: String,
    /// The private key made for this hold, shown here and nowhere else; null for a key of the
    /// caller's.
    pub private_key: Option<String>,
}
