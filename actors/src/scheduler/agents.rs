//! The agents as the scheduler sees them, with what decisions ask of them at hand: a decision looks at
//! those that are free, on their way or kept for somebody, and not at all that live.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, TemplateId};
use drover_model::record::Owner;
use drover_model::status::Standing;

use super::AgentView;
use super::specs::SpecId;
use crate::effort;

/// Living agents of a template that do not go: all that serve or will, and those without a use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stock {
    pub(super) all: usize,
    pub(super) idle: usize,
}

/// All agents, by what they are to decisions.
#[derive(Debug, Clone, Default)]
pub(super) struct Agents {
    views: BTreeMap<AgentId, AgentView>,
    by: Indices,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Indices {
    /// Those with places left that do not go.
    free: BTreeMap<SpecId, BTreeSet<AgentId>>,
    /// The places they have left, together.
    free_places: usize,
    /// Those that nothing was sent to the cluster for.
    queued: BTreeMap<SpecId, BTreeSet<AgentId>>,
    /// Uses that those on their way will have room for, by whom they are kept for.
    coming: BTreeMap<(SpecId, Option<Owner>), u32>,
    /// Those that leave or were asked to.
    leaving: BTreeMap<SpecId, u32>,
    /// Those that are kept for one owner.
    kept: BTreeSet<AgentId>,
    owners: BTreeMap<Owner, u32>,
    stock: BTreeMap<TemplateId, Stock>,
}

impl Agents {
    pub(super) fn get(&self, agent: &AgentId) -> Option<&AgentView> {
        self.views.get(agent)
    }

    /// All agents, for accounts and texts: a decision never walks over all.
    pub(super) fn values(&self) -> impl Iterator<Item = &AgentView> {
        self.views.values().inspect(|_| effort::spend(1))
    }

    /// Enters an agent as it is now; gives the view that this replaces.
    pub(super) fn insert(&mut self, agent: AgentId, view: AgentView) -> Option<AgentView> {
        let before = self.remove(&agent);
        self.by.enter(&agent, &view);
        self.views.insert(agent, view);
        before
    }

    /// Forgets an agent.
    pub(super) fn remove(&mut self, agent: &AgentId) -> Option<AgentView> {
        effort::spend(1);
        let view = self.views.remove(agent)?;
        self.by.leave(agent, &view);
        Some(view)
    }

    /// The wall clock was set.
    pub(super) fn clock_set(&mut self, by_ms: i64) {
        for started in self.views.values_mut().filter_map(|view| view.started.as_mut()) {
            *started = started.shifted(by_ms);
        }
    }

    /// An agent was asked to go.
    pub(super) fn goes(&mut self, agent: &AgentId) {
        if let Some(mut view) = self.remove(agent) {
            view.going = true;
            self.insert(agent.clone(), view);
        }
    }

    /// Whether any agent has places left.
    pub(super) fn any_free(&self) -> bool {
        !self.by.free.is_empty()
    }

    /// Agents of a spec with places left that do not go.
    pub(super) fn free(&self, spec: SpecId) -> impl Iterator<Item = (&AgentId, &AgentView)> {
        self.named(self.by.free.get(&spec))
    }

    /// The last agent of a spec, by id, that nothing was sent to the cluster for.
    pub(super) fn last_queued(&self, spec: SpecId, owner: Option<&Owner>) -> Option<&AgentId> {
        let all = self.by.queued.get(&spec).into_iter().flatten().rev();
        let of_owner = |agent: &&AgentId| {
            effort::spend(1);
            self.views.get(*agent).is_some_and(|view| view.status.owner.as_ref() == owner)
        };
        all.into_iter().find(of_owner)
    }

    /// How many agents of a spec are on their way for anybody, and have nothing in the cluster yet.
    pub(super) fn queued(&self, spec: SpecId) -> usize {
        let all = self.by.queued.get(&spec).into_iter().flatten();
        let of_all = |agent: &&AgentId| {
            effort::spend(1);
            self.views.get(*agent).is_some_and(|view| view.status.owner.is_none())
        };
        all.filter(of_all).count()
    }

    /// For whom agents of a spec that may be taken back are kept.
    pub(super) fn queued_owners(&self, spec: SpecId) -> Vec<Option<Owner>> {
        if !self.by.queued.contains_key(&spec) {
            return Vec::new();
        }
        let range = (spec, None)..(spec + 1, None);
        self.by.coming.range(range).map(|((_, owner), _)| owner.clone()).collect()
    }

    /// Uses that agents on their way will have room for, by spec and by whom they are kept for.
    pub(super) fn coming(&self) -> &BTreeMap<(SpecId, Option<Owner>), u32> {
        &self.by.coming
    }

    /// How many agents of a spec leave or were asked to.
    pub(super) fn leaving(&self, spec: SpecId) -> u32 {
        self.by.leaving.get(&spec).copied().unwrap_or(0)
    }

    /// Agents that are kept for one owner.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&AgentId, &AgentView)> {
        self.named(Some(&self.by.kept))
    }

    /// Whether any agent is kept for one owner.
    pub(super) fn any_kept(&self) -> bool {
        !self.by.kept.is_empty()
    }

    /// For whom agents are kept.
    pub(super) fn owners(&self) -> BTreeSet<&Owner> {
        self.by.owners.keys().collect()
    }

    /// Uses that agents have or will have room for. One that leaves counts as a use: it may be waited
    /// for in place of another that is kept for one owner.
    pub(super) fn places(&self) -> usize {
        let others = self.by.coming.values().chain(self.by.leaving.values());
        others.map(|uses| *uses as usize).fold(self.by.free_places, usize::saturating_add)
    }

    /// Whether an agent is kept for these.
    pub(super) fn is_kept_for(&self, owner: &Owner) -> bool {
        self.by.owners.contains_key(owner)
    }

    /// Living agents of a template that do not go.
    pub(super) fn stock(&self, template: &TemplateId) -> Stock {
        self.by.stock.get(template).copied().unwrap_or_default()
    }

    fn named<'a>(
        &'a self,
        agents: Option<&'a BTreeSet<AgentId>>,
    ) -> impl Iterator<Item = (&'a AgentId, &'a AgentView)> {
        let views = agents.into_iter().flatten();
        views.filter_map(|agent| {
            effort::spend(1);
            Some((agent, self.views.get(agent)?))
        })
    }

    /// Whether what is at hand is what a look at all agents gives.
    #[cfg(test)]
    pub(super) fn adds_up(&self) -> bool {
        let mut fresh = Indices::default();
        self.views.iter().for_each(|(agent, view)| fresh.enter(agent, view));
        fresh == self.by
    }
}

impl Indices {
    fn enter(&mut self, agent: &AgentId, view: &AgentView) {
        let kind = view.kind;
        match view.status.standing {
            Standing::Free { executors, .. } if !view.going => {
                self.free_places += executors as usize;
                self.free.entry(kind).or_default().insert(agent.clone());
            }
            Standing::Coming if !view.going => {
                *self.coming.entry((kind, view.status.owner.clone())).or_default() += view.places();
                if view.queued {
                    self.queued.entry(kind).or_default().insert(agent.clone());
                }
            }
            Standing::Free { .. }
            | Standing::Coming
            | Standing::Busy
            | Standing::Leaving
            | Standing::Parked
            | Standing::Gone => {}
        }
        if view.leaves() {
            *self.leaving.entry(kind).or_default() += 1;
        }
        if let Some(owner) = &view.status.owner {
            self.kept.insert(agent.clone());
            *self.owners.entry(owner.clone()).or_default() += 1;
        }
        if let Some(counts) = view.stock() {
            let stock = self.stock.entry(view.spec.id.clone()).or_default();
            stock.all += counts.all;
            stock.idle += counts.idle;
        }
    }

    fn leave(&mut self, agent: &AgentId, view: &AgentView) {
        let kind = view.kind;
        for all in [&mut self.free, &mut self.queued] {
            if let Some(agents) = all.get_mut(&kind) {
                agents.remove(agent);
                if agents.is_empty() {
                    all.remove(&kind);
                }
            }
        }
        if let Standing::Free { executors, .. } = view.status.standing
            && !view.going
        {
            self.free_places -= executors as usize;
        }
        if view.status.standing == Standing::Coming && !view.going {
            less(&mut self.coming, &(kind, view.status.owner.clone()), view.places());
        }
        if view.leaves() {
            less(&mut self.leaving, &kind, 1);
        }
        if let Some(owner) = &view.status.owner {
            self.kept.remove(agent);
            less(&mut self.owners, owner, 1);
        }
        if let (Some(counts), Some(stock)) = (view.stock(), self.stock.get_mut(&view.spec.id)) {
            stock.all -= counts.all;
            stock.idle -= counts.idle;
            if stock.all == 0 {
                self.stock.remove(&view.spec.id);
            }
        }
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K, by: u32) {
    if let Some(count) = counts.get_mut(key) {
        *count -= by;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl AgentView {
    /// Uses that it has room for once it is ready.
    pub(super) fn places(&self) -> u32 {
        self.spec.executors.max(1)
    }

    fn leaves(&self) -> bool {
        self.status.standing == Standing::Leaving || self.going
    }

    /// What it counts for of what its template keeps without demand: of its own size, for anybody.
    fn stock(&self) -> Option<Stock> {
        let idle = match self.status.standing {
            Standing::Coming | Standing::Free { idle: true, .. } => 1,
            Standing::Free { idle: false, .. } | Standing::Busy => 0,
            Standing::Leaving | Standing::Parked | Standing::Gone => return None,
        };
        let apart = self.spec.trial || !self.spec.size.is_none();
        (!apart && !self.going).then_some(Stock { all: 1, idle })
    }
}
