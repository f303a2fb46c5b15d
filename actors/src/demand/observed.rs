//! What polls observed of one runner at its source.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::ports::{Idle, JobObservation, RowObservation};
use drover_model::time::Moment;

use crate::demand::mind::event::Runner;

/// The pauses between two times that a guest is asked the same.
const ASK_PAUSE: Duration = Duration::from_secs(10);
const ASK_PAUSE_LONGEST: Duration = Duration::from_secs(300);

/// One question to a runner's guest, which is asked ever less often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Question {
    /// How often it was asked.
    times: u32,
    /// When it was asked last.
    last: Option<Moment>,
}

impl Question {
    /// When it is asked next, once it was asked.
    pub fn next(&self) -> Option<Moment> {
        let pause = ASK_PAUSE.saturating_mul(1 << self.times.saturating_sub(1).min(5));
        Some(self.last? + pause.min(ASK_PAUSE_LONGEST))
    }

    /// Whether it is asked now.
    pub fn is_due(&mut self, now: Moment) -> bool {
        let due = self.next().is_none_or(|next| now >= next);
        if due {
            self.times += 1;
            self.last = Some(now);
        }
        due
    }

    /// There is no reason for it any more: the next one is asked as the first was, after a pause.
    pub fn rest(&mut self) {
        self.times = 0;
    }
}

/// What polls showed of one runner, and what was done about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// Whether it was ever seen.
    pub listed: bool,
    /// When it was first seen connected.
    pub online: Option<Moment>,
    /// Jobs on it by the last poll.
    pub jobs: u32,
    /// One of them.
    pub job: Option<String>,
    /// The same as it waited, where that was seen.
    pub waited: Option<JobObservation>,
    /// Those of them whose ids the source reports.
    running: BTreeSet<String>,
    /// Jobs that began on it, as far as polls saw them.
    pub began: u32,
    /// When the first poll started that saw a job on it.
    pub working: Option<Moment>,
    /// How sure it is that it has no job, by the last poll that showed it.
    pub rest: Idle,
    /// Since when it has none, once it is connected.
    pub idle: Option<Moment>,
    /// Whether drover asked its source to give it no further job.
    pub cordoning: bool,
    /// Since when its source confirmed that, and how often the call failed.
    pub cordoned: Option<Moment>,
    pub refusals: u32,
    /// Whether somebody at its source keeps it from taking jobs.
    pub shut: bool,
    /// Since when it is not connected while it has a job.
    pub away: Option<Moment>,
    /// Whether its lease was ended or failed because of what was seen.
    pub settled: bool,
    /// Whether its lease was seen on its agent.
    pub held: bool,
    /// When its lease was found to be over although a job was on it.
    pub died: Option<Moment>,
    /// How often its guest was asked about it before it connected.
    times_asked: u32,
    /// What its guest is asked while no poll shows it.
    pub missed: Question,
    /// What its guest is asked while what a poll shows of it is no proof.
    pub doubted: Question,
    /// Whether the last poll did not show it.
    pub missing: bool,
    /// Whether only its guest can say that it is over, although the last poll showed it.
    pub in_doubt: bool,
    /// Since when its source, asked for that very row, does not have it.
    pub gone: Option<Moment>,
    /// Polls in a row that said nothing of it.
    pub silent_polls: u32,
    /// Whether its job was reported as lost.
    pub lost: bool,
    /// Whether it was heard that its source did not let it be made.
    pub refused: bool,
    /// Whether it was counted as too old for its source.
    pub outdated: bool,
    /// When its removal was tried last, and whether that is under way.
    pub deregister: Option<(Moment, bool)>,
}

impl Observed {
    /// One that is seen for the first time in this start of the service: of the jobs on it those
    /// were counted that were written down.
    pub fn of(runner: &Runner, row: Option<&RowObservation>) -> Self {
        let began = runner.kept.entry.began;
        let Some(row) = row.filter(|_| began > 0) else { return Self::default() };
        let (running, jobs) = (row.node.running.clone(), row.jobs);
        Self { began, running, jobs, ..Self::default() }
    }

    /// Whether its guest is asked about it now, which it is ever less often: it was started so long
    /// ago, and is first asked about after such a time.
    pub fn ask_is_due(&mut self, waited: Duration, first: Duration) -> bool {
        let due = first.saturating_mul(1 << self.times_asked.min(5));
        let ask_is_due = waited >= due;
        self.times_asked += u32::from(ask_is_due);
        ask_is_due
    }

    /// Jobs on it whose ids its source reports.
    pub fn running(&self) -> &BTreeSet<String> {
        &self.running
    }

    /// Its row was seen: it is there, whatever other polls did not show.
    pub fn show(&mut self) {
        self.listed = true;
        self.missing = false;
        self.in_doubt = false;
        self.gone = None;
        self.silent_polls = 0;
        self.missed.rest();
    }

    /// Takes in the jobs on it. One that started and ended between two polls was seen by nobody.
    pub fn count(&mut self, row: &RowObservation) {
        let named = |running: &BTreeSet<String>| u32::try_from(running.len()).unwrap_or(u32::MAX);
        let running = &row.node.running;
        let fresh = u32::try_from(running.difference(&self.running).count()).unwrap_or(u32::MAX);
        let before = self.jobs.saturating_sub(named(&self.running));
        let nameless = row.jobs.saturating_sub(named(running));
        self.began = self.began.saturating_add(fresh + nameless.saturating_sub(before));
        self.running.clone_from(running);
        self.jobs = row.jobs;
        self.job.clone_from(&row.job);
    }
}
