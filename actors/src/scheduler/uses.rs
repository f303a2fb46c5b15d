//! All that is wanted at this moment, in the order in which it is served: leases that wait, and
//! jobs of sources beyond those that runners are there for already.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::{LeaseId, SourceId};
use drover_model::record::{Owner, Want};
use drover_model::size::Size;
use drover_model::time::WallTime;

use super::book::Stand;
use super::state::Scheduler;
use super::{Demand, Effect, Source};
use crate::demand::Level;
use crate::demand::share::{Claim, turns};
use crate::effort;

/// A source as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceView {
    pub(super) spec: Arc<SourceSpec>,
    pub(super) levels: Vec<Level>,
}

/// One use that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// Its level's place.
    pub(super) level: usize,
    /// Whose it is.
    pub(super) asker: Asker,
}

/// Who wants a use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asker {
    /// A lease that waits.
    Lease(LeaseId),
    /// Some job of a source, since that moment.
    Job(WallTime),
}

/// All uses that are wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Uses {
    /// One for each kind of demand; uses name them by their place here.
    pub(super) levels: Vec<Demand>,
    /// One by one, those to be served first in front.
    pub(super) turns: Vec<Use>,
}

impl Uses {
    /// Adds a kind, which is new.
    fn add(&mut self, source: &Source, want: &Want, whose: Option<&Owner>) -> usize {
        effort::spend(1);
        self.levels.push(Demand {
            source: source.clone(),
            want: want.clone(),
            whose: whose.cloned(),
            count: 0,
            oldest: WallTime(i64::MAX),
        });
        self.levels.len() - 1
    }
}

/// For whom the uses of a source are: all its runners are the same to it.
pub(crate) fn owner_of(source: &SourceId) -> Owner {
    let name = format!("source:{source}");
    Owner { principal: name.clone(), owner: name }
}

impl Scheduler {
    /// Sources and shares as configured; what sources reported stays theirs.
    pub(super) fn shares(
        &mut self,
        asked: ShareSpec,
        sources: impl Iterator<Item = Arc<SourceSpec>>,
    ) {
        self.asked = asked;
        let mut old = std::mem::take(&mut self.sources);
        for spec in sources {
            let levels = old.remove(&spec.id).map(|view| view.levels).unwrap_or_default();
            self.sources.insert(spec.id.clone(), SourceView { spec, levels });
        }
        for view in old.into_values() {
            self.given_up(view.levels.iter().map(|level| (&level.want, level.since.len())));
        }
    }

    /// A source reports which jobs wait there, and how many run on each of its leases. A level that
    /// is reported twice, or was lost on the way, changes nothing.
    pub(super) fn demanded(
        &mut self,
        source: &SourceId,
        levels: Vec<Level>,
        jobs: impl Iterator<Item = (LeaseId, u32)>,
    ) {
        let before = self.wanted_of(source);
        jobs.for_each(|(lease, jobs)| self.book.jobs(&lease, jobs));
        let Some(view) = self.sources.get_mut(source) else { return };
        view.levels = levels;
        let after = self.wanted_of(source);
        let fewer = before.iter().map(|(want, count)| {
            (want, count.saturating_sub(after.get(want).copied().unwrap_or(0)))
        });
        self.given_up(fewer);
    }

    /// The machine of a source's lease is gone, and its source did not end the lease. The job that the
    /// machine was to serve may have been taken since the last look, which still counts it: nothing is
    /// started for it until the source reports again, and a machine that goes has it asked at once.
    pub(super) fn leave_to_next_look(&mut self, lease: &LeaseId) {
        let Some(source) = self.book.of_source(lease) else { return };
        let Some(entry) = self.book.get(lease).filter(|entry| entry.jobs == 0) else { return };
        let want = entry.ask.want.clone();
        let Some(view) = self.sources.get_mut(&source) else { return };
        if let Some(place) = view.levels.iter().position(|level| level.want == want) {
            view.levels[place].since.pop();
            if view.levels[place].since.is_empty() {
                view.levels.remove(place);
            }
        }
    }

    fn given_up<'a>(&mut self, wants: impl Iterator<Item = (&'a Want, usize)>) {
        for (want, count) in wants.filter(|(_, count)| *count > 0) {
            let all = self.given_up.entry(want.clone()).or_default();
            *all = all.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// What a source wants beyond the runners it has, by kind.
    fn wanted_of(&self, source: &SourceId) -> BTreeMap<Want, usize> {
        let Some(view) = self.sources.get(source) else { return BTreeMap::new() };
        let each = view.levels.iter().zip(self.covered(source));
        each.map(|(level, covered)| (level.want.clone(), level.since.len() - covered)).collect()
    }

    /// Whether a template, or an agent of one that was, serves this.
    pub(super) fn is_served(&self, want: &Want) -> bool {
        !self.servers(want).all.is_empty()
    }

    /// Everything that is wanted at this moment.
    pub(super) fn uses(&self, now: WallTime) -> Uses {
        self.uses_within(now, usize::MAX)
    }

    /// What is wanted at this moment, as far as it may be served: of leases that wait for one thing
    /// one more than there are places at all, so that however many wait costs no more.
    pub(super) fn next_uses(&self, now: WallTime) -> Uses {
        #[cfg(test)]
        if self.looks_at_all {
            return self.uses(now);
        }
        self.uses_within(now, self.places().saturating_add(1))
    }

    /// Uses that agents have or will have room for, with all that may be started.
    fn places(&self) -> usize {
        let of_templates = self.templates.iter().map(|(id, view)| {
            let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
            // Where another size may fit, what fits of its own says nothing.
            let fits = self.fits.get(&(id.clone(), Size::NONE)).copied();
            let fits = fits.filter(|_| view.spec.size_labels.is_none()).unwrap_or(u64::MAX);
            let started = u64::from(view.room.min(cloud)).min(fits) + u64::from(view.pending());
            let uses = started.saturating_mul(u64::from(view.spec.executors.max(1)));
            usize::try_from(uses).unwrap_or(usize::MAX)
        });
        of_templates.fold(self.agents.places(), usize::saturating_add)
    }

    fn uses_within(&self, now: WallTime, most: usize) -> Uses {
        let mut uses = Uses::default();
        let mut claims: Vec<Claim> = Vec::with_capacity(1 + self.sources.len());
        let mut named: Vec<Vec<Use>> = Vec::with_capacity(1 + self.sources.len());
        // Only those for whom an agent is kept differ from all others.
        let waiting = self.book.fronts(&self.agents.owners(), most);
        let mut known: BTreeMap<(&Want, Option<&Owner>), usize> = BTreeMap::new();
        effort::spend(waiting.len());
        let leases = waiting.iter().map(|one| {
            let level = *known
                .entry((one.want, one.whose))
                .or_insert_with_key(|(want, whose)| uses.add(&Source::Leases, want, *whose));
            Use { level, asker: Asker::Lease(one.lease.clone()) }
        });
        named.push(leases.collect());
        let waits = waiting.iter().map(|one| one.place.0).collect();
        claims.push(Claim { share: self.asked, has: self.has(None), waits });
        for (id, view) in &self.sources {
            let source = Source::Named(id.clone());
            let whose = Some(owner_of(id)).filter(|whose| self.agents.is_kept_for(whose));
            let mut jobs: Vec<(WallTime, usize)> = Vec::new();
            // What nobody serves would take a part of the cap from what somebody does.
            let each = view.levels.iter().zip(self.covered(id));
            for (level, covered) in each.filter(|(level, _)| self.is_served(&level.want)) {
                let kind = uses.add(&source, &level.want, whose.as_ref());
                effort::spend(level.since.len());
                jobs.extend(level.since.iter().skip(covered).map(|since| (*since, kind)));
            }
            jobs.sort_unstable();
            let waits = jobs.iter().map(|(since, _)| *since).collect();
            claims.push(Claim { share: view.spec.share, has: self.has(Some(id)), waits });
            let each = jobs.into_iter();
            let each = each.map(|(since, level)| Use { level, asker: Asker::Job(since) });
            named.push(each.collect());
        }
        for turn in turns(&claims, now) {
            let one = named[turn.claim][turn.wait].clone();
            let level = &mut uses.levels[one.level];
            level.count += 1;
            level.oldest = level.oldest.min(claims[turn.claim].waits[turn.wait]);
            uses.turns.push(one);
        }
        uses
    }

    /// Agents or parts of such that a source has by now, or anyone who asks for leases themselves.
    pub(super) fn has(&self, source: Option<&SourceId>) -> u32 {
        u32::try_from(self.book.count_of(source)).unwrap_or(u32::MAX)
    }

    /// Ends a source's lease because its runner is done there, or was taken away.
    pub(super) fn stop_runner(&mut self, lease: &LeaseId, why: &'static str) -> Vec<Effect> {
        let Some(entry) = self.book.get(lease).filter(|entry| entry.ask.source.is_some()) else {
            return Vec::new();
        };
        match entry.stand.clone() {
            Stand::Sent(_) => {
                self.book.releasing(lease);
                Vec::new()
            }
            Stand::On(agent) if !entry.releasing => {
                self.book.releasing(lease);
                vec![Effect::End { agent, lease: lease.clone(), why }]
            }
            Stand::On(_)
            | Stand::Recording
            | Stand::Waiting
            | Stand::Cancelling
            | Stand::Ended(_) => Vec::new(),
        }
    }
}
