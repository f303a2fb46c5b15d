//! Idle agents that are kept for one owner make room where others wait.

use super::state::Broker;
use super::{AgentView, Demand, Order, takes};
use crate::id::{AgentId, TemplateId};
use crate::message::Standing;
use crate::spec::TemplateSpec;

impl Broker {
    /// Idle agents that are kept for one owner, where others wait and their template or its cloud is
    /// full: as many as are wanted beyond those that leave already.
    pub(super) fn evict(&mut self, levels: &[Demand]) -> Vec<Order> {
        let kept = |view: &AgentView| {
            let idle = matches!(view.standing, Standing::Free { idle: true, .. });
            view.owner.is_some() && idle && !view.going
        };
        if !self.agents.values().any(kept) {
            return Vec::new();
        }
        let coming = self.coming();
        let mut orders = Vec::new();
        for level in levels {
            let serves = |spec: &TemplateSpec| self.serves(spec, &level.want);
            let on_their_way = coming
                .iter()
                .filter(|one| serves(&one.spec) && takes(one.owner.as_ref(), level.whose.as_ref()));
            let on_their_way: u32 = on_their_way.map(|one| one.uses).sum();
            let leaving = self.agents.values().filter(|view| {
                (view.standing == Standing::Leaving || view.going) && serves(&view.spec)
            });
            let leaving = u32::try_from(leaving.count()).unwrap_or(u32::MAX);
            let wanted = level.count.saturating_sub(on_their_way).saturating_sub(leaving);
            let chosen: Vec<AgentId> = self
                .agents
                .iter()
                .filter(|(agent, view)| {
                    kept(view)
                        && !view.takes(level.whose.as_ref())
                        && serves(&view.spec)
                        && self.book.at(agent).is_empty()
                        && self.is_full(&view.spec.id)
                })
                .take(wanted as usize)
                .map(|(agent, _)| agent.clone())
                .collect();
            for agent in chosen {
                if let Some(view) = self.agents.get_mut(&agent) {
                    view.going = true;
                }
                orders.push(Order::Evict { agent });
            }
        }
        orders
    }

    /// Whether nothing can be begun of a template because all its places are taken.
    fn is_full(&self, id: &TemplateId) -> bool {
        let Some(view) = self.templates.get(id) else { return false };
        let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
        let full = view.spec.cap.is_some_and(|cap| view.live >= cap) || cloud == 0;
        view.configured && view.tripped.is_none() && full
    }
}
