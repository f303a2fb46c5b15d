//! How far the adoption of an agent is after a start of the service or a panic.

use std::collections::BTreeSet;

use drover_model::id::{LeaseId, VmId};
use drover_model::record::Reason;

/// An agent that the journal does not know.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unborn {
    pub(super) granted: Option<VmId>,
    /// Why the agent was gone, and whether its id was burned.
    pub(super) gone: Option<(Reason, bool)>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Adoption(Step);

#[derive(Debug, Clone, PartialEq, Default)]
enum Step {
    /// The agent is new, or its guest was inspected.
    #[default]
    Done,
    /// The journal does not know the agent, which then ends.
    Unborn(Unborn),
    /// The guest must still be inspected.
    Unseen {
        /// Leases whose end differs from the journal's: the service was down, or the clock was set.
        moved: BTreeSet<LeaseId>,
        /// Whether the user of a lease that ended before this start may still be in the guest.
        unswept: bool,
    },
}

impl Adoption {
    pub(super) fn unborn(unborn: Unborn) -> Self {
        Self(Step::Unborn(unborn))
    }

    /// The guest must be inspected before anything is done to it.
    pub(super) fn unseen(moved: BTreeSet<LeaseId>, unswept: bool) -> Self {
        Self(Step::Unseen { moved, unswept })
    }

    pub(super) fn take_unborn(&mut self) -> Option<Unborn> {
        match std::mem::take(self).0 {
            Step::Unborn(unborn) => Some(unborn),
            step @ (Step::Done | Step::Unseen { .. }) => {
                self.0 = step;
                None
            }
        }
    }

    /// Whether the guest is adopted and not inspected yet.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(self.0, Step::Unseen { .. })
    }

    /// The guest was inspected. Returns whether an earlier user may still be in it.
    pub(super) fn see(&mut self) -> bool {
        match std::mem::take(self).0 {
            Step::Unseen { unswept, .. } => unswept,
            Step::Done | Step::Unborn(_) => false,
        }
    }

    /// The guest must be inspected once more. It was never in use.
    pub(super) fn look_again(&mut self) {
        *self = Self::unseen(BTreeSet::new(), false);
    }

    /// No inspection is needed any more.
    pub(super) fn finish(&mut self) {
        *self = Self::default();
    }

    /// Whether the journal must be updated with the end of this lease.
    pub(super) fn has_moved(&self, lease: &LeaseId) -> bool {
        match &self.0 {
            Step::Unseen { moved, .. } => moved.contains(lease),
            Step::Done | Step::Unborn(_) => false,
        }
    }
}
