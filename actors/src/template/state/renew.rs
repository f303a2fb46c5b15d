//! Renewal: agents of the warm pool give way to younger ones before they are too old, a few at a time,
//! so that a pool whose agents were started together is never renewed all at once.
//!
//! Each has a time of its own, drawn from its id so that it is the same after a restart: between 0.7
//! and 0.9 of the most it may live. From then on it counts for less than an agent: another one is
//! started beside it, and it goes once that is ready. Where there is no room beside it, it goes first,
//! while all others are there and another one can be had. At the end of its life its own mind drains it.

use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::id::AgentId;
use drover_model::phase::BreakerPhase;
use drover_model::record::Reason;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::state_machine::Turn;
use drover_model::status::Standing;
use drover_model::time::{Moment, Now, WallTime};

use super::{Effect, Held, TemplateMind};
use crate::template::permits;

/// When one agent is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) struct Renewal {
    /// From here on another one may take its place.
    from: Moment,
    /// From here on it does not wait for that one any longer.
    at_last: Moment,
}

impl Renewal {
    /// When an agent of this spec is renewed that was started at this wall time.
    pub(in crate::template) fn of(
        agent: &AgentId,
        spec: &TemplateSpec,
        born: WallTime,
        now: Now,
    ) -> Option<Self> {
        let life = spec.limits.lifetime?;
        let draw = Dice::from_number(0).fork(agent.as_str()).below(2000);
        let from = life / 10_000 * u32::try_from(7000 + draw).unwrap_or(7000);
        let age = now.wall - born;
        let left = |age_then: Duration| now.mono + age_then.saturating_sub(age);
        Some(Self { from: left(from), at_last: left(from + (life - from) / 2) })
    }
}

impl Held {
    fn is_stale(&self, now: Moment) -> bool {
        self.renews.is_some_and(|renewal| renewal.from <= now)
    }
}

impl TemplateMind {
    /// So many agents may be in renewal at once.
    fn renewing(&self) -> u32 {
        let Minimums { all, idle } = self.kept();
        all.max(idle).div_ceil(10)
    }

    /// Of the agents that count, those that another one may be started beside.
    pub(super) fn stale(&self, counts: fn(&Held) -> bool, now: Moment) -> u32 {
        let stale = self.agents.values().filter(|held| counts(held) && held.is_stale(now));
        u32::try_from(stale.count()).unwrap_or(u32::MAX).min(self.renewing())
    }

    /// Idle agents that are renewed, those that waited longest first.
    fn ripe(&self) -> Vec<(Renewal, AgentId)> {
        if self.renewing() == 0 {
            return Vec::new();
        }
        let idle = self.idle().into_iter().filter_map(|(_, agent)| {
            let renewal = self.agents.get(&agent)?.renews?;
            Some((renewal, agent))
        });
        let mut ripe: Vec<_> = idle.collect();
        ripe.sort_by_key(|(renewal, agent)| (renewal.from, agent.clone()));
        ripe
    }

    /// Sends away what was renewed, and what must be and has no room for another one.
    pub(super) fn renew(&mut self, now: Moment, turn: &mut Turn<Effect>) {
        let ripe: Vec<_> =
            self.ripe().into_iter().filter(|(renewal, _)| renewal.from <= now).collect();
        let mut due: Vec<AgentId> =
            ripe.iter().take(self.spare()).map(|(_, agent)| agent.clone()).collect();
        let another = self.breaker.phase() == BreakerPhase::Closed
            && self.starts(now)
            && self.supply.free > 0;
        if due.is_empty() && another && self.at_rest() && self.is_whole() {
            let full = permits::room(self.spec.cap, self.live()) == 0;
            let first = ripe.into_iter().find(|(renewal, _)| full || renewal.at_last <= now);
            due.extend(first.map(|(_, agent)| agent));
        }
        due.iter().for_each(|agent| self.send_away(agent, Reason::Old, turn));
    }

    /// Whether all that is kept is there: agents that went before were replaced.
    fn is_whole(&self) -> bool {
        let Minimums { all, idle } = self.kept();
        let ready = self.agents.values().filter(|held| held.is_ready()).count();
        ready >= all as usize && self.idle().len() >= idle as usize
    }

    /// Whether nothing comes and nothing goes.
    fn at_rest(&self) -> bool {
        self.agents.values().all(|held| match held.status.standing {
            Standing::Free { .. } | Standing::Busy | Standing::Parked => !held.going,
            Standing::Coming | Standing::Leaving | Standing::Gone => false,
        })
    }

    /// When agents are renewed.
    pub(super) fn renewals(&self) -> impl Iterator<Item = Moment> {
        let each = self.agents.values().filter(|held| !held.going && self.renewing() > 0);
        let each: Vec<Renewal> = each.filter_map(|held| held.renews).collect();
        each.into_iter().flat_map(|renewal| [renewal.from, renewal.at_last])
    }
}
