//! Pools of addresses.

use serde::{Deserialize, Serialize};

// Not `AddressPoolStatus`: a time is spelled.
/// A pool of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolOut {
    /// Its key in `addressPools`.
    pub id: String,
    /// What it gives.
    pub ranges: Vec<String>,
    /// How many addresses that are.
    pub size: u64,
    /// Those that agents have, or that are kept back for them.
    pub used: u64,
    /// Those that rest after use.
    pub resting: u64,
    /// Those that the next agents can have.
    pub free: u64,
    /// When the next of those that rest is free (RFC 3339); null when none rests.
    pub next_free_at: Option<String>,
}

/// Pools of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolsOut {
    /// The configured pools.
    pub address_pools: Vec<AddressPoolOut>,
}
