//! What a look means for one runner.

use std::time::Duration;

use crate::demand::mind::trouble::Trouble;
use crate::demand::mind::{Effect, Runner, SourceMind};
use crate::demand::runners::{End, Kept};
use crate::demand::seen::Seen;
use crate::demand::words::Ending;
use crate::id::RunnerName;
use crate::ports::{RowSight, Shut};
use crate::time::Now;

/// A runner that is not connected for so long while a job is on it will not end that job.
const AWAY: Duration = Duration::from_secs(600);
/// A runner that has ended is believed to have had no job once its source still says so after this
/// time: what it told its source last may have been under way.
const SETTLES: Duration = Duration::from_secs(5);
/// The part of its time to connect after which the guest of a runner is first asked about it; sooner
/// where the runner makes its own row, which may have come and gone between two looks.
const FIRST: u32 = 16;
const FIRST_OF_ITS_OWN: u32 = 64;

impl SourceMind {
    /// What a look says of a runner whose machine went while a job was on it.
    pub(super) fn mourn(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        row: Option<&RowSight>,
        out: &mut Vec<Effect>,
    ) {
        let Some(seen) = self.seen.get_mut(name) else { return };
        let asked_since = seen.died.is_some_and(|died| self.looked.is_some_and(|at| at >= died));
        if !asked_since || seen.settled {
            return;
        }
        seen.settled = true;
        if let Some(row) = row.filter(|row| row.jobs > 0) {
            let agent = runner.kept.entry.agent.clone();
            let job = row.job.clone().or(seen.job.take());
            out.push(Effect::Lost { runner: name.clone(), agent, job });
        }
    }

    /// What a look says of one runner.
    pub(super) fn judge(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        row: Option<&RowSight>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Kept { entry, hired, .. } = &runner.kept;
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        let seen = self.seen.entry(name.clone()).or_insert_with(|| Seen::of(runner, row));
        seen.held = true;
        if seen.settled {
            return;
        }
        let Some(row) = row else {
            // A look that began while it was being made says nothing.
            let made = !self.spec.registers && hired.is_some_and(|at| self.looked >= Some(at));
            let former = self.changed.is_some_and(|at| runner.kept.since < at) && !seen.listed;
            // Made, and gone again: it had its job, or somebody removed it.
            if former {
                self.await_end(name, runner, now, out);
            } else if made || seen.listed {
                seen.settled = true;
                seen.jobs = 0;
                out.push(Effect::Over(agent, lease, "done"));
            } else if self.spec.registers {
                self.await_row(name, runner, "", now, out);
            }
            return;
        };
        seen.listed = true;
        let before = seen.began;
        seen.count(row);
        if seen.began > before && runner.most > 1 {
            out.push(Effect::Worked(name.clone(), seen.began));
        }
        let done = self.spec.single && seen.began >= runner.most;
        if row.online || row.jobs > 0 {
            self.trouble = Trouble::default();
            seen.online.get_or_insert(now.mono);
        }
        if row.node.shut == Shut::Quiet && !seen.quiet {
            // It was told by an earlier start of the service.
            seen.quiet = true;
            seen.quieted = Some(now.mono);
        }
        seen.shut = row.node.shut != Shut::Open;
        if row.jobs > 0 {
            seen.idle = None;
            if self.spec.early && done && !seen.quiet {
                seen.quiet = true;
                out.push(Effect::Quiet(name.clone()));
            }
            let away = *seen.away.get_or_insert(now.mono);
            if row.online {
                seen.away = None;
            } else if now.mono - away >= AWAY {
                seen.settled = true;
                let text = format!(
                    "its runner is not connected to source `{}` since {} s, and had a job",
                    self.spec.id,
                    AWAY.as_secs()
                );
                let (lost, job) = (agent.clone(), row.job.clone());
                out.push(Effect::Lost { runner: name.clone(), agent: lost, job });
                out.push(Effect::Fail(agent, lease, text));
            }
            return;
        }
        seen.away = None;
        let said = row.node.reason.as_ref().map_or_else(String::new, |why| format!("; {why}"));
        if let Shut::Unfit(why) = &row.node.shut
            && !done
        {
            seen.settled = true;
            let text = format!("source `{}` took its runner off: {why}", self.spec.id);
            out.push(Effect::Fail(agent, lease, text));
        } else if row.online && row.node.shut == Shut::Person && !done && self.configured {
            // Whoever did that looks at it, or wants it to rest: it is theirs until its time is over.
            seen.idle = None;
        } else if row.online {
            let since = *seen.idle.get_or_insert(now.mono);
            let idle = runner.idle.map_or(self.spec.idle, |idle| idle.min(self.spec.idle));
            let too_long = now.mono - since >= idle || !self.configured;
            // What it took just before it was told is seen by a look that began later.
            let told = seen.quieted.is_some_and(|at| self.looked.is_some_and(|look| look >= at));
            if seen.quiet && told {
                seen.settled = true;
                let why = if done { "done" } else { "idle" };
                out.push(Effect::Over(agent, lease, why));
            } else if !seen.quiet && (too_long || done) {
                seen.quiet = true;
                out.push(Effect::Quiet(name.clone()));
            }
        } else if seen.online.is_none() {
            self.await_row(name, runner, &said, now, out);
        } else {
            // It was connected and is not: a guest that went silent is worth no more than an idle one.
            let since = *seen.idle.get_or_insert(now.mono);
            if now.mono - since >= self.spec.register {
                seen.settled = true;
                let id = &self.spec.id;
                let text = format!("its runner left source `{id}` and did not return{said}");
                out.push(Effect::Fail(agent, lease, text));
            }
        }
    }

    /// One that was started in its guest, and was never seen to be connected.
    fn await_row(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        said: &str,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let Kept { entry, hired, ended, .. } = &runner.kept;
        let (Some(seen), Some(hired)) = (self.seen.get_mut(name), hired) else { return };
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        let (id, waited) = (&self.spec.id, now.mono - *hired);
        let told = |end: &End| self.looked >= Some(end.at + SETTLES) && seen.began == 0;
        let text = match ended.filter(told).map(|end| end.how) {
            // It came and went between two looks.
            Some(Ending::Well | Ending::Left) if self.spec.registers && !seen.listed => {
                seen.settled = true;
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
                if ended.is_none() && seen.wonders(waited, self.spec.register / first) {
                    out.push(Effect::Ask(agent, lease));
                }
                return;
            }
        };
        seen.settled = true;
        self.trouble.cost_one(&self.spec, now);
        out.push(Effect::Fail(agent, lease, text));
    }

    /// One that may be where its source is not looked at any more: its guest tells when it has ended.
    fn await_end(&mut self, name: &RunnerName, runner: &Runner, now: Now, out: &mut Vec<Effect>) {
        let Kept { entry, hired, ended, .. } = &runner.kept;
        let (Some(seen), Some(hired)) = (self.seen.get_mut(name), hired) else { return };
        let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
        if ended.is_some_and(|end| self.looked >= Some(end.at + SETTLES)) {
            seen.settled = true;
            seen.jobs = 0;
            out.push(Effect::Over(agent, lease, "done"));
        } else if ended.is_none() && seen.wonders(now.mono - *hired, self.spec.register / FIRST) {
            out.push(Effect::Ask(agent, lease));
        }
    }
}
