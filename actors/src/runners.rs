//! Runners that may be at their sources: from the intent to make one until its row is known to be
//! gone, beyond the life of its agent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use drover_model::demand::words::Ending;
use drover_model::id::{LeaseId, RunnerName, SourceId, TemplateId};
use drover_model::journal_state::{JournalState, RunnerEntry};
use drover_model::record::Want;
use drover_model::time::Moment;

use crate::shared::{Shared, role};

/// What is known of one runner on this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub entry: RunnerEntry,
    /// When it was intended, or taken over.
    pub since: Moment,
    /// Whether an earlier start of the service made it.
    pub restored: bool,
    /// Whether the journal has the end of its lease.
    pub lease_over: bool,
    /// When it was started in its guest, in this start of the service.
    pub runner_started: Option<Moment>,
    /// What its guest said of its end.
    pub ended: Option<End>,
    /// What its source said against making it.
    pub refused: Option<String>,
    /// That its program is too old for its source, as its guest's log shows.
    pub too_old: Option<TooOld>,
}

/// A runner whose program is too old for its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooOld {
    /// The template of its agent: its image has the program.
    pub template: TemplateId,
    /// What it was started for.
    pub want: Want,
    /// Its version, the last day of that where it is known, and what repairs it.
    pub text: String,
}

/// The end of a runner, as its guest reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// When that was heard.
    pub at: Moment,
    /// When it ended, as its guest says.
    pub over: Moment,
    /// How its command ended.
    pub how: Ending,
}

type BySource = BTreeMap<SourceId, BTreeMap<RunnerName, Kept>>;

/// All runners, and where their sources are. By it a source knows what agents know of its runners.
///
/// A table and not messages: a runner outlives its agent, and may be there before its source has an
/// actor and after that. A source reads all of its runners before each step.
#[derive(Debug, Default)]
pub struct Runners {
    kept: RefCell<BySource>,
    places: RefCell<BTreeMap<SourceId, u64>>,
}

impl Runners {
    /// Where a source is, as far as that is known.
    pub fn place(&self, source: &SourceId) -> Option<u64> {
        self.places.borrow().get(source).copied()
    }

    /// Those of a source.
    pub fn of(&self, source: &SourceId) -> BTreeMap<RunnerName, Kept> {
        self.kept.borrow().get(source).cloned().unwrap_or_default()
    }

    /// Sources that have any.
    pub fn sources(&self) -> Vec<SourceId> {
        self.kept.borrow().keys().cloned().collect()
    }

    fn enter(&self, source: &SourceId, runner: &RunnerName, kept: Kept) {
        self.kept.borrow_mut().entry(source.clone()).or_default().insert(runner.clone(), kept);
    }

    fn change(&self, source: &SourceId, runner: &RunnerName, change: impl FnOnce(&mut Kept)) {
        let mut all = self.kept.borrow_mut();
        if let Some(kept) = all.get_mut(source).and_then(|runners| runners.get_mut(runner)) {
            change(kept);
        }
    }
}

impl Kept {
    /// One that was intended and not started yet.
    fn new(entry: RunnerEntry, since: Moment) -> Self {
        let (restored, lease_over) = (false, false);
        let (runner_started, ended, refused, too_old) = (None, None, None, None);
        Self { entry, since, restored, lease_over, runner_started, ended, refused, too_old }
    }
}

impl Shared<Runners, role::Herd> {
    /// Takes up the runners that the journal knows. A lease is in the journal before a runner is
    /// intended for it, so a lease that the journal does not know any more is over.
    pub fn restore(&self, known: &JournalState, now: Moment) {
        for (source, runners) in &known.runners {
            for (name, entry) in runners {
                let agent = known.agents.get(&entry.agent);
                let lease_over = agent.is_none_or(|agent| !agent.leases.contains_key(&entry.lease));
                let kept = Kept { restored: true, lease_over, ..Kept::new(entry.clone(), now) };
                self.enter(source, name, kept);
            }
        }
    }
}

/// What agents know of the runners in their guests.
impl Shared<Runners, role::Agent> {
    /// One will be made.
    pub fn intend(&self, source: &SourceId, runner: &RunnerName, entry: RunnerEntry, now: Moment) {
        self.enter(source, runner, Kept::new(entry, now));
    }

    /// The end of a lease is in the journal.
    pub fn lease_over(&self, lease: &LeaseId) {
        let mut all = self.kept.borrow_mut();
        let runners = all.values_mut().flat_map(BTreeMap::values_mut);
        runners.filter(|kept| kept.entry.lease == *lease).for_each(|kept| kept.lease_over = true);
    }

    /// One is in its guest and starts.
    pub fn runner_started(&self, source: &SourceId, runner: &RunnerName, now: Moment) {
        self.change(source, runner, |kept| {
            kept.runner_started.get_or_insert(now);
        });
    }

    /// One has ended in its guest.
    pub fn ended(&self, source: &SourceId, runner: &RunnerName, end: End) {
        self.change(source, runner, |kept| {
            kept.ended.get_or_insert(end);
        });
    }

    /// Its source does not let one be made.
    pub fn refused(&self, source: &SourceId, runner: &RunnerName, text: String) {
        self.change(source, runner, |kept| kept.refused = Some(text));
    }

    /// The program of one is too old for its source.
    pub fn too_old(&self, source: &SourceId, runner: &RunnerName, reported: TooOld) {
        self.change(source, runner, |kept| {
            kept.too_old.get_or_insert(reported);
        });
    }
}

/// What sources observe of their runners.
impl Shared<Runners, role::Source> {
    /// A source is at this place now: its URL and scope.
    pub fn settle(&self, source: &SourceId, place: u64) {
        self.places.borrow_mut().insert(source.clone(), place);
    }

    /// So many jobs began on one.
    pub fn worked(&self, source: &SourceId, runner: &RunnerName, began: u32) {
        self.change(source, runner, |kept| kept.entry.began = began);
    }

    /// Its rows have or had these numbers.
    pub fn numbered(&self, source: &SourceId, runner: &RunnerName, rows: BTreeSet<u64>) {
        self.change(source, runner, |kept| kept.entry.rows = rows);
    }

    /// One is known to be gone.
    pub fn gone(&self, source: &SourceId, runner: &RunnerName) {
        let mut all = self.kept.borrow_mut();
        if let Some(runners) = all.get_mut(source) {
            runners.remove(runner);
        }
        all.retain(|_, runners| !runners.is_empty());
    }
}

#[cfg(test)]
mod tests;
