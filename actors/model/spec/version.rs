//! Which version of a template a spec is, and whether an agent is of it.

use super::{LimitSpec, TemplateSpec};
use crate::ambient::fnv1a;

impl TemplateSpec {
    /// Which version of a template it is: a digest of everything that an agent's way to being ready
    /// may hang on. How many agents there may be, how long and for whom, makes no other version.
    pub fn version(&self) -> String {
        let same = self.with_policy_of(&Self::bare(self.id.clone(), self.source));
        format!("{:016x}", fnv1a(&format!("{same:?}")))
    }

    /// The same with the other's word on how many agents there may be, how long, where and for whom.
    pub fn with_policy_of(&self, other: &Self) -> Self {
        Self {
            generation: other.generation,
            canary: other.canary,
            roll_at_once: other.roll_at_once,
            overrides: other.overrides,
            made_as: other.made_as.clone(),
            fallbacks: other.fallbacks.clone(),
            placement: other.placement.clone(),
            labels: other.labels.clone(),
            size_labels: other.size_labels.clone(),
            mode: other.mode,
            idle: other.idle,
            cap: other.cap,
            minimum: other.minimum,
            idle_minimum: other.idle_minimum,
            schedule: other.schedule.clone(),
            max_uses: other.max_uses,
            limits: LimitSpec { lifetime: other.limits.lifetime, ..self.limits.clone() },
            breaker: other.breaker.clone(),
            close_ssh: other.close_ssh,
            trial: other.trial,
            ..self.clone()
        }
    }

    /// Whether an agent with this spec is as the template `now` makes them. Where it was put, and which
    /// image it was cloned from of those that are sought alike, makes no difference.
    pub fn is_as(&self, now: &Self) -> bool {
        let own_node = now.nodes.is_empty() && now.node.is_some() && !now.placement.anywhere;
        let own_storage = now.storages.is_empty() && now.target_storage.is_some();
        let same = Self {
            node: if own_node { self.node.clone() } else { now.node.clone() },
            source: if now.search.is_some() { now.source } else { self.source },
            target_storage: match own_storage {
                true => self.target_storage.clone(),
                false => now.target_storage.clone(),
            },
            origin: now.origin.clone(),
            ..self.with_policy_of(now)
        };
        same == *now
    }
}
