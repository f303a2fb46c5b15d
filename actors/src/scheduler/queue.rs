//! Leases that wait, by what they want: kept from one decision to the next, so that a decision looks
//! at as many of them as it may serve, and not at all.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::LeaseId;
use drover_model::record::{LeaseAsk, Owner, Want};
use drover_model::time::WallTime;

/// The place of a lease in the order of asking.
pub(super) type Place = (WallTime, u64);

/// Leases of one want.
#[derive(Debug, Clone, Default)]
struct Line {
    all: BTreeMap<Place, (LeaseId, Owner)>,
    /// The same, by whom they are for.
    owners: BTreeMap<Owner, BTreeSet<Place>>,
}

/// All leases that wait.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    all: BTreeMap<Place, LeaseId>,
    lines: BTreeMap<Want, Line>,
    /// When the wait of each is over.
    ends: BTreeSet<(WallTime, LeaseId)>,
}

/// A lease in front of its line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Front<'a> {
    pub(super) place: Place,
    pub(super) lease: &'a LeaseId,
    pub(super) want: &'a Want,
    /// For whom, where that was asked for.
    pub(super) whose: Option<&'a Owner>,
}

impl Queue {
    pub(super) fn enter(&mut self, place: Place, ask: &LeaseAsk, until: WallTime) {
        self.all.insert(place, ask.lease.clone());
        let whose = ask.whose();
        let line = self.lines.entry(ask.want.clone()).or_default();
        line.owners.entry(whose.clone()).or_default().insert(place);
        line.all.insert(place, (ask.lease.clone(), whose));
        self.ends.insert((until, ask.lease.clone()));
    }

    pub(super) fn leave(&mut self, place: Place, ask: &LeaseAsk, until: WallTime) {
        if self.all.remove(&place).is_none() {
            return;
        }
        self.ends.remove(&(until, ask.lease.clone()));
        let Some(line) = self.lines.get_mut(&ask.want) else { return };
        if let Some((_, whose)) = line.all.remove(&place)
            && let Some(places) = line.owners.get_mut(&whose)
        {
            places.remove(&place);
            if places.is_empty() {
                line.owners.remove(&whose);
            }
        }
        if line.all.is_empty() {
            self.lines.remove(&ask.want);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &LeaseId> {
        self.all.values()
    }

    /// What is wanted, each once.
    pub(super) fn wants(&self) -> impl Iterator<Item = &Want> {
        self.lines.keys()
    }

    /// Those that want this, the oldest first.
    pub(super) fn of(&self, want: &Want) -> impl Iterator<Item = &LeaseId> {
        let line = self.lines.get(want).into_iter();
        line.flat_map(|line| line.all.values().map(|(lease, _)| lease))
    }

    /// The first `most` of each kind, all in the order of asking. A kind is a want, and for whom
    /// where those are of `kept`.
    pub(super) fn fronts(&self, kept: &BTreeSet<&Owner>, most: usize) -> Vec<Front<'_>> {
        let mut fronts = Vec::new();
        for (want, line) in &self.lines {
            let mut apart = 0;
            for (whose, places) in line.owners.iter().filter(|(whose, _)| kept.contains(whose)) {
                apart += places.len();
                let first = places.iter().take(most).filter_map(|place| {
                    let (lease, _) = line.all.get(place)?;
                    Some(Front { place: *place, lease, want, whose: Some(whose) })
                });
                fronts.extend(first);
            }
            let others = (line.all.len() - apart).min(most);
            let each = line.all.iter().filter(|(_, (_, whose))| !kept.contains(whose));
            fronts.extend(each.take(others).map(|(place, (lease, _))| Front {
                place: *place,
                lease,
                want,
                whose: None,
            }));
        }
        fronts.sort_unstable();
        fronts
    }

    /// The first moment at which somebody's wait is over.
    pub(super) fn first_end(&self) -> Option<WallTime> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Those whose wait is over.
    pub(super) fn over(&self, now: WallTime) -> Vec<LeaseId> {
        let over = self.ends.iter().take_while(|(at, _)| *at <= now);
        over.map(|(_, lease)| lease.clone()).collect()
    }

    /// Those asked for later than now: the clock was ahead.
    pub(super) fn ahead(&self, now: WallTime) -> Vec<LeaseId> {
        self.all.range((WallTime(now.0.saturating_add(1)), 0)..).map(|(_, id)| id.clone()).collect()
    }
}
