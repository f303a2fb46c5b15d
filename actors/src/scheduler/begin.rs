//! What is started for those that no agent on its way will serve.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use drover_model::id::{CloudId, TemplateId};
use drover_model::record::Owner;
use drover_model::size::Size;

use super::matching::Matching;
use super::specs::{Kind, Servers};
use super::state::Scheduler;
use super::uses::Uses;
use super::{Effect, takes};
use crate::effort;

/// Uses that agents on their way will have room for, by what they are and by whom they are kept for.
pub(super) type Coming = BTreeMap<Kind, BTreeMap<Option<Owner>, u32>>;

/// What is started in one decision.
#[derive(Debug, Default)]
struct Starts {
    of: BTreeMap<(TemplateId, Size), u32>,
    /// Of all sizes.
    all: BTreeMap<TemplateId, u32>,
    /// By cloud, those asked for before and not answered included.
    flight: BTreeMap<CloudId, u32>,
}

impl Scheduler {
    /// Uses that agents on their way and starts not answered will have room for.
    pub(super) fn coming(&self) -> Coming {
        let mut coming = Coming::new();
        let mut add = |kind: Kind, owner: Option<Owner>, uses: u32| {
            effort::spend(1);
            let known = coming.entry(kind).or_default().entry(owner).or_default();
            *known = known.saturating_add(uses);
        };
        for ((spec, owner), uses) in self.agents.coming() {
            add((*spec, Size::NONE), owner.clone(), *uses);
        }
        for view in self.templates.values() {
            for (size, count) in &view.starts {
                let uses = count.saturating_mul(view.spec.executors.max(1));
                add((view.kind, *size), None, uses);
            }
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
        // Those on their way, then agents that are not started yet, by kind.
        let mut places: Vec<u32> = Vec::new();
        let mut on_the_way: BTreeMap<Kind, Vec<(Option<&Owner>, usize)>> = BTreeMap::new();
        for (kind, owners) in &coming {
            for (owner, uses) in owners {
                on_the_way.entry(*kind).or_default().push((owner.as_ref(), places.len()));
                places.push(*uses);
            }
        }
        let mut fresh: BTreeMap<Kind, usize> = BTreeMap::new();
        for kind in classes.kinds().into_iter().filter(|kind| self.template_of(kind.0).is_some()) {
            fresh.insert(kind, places.len());
            places.push(0);
        }
        let kinds = classes.each().map(|(class, servers)| {
            let coming = servers.kinds().flat_map(|kind| {
                let of = on_the_way.get(&kind).into_iter().flatten();
                of.filter(|(owner, _)| takes(*owner, class.whose.as_ref())).map(|(_, at)| *at)
            });
            let started = servers.kinds().filter_map(|kind| fresh.get(&kind).copied());
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
            *starts.all.entry(template.clone()).or_default() += 1;
            *starts.of.entry((template, kind.1)).or_default() += 1;
            if let Some(group) = fresh.get(&kind) {
                matching.widen(class, *group, uses);
            }
        }
        for ((template, size), count) in &starts.of {
            if let Some(view) = self.templates.get_mut(template) {
                *view.starts.entry(*size).or_default() += count;
            }
        }
        let each = starts.of.into_iter();
        each.map(|((template, size), count)| Effect::Start { template, size, count }).collect()
    }

    fn in_flight(&self) -> Starts {
        let mut starts = Starts::default();
        for (id, view) in self.templates.iter().filter(|(_, view)| !view.starts.is_empty()) {
            *starts.flight.entry(id.cloud.clone()).or_default() += view.pending();
        }
        starts
    }

    /// The template to begin one more agent of, with what that is and its uses: the first of its
    /// mapping, then one for which its cluster has room, then one whose breaker flows, then the
    /// smallest, then the one with the most room, then the one least started in this round, then by name.
    fn choose(&self, servers: &Servers, starts: &Starts) -> Option<(TemplateId, Kind, u32)> {
        let candidates = servers.all.iter().filter_map(|(rank, kind)| {
            effort::spend(1);
            let (id, view) = self.template_of(kind.0)?;
            let more = starts.all.get(id).copied().unwrap_or(0);
            let asked = view.pending() + more;
            let own = view.room.saturating_sub(asked);
            let flight = starts.flight.get(&id.cloud).copied().unwrap_or(0);
            let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
            let room = own.min(cloud.saturating_sub(flight));
            let fits = view.configured && room > 0 && !view.unplaced.contains_key(&kind.1);
            // Without a cap all rooms look alike: then what was started here spreads them.
            // Caps say what may be started, its cluster what can be: more goes where more fits.
            let room = self.fits.get(&(id.clone(), kind.1)).map_or(room, |fits| {
                let fits = u32::try_from(*fits).unwrap_or(u32::MAX);
                room.min(fits.saturating_sub(asked))
            });
            let bulk = Reverse(self.specs.bulk(*kind));
            let works = (room > 0, view.flowing);
            let order = (Reverse(*rank), works, bulk, room, Reverse(more), Reverse(id));
            fits.then_some((order, *kind, view.spec.executors.max(1)))
        });
        let best = candidates.max_by(|(one, ..), (other, ..)| one.cmp(other));
        best.map(|((.., Reverse(id)), kind, uses)| (id.clone(), kind, uses))
    }
}
