//! What the read side hears of leases that are on no agent: why they wait, and what a start of
//! the service knows of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, CloudId, LeaseId};
use drover_model::journal_state::JournalState;
use drover_model::phase::LeasePhase;
use drover_model::record::{LeaseAsk, Want, how_ended};
use drover_model::status::LeaseStatus;
use drover_model::time::WallTime;

use super::Herd;
use super::nodes::NO_PROBLEM;
use crate::scheduler::book::{Entry, Stand};
use crate::scheduler::describe;
use crate::scheduler::waiting::Ground;

/// How often a reason that changed is reported again: with many leases it changes all the time.
const RETELL: Duration = Duration::from_secs(1);

/// Leases reported again in one [`RETELL`]; with more of them waiting it takes longer, or the facts
/// would grow with their square.
const RETOLD_AT_ONCE: usize = 100;

/// Kinds whose reasons the log follows.
const MOST_LOGGED: usize = 100;

/// What was reported of waiting leases.
#[derive(Debug, Default)]
pub(super) struct Explained {
    reported: BTreeMap<LeaseId, Arc<str>>,
    /// What the log says of each kind that waits.
    logged: BTreeMap<Want, Arc<str>>,
    /// Whether the moment to report changes is awaited.
    awaited: bool,
}

impl Herd {
    pub(super) fn observe_lease(&self, ask: &LeaseAsk, state: LeasePhase, detail: String) {
        self.observe(What::Lease(Box::new(status(ask, state, detail))));
    }

    /// Reports why leases that begin to wait do so, and all others after a while, where that
    /// changed: what it costs at once does not grow with how many wait.
    pub(super) fn explain(&mut self, ctx: &mut Context<Self>) {
        let fresh = self.scheduler.take_fresh();
        if self.scheduler.stopping() {
            return;
        }
        self.report_fresh(fresh);
        let waiting = self.scheduler.queued();
        if waiting == 0 {
            self.explained.reported.clear();
            self.explained.logged.clear();
        } else if !self.explained.awaited {
            self.explained.awaited = true;
            let rounds = waiting.div_ceil(RETOLD_AT_ONCE);
            let pause = RETELL.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
            ctx.run_later(pause, |actor, _| {
                actor.explained.awaited = false;
                actor.report_changes();
            });
        }
    }

    /// Explains again whenever what keeps clones back changes.
    pub(super) fn follow_doubts(&self, ctx: &mut Context<Self>) {
        let change = self.common.doubts.change();
        ctx.spawn(change.into_actor(self).map(|(), actor, ctx| {
            actor.settle_soon(ctx);
            actor.follow_doubts(ctx);
        }));
    }

    /// Why clouds cannot be worked with.
    pub(super) fn trouble(&self) -> BTreeMap<CloudId, String> {
        let now = (!self.common.doubts.is_clear()).then(|| self.common.ports.ambient.now().mono);
        let failed = |(cloud, outcome): (&CloudId, &Result<String, String>)| {
            let doubt = || self.common.doubts.trouble(cloud, self.leads.get(cloud), now?);
            Some((cloud.clone(), outcome.clone().err().or_else(doubt)?))
        };
        self.tried.iter().filter_map(failed).collect()
    }

    /// What stands in the way on the side of the clouds.
    pub(super) fn ground<'a>(&'a self, trouble: &'a BTreeMap<CloudId, String>) -> Ground<'a> {
        let images = self.making();
        Ground { templates: &self.spec.templates, clouds: &self.spec.clouds, trouble, images }
    }

    /// Reports why leases that began to wait do so.
    fn report_fresh(&mut self, fresh: Vec<LeaseId>) {
        let mut reported = std::mem::take(&mut self.explained.reported);
        let trouble = self.trouble();
        let ground = self.ground(&trouble);
        let mut reasons: BTreeMap<&Want, Arc<str>> = BTreeMap::new();
        for lease in fresh {
            let entry = self.scheduler.lease(&lease).filter(|entry| entry.stand == Stand::Waiting);
            let Some(ask) = entry.map(|entry| &entry.ask) else { continue };
            let why = || self.scheduler.why(&ask.want, &ground).into();
            let reason: &Arc<str> = reasons.entry(&ask.want).or_insert_with(why);
            self.report_reason(&mut reported, ask, reason);
        }
        self.explained.reported = reported;
    }

    /// Logs what keeps a kind from being served, whenever that changes: one line for all leases of it.
    /// A try that is under way is no change, or each retry would add two lines.
    fn log_reason(logged: &mut BTreeMap<Want, Arc<str>>, want: &Want, reason: &Arc<str>) {
        let before = logged.get(want);
        let is_known = before == Some(reason) || reason.starts_with(NO_PROBLEM);
        if is_known || (before.is_none() && logged.len() >= MOST_LOGGED) {
            return;
        }
        tracing::info!(wants = %describe(want), reason = &**reason, "leases wait");
        logged.insert(want.clone(), Arc::clone(reason));
    }

    /// Reports why all that wait do so, where that changed.
    fn report_changes(&mut self) {
        if self.scheduler.stopping() {
            return;
        }
        let mut reported = std::mem::take(&mut self.explained.reported);
        let mut logged = std::mem::take(&mut self.explained.logged);
        let trouble = self.trouble();
        let ground = self.ground(&trouble);
        for want in self.scheduler.wants() {
            let reason: Arc<str> = self.scheduler.why(want, &ground).into();
            Self::log_reason(&mut logged, want, &reason);
            for ask in self.scheduler.waiting_for(want) {
                self.report_reason(&mut reported, ask, &reason);
            }
        }
        let waits = |entry: &Entry| entry.stand == Stand::Waiting;
        reported.retain(|lease, _| self.scheduler.lease(lease).is_some_and(waits));
        logged.retain(|want, _| self.scheduler.waiting_for(want).next().is_some());
        self.explained.reported = reported;
        self.explained.logged = logged;
    }

    fn report_reason(
        &self,
        reported: &mut BTreeMap<LeaseId, Arc<str>>,
        ask: &LeaseAsk,
        reason: &Arc<str>,
    ) {
        if reported.get(&ask.lease) != Some(reason) {
            self.observe_lease(ask, LeasePhase::Waiting, reason.to_string());
            reported.insert(ask.lease.clone(), Arc::clone(reason));
        }
    }

    /// Shows every lease that the journal knows; those on agents are shown by them once more.
    pub(super) fn show_known(&self, journal_state: &JournalState, down: Duration) {
        for (lease, ended) in &journal_state.ended {
            tracing::debug!(lease = %lease, "lease is known as ended");
            let shown = status(&ended.ask, LeasePhase::Ended, how_ended(&ended.why, &ended.cause));
            let what = What::Lease(Box::new(LeaseStatus { agent: ended.agent.clone(), ..shown }));
            self.common.ports.observer.observe(Fact { at: ended.at, what });
        }
        for (agent, entry) in &journal_state.agents {
            for granted in entry.leases.values() {
                // Who waits for it, or uses it, need not see that another drover took it over.
                let phase =
                    if granted.is_ready() { LeasePhase::Ready } else { LeasePhase::Granted };
                let shown = status(&granted.ask, phase, "its agent is taken over".into());
                let shown = LeaseStatus { granted: granted.granted, ..shown };
                self.observe(What::Lease(Box::new(on(shown, agent, granted.expires + down))));
            }
        }
        for ask in &journal_state.waiting {
            self.observe_lease(ask, LeasePhase::Waiting, "waits for an agent".into());
        }
    }
}

fn on(status: LeaseStatus, agent: &AgentId, expires: WallTime) -> LeaseStatus {
    LeaseStatus { agent: Some(agent.clone()), expires: Some(expires), ..status }
}

fn status(ask: &LeaseAsk, state: LeasePhase, detail: String) -> LeaseStatus {
    LeaseStatus {
        lease: ask.lease.clone(),
        state,
        agent: None,
        owner: ask.owner.clone(),
        principal: ask.principal.clone(),
        group: ask.group.clone(),
        wants: describe(&ask.want),
        want: Some(ask.want.clone()),
        whole: ask.whole,
        asked: Some(ask.asked),
        granted: None,
        expires: None,
        detail,
    }
}

#[cfg(test)]
mod tests;
