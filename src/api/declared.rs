//! Declared machines: what the configuration says of them, and how they are.

use drover_model::phase::{DeclaredPhase, DriftKind, Power};
use serde::{Deserialize, Serialize};

/// In what a machine differs from its declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DriftOut {
    pub kind: DriftKind,
    /// What differs, such as `cores`.
    pub what: String,
    /// As the configuration has it.
    pub declared: String,
    /// As the cluster has it.
    pub found: String,
    /// Why drover does not put it right; null where it does.
    pub stays: Option<String>,
}

// Not `DeclaredStatus`: times are spelled.
/// A declared machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeclaredMachineOut {
    /// Its key in `machines`.
    pub name: String,
    /// The id in the marks of its guest; null before there may be one.
    pub id: Option<String>,
    pub cloud: String,
    pub node: Option<String>,
    pub vmid: Option<u32>,
    /// The VMID of the template image that its guest was cloned from.
    pub source: Option<u32>,
    pub state: DeclaredPhase,
    /// When it came into that state (RFC 3339).
    pub since: String,
    /// Whether the configuration has it.
    pub declared: bool,
    /// What it is kept at.
    pub wanted: Power,
    /// When it was last seen (RFC 3339), where later looks came to nothing; null where they are well, or
    /// since drover started.
    pub last_seen_at: Option<String>,
    /// Whether it ran at the last look.
    pub power: Power,
    /// Addresses that its guest agent reported at the last look.
    pub addresses: Vec<String>,
    pub drift: Vec<DriftOut>,
    /// What it waits for, or what went wrong; empty where all is well.
    pub detail: String,
    /// What drover last put right since it started; null where it did nothing.
    pub corrected: Option<String>,
    /// When (RFC 3339).
    pub corrected_at: Option<String>,
    /// What becomes of its guest without its declaration: `KEEP`, `STOP` or `DELETE`.
    pub on_removal: String,
}

/// Asks a declared machine to adopt a guest that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AdoptMachineIn {
    /// The guest; without it the one whose marks prove that it is the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vmid: Option<u32>,
    /// Whether the operator says that this guest is the machine, which its marks do not prove.
    #[serde(default)]
    pub confirm: bool,
    /// Whether to say what would be adopted, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// A guest that a declared machine adopts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AdoptMachineOut {
    pub machine: String,
    pub vmid: u32,
    pub node: String,
    /// Its name at the moment; empty where the cluster's list does not say it yet.
    pub called: String,
    /// Its name from now on.
    pub name: String,
    /// Whether its marks prove that it is the machine; otherwise drover writes name and marks.
    pub proven: bool,
    /// What becomes of it without its declaration: `KEEP`, `STOP` or `DELETE`.
    pub on_removal: String,
}

/// The answer to a list of declared machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeclaredMachinesOut {
    /// By their names.
    pub machines: Vec<DeclaredMachineOut>,
}
