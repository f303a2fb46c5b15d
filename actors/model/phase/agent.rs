//! The life of an agent.

use super::words;

words! {
    /// Where an agent is in its life.
    ///
    /// ```text
    /// Queued → Cloning → Configuring → Booting → Connecting → Preparing → Ready
    ///             ↓           ↑
    ///          InDoubt ───────┘
    ///
    /// Ready ⇄ Leased → Draining, and where guests are reset: Leased → Resetting → Ready
    /// ```
    ///
    /// Held comes after Ready, Leased, Draining, or a failure on the way. Each of them ends in
    /// Retiring and Gone; Stranded is the end that an administrator has to help with.
    AgentPhase, "agent phase" {
        /// It waits for a place in the lanes and a VMID; nothing was sent for it.
        Queued = "Queued",
        /// The clone was asked for.
        Cloning = "Cloning",
        /// Whether the clone was made is not known.
        InDoubt = "InDoubt",
        /// Cloud-init, sizes and tags are being set.
        Configuring = "Configuring",
        /// The guest starts and gets its address.
        Booting = "Booting",
        /// SSH is being reached.
        Connecting = "Connecting",
        /// The guest is made ready over SSH.
        Preparing = "Preparing",
        /// Free for use.
        Ready = "Ready",
        /// In use, perhaps with executors free.
        Leased = "Leased",
        /// In use for the last time.
        Draining = "Draining",
        /// The guest is put back to its snapshot after its last lease.
        Resetting = "Resetting",
        /// Kept for an operator to look into.
        Held = "Held",
        /// On its way out.
        Retiring = "Retiring",
        /// It needs an administrator.
        Stranded = "Stranded",
        /// The guest is destroyed, and the actor ends.
        Gone = "Gone",
    }
}

impl AgentPhase {
    /// Whether its guest is known to exist and to be drover's own. Those that leave have one until
    /// the destroy is confirmed.
    pub const fn has_guest(self) -> bool {
        match self {
            Self::Queued | Self::Cloning | Self::InDoubt | Self::Gone => false,
            Self::Configuring
            | Self::Booting
            | Self::Connecting
            | Self::Preparing
            | Self::Ready
            | Self::Leased
            | Self::Draining
            | Self::Resetting
            | Self::Held
            | Self::Retiring
            | Self::Stranded => true,
        }
    }

    /// Whether its guest is known to exist, to be drover's own, and to be meant for use.
    pub const fn is_alive(self) -> bool {
        self.has_guest() && !self.is_leaving()
    }

    /// Whether its guest was started and nothing of drover's stops it: a list that shows the guest
    /// stopped shows somebody else's work. A reset may stop the guest.
    pub const fn should_run(self) -> bool {
        match self {
            Self::Connecting
            | Self::Preparing
            | Self::Ready
            | Self::Leased
            | Self::Draining
            | Self::Held => true,
            Self::Queued
            | Self::Cloning
            | Self::InDoubt
            | Self::Configuring
            | Self::Booting
            | Self::Resetting
            | Self::Retiring
            | Self::Stranded
            | Self::Gone => false,
        }
    }

    /// Whether its clone is under way, or may be.
    pub const fn is_cloning(self) -> bool {
        matches!(self, Self::Cloning | Self::InDoubt)
    }

    /// Whether it is cloned and was not ready yet.
    pub const fn is_starting(self) -> bool {
        matches!(self, Self::Configuring | Self::Booting | Self::Connecting | Self::Preparing)
    }

    /// Whether a lease may begin on it, as far as its phase says: executors may all be in use.
    pub const fn takes_leases(self) -> bool {
        matches!(self, Self::Ready | Self::Leased)
    }

    /// Whether it is in use or kept, and takes no lease after this.
    pub const fn takes_no_more(self) -> bool {
        matches!(self, Self::Draining | Self::Held)
    }

    /// Whether it is busy without ever having been ready, for all that its phase says: such an
    /// agent proves nothing of its template.
    pub const fn is_busy_unproven(self) -> bool {
        matches!(self, Self::InDoubt | Self::Held)
    }

    /// Whether it goes, or cannot without help, or is gone: it is too late to hold it.
    pub const fn is_leaving(self) -> bool {
        matches!(self, Self::Retiring | Self::Stranded | Self::Gone)
    }

    /// Whether its disk has been there for so long that its storage's figures show it.
    pub const fn disk_is_shown(self) -> bool {
        match self {
            Self::Queued
            | Self::Cloning
            | Self::InDoubt
            | Self::Configuring
            | Self::Booting
            | Self::Connecting
            | Self::Preparing => false,
            Self::Ready
            | Self::Leased
            | Self::Draining
            | Self::Resetting
            | Self::Held
            | Self::Retiring
            | Self::Stranded
            | Self::Gone => true,
        }
    }

    /// Whether drover itself may be taking a snapshot of its guest, or going back to one.
    pub const fn uses_snapshots(self) -> bool {
        matches!(self, Self::Preparing | Self::Resetting)
    }

    /// The YAML keys that bound how long it may take; none where nothing bounds it.
    pub const fn timeout_keys(self) -> Option<&'static str> {
        match self {
            Self::Queued => Some("queueTimeoutSec"),
            Self::Cloning => Some("operationTimeoutSec, cloneTimeoutSec"),
            Self::Configuring => Some("operationTimeoutSec"),
            Self::Booting | Self::Connecting => Some("startupWaitSeconds"),
            Self::Preparing => Some("prepareTimeoutSec"),
            Self::Resetting => Some("resetTimeoutSec"),
            Self::InDoubt
            | Self::Ready
            | Self::Leased
            | Self::Draining
            | Self::Held
            | Self::Retiring
            | Self::Stranded
            | Self::Gone => None,
        }
    }

    /// The phase that a part of an agent's waterfall belongs to: `Preparing: cloud-init` to
    /// [`AgentPhase::Preparing`]. None for the time before this start of the service.
    pub fn of_part(part: &str) -> Option<Self> {
        part.split(':').next()?.parse().ok()
    }
}
