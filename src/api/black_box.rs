//! What drover keeps of an agent that failed.

use serde::{Deserialize, Serialize};

use crate::PhaseOut;

/// What drover kept of an agent that failed, after it destroyed the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlackBoxOut {
    /// The id of the agent.
    pub agent: String,
    /// Its template, `cloud/template`.
    pub template: String,
    /// Why it went, one word.
    pub reason: String,
    /// Why it went, for people.
    pub detail: String,
    /// When (RFC 3339).
    pub gone_at: String,
    /// Its VMID; null where none was chosen, or drover does not know it any more.
    pub vmid: Option<u32>,
    /// Its last node.
    pub node: Option<String>,
    /// Its last address.
    pub address: Option<String>,
    /// Time spent in each state, in order.
    pub phases: Vec<PhaseOut>,
    /// What happened to it, in order.
    pub moments: Vec<MomentOut>,
    /// How many moments are left out: the oldest ones.
    pub moments_left_out: u64,
    /// Tasks of Proxmox for this VMID on its last node since the agent began, in order.
    pub tasks: Vec<GuestTaskOut>,
    /// Why the tasks could not be read; null where they were.
    pub tasks_unread: Option<String>,
    /// The last calls to Proxmox about its machine, in order.
    #[serde(default)]
    pub calls: Vec<GuestCallOut>,
    /// The end of a log of a guest that SSH never reached, as its guest agent read it.
    #[serde(default)]
    pub guest_log: Option<String>,
    /// Why nothing is known of the inside of a guest that booted; null where something is.
    #[serde(default)]
    pub guest_unread: Option<String>,
}

/// Something that happened to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MomentOut {
    /// When (RFC 3339).
    pub at: String,
    /// `state`, `step`, `alarm`, `lease` or `job`.
    pub kind: String,
    /// What, for people.
    pub text: String,
}

/// A call to Proxmox, or several of one kind that ended the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GuestCallOut {
    /// When the last of them ended (RFC 3339).
    pub at: String,
    /// The method of HTTP.
    pub method: String,
    /// The path below `/api2/json`, without parameters.
    pub path: String,
    /// The status of the answer, or `timeout`, `broken` or `unsent`.
    pub outcome: String,
    /// Milliseconds that the last of them took.
    pub ms: u64,
    /// How many they are.
    pub times: u32,
}

/// A task of Proxmox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GuestTaskOut {
    /// The task's name.
    pub upid: String,
    /// Its kind, such as `qmstart`.
    pub kind: String,
    /// `OK`, or what went wrong; null while it runs.
    pub status: Option<String>,
    /// The end of its log; empty for one that went well.
    pub log: Vec<String>,
}
