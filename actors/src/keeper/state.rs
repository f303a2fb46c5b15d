//! The states of a declared machine and their steps.

use drover_model::id::{NodeName, Upid, VmId};
use drover_model::order::Work;
use drover_model::phase::DeclaredPhase;

pub use crate::removal::Remove;

/// Where a declared machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing is intended, and there is a pause before the next try.
    Waiting,
    /// As Waiting, because of a guest that has its name.
    Blocked,
    /// Whether a guest of its name is there already.
    Checking(Check),
    Creating(Create),
    Configuring,
    /// The first start.
    Starting,
    Resting(Standing, Watch),
    Correcting(Work),
    /// It left the configuration a moment ago: the author of the file may put it back.
    Leaving,
    Removing(Remove),
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// The herd was asked for the cluster.
    Cluster,
    /// All guests are listed.
    List,
    /// These guests may be of a machine of this name; the marks of the first are read.
    Look(Vec<Namesake>),
}

/// A guest that may be of a machine of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    pub vmid: VmId,
    pub node: NodeName,
    /// Whether the list of guests says its name. A new guest has none there for some seconds (book:
    /// proxmox), whatever it is called.
    pub named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Create {
    /// The template image is looked for.
    Locate,
    /// The herd was asked for a VMID.
    Id,
    Call,
    Await(Upid),
    /// Whether the guest was made is not known: it is looked at.
    Look,
}

/// What is known of a guest that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Kept,
    Missing,
    Foreign,
}

/// How a guest is looked at. Only what was read in one round counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    Pause,
    /// All of it is read, as long as it carries the marks.
    Describe,
    /// It could not be described: whether its id is free.
    Look,
    /// Its id is free: whether the list of all guests has it.
    List,
}

impl State {
    /// The step of a removal.
    pub fn removal(&self) -> Option<&Remove> {
        match self {
            Self::Removing(step) => Some(step),
            Self::Waiting
            | Self::Blocked
            | Self::Checking(_)
            | Self::Creating(_)
            | Self::Configuring
            | Self::Starting
            | Self::Resting(..)
            | Self::Correcting(_)
            | Self::Leaving
            | Self::Removed => None,
        }
    }

    /// What people read, of a machine that the configuration has.
    pub fn phase(&self) -> DeclaredPhase {
        match self {
            Self::Waiting | Self::Checking(_) => DeclaredPhase::Waiting,
            Self::Blocked => DeclaredPhase::Blocked,
            Self::Creating(Create::Locate | Create::Id) => DeclaredPhase::Waiting,
            Self::Creating(Create::Call | Create::Await(_) | Create::Look) => {
                DeclaredPhase::Creating
            }
            Self::Configuring => DeclaredPhase::Configuring,
            Self::Starting => DeclaredPhase::Starting,
            Self::Resting(Standing::Kept, _) => DeclaredPhase::Kept,
            Self::Resting(Standing::Missing, _) => DeclaredPhase::Missing,
            Self::Resting(Standing::Foreign, _) => DeclaredPhase::Foreign,
            Self::Correcting(_) => DeclaredPhase::Correcting,
            Self::Leaving | Self::Removing(_) => DeclaredPhase::Removing,
            Self::Removed => DeclaredPhase::Removed,
        }
    }
}
