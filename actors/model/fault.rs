//! Kinds of failure at the ports, what each means, and who is to blame for it.

use serde::{Deserialize, Serialize};

use crate::id::{CloudId, NodeName, SourceId};

/// A failure as the minds understand it; the port keeps and logs the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// What it means for what comes next.
    pub kind: FaultKind,
    /// The narrowest thing it can be charged to.
    pub culprit: Culprit,
    /// One line for people: what failed, where, and what to do when that is known.
    pub text: String,
}

impl Fault {
    /// Builds a fault.
    pub fn new(kind: FaultKind, culprit: Culprit, text: impl Into<String>) -> Self {
        Self { kind, culprit, text: text.into() }
    }
}

/// What a failure means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// Lock timeouts, 59x before the effect, wrong digest: try again within a budget, never charge a breaker.
    Contention,
    /// The guest carries a lock of Proxmox's own (`backup`, `migrate`, …): wait.
    Locked {
        /// The value of its `lock` key.
        lock: String,
    },
    /// Nothing was sent: no endpoint took the connection.
    Unreachable,
    /// The effect may have happened: look before anything else.
    UnknownOutcome,
    /// A right is missing or the login was refused.
    Denied {
        /// The privilege Proxmox named.
        privilege: Option<String>,
        /// The path it was wanted on.
        path: Option<String>,
    },
    /// The thing asked about does not exist.
    Gone,
    /// The VMID belongs to somebody else.
    IdTaken,
    /// No room: disk, memory, ids.
    Capacity,
    /// The guest's marks are not this agent's.
    Foreign,
    /// SSH: the key was refused.
    KeyRejected,
    /// SSH: another host key than the one known.
    Impostor,
    /// It will fail the same way again.
    Broken,
}

impl FaultKind {
    /// A fixed word for logs and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Contention => "contention",
            Self::Locked { .. } => "locked",
            Self::Unreachable => "unreachable",
            Self::UnknownOutcome => "unknown-outcome",
            Self::Denied { .. } => "denied",
            Self::Gone => "gone",
            Self::IdTaken => "id-taken",
            Self::Capacity => "capacity",
            Self::Foreign => "foreign",
            Self::KeyRejected => "key-rejected",
            Self::Impostor => "impostor",
            Self::Broken => "broken",
        }
    }

    /// Whether a breaker counts it (book: safety, rule 7: contention and silence of the cluster are
    /// never charged).
    pub fn counts_against_breaker(&self) -> bool {
        match self {
            Self::Contention
            | Self::Locked { .. }
            | Self::Unreachable
            | Self::UnknownOutcome
            | Self::IdTaken
            | Self::Gone
            | Self::Foreign => false,
            Self::Denied { .. }
            | Self::Capacity
            | Self::KeyRejected
            | Self::Impostor
            | Self::Broken => true,
        }
    }
}

/// Who a fault is charged to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Culprit {
    /// Only this one guest.
    Guest,
    /// The template as it is configured.
    Template,
    Storage(String),
    Node(NodeName),
    /// The cloud: login, rights, endpoints.
    Cloud(CloudId),
    /// A source of demand: no breaker of drover's machines counts it.
    Source(SourceId),
}
