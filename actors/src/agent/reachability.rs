//! Whether the guest's node and the guest's cluster can be reached.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reachability {
    /// The guest's node is offline beyond its grace.
    parked: bool,
    /// No configured cloud leads to the guest's cluster.
    cut_off: bool,
}

impl Reachability {
    pub(super) fn is_parked(self) -> bool {
        self.parked
    }

    pub(super) fn is_cut_off(self) -> bool {
        self.cut_off
    }

    /// Parks the agent or ends that. Returns whether it was parked before.
    pub(super) fn park(&mut self, parked: bool) -> bool {
        std::mem::replace(&mut self.parked, parked)
    }

    pub(super) fn cut_off(&mut self, cut_off: bool) {
        self.cut_off = cut_off;
    }
}
