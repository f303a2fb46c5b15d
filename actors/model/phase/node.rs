//! Whether drover uses a node.

use std::fmt;

/// Whether drover starts agents on a node, and what keeps it from that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeStatus {
    Online,
    Offline,
    /// Proxmox's HA manager has it in maintenance.
    Maintenance,
    /// An operator drained it (`drover node drain`).
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
            Self::Drained => "drained",
            Self::Barred(why) => why,
        })
    }
}
