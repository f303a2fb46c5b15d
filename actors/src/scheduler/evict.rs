//! Idle agents that are kept for one owner make room where others wait.

use std::collections::BTreeSet;

use drover_model::id::{AgentId, TemplateId};
use drover_model::record::Owner;

use super::specs::SpecId;
use super::state::Scheduler;
use super::{Demand, Effect, takes};

impl Scheduler {
    /// Idle agents that are kept for one owner, where others wait and their template or its cloud is
    /// full: as many as are wanted beyond those that leave already.
    pub(super) fn evict(&mut self, levels: &[Demand]) -> Vec<Effect> {
        if !self.agents.any_kept() {
            return Vec::new();
        }
        let idle = self.agents.kept().filter(|(agent, view)| {
            let idle = view.status.is_idle();
            let unused = idle && !view.going && self.book.at(agent).is_empty();
            // One that another drover may have handed out does not go either.
            unused && !self.restrained.contains(*agent) && self.is_full(&view.spec.id)
        });
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
            let on_their_way: u32 = specs
                .iter()
                .flat_map(|kind| coming.range((*kind, None)..(*kind + 1, None)))
                .filter(|((_, owner), _)| takes(owner.as_ref(), level.whose.as_ref()))
                .map(|(_, uses)| *uses)
                .sum();
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

    /// Whether nothing can be started of a template because all its places are taken.
    fn is_full(&self, id: &TemplateId) -> bool {
        let Some(view) = self.templates.get(id) else { return false };
        let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
        let full = view.spec.cap.is_some_and(|cap| view.live >= cap) || cloud == 0;
        view.configured && view.tripped.is_none() && full
    }
}
