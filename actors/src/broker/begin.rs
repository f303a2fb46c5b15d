//! What is begun for those that no agent on its way will serve.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::matching::Matching;
use super::state::Broker;
use super::uses::Uses;
use super::{Order, takes};
use crate::id::TemplateId;
use crate::message::Standing;
use crate::record::{Owner, Want};
use crate::spec::TemplateSpec;

/// Uses that agents on their way will have room for.
#[derive(Debug, Clone)]
pub(super) struct Coming {
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) owner: Option<Owner>,
    pub(super) uses: u32,
}

impl Broker {
    /// Uses that agents on their way will have room for, by the spec they are born with and by whom
    /// they are kept for.
    pub(super) fn coming(&self) -> Vec<Coming> {
        let mut coming: Vec<Coming> = Vec::new();
        let mut add = |spec: &Arc<TemplateSpec>, owner: Option<&Owner>, uses: u32| {
            let same = |other: &&mut Coming| {
                Arc::ptr_eq(&other.spec, spec) && other.owner.as_ref() == owner
            };
            match coming.iter_mut().find(same) {
                Some(known) => known.uses += uses,
                None => coming.push(Coming { spec: spec.clone(), owner: owner.cloned(), uses }),
            }
        };
        for view in self.agents.values() {
            if view.standing == Standing::Coming && !view.going {
                add(&view.spec, view.owner.as_ref(), view.spec.executors.max(1));
            }
        }
        for view in self.templates.values() {
            add(&view.spec, None, view.pending.saturating_mul(view.spec.executors.max(1)));
        }
        coming
    }

    /// Begins what is missing, in the order of fair shares: where room is short, those whose turn
    /// comes first have it.
    pub(super) fn start(&mut self, wanted: &Uses) -> Vec<Order> {
        if wanted.turns.is_empty() {
            return Vec::new();
        }
        let levels = &wanted.levels;
        let coming = self.coming();
        let fresh: Vec<TemplateId> = self.templates.keys().cloned().collect();
        let kinds: Vec<Vec<usize>> = levels
            .iter()
            .map(|level| {
                let serves = |spec: &Arc<TemplateSpec>| self.serves(spec, &level.want);
                let on_the_way = coming.iter().map(|one| {
                    serves(&one.spec) && takes(one.owner.as_ref(), level.whose.as_ref())
                });
                let begun = self.templates.values().map(|view| serves(&view.spec));
                let fits = on_the_way.chain(begun).enumerate();
                fits.filter(|(_, fits)| *fits).map(|(index, _)| index).collect()
            })
            .collect();
        let mut places: Vec<u32> = coming.iter().map(|one| one.uses).collect();
        places.resize(coming.len() + fresh.len(), 0);
        let mut matching = Matching::new(kinds, places);
        let mut full = vec![false; levels.len()];
        let mut missing: Vec<usize> = Vec::new();
        for kind in wanted.turns.iter().map(|one| one.level) {
            if full[kind] || !matching.place(kind) {
                full[kind] = true;
                missing.push(kind);
            }
        }
        let mut starts: BTreeMap<TemplateId, u32> = BTreeMap::new();
        let mut without = vec![false; levels.len()];
        for kind in missing {
            // What was begun for another may have places left.
            if without[kind] || (!starts.is_empty() && matching.place(kind)) {
                continue;
            }
            let template = self.choose(&levels[kind].want, &starts);
            let index = template.as_ref().and_then(|id| fresh.iter().position(|one| one == id));
            let (Some(template), Some(index)) = (template, index) else {
                without[kind] = true;
                continue;
            };
            let uses = self.templates.get(&template).map_or(1, |v| v.spec.executors.max(1));
            *starts.entry(template).or_default() += 1;
            matching.widen(coming.len() + index, uses);
            matching.place(kind);
        }
        for (template, count) in &starts {
            if let Some(view) = self.templates.get_mut(template) {
                view.pending += count;
            }
        }
        starts.into_iter().map(|(template, count)| Order::Start { template, count }).collect()
    }

    /// The template to begin one more agent of: the first of its mapping, then the one with the
    /// most room, then one whose breaker flows, then the one least begun in this round, then by name.
    fn choose(&self, want: &Want, starts: &BTreeMap<TemplateId, u32>) -> Option<TemplateId> {
        let candidates = self.templates.iter().filter_map(|(id, view)| {
            let more = starts.get(id).copied().unwrap_or(0);
            let own = view.room.saturating_sub(view.pending + more);
            let of_cloud = |other: &TemplateId| other.cloud == id.cloud;
            let all = self.templates.iter().filter(|(other, _)| of_cloud(other));
            let pending: u32 = all.map(|(_, view)| view.pending).sum();
            let begun: u32 = starts.iter().filter(|(o, _)| of_cloud(o)).map(|(_, n)| *n).sum();
            let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
            let room = own.min(cloud.saturating_sub(pending + begun));
            let rank = self.rank(&view.spec, want)?;
            let fits = view.configured && room > 0;
            // Without a cap all rooms look alike: then what was begun here spreads them.
            // Caps say what may be begun, its cluster what can be: more goes where more fits.
            let room = self.fits.get(id).map_or(room, |fits| {
                let fits = u32::try_from(*fits).unwrap_or(u32::MAX);
                room.min(fits.saturating_sub(view.pending + more))
            });
            fits.then_some((Reverse(rank), room, view.flowing, Reverse(more), Reverse(id)))
        });
        candidates.max().map(|(_, _, _, _, Reverse(id))| id.clone())
    }
}
