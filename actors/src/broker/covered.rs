//! Which of the jobs that wait at a source its runners can still take.

use std::sync::Arc;

use super::matching::Matching;
use super::routing::offers;
use super::state::Broker;
use crate::id::SourceId;
use crate::record::Want;
use crate::spec::TemplateSpec;

/// Runners of agents of one spec that were begun for the same.
struct Group<'a> {
    /// None where the agent is not heard of yet.
    spec: Option<&'a Arc<TemplateSpec>>,
    want: &'a Want,
    /// Jobs they can still take.
    places: u32,
}

impl Group<'_> {
    fn takes(&self, want: &Want) -> bool {
        self.want == want || self.spec.is_some_and(|spec| offers(spec, self.want, want))
    }
}

impl Broker {
    /// How many jobs of each level of a source have a runner that is there and can still take them:
    /// one that was begun for them, or any other that they fit, since a source gives a job to
    /// whichever of its runners is idle.
    pub(super) fn covered(&self, source: &SourceId) -> Vec<usize> {
        let Some(view) = self.sources.get(source) else { return Vec::new() };
        if view.levels.is_empty() {
            return Vec::new();
        }
        let groups = self.open_runners(source, view.spec.whole);
        let takers = view.levels.iter().map(|level| {
            // Those that were begun for it come first.
            let begun = (0..groups.len()).filter(|group| *groups[*group].want == level.want);
            let fit = |group: &usize| {
                *groups[*group].want != level.want && groups[*group].takes(&level.want)
            };
            begun.chain((0..groups.len()).filter(fit)).collect()
        });
        let takers = takers.collect();
        let mut matching = Matching::new(takers, groups.iter().map(|group| group.places).collect());
        let each = view.levels.iter().enumerate().map(|(place, level)| {
            let jobs = u32::try_from(level.since.len()).unwrap_or(u32::MAX);
            matching.place_many(place, jobs) as usize
        });
        each.collect()
    }

    fn open_runners(&self, source: &SourceId, whole: bool) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (agent, entry) in self.book.placed() {
            if entry.ask.source.as_ref() != Some(source) || entry.releasing {
                continue;
            }
            let spec = self.agents.get(agent).map(|view| &view.spec);
            let most = spec.filter(|_| whole).map_or(1, |spec| spec.places());
            let places = most.saturating_sub(entry.jobs);
            let same = |group: &&mut Group<'_>| {
                let specs = group.spec.zip(spec).map(|(one, other)| Arc::ptr_eq(one, other));
                specs.unwrap_or(group.spec.is_none() && spec.is_none())
                    && *group.want == entry.ask.want
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.places = group.places.saturating_add(places),
                None => groups.push(Group { spec, want: &entry.ask.want, places }),
            }
        }
        groups
    }
}
