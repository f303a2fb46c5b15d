//! What others may know of a declared machine.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::declared::{Drift, OnRemoval};
use crate::id::{AgentId, CloudId, DeclaredName, NodeName, VmId};
use crate::phase::{DeclaredPhase, Power};
use crate::time::WallTime;

/// One declared machine at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredStatus {
    pub name: DeclaredName,
    /// The id in its marks, once its guest is intended.
    pub id: Option<AgentId>,
    pub cloud: CloudId,
    /// The node it is on, as last known.
    pub node: Option<NodeName>,
    pub vmid: Option<VmId>,
    /// The template image that its guest was cloned from.
    pub source: Option<VmId>,
    pub phase: DeclaredPhase,
    /// When that phase began.
    pub since: WallTime,
    /// Whether the configuration has it.
    pub declared: bool,
    /// What it is kept at.
    pub wanted: Power,
    /// Whether it ran at the last look.
    pub power: Power,
    /// Addresses that its guest agent reported at the last look.
    pub addresses: Vec<IpAddr>,
    /// In what it differed at the last look.
    pub drift: Vec<Drift>,
    /// A line for people: what it waits for, or what went wrong; empty where all is well.
    pub detail: String,
    /// What drover last put right in this start, and when.
    pub corrected: Option<(WallTime, String)>,
    pub on_removal: OnRemoval,
    /// When it was last seen, where the last look at it came to nothing.
    pub last_seen: Option<WallTime>,
    /// Whether it waits for a template image of which there is no version yet.
    pub lacks_image: bool,
}
