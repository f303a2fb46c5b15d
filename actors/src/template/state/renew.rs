//! Renewal: agents of the warm pool give way to others before they are too old, and after their template
//! was changed, a few at a time, so that a pool is never renewed all at once.
//!
//! Each has a time of its own, drawn from its id so that it is the same after a restart: between 0.7
//! and 0.9 of the most it may live. From then on it counts for less than an agent: another one is
//! started beside it, and it goes once that is ready. Where there is no room beside it, it goes first,
//! while all others are there and another one can be had. At the end of its life its own mind drains it.
//!
//! An agent that its template would make otherwise by now is *outdated*: it is renewed from then on, and
//! goes before another one is there only where the cap leaves no room. While a new version must prove
//! itself (`proving.rs`), agents of the good one are not outdated, but one more is started, or one gives
//! way where the cap is full, so that the new version is tried. Who is busy stays until it is idle.

use std::sync::Arc;
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
        self.renewal().is_some_and(|renewal| renewal.from <= now)
    }

    /// Whether another one of this spec takes its place in the pool.
    fn gives_way(&self, to: &Arc<TemplateSpec>) -> bool {
        let apart = self.spec.trial || !self.spec.size.is_none() || self.tries;
        !Arc::ptr_eq(&self.spec, to) && !apart && !self.spec.is_as(to)
    }

    /// Looks whether it is as its template makes agents by now.
    fn compare(&mut self, made_now: &Arc<TemplateSpec>, now: Moment) {
        let outdated = made_now.roll_at_once != Some(0) && self.gives_way(made_now);
        self.outdated = outdated.then(|| self.outdated.unwrap_or(now));
    }

    /// When it is renewed, for whichever reason comes first.
    fn renewal(&self) -> Option<Renewal> {
        // Nothing but a full cap lets it go before another one is there.
        let rolls = self.outdated.map(|from| Renewal { from, at_last: Moment(u64::MAX) });
        match (self.renews, rolls) {
            (Some(old), Some(rolls)) if old.from <= rolls.from => Some(old),
            (old, rolls) => rolls.or(old),
        }
    }
}

impl TemplateMind {
    /// So many agents may be in renewal at once.
    fn renewing(&self) -> u32 {
        let Minimums { all, idle } = self.kept();
        let usual = all.max(idle).div_ceil(10);
        if self.outdated() == 0 { usual } else { usual.max(self.rolling()) }
    }

    /// So many agents may be replaced at once after a change of the template.
    fn rolling(&self) -> u32 {
        let Minimums { all, idle } = self.kept();
        self.spec.roll_at_once.unwrap_or_else(|| all.max(idle).div_ceil(10).max(1))
    }

    /// Agents that are outdated and stay otherwise.
    pub(super) fn outdated(&self) -> u32 {
        let outdated = self.agents.values().filter(|held| held.outdated.is_some() && !held.going);
        u32::try_from(outdated.count()).unwrap_or(u32::MAX)
    }

    /// Looks which agents are as the template makes them by now.
    pub(super) fn compare(&mut self, now: Moment) {
        let made_now = self.made_now();
        for held in self.agents.values_mut() {
            held.compare(&made_now, now);
        }
    }

    /// Looks whether one agent is as the template makes them by now.
    pub(super) fn compare_one(&mut self, agent: &AgentId, now: Moment) {
        let made_now = self.made_now();
        if let Some(held) = self.agents.get_mut(agent) {
            held.compare(&made_now, now);
        }
    }

    /// Of the agents that count, those that another one may be started beside.
    pub(super) fn stale(&self, counts: fn(&Held) -> bool, now: Moment) -> u32 {
        // One that is outdated and in use goes when it is idle: until then it needs nobody beside it.
        let goes = |held: &Held| held.outdated.is_none() || held.idle_since.is_some();
        let stale =
            self.agents.values().filter(|held| counts(held) && held.is_stale(now) && goes(held));
        let stale = u32::try_from(stale.count()).unwrap_or(u32::MAX).min(self.renewing());
        let replaced = |held: &Held| counts(held) && held.gives_way(&self.spec);
        let tried = self.trial_is_due(now) && self.agents.values().any(replaced);
        stale.max(u32::from(tried))
    }

    /// The agent that goes before a version is tried, where there is no room beside it.
    fn gives_way(&self, now: Moment) -> Option<AgentId> {
        let mut idle = self.idle().into_iter().map(|(_, agent)| agent);
        let is_older = |agent: &AgentId| self.agents[agent].gives_way(&self.spec);
        self.trial_is_due(now).then(|| idle.find(is_older)).flatten()
    }

    /// Idle agents that are renewed, those that waited longest first.
    fn ripe(&self) -> Vec<(Renewal, AgentId)> {
        if self.renewing() == 0 {
            return Vec::new();
        }
        let idle = self.idle().into_iter().filter_map(|(_, agent)| {
            let renewal = self.agents.get(&agent)?.renewal()?;
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
        let left = (self.renewing() as usize).saturating_sub(self.leaving());
        let mut due: Vec<AgentId> =
            ripe.iter().take(self.spare().min(left)).map(|(_, agent)| agent.clone()).collect();
        let another = self.breaker.phase() == BreakerPhase::Closed
            && self.starts(now)
            && self.supply.free > 0;
        if due.is_empty() && another && self.at_rest() && self.is_whole() {
            let full = permits::room(self.spec.cap, self.live()) == 0;
            let first = ripe.into_iter().find(|(renewal, _)| full || renewal.at_last <= now);
            let first = first.map(|(_, agent)| agent);
            let for_trial = self.gives_way(now).filter(|_| full && !self.keeps_nothing());
            due.extend(first.or(for_trial));
        }
        let trial = self.trial_is_due(now);
        for agent in due {
            let held = self.agents.get(&agent);
            let outdated = held.is_some_and(|held| {
                held.outdated.is_some() || (trial && held.gives_way(&self.spec))
            });
            self.send_away(&agent, if outdated { Reason::Outdated } else { Reason::Old }, turn);
        }
    }

    /// Whether no agents are kept without demand.
    fn keeps_nothing(&self) -> bool {
        let Minimums { all, idle } = self.kept();
        all == 0 && idle == 0
    }

    /// Agents that are on their way out and not gone yet. Who still serves somebody first may do so for
    /// hours, and holds nobody up.
    fn leaving(&self) -> usize {
        let leaves = |held: &&Held| {
            let standing = held.status.standing;
            standing == Standing::Leaving || (held.going && standing != Standing::Busy)
        };
        self.agents.values().filter(leaves).count()
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
            Standing::Busy => true,
            Standing::Free { .. } | Standing::Parked => !held.going,
            Standing::Coming | Standing::Leaving | Standing::Gone => false,
        })
    }

    /// When agents are renewed.
    pub(super) fn renewals(&self) -> impl Iterator<Item = Moment> {
        let each = self.agents.values().filter(|held| !held.going && self.renewing() > 0);
        let each: Vec<Renewal> = each.filter_map(Held::renewal).collect();
        each.into_iter().flat_map(|renewal| [renewal.from, renewal.at_last])
    }
}
