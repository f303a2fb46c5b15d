//! Holds for debugging.

use serde::{Deserialize, Serialize};

/// A hold for debugging, as an operator wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// How long from the moment it is held, in milliseconds.
    pub span_ms: u64,
    /// The public key to let in, one line.
    pub public_key: String,
    /// Who asked for it; none in journals from before it was written: only admins change such a one.
    #[serde(default)]
    pub owner: Option<HoldOwner>,
}

/// Who asked for a hold, and may change and end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldOwner {
    /// Who it is, as authenticated.
    pub principal: String,
    /// The group the configuration put them into.
    pub group: Option<String>,
}
