//! How a source's mind removes runners whose lease is over, and cordons others: each call is repeated until
//! its source, and then the journal, confirms it.

use drover_model::fault::{Fault, FaultKind};
use drover_model::id::RunnerName;
use drover_model::ports::JournalFault;
use drover_model::time::{Moment, Now};

use crate::demand::mind::event::{Effect, Runner};
use crate::demand::mind::{CORDON_TRIES, DEREGISTER_PAUSE, SourceMind, UNHEARD};

impl SourceMind {
    /// Removes a runner whose lease is over.
    pub(super) fn remove_dead(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let observed = self.observed.entry(name.clone()).or_default();
        let is_over = observed.held || runner.kept.lease_over;
        if !is_over && now.mono - runner.kept.since < UNHEARD {
            return;
        }
        if !observed.settled {
            // Only its source knows whether its job was over before its machine was, or whether it took
            // a job since the last poll.
            if observed.died.is_none() {
                observed.died = Some(now.mono);
                self.woken = true;
            }
            return;
        }
        observed.settled = true;
        let due = observed
            .deregister
            .is_none_or(|(at, under_way)| !under_way && now.mono - at >= DEREGISTER_PAUSE);
        if due {
            observed.deregister = Some((now.mono, true));
            out.push(Effect::Deregister(name.clone()));
        }
    }

    /// A runner was cordoned, or could not be: the next poll that shows it cordons it again, and some
    /// failures count as success.
    pub(super) fn cordoned(&mut self, name: &RunnerName, result: Result<(), Fault>, now: Moment) {
        let Some(observed) = self.observed.get_mut(name) else { return };
        match result {
            Ok(()) => observed.cordoned = Some(now),
            // It took a job meanwhile, which its row may show later.
            Err(Fault { kind: FaultKind::Locked { .. }, .. }) => {
                observed.cordoning = false;
                observed.idle = None;
                observed.jobs = observed.jobs.max(1);
            }
            Err(fault) => {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = %fault,
                    "runner takes jobs still"
                );
                observed.refusals += 1;
                observed.cordoned = (observed.refusals >= CORDON_TRIES).then_some(now);
                observed.cordoning = observed.cordoned.is_some();
            }
        }
    }

    /// A call to deregister came back.
    pub(super) fn deregistered(
        &mut self,
        name: &RunnerName,
        result: Result<(), Fault>,
        out: &mut Vec<Effect>,
    ) {
        let Some(observed) = self.observed.get_mut(name) else { return };
        match result {
            Ok(()) => out.push(Effect::Gone(name.clone())),
            Err(fault) => {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = %fault,
                    "runner cannot be removed; drover tries again"
                );
                if let Some((_, under_way)) = &mut observed.deregister {
                    *under_way = false;
                }
            }
        }
    }

    /// The journal did not take that a runner is gone: it is deregistered once more.
    pub(super) fn not_written(&mut self, name: &RunnerName, fault: &JournalFault) {
        tracing::warn!(source = %self.spec.id, runner = %name, error = %fault, "record not written");
        if let Some((_, under_way)) =
            self.observed.get_mut(name).and_then(|observed| observed.deregister.as_mut())
        {
            *under_way = false;
        }
    }
}
