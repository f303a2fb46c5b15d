//! Nodes, clouds and sources that are out of order for longer than one start of the service may see.

use serde::{Deserialize, Serialize};

use crate::id::{CloudId, ClusterId, NodeName, SourceId};

/// What is in trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Troubled {
    /// A node that is offline.
    Node { cluster: ClusterId, node: NodeName },
    /// A cloud that is degraded.
    Cloud { cloud: CloudId },
    /// A source that cannot be read.
    Source { source: SourceId },
}
