//! The leader lease, as the register holds it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The entry of the register.
pub(crate) const NAME: &str = "leader";
/// The format that this drover writes.
pub(crate) const FORMAT: u32 = 1;

/// A member that leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Leader {
    /// The member's name.
    pub name: String,
    /// What no other process has, not even the same member's next one.
    pub process: String,
    /// The URL where other members reach it.
    pub url: String,
}

/// Who leads, and for how long after a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderLease {
    pub format: u32,
    /// Rises with each change of leader.
    pub term: u64,
    /// None where the last leader gave it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// Rises with each renewal.
    pub renewals: u64,
    /// How long after a renewal no other member takes it, in milliseconds.
    pub hold_ms: u64,
    /// The digest of the configuration in force.
    pub config: String,
    /// The wall time of the renewal, in milliseconds: for people and for how long nobody led. Nobody
    /// decides by it who leads.
    pub renewed_at: i64,
    /// The member that is asked to lead next, where the last leader gave it up for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl LeaderLease {
    pub(crate) fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Numbers and texts alone: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads an entry; a newer drover may have written what this one does not know.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}
