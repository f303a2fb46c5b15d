//! Agents that nobody needs any more: started for leases that were given up before anything was
//! sent to the cluster for them.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, TemplateId};
use drover_model::record::{Owner, Want};
use drover_model::size::Size;

use super::matching::Matching;
use super::specs::{Kind, SpecId};
use super::state::Scheduler;
use super::{Demand, Effect, takes};

/// Who is on the way for whom, as far as agents were not taken back.
struct Spare {
    matching: Matching,
    /// The groups of the matching.
    groups: BTreeMap<(Kind, Option<Owner>), usize>,
    /// Those of which none can be taken back: as there are ever fewer, none can later either.
    needed: BTreeSet<(SpecId, Option<Owner>)>,
}

impl Scheduler {
    /// For each lease given up lets one queued agent go, unless other demand or the warm minimum
    /// needs it.
    pub(super) fn withdraw(&mut self, levels: &[Demand]) -> Vec<Effect> {
        let wants = std::mem::take(&mut self.given_up);
        let mut spare: Option<Spare> = None;
        let mut effects = Vec::new();
        for (want, mut left) in wants {
            while left > 0 {
                let spare = spare.get_or_insert_with(|| self.spare(levels));
                let Some(agent) = self.surplus(&want, spare) else { break };
                self.agents.goes(&agent);
                effects.push(Effect::Withdraw { agent });
                left -= 1;
            }
            if left > 0 && self.starts_under_way(&want) {
                self.given_up.insert(want, left);
            }
        }
        effects
    }

    /// Who is on the way for whom.
    fn spare(&self, levels: &[Demand]) -> Spare {
        let coming = self.coming();
        let classes = self.classes(levels, |_| false);
        let mut counts = vec![0u32; classes.count()];
        for (place, level) in levels.iter().enumerate() {
            let count = &mut counts[classes.of(place)];
            *count = count.saturating_add(level.count);
        }
        let (mut groups, mut places) = (BTreeMap::new(), Vec::new());
        let mut of: BTreeMap<Kind, Vec<(Option<Owner>, usize)>> = BTreeMap::new();
        for (kind, owners) in coming {
            for (owner, uses) in owners {
                of.entry(kind).or_default().push((owner.clone(), places.len()));
                groups.insert((kind, owner), places.len());
                places.push(uses);
            }
        }
        let kinds = classes.each().map(|(class, servers)| {
            let of = servers.kinds().flat_map(|kind| of.get(&kind).into_iter().flatten());
            let fits = of.filter(|(owner, _)| takes(owner.as_ref(), class.whose.as_ref()));
            fits.map(|(_, at)| *at).collect()
        });
        let mut matching = Matching::new(kinds.collect(), places);
        for (class, count) in counts.into_iter().enumerate() {
            matching.place_many(class, count);
        }
        Spare { matching, groups, needed: BTreeSet::new() }
    }

    /// A queued agent that serves a want and that nobody needs; its places are taken from those on
    /// the way.
    fn surplus(&self, want: &Want, spare: &mut Spare) -> Option<AgentId> {
        let servers = self.servers(want);
        let of = |kind: SpecId| {
            let owners = self.agents.queued_owners(kind).into_iter();
            owners.map(move |owner| (kind, owner))
        };
        let queued = servers.specs().flat_map(of).filter(|group| !spare.needed.contains(group));
        let last = queued.filter_map(|group| {
            let agent = self.agents.last_queued(group.0, group.1.as_ref())?;
            Some((agent.clone(), group))
        });
        let mut last: Vec<(AgentId, (SpecId, Option<Owner>))> = last.collect();
        last.sort_unstable_by(|one, other| other.cmp(one));
        for (agent, group) in last {
            let spec = self.specs.get(group.0)?;
            let places = spec.executors.max(1);
            let at = spare.groups.get(&((group.0, Size::NONE), group.1.clone())).copied();
            let is_warm = spec.size.is_none() && self.is_warm(&spec.id);
            let goes = !is_warm && at.is_none_or(|at| spare.matching.shrink(at, places));
            if goes {
                return Some(agent);
            }
            spare.needed.insert(group);
        }
        None
    }

    /// Whether an agent on its way is part of what its template keeps without demand.
    fn is_warm(&self, template: &TemplateId) -> bool {
        let Some(view) = self.templates.get(template) else { return false };
        let (stock, kept) = (self.agents.stock(template), view.kept);
        stock.all <= kept.all as usize || stock.idle <= kept.idle as usize
    }

    /// Whether agents may be on their way that no template reported yet.
    fn starts_under_way(&self, want: &Want) -> bool {
        let servers = self.servers(want);
        servers.kinds().any(|(spec, size)| {
            let own = self.template_of(spec);
            own.is_some_and(|(_, view)| view.starts.contains_key(&size))
        })
    }
}
