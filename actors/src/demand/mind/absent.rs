//! What it means that a poll does not show a runner: nothing by itself.
//!
//! Lists come in pages: they are cut, and they shift while they are read. A runner that is not shown
//! is over when its guest says that it has ended, or where its guest cannot know that, when its source
//! was asked for that very row and does not have it. It is over, too, when its row is gone and its source
//! says of its very job that it is over. Until then its machine is left alone: the lease's deadline is
//! the end of it in any case.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::demand::words::Ending;
use drover_model::id::RunnerName;
use drover_model::ports::{Idle, RowObservation, SourceObservation};
use drover_model::time::Now;

use crate::demand::mind::doubt::GUESSED_IDLE;
use crate::demand::mind::event::{Effect, Runner};
use crate::demand::mind::observe::{AWAY, SETTLES};
use crate::demand::mind::{CORDON_TRIES, SourceMind};
use crate::demand::observed::Observed;
use crate::runners::End;

/// So long after its guest was asked its answer is looked for, then after twice that, and so on.
pub(super) const ANSWERS: Duration = Duration::from_millis(250);
const ANSWERS_LATEST: Duration = Duration::from_secs(4);
/// Polls that say nothing of a runner whose machine is gone, before its job counts as lost.
const SILENT_POLLS: u32 = 3;

/// What a look says of one runner.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reported<'a> {
    /// It has this row.
    Row(&'a RowObservation),
    /// It says that a job is on it, was asked for that very row, and does not have it.
    Removed(&'a RowObservation),
    /// It had all jobs that it is given.
    Done,
    /// The source was asked for that very row and does not have it.
    Gone,
    /// The same, and its job is over, as the source says of that very job: how, in one word.
    Over(&'static str),
    /// The poll says nothing of it: lists come in pages, and may be cut.
    Nothing,
}

/// What a look says, by runner.
pub(super) struct Answers<'a> {
    observation: &'a SourceObservation,
    rows: BTreeMap<&'a RunnerName, &'a RowObservation>,
}

impl<'a> Answers<'a> {
    /// Of several rows of one name, the one with a job counts, or else one that is connected.
    pub fn of(observation: &'a SourceObservation) -> Self {
        let mut rows: BTreeMap<&RunnerName, &RowObservation> = BTreeMap::new();
        let rank = |row: &RowObservation| (row.jobs > 0, row.online);
        for row in &observation.rows {
            let kept = rows.entry(&row.runner).or_insert(row);
            if rank(row) >= rank(kept) {
                *kept = row;
            }
        }
        Self { observation, rows }
    }

    /// What it says of one.
    pub fn reported(&self, name: &RunnerName) -> Reported<'a> {
        match self.rows.get(name) {
            Some(row) if self.observation.removed.contains(name) => Reported::Removed(row),
            Some(row) => Reported::Row(row),
            None if self.observation.done.contains(name) => Reported::Done,
            None if self.observation.gone.contains(name) => {
                self.observation.over.get(name).copied().map_or(Reported::Gone, Reported::Over)
            }
            None => Reported::Nothing,
        }
    }
}

impl SourceMind {
    /// A look does not show a runner whose lease lives; `gone` where its source was asked for that
    /// very row.
    pub(super) fn miss(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        gone: bool,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let here = self.is_here(name, runner);
        let Some(observed) = self.observed.get_mut(name) else { return };
        // A look that began while it was being made says nothing.
        let made = runner.kept.runner_started.is_some_and(|at| self.polled >= Some(at));
        if !made && !observed.listed {
            return;
        }
        observed.missing = true;
        if gone {
            observed.gone.get_or_insert(now.mono);
        }
        if self.spec.registers && !observed.listed && here {
            // It makes its row itself, and may not have come to that.
            if gone {
                self.await_row(name, runner, "", now, out);
            }
            return;
        }
        if self.conclude(name, runner, now, out) {
            return;
        }
        let Some(observed) = self.observed.get_mut(name) else { return };
        let agent = runner.kept.entry.agent.clone();
        let long = observed.gone.is_some_and(|since| now.mono - since >= AWAY);
        if long && observed.jobs > 0 && here && !std::mem::replace(&mut observed.lost, true) {
            tracing::warn!(
                source = %self.spec.id, runner = %name, agent = %agent,
                "runner has no row any more since {} s, had a job, and its guest does not say that it \
                 ended: its machine is left until the job's deadline; `drover release {}` ends it now",
                AWAY.as_secs(),
                runner.kept.entry.lease
            );
            let job = observed.job.clone();
            out.push(Effect::Lost { runner: name.clone(), agent, job });
        }
        if runner.kept.ended.is_some() {
            return;
        }
        let is_due = observed.missed.is_due(now.mono);
        // A runner that says that it still runs may end at any moment, and its source that lost its row
        // has no news of it: the guest is asked again however rarely the source is polled.
        let again = observed.missed.next().filter(|_| observed.gone.is_some());
        if is_due {
            self.ask(runner, now, out);
        }
        if let Some(again) = again {
            self.poll_by(again);
        }
    }

    /// A look does not show a runner whose lease lives, its row is gone for certain, and its source says
    /// that its job is over: whatever it still does, nobody hears of it. Its guest has the time to say
    /// that it ended; it has less where somebody cancelled the job, which no runner hears of.
    pub(super) fn outlive(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        why: &'static str,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let here = self.is_here(name, runner);
        let span = if why == "done" { GUESSED_IDLE } else { SETTLES };
        let since = self.observed.get(name).and_then(|observed| observed.gone);
        let is_due = since.is_some_and(|since| here && now.mono - since >= span);
        if !is_due {
            self.miss(name, runner, true, now, out);
            let observed = self.observed.get(name).filter(|observed| here && !observed.settled);
            if let Some(since) = observed.and_then(|observed| observed.gone) {
                self.poll_by(since + span);
            }
            return;
        }
        let Some(observed) = self.observed.get_mut(name) else { return };
        observed.settled = true;
        observed.jobs = 0;
        let entry = &runner.kept.entry;
        out.push(Effect::Over(entry.agent.clone(), entry.lease.clone(), why));
        if why == "done" {
            self.note_served(runner);
        }
    }

    /// Ends the lease of a runner that is not shown, or not for certain, where it is over.
    pub(super) fn conclude(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> bool {
        let here = self.is_here(name, runner);
        let (polled, firm) = (self.polled, self.spec.firm);
        let Some(observed) = self.observed.get_mut(name) else { return false };
        let gone = observed.gone.filter(|_| here);
        // It took no further job before its row went.
        let reported = observed.cordoned.is_some_and(|at| polled >= Some(at))
            && observed.refusals < CORDON_TRIES;
        let rests = matches!(observed.rest, Idle::Known | Idle::Over);
        let let_go = reported && observed.jobs == 0 && gone.is_some() && rests;
        let mut due = None;
        let over = match runner.kept.ended {
            _ if let_go => true,
            // Its command may have started something that its guest does not know of.
            Some(end) if observed.may_run_on(end) => {
                let no_job = firm
                    || observed.jobs == 0 && (observed.began == 0 || observed.rest == Idle::Known);
                due = gone
                    .filter(|_| no_job)
                    .map(|since| since + SETTLES)
                    .or_else(|| observed.spent());
                due.is_some_and(|due| now.mono >= due)
            }
            Some(End { at, .. }) => {
                let agreed = observed.in_doubt && observed.began > 0;
                due = Some(at + SETTLES);
                observed.gone.is_some() || agreed || polled >= due
            }
            None => false,
        };
        if over {
            let had_all = self.spec.single && observed.began >= runner.most;
            let idle =
                let_go || observed.in_doubt || observed.rest == Idle::Guessed && observed.cordoning;
            let why =
                if idle && !had_all && observed.rest != Idle::Spent { "idle" } else { "done" };
            observed.settled = true;
            observed.jobs = 0;
            let badly = runner.kept.ended.is_some_and(|end| end.how == Ending::Badly);
            let served = why == "done" && observed.gone.is_some() && !badly;
            let entry = &runner.kept.entry;
            out.push(Effect::Over(entry.agent.clone(), entry.lease.clone(), why));
            if served {
                self.note_served(runner);
            }
        } else if let Some(due) = due.filter(|due| polled < Some(*due)) {
            self.poll_by(due);
        }
        over
    }

    /// Takes in what guests said of runners that the last look did not show, or not for certain.
    pub(super) fn hear_guests(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let missing = |(name, runner): &(&RunnerName, &Runner)| {
            let observed = self.observed.get(*name);
            let open =
                |observed: &Observed| (observed.missing || observed.in_doubt) && !observed.settled;
            runner.lives && observed.is_some_and(open)
        };
        let missing: Vec<(&RunnerName, &Runner)> = runners.iter().filter(missing).collect();
        let (answered, silent): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|(_, runner)| runner.kept.ended.is_some());
        if let Some((_, pause)) = self.answers_due.filter(|(at, _)| *at <= now.mono) {
            let next = pause * 2;
            let waits = !silent.is_empty() && next <= ANSWERS_LATEST;
            self.answers_due = waits.then_some((now.mono + next, next));
        }
        let mut over = false;
        for (name, runner) in answered {
            let waits = self.spec.registers && self.observed.get(name).is_some_and(|it| !it.listed);
            over |= !waits && self.conclude(name, runner, now, out);
        }
        if over {
            self.publish(runners, out);
        }
    }

    /// Whether a runner belongs to what is looked at now: it was seen there, or made there and not
    /// before its URL, login or scope changed, in whichever start of the service.
    fn is_here(&self, name: &RunnerName, runner: &Runner) -> bool {
        let listed = self.observed.get(name).is_some_and(|observed| observed.listed);
        let since = self.changed.is_none_or(|at| runner.kept.since >= at);
        listed || since && runner.kept.entry.place == Some(self.spec.place)
    }

    /// What a look says of a runner whose machine went while a job was on it.
    pub(super) fn observe_dead(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        reported: Reported<'_>,
        out: &mut Vec<Effect>,
    ) {
        let here = self.is_here(name, runner);
        let Some(observed) = self.observed.get_mut(name) else { return };
        let asked_since =
            observed.died.is_some_and(|died| self.polled.is_some_and(|at| at >= died));
        if !asked_since || observed.settled {
            return;
        }
        let unended = observed.jobs > 0 && runner.kept.ended.is_none();
        let (lost, job) = match reported {
            Reported::Row(row) | Reported::Removed(row) => (row.jobs > 0, row.job.clone()),
            Reported::Done | Reported::Over(_) => (false, None),
            // What is not there now says nothing of a runner that was made elsewhere.
            Reported::Gone => (unended && !here, None),
            Reported::Nothing => {
                observed.silent_polls += 1;
                if observed.silent_polls < SILENT_POLLS {
                    return;
                }
                (unended, None)
            }
        };
        observed.settled = true;
        if lost && !std::mem::replace(&mut observed.lost, true) {
            let agent = runner.kept.entry.agent.clone();
            let job = job.or(observed.job.take());
            out.push(Effect::Lost { runner: name.clone(), agent, job });
        }
    }
}
