//! What a poll means for one runner.

use std::time::Duration;

use drover_model::demand::words::Ending;
use drover_model::id::RunnerName;
use drover_model::ports::{Idle, Shut};
use drover_model::time::Now;

use crate::demand::mind::SourceMind;
use crate::demand::mind::absent::Reported;
use crate::demand::mind::event::{Effect, Runner};
use crate::demand::observed::Observed;
use crate::runners::{End, Kept};

/// A runner that is not connected for so long while a job is on it is lost to its source.
pub(super) const AWAY: Duration = Duration::from_secs(600);
/// A runner that has ended is believed to have had no job once its source still says so after this
/// time: what it reported last to its source may have been under way.
pub(super) const SETTLES: Duration = Duration::from_secs(5);
/// The part of its time to connect after which the guest of a runner is first asked about it; sooner
/// where the runner makes its own row, which may have come and gone between two looks.
const FIRST: u32 = 16;
const FIRST_OF_ITS_OWN: u32 = 64;
/// The part of it that a runner has which makes its own row, once the command that may have started it has
/// ended: after that it came and went unseen.
const LEFT_OF_ITS_OWN: u32 = 4;

impl SourceMind {
    /// What a poll says of one runner.
    pub(super) fn observe(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        reported: Reported<'_>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Kept { entry, runner_started, .. } = &runner.kept;
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        let row = if let Reported::Row(row) | Reported::Removed(row) = reported {
            Some(row)
        } else {
            None
        };
        let observed =
            self.observed.entry(name.clone()).or_insert_with(|| Observed::of(runner, row));
        observed.held = true;
        if observed.settled {
            return;
        }
        let (row, removed) = match reported {
            Reported::Row(row) => (row, false),
            Reported::Removed(row) => (row, true),
            // A poll that started while it was being made says nothing.
            Reported::Done
                if observed.listed || runner_started.is_some_and(|at| self.polled >= Some(at)) =>
            {
                observed.settled = true;
                observed.jobs = 0;
                out.push(Effect::Over(agent, lease, "done"));
                return self.note_served(runner);
            }
            Reported::Done => {
                // Its job was over before drover heard that the runner started.
                return self.poll_by(now.mono + SETTLES);
            }
            Reported::Over(why) => return self.outlive(name, runner, why, now, out),
            Reported::Gone => return self.miss(name, runner, true, now, out),
            Reported::Nothing => return self.miss(name, runner, false, now, out),
        };
        observed.show();
        if row.idle == Idle::Over && observed.rest != Idle::Over {
            observed.idle = None;
        }
        observed.rest = row.idle;
        let before = observed.began;
        observed.count(row);
        if observed.began > before && runner.most > 1 {
            out.push(Effect::Worked(name.clone(), observed.began));
        }
        let done = self.spec.single && observed.began >= runner.most;
        if row.online || row.jobs > 0 {
            self.trouble.pass(row.jobs > 0);
            observed.online.get_or_insert(now.mono);
        }
        if row.jobs > 0 && !self.outdated.is_empty() {
            let waited = |id: &String| self.jobs.iter().find(|job| job.id == *id);
            let job = row.job.as_ref().and_then(waited).or(observed.waited.as_ref());
            self.outdated.serves(runner.template.as_ref(), job.map(|job| &job.want));
        }
        if row.node.shut == Shut::Quiet && !observed.cordoning {
            // An earlier start of the service cordoned it.
            observed.cordoning = true;
            observed.cordoned = Some(now.mono);
        }
        let guessed = row.idle != Idle::Known;
        let spent = done || row.idle == Idle::Over;
        observed.shut = row.node.shut != Shut::Open || guessed && spent && row.jobs == 0;
        if row.jobs > 0 {
            observed.idle = None;
            observed.working = observed.working.or(self.polled);
            if self.spec.early && done && !observed.cordoning {
                observed.cordoning = true;
                out.push(Effect::Cordon(name.clone()));
            }
            if row.online {
                observed.away = None;
                observed.doubted.rest();
            } else {
                self.miss_connection(name, runner, removed, now, out);
            }
            return;
        }
        observed.away = None;
        if row.idle == Idle::Over {
            return self.end_after_job(name, runner, now, out);
        }
        if guessed && observed.online.is_some() {
            return self.doubt(name, runner, row.online, now, out);
        }
        let ends_itself = !self.spec.early && observed.working.is_some();
        if ends_itself && self.rests(name, runner, row.online, now, out) {
            return;
        }
        let Some(observed) = self.observed.get_mut(name) else { return };
        let said = row.node.reason.as_ref().map_or_else(String::new, |why| format!("; {why}"));
        if let Shut::Unfit(why) = &row.node.shut
            && !done
        {
            observed.settled = true;
            let text = format!("source `{}` took its runner off: {why}", self.spec.id);
            out.push(Effect::Fail(agent, lease, text));
        } else if row.online && row.node.shut == Shut::Person && !done && self.configured {
            // The user who did that looks at it, or wants it to rest: it is theirs until its time is over.
            observed.idle = None;
        } else if row.online {
            let since = *observed.idle.get_or_insert(now.mono);
            let idle = runner.idle.map_or(self.spec.idle, |idle| idle.min(self.spec.idle));
            let too_long = now.mono - since >= idle || !self.configured;
            // A job that it took just before it was cordoned is seen by a poll that started later.
            let reported =
                observed.cordoned.is_some_and(|at| self.polled.is_some_and(|poll| poll >= at));
            if observed.cordoning && reported {
                observed.settled = true;
                let why = if done { "done" } else { "idle" };
                out.push(Effect::Over(agent, lease, why));
            } else if !observed.cordoning && (too_long || done) {
                observed.cordoning = true;
                out.push(Effect::Cordon(name.clone()));
            }
        } else if observed.online.is_none() {
            self.await_row(name, runner, &said, now, out);
        } else {
            self.await_return(name, runner, &said, now, out);
        }
    }

    /// One whose job is over and that does not end by itself: it ends once it takes no other job, and
    /// has had the time to send the end of its log.
    fn end_after_job(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let polled = self.polled;
        let Some(observed) = self.observed.get_mut(name) else { return };
        let due = *observed.idle.get_or_insert(now.mono) + SETTLES;
        if !observed.cordoning {
            observed.cordoning = true;
            out.push(Effect::Cordon(name.clone()));
        }
        // A job that it took just before it was cordoned is seen by a poll that started later.
        let cordoned = observed.cordoned.is_some_and(|at| polled >= Some(at));
        if polled < Some(due) {
            self.poll_by(due);
        } else if cordoned {
            observed.settled = true;
            let entry = &runner.kept.entry;
            out.push(Effect::Over(entry.agent.clone(), entry.lease.clone(), "done"));
            self.note_served(runner);
        }
    }

    /// One that was connected, is not any more, and has no job: a guest that went silent is worth no more
    /// than an idle one. Where it never had a job its guest is asked whether it has ended.
    fn await_return(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        said: &str,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Kept { entry, ended, .. } = &runner.kept;
        let Some(observed) = self.observed.get_mut(name) else { return };
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        let since = *observed.idle.get_or_insert(now.mono);
        let (jobless, left) = (observed.began == 0, now.mono - since >= self.spec.register);
        let reported = |end: &End| self.polled >= Some(end.at + SETTLES);
        let broke = ended.is_some_and(|end| end.how == Ending::Badly && reported(&end));
        let asks = jobless && ended.is_none() && observed.doubted.is_due(now.mono);
        let outdated = jobless && self.note_outdated(name, runner, now, out);
        let id = &self.spec.id;
        let text = if jobless && (outdated || broke) {
            format!("its runner had no job and ended after it connected to source `{id}`{said}")
        } else if left {
            format!("its runner left source `{id}` and did not return{said}")
        } else {
            if asks {
                self.ask(runner, now, out);
            }
            return;
        };
        if let Some(observed) = self.observed.get_mut(name) {
            observed.settled = true;
        }
        if jobless && !outdated && ended.is_some() {
            self.trouble.cost_jobless(&self.spec, now);
        }
        out.push(Effect::Fail(agent, lease, text));
    }

    /// One that was started in its guest, and was never seen to be connected.
    pub(super) fn await_row(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        said: &str,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Kept { entry, runner_started, ended, .. } = &runner.kept;
        let (Some(observed), Some(runner_started)) = (self.observed.get_mut(name), runner_started)
        else {
            return;
        };
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        let (id, waited) = (&self.spec.id, now.mono - *runner_started);
        let reported = |end: &End| self.polled >= Some(end.at + SETTLES) && observed.began == 0;
        let part = self.spec.register / LEFT_OF_ITS_OWN;
        let had_time = ended.is_some_and(|end| self.polled >= Some(end.at + part));
        // Whatever an operator's own command began, one that is too old connects no more.
        let outdated = runner.kept.too_old.is_some();
        let how = |end: End| if outdated { Ending::Badly } else { end.how };
        let text = match ended.filter(reported).map(how) {
            // It came and went between two polls.
            Some(Ending::Well) if self.spec.registers && !observed.listed => {
                observed.settled = true;
                out.push(Effect::Over(agent, lease, "done"));
                return;
            }
            Some(Ending::Left) if self.spec.registers && !observed.listed && had_time => {
                observed.settled = true;
                out.push(Effect::Over(agent, lease, "done"));
                return;
            }
            Some(Ending::Well | Ending::Badly) => {
                format!("its runner ended before it connected to source `{id}`{said}")
            }
            Some(Ending::Left) | None if waited >= self.spec.register => format!(
                "its runner did not connect to source `{id}` within {} s: look whether the guest \
                 reaches it{said}",
                self.spec.register.as_secs()
            ),
            Some(Ending::Left) | None => {
                let first = if self.spec.registers { FIRST_OF_ITS_OWN } else { FIRST };
                if ended.is_none() && observed.ask_is_due(waited, self.spec.register / first) {
                    out.push(Effect::Ask(agent, lease));
                }
                return;
            }
        };
        observed.settled = true;
        if !self.note_outdated(name, runner, now, out) {
            self.trouble.cost_one(&self.spec, now);
        }
        out.push(Effect::Fail(agent, lease, text));
    }
}
