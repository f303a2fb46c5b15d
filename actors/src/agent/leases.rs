//! The leases on an agent.

use std::collections::BTreeMap;

use drover_model::id::{Attempt, LeaseId};
use drover_model::journal_state::GrantedLease;
use drover_model::time::{Moment, WallTime};

/// The stage of a lease on this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// drover installs the lease's key.
    Admitting,
    Ready,
    /// The end is recorded; drover removes the key.
    Expelling,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lease {
    /// The ask, and the end as the holder and the journal know it.
    pub(super) granted: GrantedLease,
    /// The end in monotonic time, which no change of the clock moves (book: safety, rule 13).
    pub(super) ends: Moment,
    pub(super) stage: Stage,
    /// The running call of this lease.
    pub(super) asked: Option<Attempt>,
    /// When that call is repeated.
    pub(super) retry: Option<Moment>,
    /// Failures of that call.
    pub(super) tries: u32,
    /// Whether the lease was ever reported ready to its holder.
    pub(super) reported_ready: bool,
    /// Why the lease fails as soon as its guest has answered about its runner.
    pub(super) failing: Option<String>,
    /// Whether the lease's call waits for another change of the guest's keys.
    pub(super) waits: bool,
    /// Since when the lease's call is due: its grant, its end, or the end of a pause between two
    /// tries. This is its place in the queue.
    pub(super) due: Moment,
    /// Whether the running call belongs to a stage that is over.
    pub(super) outdated: bool,
    /// Whether the lease comes from an earlier start of the service and drover has not entered its
    /// guest since.
    pub(super) unseen: bool,
    /// Whether the runner may be at work although its start was not confirmed.
    pub(super) unsure: bool,
    /// Whether the lease is over for everybody else although its key is still in the guest.
    pub(super) let_go: bool,
}

impl Lease {
    /// Whether the lease puts a source's runner into the guest.
    pub(super) fn is_runners(&self) -> bool {
        self.granted.ask.source.is_some()
    }

    /// Repeats the lease's call at this moment, behind the calls that wait by then.
    pub(super) fn retry_at(&mut self, at: Moment) {
        self.retry = Some(at);
        self.due = at;
    }

    /// The sort key of the queue: due time first, then time of the ask.
    pub(super) fn place(&self) -> (Moment, WallTime, &LeaseId) {
        let ask = &self.granted.ask;
        (self.due, ask.asked, &ask.lease)
    }

    /// A lease before its first call.
    pub(super) fn new(granted: GrantedLease, now: Moment, ends: Moment, stage: Stage) -> Self {
        Self {
            granted,
            due: now,
            ends,
            reported_ready: stage != Stage::Admitting,
            stage,
            asked: None,
            retry: None,
            tries: 0,
            failing: None,
            waits: false,
            outdated: false,
            unseen: false,
            unsure: false,
            let_go: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Leases(BTreeMap<LeaseId, Lease>);

impl FromIterator<(LeaseId, Lease)> for Leases {
    fn from_iter<I: IntoIterator<Item = (LeaseId, Lease)>>(leases: I) -> Self {
        Self(leases.into_iter().collect())
    }
}

impl Leases {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, id: &LeaseId) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn get(&self, id: &LeaseId) -> Option<&Lease> {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &LeaseId) -> Option<&mut Lease> {
        self.0.get_mut(id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&LeaseId, &Lease)> {
        self.0.iter()
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Lease> {
        self.0.values()
    }

    /// Leases whose end is not recorded yet.
    pub(super) fn running(&self) -> impl Iterator<Item = &Lease> {
        self.each().filter(|lease| lease.stage != Stage::Expelling)
    }

    /// Whether only keys of ended leases are left.
    pub(super) fn only_expels(&self) -> bool {
        self.running().next().is_none()
    }

    /// Whether the guest has the key of an ended lease.
    pub(super) fn any_expels(&self) -> bool {
        self.each().any(|lease| lease.stage == Stage::Expelling)
    }

    /// Whether a lease takes the whole agent.
    pub(super) fn any_whole(&self) -> bool {
        self.each().any(|lease| lease.granted.ask.whole)
    }

    /// Leases that others still count.
    pub(super) fn reported(&self) -> Vec<LeaseId> {
        self.all().filter(|(_, lease)| !lease.let_go).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn put(&mut self, id: LeaseId, lease: Lease) {
        self.0.insert(id, lease);
    }

    pub(super) fn remove(&mut self, id: &LeaseId) -> Option<Lease> {
        self.0.remove(id)
    }

    pub(super) fn remove_all(&mut self) -> impl Iterator<Item = Lease> + use<> {
        std::mem::take(&mut self.0).into_values()
    }

    /// Whether this is the running call of this lease.
    pub(super) fn is_asked(&self, id: &LeaseId, attempt: Attempt) -> bool {
        self.get(id).is_some_and(|lease| lease.asked == Some(attempt))
    }

    /// The lease whose running call this is.
    pub(super) fn of_call(&self, attempt: Attempt) -> Option<LeaseId> {
        let of = self.each().find(|lease| lease.asked == Some(attempt));
        of.map(|lease| lease.granted.ask.lease.clone())
    }

    /// Whether an answer with this stamp still counts for its lease.
    pub(super) fn awaits(&self, attempt: Attempt) -> bool {
        self.each().any(|lease| lease.asked == Some(attempt) && !lease.outdated)
    }

    /// All leases, sorted by when their call is due.
    pub(super) fn in_line(&self) -> Vec<LeaseId> {
        let mut line: Vec<&Lease> = self.each().collect();
        line.sort_by_key(|lease| lease.place());
        line.into_iter().map(|lease| lease.granted.ask.lease.clone()).collect()
    }

    /// The first in the queue for the guest's keys.
    pub(super) fn next_waiting(&self) -> Option<LeaseId> {
        let waiting = self.each().filter(|lease| lease.waits);
        let next = waiting.min_by_key(|lease| lease.place());
        next.map(|lease| lease.granted.ask.lease.clone())
    }

    /// When leases are due: their end, or another try for their key.
    pub(super) fn due(&self) -> Vec<Moment> {
        let due = |lease: &Lease| match lease.stage {
            Stage::Expelling => lease.retry,
            Stage::Admitting | Stage::Ready => {
                Some(lease.retry.map_or(lease.ends, |retry| retry.min(lease.ends)))
            }
        };
        self.each().filter_map(due).collect()
    }
}
