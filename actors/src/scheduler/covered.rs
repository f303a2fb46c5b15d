//! Which of the jobs that wait at a source its runners can still take.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::SourceId;
use drover_model::record::Want;

use super::matching::Matching;
use super::routing::{has, offers};
use super::specs::SpecId;
use super::state::Scheduler;
use crate::effort;

/// What makes a difference to the jobs that a runner can be given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ability<'a> {
    /// None where the agent is not heard of yet.
    spec: Option<SpecId>,
    /// The labels it has, where it was started for some.
    labels: Option<BTreeSet<String>>,
    /// What it was started for, where nothing else says that it takes that.
    want: Option<&'a Want>,
}

impl Ability<'_> {
    fn takes(&self, want: &Want, scheduler: &Scheduler) -> bool {
        effort::spend(1);
        self.want == Some(want)
            || self
                .spec
                .and_then(|id| scheduler.specs.get(id))
                .is_some_and(|spec| offers(spec, self.labels.as_ref(), want))
    }
}

/// Open runners that are all alike.
struct Groups<'a> {
    each: Vec<Ability<'a>>,
    /// Jobs they can still take.
    places: Vec<u32>,
    labelled: BTreeMap<String, Vec<usize>>,
    /// Those that were not started for labels.
    others: Vec<usize>,
}

impl Groups<'_> {
    /// Groups that can be given a job: none that can is left out.
    fn candidates(&self, want: &Want) -> Vec<usize> {
        let rarest = match want.plain() {
            Want::Labels(labels) => {
                let of = |label: &String| self.labelled.get(label).map_or(&[][..], Vec::as_slice);
                labels.iter().map(of).min_by_key(|groups| groups.len())
            }
            Want::Template(_) | Want::Expression(_) | Want::Sized(..) => None,
        };
        match rarest {
            Some(groups) => groups.iter().chain(&self.others).copied().collect(),
            None => (0..self.each.len()).collect(),
        }
    }
}

impl Scheduler {
    /// How many jobs of each level of a source have a runner that is there and can still take them:
    /// one that was started for them, or any other that they fit, since a source gives a job to
    /// whichever of its runners is idle.
    pub(super) fn covered(&self, source: &SourceId) -> Vec<usize> {
        let Some(view) = self.sources.get(source) else { return Vec::new() };
        if view.levels.is_empty() {
            return Vec::new();
        }
        let groups = self.open_runners(source, view.spec.whole);
        // Levels that the same runners take are of one class.
        let mut classes: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let of: Vec<usize> = view
            .levels
            .iter()
            .map(|level| {
                let mut takers = groups.candidates(&level.want);
                takers.retain(|group| groups.each[*group].takes(&level.want, self));
                let next = classes.len();
                *classes.entry(takers).or_insert(next)
            })
            .collect();
        let mut serves = vec![Vec::new(); classes.len()];
        for (takers, class) in classes {
            serves[class] = takers;
        }
        let mut matching = Matching::new(serves, groups.places);
        let each = view.levels.iter().zip(of).map(|(level, class)| {
            let jobs = u32::try_from(level.since.len()).unwrap_or(u32::MAX);
            matching.place_many(class, jobs) as usize
        });
        each.collect()
    }

    fn open_runners(&self, source: &SourceId, whole: bool) -> Groups<'_> {
        let mut known: BTreeMap<Ability<'_>, u32> = BTreeMap::new();
        for (agent, entry) in self.book.placed_of(Some(source)) {
            effort::spend(1);
            if entry.releasing {
                continue;
            }
            let view = self.agents.get(agent);
            let most = view.filter(|_| whole).map_or(1, |view| view.spec.places());
            let places = most.saturating_sub(entry.jobs);
            let started_for = &entry.ask.want;
            let labels = view.and_then(|view| has(&view.spec, started_for));
            let reported =
                view.is_some_and(|view| offers(&view.spec, labels.as_ref(), started_for));
            let want = (!reported).then_some(started_for);
            let ability = Ability { spec: view.map(|view| view.kind), labels, want };
            let count = known.entry(ability).or_default();
            *count = count.saturating_add(places);
        }
        let (each, places): (Vec<_>, Vec<_>) = known.into_iter().unzip();
        let mut labelled: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut others = Vec::new();
        for (group, ability) in each.iter().enumerate() {
            for label in ability.labels.iter().flatten() {
                labelled.entry(label.clone()).or_default().push(group);
            }
            if ability.labels.is_none() {
                others.push(group);
            }
        }
        Groups { each, places, labelled, others }
    }
}
