//! What the read side is told of leases that are on no agent: why they wait, and what a start of
//! the service knows of them.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{AsyncContext, Context};

use super::Herd;
use crate::broker::book::{Entry, Stand};
use crate::broker::waiting::Ground;
use crate::fact::{LeasePicture, What};
use crate::id::{AgentId, CloudId, LeaseId};
use crate::ledger::Ledger;
use crate::record::{LeaseAsk, Want};
use crate::time::WallTime;

/// How often a reason that changed is told again: with many leases it changes all the time.
const RETELL: Duration = Duration::from_secs(1);

/// Leases told anew in one [`RETELL`]; with more of them waiting it takes longer, or the facts
/// would grow with their square.
const RETOLD_AT_ONCE: usize = 100;

/// What was told of waiting leases.
#[derive(Debug, Default)]
pub(super) struct Explained {
    told: BTreeMap<LeaseId, String>,
    /// Whether the moment to tell changes is awaited.
    awaited: bool,
}

impl Herd {
    pub(super) fn observe_lease(&self, ask: &LeaseAsk, state: &str, detail: String) {
        self.observe(What::Lease(Box::new(picture(ask, state, detail))));
    }

    /// Tells new reasons at once, and changed ones after a while.
    pub(super) fn explain(&mut self, ctx: &mut Context<Self>) {
        if self.tell_reasons(false) && !self.explained.awaited {
            self.explained.awaited = true;
            let rounds = self.explained.told.len().div_ceil(RETOLD_AT_ONCE).max(1);
            let pause = RETELL.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
            ctx.run_later(pause, |actor, _| {
                actor.explained.awaited = false;
                actor.tell_reasons(true);
            });
        }
    }

    /// Why clouds can not be worked with.
    pub(super) fn trouble(&self) -> BTreeMap<CloudId, String> {
        let failed = |(cloud, outcome): (&CloudId, &Result<String, String>)| {
            Some((cloud.clone(), outcome.clone().err()?))
        };
        self.tried.iter().filter_map(failed).collect()
    }

    /// What stands in the way on the side of the clouds.
    pub(super) fn ground<'a>(&'a self, trouble: &'a BTreeMap<CloudId, String>) -> Ground<'a> {
        Ground { templates: &self.spec.templates, clouds: &self.spec.clouds, trouble }
    }

    /// Tells why leases wait, where that is new; says whether changes were held back.
    fn tell_reasons(&mut self, changes: bool) -> bool {
        if self.broker.stopping() {
            return false;
        }
        let mut told = std::mem::take(&mut self.explained.told);
        let trouble = self.trouble();
        let ground = self.ground(&trouble);
        let mut reasons: Vec<(&Want, String)> = Vec::new();
        let (mut waiting, mut held_back) = (0, false);
        for ask in self.broker.waiting() {
            let known = reasons.iter().position(|(want, _)| *want == &ask.want);
            let index = known.unwrap_or_else(|| {
                reasons.push((&ask.want, self.broker.why(&ask.want, &ground)));
                reasons.len() - 1
            });
            let reason = &reasons[index].1;
            waiting += 1;
            match told.get(&ask.lease) {
                Some(before) if before == reason => {}
                Some(_) if !changes => held_back = true,
                Some(_) | None => {
                    self.observe_lease(ask, "waiting", reason.clone());
                    told.insert(ask.lease.clone(), reason.clone());
                }
            }
        }
        if told.len() > waiting {
            let waits = |entry: &Entry| entry.stand == Stand::Waiting;
            told.retain(|lease, _| self.broker.lease(lease).is_some_and(waits));
        }
        self.explained.told = told;
        held_back
    }

    /// Shows every lease that the journal knows; those on agents are shown by them once more.
    pub(super) fn show_known(&self, ledger: &Ledger, down: Duration) {
        for (lease, ended) in &ledger.ended {
            tracing::debug!(lease = %lease, "lease is known as ended");
            let shown = picture(&ended.ask, "ended", ended.why.clone());
            self.observe(What::Lease(Box::new(LeasePicture {
                agent: ended.agent.clone(),
                ..shown
            })));
        }
        for (agent, entry) in &ledger.agents {
            for granted in entry.leases.values() {
                let shown = picture(&granted.ask, "granted", "its agent is taken over".into());
                self.observe(What::Lease(Box::new(on(shown, agent, granted.expires + down))));
            }
        }
        for ask in &ledger.waiting {
            self.observe_lease(ask, "waiting", "waits for an agent".into());
        }
    }
}

fn on(picture: LeasePicture, agent: &AgentId, expires: WallTime) -> LeasePicture {
    LeasePicture { agent: Some(agent.clone()), expires: Some(expires), ..picture }
}

fn picture(ask: &LeaseAsk, state: &str, detail: String) -> LeasePicture {
    LeasePicture {
        lease: ask.lease.clone(),
        state: state.into(),
        agent: None,
        owner: ask.owner.clone(),
        principal: ask.principal.clone(),
        expires: None,
        detail,
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
