//! Where agents are.

use crate::id::{ClusterId, NodeName, VmId};
use crate::template_image::Origin;

/// Where a living agent's guest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub cluster: ClusterId,
    pub vmid: VmId,
    /// Its node, as last known.
    pub node: NodeName,
    /// Where its clone came from, where that was chosen.
    pub origin: Option<Origin>,
    /// The template image that it was cloned from, where that was chosen.
    pub source: Option<VmId>,
}
