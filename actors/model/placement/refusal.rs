//! Why a node takes no agent.

use thiserror::Error;

use crate::hardware::{DeviceKind, DeviceMapping};
use crate::id::NodeName;

/// Why a node takes no agent of a template, in words that stand behind its name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The cluster lists no such node.
    #[error("the cluster has no such node")]
    Unknown,
    /// It is offline.
    #[error("it is offline (`pvecm status` on another node says more)")]
    Offline,
    /// High availability has it in maintenance.
    #[error(
        "it is in maintenance: once the work there is over, run `ha-manager crm-command \
         node-maintenance disable {0}`"
    )]
    Maintenance(NodeName),
    /// An operator drained it, or a breaker stands before it.
    #[error("{0}")]
    Closed(String),
    /// It lacks a label of `nodeSelector`.
    #[error(
        "it lacks the label `{0}`, which `nodeSelector` requires: drop it there, or give it to the node \
         in `nodeLabels` if the node has what it stands for"
    )]
    Label(String),
    /// Its memory does not do; in MiB.
    #[error("{}, {needed} MiB are needed{}", free_mb(*.free), and_kept(*.kept))]
    Memory {
        /// Free at this moment; below zero where more is promised than there is.
        free: i64,
        /// What the agent takes.
        needed: i64,
        /// What must stay free.
        kept: i64,
    },
    /// Its memory never does, however few others use it; in MiB.
    #[error("it has {whole} MiB of memory, {needed} MiB are needed{}: lower `memoryMb`", and_kept(*.kept))]
    Small {
        /// All of its memory, as far as it may be promised.
        whole: i64,
        /// What the agent takes.
        needed: i64,
        /// What must stay free.
        kept: i64,
    },
    /// Its processors do not do; in thousandths.
    #[error("{} of its processors are free, {} are needed and {} must stay free (`headroom`)",
        thousandths(*.free), thousandths(*.needed), thousandths(*.kept))]
    Processors {
        /// Free at this moment; below zero where more is promised than there is.
        free: i64,
        /// What the agent takes.
        needed: i64,
        /// What must stay free.
        kept: i64,
    },
    /// So many guests are on it that no other may be.
    #[error("{count} guests are on it, and {most} may be (`maxVmsPerNode`)")]
    Guests {
        /// Guests on it.
        count: usize,
        most: u32,
    },
    /// It has no device of a resource mapping, or too few.
    #[error(
        "it has {count} devices of the resource mapping `{mapping}`, {needed} are needed: add the \
         node to the mapping, or grant `Mapping.Use` on `/mapping/{mapping}`"
    )]
    NoDevice {
        mapping: DeviceMapping,
        /// Its devices, in use or not.
        count: u32,
        needed: u32,
    },
    /// All its devices of a resource mapping are in use.
    #[error(
        "{taken} of its {count} devices of the resource mapping `{mapping}` are in use by agents, \
         {needed} are needed"
    )]
    DevicesTaken {
        mapping: DeviceMapping,
        count: u32,
        /// Those that drover's agents have.
        taken: u32,
        needed: u32,
    },
    /// No guest is on it that must be.
    #[error("no guest on it has {0} (`affinity`)")]
    Alone(String),
    /// A guest is on it that must not be.
    #[error("a guest on it has {0} (`antiAffinity`)")]
    Crowded(String),
}

impl Refusal {
    /// The key of the configuration without whose change the node never takes an agent; none where it
    /// may by itself, or where somebody changes the node.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Label(_) => Some("nodeLabels"),
            Self::Small { .. } => Some("memoryMb"),
            Self::NoDevice { mapping, .. } => Some(match mapping.kind {
                DeviceKind::Pci => "pciDevices",
                DeviceKind::Usb => "usbDevices",
            }),
            Self::DevicesTaken { .. }
            | Self::Unknown
            | Self::Offline
            | Self::Maintenance(_)
            | Self::Closed(_)
            | Self::Memory { .. }
            | Self::Processors { .. }
            | Self::Guests { .. }
            | Self::Alone(_)
            | Self::Crowded(_) => None,
        }
    }

    /// The most memory of an agent that the node takes when no other guest is on it, in MiB; none where
    /// memory is not the cause.
    pub fn most_memory(&self) -> Option<i64> {
        match self {
            Self::Small { whole, kept, .. } => Some(whole - kept),
            Self::NoDevice { .. }
            | Self::DevicesTaken { .. }
            | Self::Unknown
            | Self::Offline
            | Self::Maintenance(_)
            | Self::Closed(_)
            | Self::Label(_)
            | Self::Memory { .. }
            | Self::Processors { .. }
            | Self::Guests { .. }
            | Self::Alone(_)
            | Self::Crowded(_) => None,
        }
    }
}

fn free_mb(free: i64) -> String {
    if free < 0 {
        return format!("{} MiB more of its memory are taken than it has", free.unsigned_abs());
    }
    format!("{free} MiB of its memory are free")
}

fn and_kept(kept: i64) -> String {
    const BY: &str = "(`headroom`, `minFreeMemoryMb`)";
    if kept > 0 { format!(" and {kept} MiB must stay free {BY}") } else { String::new() }
}

fn thousandths(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let millis = millis.unsigned_abs();
    format!("{sign}{}.{}", millis / 1000, millis % 1000 / 100)
}
