//! What is started for those that no agent on its way will serve.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use drover_model::id::{CloudId, TemplateId};
use drover_model::record::Owner;

use super::matching::Matching;
use super::specs::{Servers, SpecId};
use super::state::Scheduler;
use super::uses::Uses;
use super::{Effect, takes};
use crate::effort;

/// Uses that agents on their way will have room for, by the spec they are born with and by whom they
/// are kept for.
pub(super) type Coming = BTreeMap<(SpecId, Option<Owner>), u32>;

/// What is started in one decision.
#[derive(Debug, Default)]
struct Starts {
    of: BTreeMap<TemplateId, u32>,
    /// By cloud, those asked for before and not answered included.
    flight: BTreeMap<CloudId, u32>,
}

impl Scheduler {
    /// Uses that agents on their way and starts not answered will have room for.
    pub(super) fn coming(&self) -> Coming {
        let mut coming = self.agents.coming().clone();
        effort::spend(coming.len() + self.templates.len());
        for view in self.templates.values().filter(|view| view.pending > 0) {
            let uses = view.pending.saturating_mul(view.spec.executors.max(1));
            let known = coming.entry((view.kind, None)).or_default();
            *known = known.saturating_add(uses);
        }
        coming
    }

    /// Begins what is missing, in the order of fair shares: where room is short, those whose turn
    /// comes first have it.
    pub(super) fn start(&mut self, wanted: &Uses) -> Vec<Effect> {
        if wanted.turns.is_empty() {
            return Vec::new();
        }
        let classes = self.classes(&wanted.levels, |_| false);
        let coming = self.coming();
        // Those on their way, then agents that are not started yet, by spec.
        let mut places: Vec<u32> = Vec::new();
        let mut on_the_way: BTreeMap<SpecId, Vec<(Option<&Owner>, usize)>> = BTreeMap::new();
        for ((kind, owner), uses) in &coming {
            on_the_way.entry(*kind).or_default().push((owner.as_ref(), places.len()));
            places.push(*uses);
        }
        let mut fresh: BTreeMap<SpecId, usize> = BTreeMap::new();
        for kind in classes.specs().into_iter().filter(|kind| self.template_of(*kind).is_some()) {
            fresh.insert(kind, places.len());
            places.push(0);
        }
        let kinds = classes.each().map(|(class, servers)| {
            let coming = servers.specs().flat_map(|kind| {
                let of = on_the_way.get(&kind).into_iter().flatten();
                of.filter(|(owner, _)| takes(*owner, class.whose.as_ref())).map(|(_, at)| *at)
            });
            let started = servers.specs().filter_map(|kind| fresh.get(&kind).copied());
            coming.chain(started).collect()
        });
        let mut matching = Matching::new(kinds.collect(), places);
        let turns = wanted.turns.iter().map(|one| classes.of(one.level));
        let missing: Vec<usize> = turns.filter(|class| !matching.place(*class)).collect();
        let mut starts = self.in_flight();
        let mut without = vec![false; classes.count()];
        for class in missing {
            // What was started for another may have places left.
            if without[class] || matching.place(class) {
                continue;
            }
            let Some((template, kind, uses)) = self.choose(classes.servers(class), &starts) else {
                without[class] = true;
                continue;
            };
            *starts.flight.entry(template.cloud.clone()).or_default() += 1;
            *starts.of.entry(template).or_default() += 1;
            if let Some(group) = fresh.get(&kind) {
                matching.widen(class, *group, uses);
            }
        }
        for (template, count) in &starts.of {
            if let Some(view) = self.templates.get_mut(template) {
                view.pending += count;
            }
        }
        let each = starts.of.into_iter();
        each.map(|(template, count)| Effect::Start { template, count }).collect()
    }

    fn in_flight(&self) -> Starts {
        let mut starts = Starts::default();
        for (id, view) in self.templates.iter().filter(|(_, view)| view.pending > 0) {
            *starts.flight.entry(id.cloud.clone()).or_default() += view.pending;
        }
        starts
    }

    /// The template to begin one more agent of, with its spec and the uses of an agent: the first of
    /// its mapping, then one for which its cluster has room, then one whose breaker flows, then the
    /// smallest, then the one with the most room, then the one least started in this round, then by name.
    fn choose(&self, servers: &Servers, starts: &Starts) -> Option<(TemplateId, SpecId, u32)> {
        let candidates = servers.all.iter().filter_map(|(rank, kind)| {
            effort::spend(1);
            let (id, view) = self.template_of(*kind)?;
            let more = starts.of.get(id).copied().unwrap_or(0);
            let own = view.room.saturating_sub(view.pending + more);
            let flight = starts.flight.get(&id.cloud).copied().unwrap_or(0);
            let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
            let room = own.min(cloud.saturating_sub(flight));
            let fits = view.configured && room > 0;
            // Without a cap all rooms look alike: then what was started here spreads them.
            // Caps say what may be started, its cluster what can be: more goes where more fits.
            let room = self.fits.get(id).map_or(room, |fits| {
                let fits = u32::try_from(*fits).unwrap_or(u32::MAX);
                room.min(fits.saturating_sub(view.pending + more))
            });
            let size = Reverse(self.specs.size(*kind));
            let works = (room > 0, view.flowing);
            let order = (Reverse(*rank), works, size, room, Reverse(more), Reverse(id));
            fits.then_some((order, *kind, view.spec.executors.max(1)))
        });
        let best = candidates.max_by(|(one, ..), (other, ..)| one.cmp(other));
        best.map(|((.., Reverse(id)), kind, uses)| (id.clone(), kind, uses))
    }
}
