//! What a source shows of a runner and cannot prove: that it is idle, guessed from its last contact, and
//! that it is not connected while a job is on it.
//!
//! Neither ends a lease. The mind asks the guest; the lease ends when the guest says that the runner
//! ended, or at the lease's deadline. A job that its source lost contact with is reported as lost, once.

use std::time::Duration;

use drover_model::demand::words::Ending;
use drover_model::id::RunnerName;
use drover_model::ports::Idle;
use drover_model::time::{Moment, Now};

use crate::demand::mind::SourceMind;
use crate::demand::mind::absent::ANSWERS;
use crate::demand::mind::event::{Effect, Runner};
use crate::demand::mind::observe::{AWAY, SETTLES};
use crate::demand::observed::Observed;
use crate::runners::End;

/// A runner that each poll guesses idle for so long waits for a job: one with a job would have reported
/// meanwhile.
pub(super) const GUESSED_IDLE: Duration = Duration::from_secs(60);
/// The guest reports times in whole seconds.
const GUEST_SECOND: Duration = Duration::from_secs(1);

impl SourceMind {
    /// Its source guesses that a runner has no job.
    pub(super) fn doubt(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        online: bool,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Some(observed) = self.observed.get_mut(name) else { return };
        observed.in_doubt = true;
        let since = *observed.idle.get_or_insert(now.mono);
        if self.conclude(name, runner, now, out) {
            return;
        }
        let idle = runner.idle.map_or(self.spec.idle, |idle| idle.min(self.spec.idle));
        let idle = if self.configured { idle.max(GUESSED_IDLE) } else { GUESSED_IDLE };
        let Some(observed) = self.observed.get_mut(name) else { return };
        let too_long = now.mono - since >= idle;
        let fresh = observed.began == 0 && observed.rest == Idle::Guessed;
        if online && fresh && too_long && !observed.cordoning {
            observed.cordoning = true;
            out.push(Effect::Cordon(name.clone()));
        }
        let waits = online && fresh && !observed.cordoning;
        if !waits && runner.kept.ended.is_none() && observed.doubted.is_due(now.mono) {
            self.ask(runner, now, out);
        }
    }

    /// Its source shows no job where one was, on a runner that ends by itself after its job: its guest
    /// is asked whether it has. The source may be behind, or wrong for a moment; it is believed once it
    /// has shown so for long at each look, and this gives no more.
    pub(super) fn rests(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        online: bool,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(observed) = self.observed.get_mut(name) else { return false };
        let since = *observed.idle.get_or_insert(now.mono);
        if now.mono - since >= if online { GUESSED_IDLE } else { self.spec.register } {
            return false;
        }
        if online && observed.began >= runner.most && !observed.cordoning {
            observed.cordoning = true;
            out.push(Effect::Cordon(name.clone()));
        }
        observed.rest = Idle::Spent;
        self.doubt(name, runner, online, now, out);
        true
    }

    /// A runner with a job is not connected to its source; `removed` where the source was asked for that
    /// very row and does not have it.
    ///
    /// One that is away may come back, and its guest is asked late. One whose row is removed cannot: its
    /// guest is asked at once, and the guest's word decides as it does of any other.
    pub(super) fn miss_connection(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        removed: bool,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let (polled, id) = (self.polled, &self.spec.id);
        let Some(observed) = self.observed.get_mut(name) else { return };
        let since = *observed.away.get_or_insert(now.mono);
        let long = now.mono - since >= AWAY;
        if !long && !removed {
            return;
        }
        let (agent, lease) = (runner.kept.entry.agent.clone(), runner.kept.entry.lease.clone());
        if long && !std::mem::replace(&mut observed.lost, true) {
            tracing::warn!(
                source = %id, runner = %name, agent = %agent,
                "runner with a job is not connected since {} s: drover leaves its machine until its \
                 guest says that the runner ended, or until the job's deadline; `drover release {}` \
                 ends it now",
                AWAY.as_secs(),
                lease
            );
            let (agent, job) = (agent.clone(), observed.job.clone());
            out.push(Effect::Lost { runner: name.clone(), agent, job });
        }
        match runner.kept.ended {
            // One that ended well may have done its job, which its source still counts as under way.
            Some(end) if !long && end.how != Ending::Badly => {}
            Some(end) if !observed.may_run_on(end) && polled >= Some(end.at + SETTLES) => {
                observed.settled = true;
                if !std::mem::replace(&mut observed.lost, true) {
                    let (agent, job) = (agent.clone(), observed.job.clone());
                    out.push(Effect::Lost { runner: name.clone(), agent, job });
                }
                let text = if removed {
                    format!("its runner ended with a job on it, and source `{id}` has no row of it")
                } else {
                    format!(
                        "its runner is not connected to source `{id}` since {} s, and had a job",
                        (now.mono - since).as_secs()
                    )
                };
                out.push(Effect::Fail(agent, lease, text));
            }
            Some(_) => {}
            None if observed.doubted.is_due(now.mono) => self.ask(runner, now, out),
            None => {}
        }
    }

    /// Asks a runner's guest whether it has ended, and listens for the answer.
    pub(super) fn ask(&mut self, runner: &Runner, now: Now, out: &mut Vec<Effect>) {
        self.answers_due = Some((now.mono + ANSWERS, ANSWERS));
        let entry = &runner.kept.entry;
        out.push(Effect::Ask(entry.agent.clone(), entry.lease.clone()));
    }
}

impl Observed {
    /// Whether a runner may run whose command ended so: a command that ended before a job was seen may
    /// have started it for itself, and one that ended after that has ended with it.
    pub fn may_run_on(&self, end: End) -> bool {
        let outlived = self.working.is_some_and(|job| end.over + GUEST_SECOND >= job);
        end.how == Ending::Left && !outlived
    }

    /// When its source has shown for long enough, at each look, that it had its job and has none.
    pub fn spent(&self) -> Option<Moment> {
        let span = if self.began == 0 { SETTLES } else { GUESSED_IDLE };
        let is_spent = self.in_doubt && self.rest == Idle::Spent;
        self.idle.filter(|_| is_spent).map(|since| since + span)
    }
}
