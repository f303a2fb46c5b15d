//! Words of a plan: the ways in which things are found, made clean, lie, misbehave.

use serde::{Deserialize, Serialize};

/// How a template is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Found {
    /// By its VMID.
    #[default]
    Id,
    /// By its name, on this node and the next one.
    Name,
    /// By a tag of its own.
    Tag,
    /// By its name, on any node, chosen by the strategy of this number.
    Any(usize),
}

/// How used agents are made clean again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetName {
    /// Not at all.
    #[default]
    None,
    /// By a snapshot of their disks.
    Disk,
    /// By one with their memory.
    Memory,
}

/// What a guest does that does not do what it is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lie {
    /// Its runner never connects.
    Deaf,
    /// Its runner connects and takes no job.
    Idle,
}

/// The calls a trap counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bait {
    /// Appends to the journal.
    Append,
    /// Calls of the cluster and of guests.
    Effect,
    /// Keys put into guests and taken out.
    Key,
}

/// A guest that is not drover's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stranger {
    /// A plain machine under the next id drover would take.
    Plain,
    /// A copy of an agent's guest under another id.
    Copy,
    /// A guest with the marks of an agent that is gone, under its id: an orphan.
    Orphan,
    /// The same of another installation.
    Foreign,
}

/// A way the next guest misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuirkName {
    /// It never boots.
    NeverBoots,
    /// It hangs once it has booted.
    Hangs,
    /// It ignores the request to shut down.
    IgnoresShutdown,
    /// It gets no address.
    NoAddress,
    /// It lies about its MAC address.
    WrongMac,
    /// It lies about its address.
    WrongAddress,
    /// It powers itself off after a minute.
    PowersOff,
}

/// How fast a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speed {
    /// Everything takes a tenth of the usual time.
    Swift,
    /// The simulator's usual times.
    Usual,
    /// Everything takes four times as long.
    Slow,
}
