//! Runners that may be at their sources: from the intent to make one until its row is known to be
//! gone, beyond the life of its agent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use drover_model::demand::words::Ending;
use drover_model::id::{RunnerName, SourceId, TemplateId};
use drover_model::journal_state::RunnerEntry;
use drover_model::record::Want;
use drover_model::time::Moment;

/// What is known of one runner on this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub entry: RunnerEntry,
    /// When it was intended, or taken over.
    pub since: Moment,
    /// Whether an earlier start of the service made it.
    pub restored: bool,
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

/// All runners; shared by the actors of one thread. Agents enter theirs, sources remove them.
#[derive(Debug, Clone, Default)]
pub struct Runners(Rc<RefCell<BySource>>, Rc<RefCell<BTreeMap<SourceId, u64>>>);

impl Runners {
    /// Takes up the runners that the journal knows.
    pub fn restore(
        &self,
        known: &BTreeMap<SourceId, BTreeMap<RunnerName, RunnerEntry>>,
        now: Moment,
    ) {
        for (source, runners) in known {
            for (name, entry) in runners {
                self.intend(source, name, entry.clone(), now);
                self.change(source, name, |kept| kept.restored = true);
            }
        }
    }

    /// One will be made.
    pub fn intend(&self, source: &SourceId, runner: &RunnerName, entry: RunnerEntry, now: Moment) {
        let (runner_started, ended, refused, too_old) = (None, None, None, None);
        let kept =
            Kept { entry, since: now, restored: false, runner_started, ended, refused, too_old };
        self.0.borrow_mut().entry(source.clone()).or_default().insert(runner.clone(), kept);
    }

    /// A source is at this place now: its URL and scope.
    pub fn settle(&self, source: &SourceId, place: u64) {
        self.1.borrow_mut().insert(source.clone(), place);
    }

    /// Where a source is, as far as that is known.
    pub fn place(&self, source: &SourceId) -> Option<u64> {
        self.1.borrow().get(source).copied()
    }

    fn change(&self, source: &SourceId, runner: &RunnerName, change: impl FnOnce(&mut Kept)) {
        let mut all = self.0.borrow_mut();
        if let Some(kept) = all.get_mut(source).and_then(|runners| runners.get_mut(runner)) {
            change(kept);
        }
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
        let mut all = self.0.borrow_mut();
        if let Some(runners) = all.get_mut(source) {
            runners.remove(runner);
        }
        all.retain(|_, runners| !runners.is_empty());
    }

    /// Those of a source.
    pub fn of(&self, source: &SourceId) -> BTreeMap<RunnerName, Kept> {
        self.0.borrow().get(source).cloned().unwrap_or_default()
    }

    /// Sources that have any.
    pub fn sources(&self) -> Vec<SourceId> {
        self.0.borrow().keys().cloned().collect()
    }
}
