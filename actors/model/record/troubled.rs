//! Nodes, clouds and sources that are out of order for longer than one start of the service may see.

use serde::{Deserialize, Serialize};

use crate::id::{CloudId, ClusterId, NodeName, SourceId};

/// What is in trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Troubled {
    /// A node that is offline.
    Node {
        /// Its cluster.
        cluster: ClusterId,
        /// The node.
        node: NodeName,
    },
    /// A cloud that is degraded.
    Cloud {
        /// The cloud.
        cloud: CloudId,
    },
    /// A source that cannot be read.
    Source {
        /// The source.
        source: SourceId,
    },
}
