//! All that is wanted at this moment, in the order in which it is served: leases that wait, and
//! jobs of sources beyond those that runners are there for already.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::book::Stand;
use super::state::Broker;
use super::{Demand, Order, Source};
use crate::demand::Level;
use crate::demand::report::Unoffered;
use crate::demand::share::{Claim, turns};
use crate::demand::spec::{ShareSpec, SourceSpec};
use crate::id::{LeaseId, SourceId};
use crate::record::{LeaseAsk, Owner, Want};
use crate::time::WallTime;

/// A source as the broker sees it.
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
    /// By kind.
    pub(super) levels: Vec<Demand>,
    /// One by one, those to be served first in front.
    pub(super) turns: Vec<Use>,
}

impl Uses {
    /// The kind of a use, which is made where it is new.
    fn level(&mut self, source: &Source, want: &Want, whose: Option<&Owner>) -> usize {
        let same = |level: &Demand| {
            level.source == *source && level.want == *want && level.whose.as_ref() == whose
        };
        self.levels.iter().position(same).unwrap_or_else(|| {
            self.levels.push(Demand {
                source: source.clone(),
                want: want.clone(),
                whose: whose.cloned(),
                count: 0,
                oldest: WallTime(i64::MAX),
            });
            self.levels.len() - 1
        })
    }
}

/// For whom the uses of a source are: all its runners are the same to it.
pub(crate) fn owner_of(source: &SourceId) -> Owner {
    let name = format!("source:{source}");
    Owner { principal: name.clone(), owner: name }
}

impl Broker {
    /// Sources and shares as configured; what sources told stays theirs.
    pub fn shares(&mut self, asked: ShareSpec, sources: impl Iterator<Item = Arc<SourceSpec>>) {
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

    /// A source tells which jobs wait there, and how many run on each of its leases. A level that
    /// is told twice, or was lost on the way, changes nothing.
    pub fn demanded(
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
        let fewer: Vec<(Want, usize)> = before
            .into_iter()
            .map(|(want, count)| {
                let left = after.iter().find(|(other, _)| *other == want);
                (want, count.saturating_sub(left.map_or(0, |(_, count)| *count)))
            })
            .collect();
        self.given_up(fewer.iter().map(|(want, count)| (want, *count)));
    }

    fn given_up<'a>(&mut self, wants: impl Iterator<Item = (&'a Want, usize)>) {
        for (want, count) in wants {
            self.given_up.extend(std::iter::repeat_n(want.clone(), count));
        }
    }

    /// What a source wants beyond the runners it has, by kind.
    fn wanted_of(&self, source: &SourceId) -> Vec<(Want, usize)> {
        let Some(view) = self.sources.get(source) else { return Vec::new() };
        let each = view.levels.iter().zip(self.covered(source));
        each.map(|(level, covered)| (level.want.clone(), level.since.len() - covered)).collect()
    }

    /// What the jobs that a source told want and no configured template offers.
    pub fn not_offered(&self, source: &SourceId) -> Vec<Unoffered> {
        let Some(view) = self.sources.get(source) else { return Vec::new() };
        let offered = |want: &Want| {
            let mut all = self.templates.values().filter(|view| view.configured);
            all.any(|view| self.serves(&view.spec, want))
        };
        let without = view.levels.iter().filter(|level| !offered(&level.want));
        let each = without
            .map(|level| Unoffered { want: level.want.clone(), lacks: self.shortage(&level.want) });
        each.collect()
    }

    /// Whether a template, or an agent of one that was, serves this.
    pub(super) fn is_served(&self, want: &Want) -> bool {
        let mut specs = self.templates.values().map(|view| &view.spec);
        specs.any(|spec| self.serves(spec, want))
            || self.agents.values().any(|view| self.serves(&view.spec, want))
    }

    /// Everything that is wanted at this moment.
    pub(super) fn uses(&self, now: WallTime) -> Uses {
        let mut uses = Uses::default();
        let mut claims: Vec<Claim> = Vec::with_capacity(1 + self.sources.len());
        let mut named: Vec<Vec<Use>> = Vec::with_capacity(1 + self.sources.len());
        let kept: BTreeSet<&Owner> =
            self.agents.values().filter_map(|view| view.owner.as_ref()).collect();
        let waiting: Vec<&LeaseAsk> = self.book.waiting().collect();
        let leases = waiting.iter().map(|ask| {
            // Only those for whom an agent is kept differ from all others.
            let whose = if kept.is_empty() { None } else { Some(ask.whose()) };
            let whose = whose.filter(|whose| kept.contains(whose));
            let level = uses.level(&Source::Leases, &ask.want, whose.as_ref());
            Use { level, asker: Asker::Lease(ask.lease.clone()) }
        });
        named.push(leases.collect());
        let waits = waiting.iter().map(|ask| ask.asked).collect();
        claims.push(Claim { share: self.asked, has: self.has(None), waits });
        for (id, view) in &self.sources {
            let source = Source::Named(id.clone());
            let whose = Some(owner_of(id)).filter(|whose| kept.contains(whose));
            let mut jobs: Vec<(WallTime, usize)> = Vec::new();
            // What nobody serves would take a part of the cap from what somebody does.
            let each = view.levels.iter().zip(self.covered(id));
            for (level, covered) in each.filter(|(level, _)| self.is_served(&level.want)) {
                let kind = uses.level(&source, &level.want, whose.as_ref());
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

    /// Agents or parts of such that a source has by now, or whoever asks for leases themselves.
    pub(super) fn has(&self, source: Option<&SourceId>) -> u32 {
        let placed = self.book.placed().filter(|(_, entry)| entry.ask.source.as_ref() == source);
        u32::try_from(placed.count()).unwrap_or(u32::MAX)
    }

    /// Ends a source's lease because its runner is done there, or was taken away.
    pub fn dismiss(&mut self, lease: &LeaseId, why: &'static str) -> Vec<Order> {
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
                vec![Order::End { agent, lease: lease.clone(), why }]
            }
            Stand::On(_)
            | Stand::Recording
            | Stand::Waiting
            | Stand::Cancelling
            | Stand::Ended(_) => Vec::new(),
        }
    }
}
