//! Whether drover uses a node, and what an operator wants of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::WallTime;

/// Whether drover starts agents on a node, and what keeps it from that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeStatus {
    Online,
    Offline,
    /// Proxmox's HA manager has it in maintenance.
    Maintenance,
    /// An operator cordoned it (`drover cordon`): nothing starts there, and agents there stay.
    Cordoned,
    /// An operator drained it (`drover drain`).
    Drained,
    /// Its breaker lets nothing through, for this reason.
    Barred(String),
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Maintenance => "maintenance",
            Self::Cordoned => "cordoned",
            Self::Drained => "drained",
            Self::Barred(why) => why,
        })
    }
}

/// Who gave an order about a node, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderedBy {
    /// Such as `token:ci`.
    pub by: String,
    pub at: WallTime,
}

/// What an operator wants of a node; the last order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOrder {
    /// Agents start there again.
    Use,
    /// Nothing starts there. Agents there stay, and take leases.
    Cordon,
    /// Nothing starts there. Idle agents retire, and busy ones after their last lease.
    Drain,
}
