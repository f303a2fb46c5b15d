//! What a reconciliation finds, and what each finding comes to.

use crate::id::VmId;

/// What a finding comes to, the gravest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Does {
    /// An orphan is destroyed.
    Destroy,
    /// An agent whose guest is gone is removed.
    Remove,
    /// An agent whose guest was stopped is retired.
    Retire,
    /// An agent is followed to the node its guest moved to.
    Follow,
    /// Agents of a node that is down leave the caps.
    Park,
    /// A guest of ours is left alone, for now or for as long as the configuration says so.
    Leave,
    /// Reported, and nothing done: strangers, damaged marks, what could not be read.
    Report,
}

impl Does {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Destroy,
        Self::Remove,
        Self::Retire,
        Self::Follow,
        Self::Park,
        Self::Leave,
        Self::Report,
    ];

    /// Its name, as people and programs read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Destroy => "destroy",
            Self::Remove => "remove",
            Self::Retire => "retire",
            Self::Follow => "follow",
            Self::Park => "park",
            Self::Leave => "leave",
            Self::Report => "report",
        }
    }
}

/// What was found in a cluster, or why the cluster could not be read.
pub type Outcome<F> = Result<Vec<F>, String>;

/// One thing a reconciliation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it comes to.
    pub does: Does,
    /// The guest it is about, when it is about one.
    pub vmid: Option<VmId>,
    /// What was found and why that follows, one line.
    pub text: String,
}

impl Finding {
    /// A finding about one guest.
    pub fn of(does: Does, vmid: VmId, text: String) -> Self {
        Self { does, vmid: Some(vmid), text }
    }

    /// A finding about no guest of its own, which drover only reports.
    pub fn reported(text: String) -> Self {
        Self { does: Does::Report, vmid: None, text }
    }
}
