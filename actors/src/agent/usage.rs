//! How the guest was used: how often, by whom, and what that left in it.

use drover_model::journal_state::AgentEntry;
use drover_model::overrides::{OverrideChange, Overrides};
use drover_model::record::Owner;
use drover_model::spec::TemplateSpec;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Usage {
    leases: u32,
    /// Limits that override the template's.
    overrides: Overrides,
    /// The owner of the last lease.
    owner: Option<Owner>,
    /// Whether jobs of a source may have run since the guest was clean.
    jobs_ran: bool,
    /// Whether a lease of the whole agent has ended since the guest was clean.
    whole_ended: bool,
    /// Whether a snapshot from before the first use exists.
    snapshot: bool,
}

impl Usage {
    pub(super) fn of_entry(entry: &AgentEntry) -> Self {
        Self {
            leases: entry.uses,
            overrides: entry.commands.overrides,
            owner: entry.owner.clone(),
            jobs_ran: entry.ran,
            whole_ended: false,
            snapshot: entry.clean,
        }
    }

    /// The number of leases so far.
    pub(super) fn count(&self) -> u32 {
        self.leases
    }

    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub(super) fn overrides(&self) -> Overrides {
        self.overrides
    }

    pub(super) fn override_limits(&mut self, change: OverrideChange) {
        self.overrides.change(change);
    }

    /// A lease starts.
    pub(super) fn begin(&mut self, owner: Owner) {
        self.leases += 1;
        self.owner = Some(owner);
    }

    /// A source's runner starts.
    pub(super) fn begin_jobs(&mut self) {
        self.jobs_ran = true;
    }

    /// A lease of the whole agent ended.
    pub(super) fn end_whole(&mut self) {
        self.whole_ended = true;
    }

    /// The guest is clean again.
    pub(super) fn clean(&mut self) {
        self.jobs_ran = false;
        self.whole_ended = false;
    }

    pub(super) fn take_snapshot(&mut self) {
        self.snapshot = true;
    }

    pub(super) fn has_snapshot(&self) -> bool {
        self.snapshot
    }

    /// Whether no lease fits before a reset.
    pub(super) fn is_whole_spent(&self) -> bool {
        self.whole_ended
    }

    /// The number of leases after which the agent retires. `None` for no limit. Without a setting,
    /// jobs of a source never get a guest that a job was in before.
    fn most(&self, spec: &TemplateSpec) -> Option<u32> {
        let once = self.jobs_ran && spec.reset.is_none();
        self.overrides.max_uses(spec).or(once.then_some(spec.executors.max(1)))
    }

    /// The number of leases before the agent retires. `None` for no limit.
    pub(super) fn left(&self, spec: &TemplateSpec) -> Option<u32> {
        self.most(spec).map(|most| most.saturating_sub(self.leases))
    }

    /// Whether the agent retires as soon as it has no lease.
    pub(super) fn is_used_up(&self, spec: &TemplateSpec) -> bool {
        let spent = self.whole_ended && spec.reset.is_none();
        spent || self.left(spec) == Some(0)
    }
}
