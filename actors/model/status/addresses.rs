//! What others may know of a pool of addresses.

use serde::{Deserialize, Serialize};

use crate::id::AddressPoolId;
use crate::time::WallTime;

/// A pool of addresses at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    pub pool: AddressPoolId,
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
    /// When the next of those that rest is free.
    pub next_free: Option<WallTime>,
}
