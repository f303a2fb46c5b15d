//! Idle agents make room where others wait: those that are kept for one owner, and those of another size
//! than who waits needs.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, TemplateId};
use drover_model::record::Owner;

use super::begin::Coming;
use super::specs::SpecId;
use super::state::Scheduler;
use super::{AgentView, Demand, Effect, takes};

impl Scheduler {
    /// Whether an agent is idle and nobody has or gets it.
    fn is_unused(&self, agent: &AgentId, view: &AgentView) -> bool {
        let unused = view.status.is_idle() && !view.going && self.book.at(agent).is_empty();
        // One that another drover may have handed out does not go either.
        unused && !self.restrained.contains(agent)
    }

    /// Idle agents that are kept for one owner, where others wait and their template or its cloud is
    /// full: as many as are wanted beyond those that leave already.
    pub(super) fn evict(&mut self, levels: &[Demand]) -> Vec<Effect> {
        if !self.agents.any_kept() {
            return Vec::new();
        }
        let idle = self
            .agents
            .kept()
            .filter(|(agent, view)| self.is_unused(agent, view) && self.is_full(&view.spec.id));
        let mut idle: Vec<(AgentId, SpecId, Option<Owner>)> = idle
            .map(|(agent, view)| (agent.clone(), view.kind, view.status.owner.clone()))
            .collect();
        if idle.is_empty() {
            return Vec::new();
        }
        let coming = self.coming();
        let mut effects = Vec::new();
        for level in levels.iter().filter(|level| level.count > 0) {
            let specs: BTreeSet<SpecId> = self.servers(&level.want).specs().collect();
            let on_their_way = self.on_their_way(level, &coming);
            let leaving: u32 = specs.iter().map(|kind| self.agents.leaving(*kind)).sum();
            let mut wanted = level.count.saturating_sub(on_their_way).saturating_sub(leaving);
            idle.retain(|(agent, kind, owner)| {
                let serves = specs.contains(kind) && !takes(owner.as_ref(), level.whose.as_ref());
                if wanted == 0 || !serves {
                    return true;
                }
                wanted -= 1;
                self.agents.goes(agent);
                effects.push(Effect::Evict { agent: agent.clone() });
                false
            });
        }
        effects
    }

    /// Uses that agents on their way will have room for of these that are wanted.
    fn on_their_way(&self, level: &Demand, coming: &Coming) -> u32 {
        let servers = self.servers(&level.want);
        let owners = servers.kinds().filter_map(|kind| coming.get(&kind)).flatten();
        let takes = owners.filter(|(owner, _)| takes(owner.as_ref(), level.whose.as_ref()));
        takes.fold(0, |sum, (_, uses)| sum.saturating_add(*uses))
    }

    /// Idle agents of a full template, where it would start agents of another size for those who wait:
    /// as many as are wanted beyond those that leave already. What it keeps without demand goes too, last:
    /// it waits for somebody, and somebody is there.
    pub(super) fn evict_sizes(&mut self, levels: &[Demand]) -> Vec<Effect> {
        let gives = |id: &TemplateId| {
            let view = self.templates.get(id);
            view.is_some_and(|view| !view.spec.size_labels.is_none()) && self.is_full(id)
        };
        let full: BTreeSet<TemplateId> =
            self.templates.keys().filter(|id| gives(id)).cloned().collect();
        if full.is_empty() {
            return Vec::new();
        }
        let coming = self.coming();
        let leave = |id: &TemplateId| self.specs.of(id).map(|spec| self.agents.leaving(spec)).sum();
        let mut leaving: BTreeMap<TemplateId, u32> =
            full.iter().map(|id| (id.clone(), leave(id))).collect();
        let mut effects = Vec::new();
        for level in levels.iter().filter(|level| level.count > 0) {
            let servers = self.servers(&level.want);
            let ready: BTreeSet<SpecId> = servers.specs().collect();
            let mut wanted = level.count.saturating_sub(self.on_their_way(level, &coming));
            let starts = servers.kinds().filter_map(|(spec, _)| Some(self.template_of(spec)?.0));
            let starts: BTreeSet<TemplateId> =
                starts.filter(|id| full.contains(*id)).cloned().collect();
            for id in &starts {
                let left = leaving.entry(id.clone()).or_default();
                let awaited = wanted.min(*left);
                (wanted, *left) = (wanted - awaited, *left - awaited);
                for agent in self.idle_of(id, &ready).into_iter().take(wanted as usize) {
                    self.agents.goes(&agent);
                    effects.push(Effect::Evict { agent });
                    wanted -= 1;
                }
            }
        }
        effects
    }

    /// Idle agents of a template that may go and are none of these specs: first those of a size of
    /// their own, then those of the pool.
    fn idle_of(&self, id: &TemplateId, but: &BTreeSet<SpecId>) -> Vec<AgentId> {
        let specs = self.specs.of(id).filter(|spec| !but.contains(spec));
        let idle = specs.flat_map(|spec| self.agents.free(spec));
        let idle =
            idle.filter(|(agent, view)| view.status.owner.is_none() && self.is_unused(agent, view));
        let (pool, apart): (Vec<_>, Vec<_>) = idle.partition(|(_, view)| view.spec.size.is_none());
        apart.into_iter().chain(pool).map(|(agent, _)| agent.clone()).collect()
    }

    /// Whether nothing can be started of a template because all its places are taken.
    fn is_full(&self, id: &TemplateId) -> bool {
        let Some(view) = self.templates.get(id) else { return false };
        let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
        let full = view.spec.cap.is_some_and(|cap| view.live >= cap) || cloud == 0;
        view.configured && view.tripped.is_none() && full
    }
}
