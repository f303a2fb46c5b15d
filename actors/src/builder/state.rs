//! The states of a build and their steps.

use drover_model::id::Upid;
use drover_model::phase::ImagePhase;

pub use crate::removal::Remove;

/// Where a build is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Queued,
    Pulling(Task),
    Creating(Create),
    Configuring,
    Installing(Install),
    Booting(Boot),
    Connecting,
    /// The step that runs: cloud-init first, then the recipe's own.
    Provisioning(usize),
    Cleaning,
    ShuttingDown(Shut),
    Converting(Task),
    Verifying,
    Sealing,
    Removing(Remove),
    Done,
    Failed,
    Removed,
}

/// A call that starts a task, and the wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    Call,
    Await(Upid),
}

/// How the guest is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Create {
    /// The template image that is copied is looked for.
    Locate,
    /// A VMID was asked for.
    Id,
    Call,
    Await(Upid),
    /// Whether the guest was made is not known: it is looked at.
    Look,
}

/// How the guest is installed from an ISO image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Install {
    Start,
    Await(Upid),
    /// Whether the installer has powered the guest off.
    Look {
        /// Whether it is known to have run.
        started: bool,
    },
    /// The discs are taken out.
    Eject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    Start,
    Await(Upid),
    /// Whether it runs is not known.
    Look,
    Address,
    HostKeys,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shut {
    Call,
    Await(Upid),
    Look,
}

impl State {
    pub fn phase(&self) -> ImagePhase {
        match self {
            Self::Queued => ImagePhase::Queued,
            Self::Pulling(_) => ImagePhase::Pulling,
            Self::Creating(_) => ImagePhase::Creating,
            Self::Configuring => ImagePhase::Configuring,
            Self::Installing(_) => ImagePhase::Installing,
            Self::Booting(_) => ImagePhase::Booting,
            Self::Connecting => ImagePhase::Connecting,
            Self::Provisioning(_) => ImagePhase::Provisioning,
            Self::Cleaning => ImagePhase::Cleaning,
            Self::ShuttingDown(_) => ImagePhase::ShuttingDown,
            Self::Converting(_) => ImagePhase::Converting,
            Self::Verifying => ImagePhase::Verifying,
            Self::Sealing => ImagePhase::Sealing,
            Self::Removing(_) => ImagePhase::Removing,
            Self::Done => ImagePhase::Done,
            Self::Failed => ImagePhase::Failed,
            Self::Removed => ImagePhase::Removed,
        }
    }
}
