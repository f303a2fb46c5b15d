//! Bounds of leases that wait, drawn by dice of their own for a part of the seeds: how many may, and for
//! how long. Anyone who comes to too many is refused, and nobody waits longer than that.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::id::LeaseId;
use drover_model::record::{Body, LeaseAsk};
use drover_model::time::WallTime;

use super::draw::one_of;
use super::plan::Plan;
use super::watch::Watch;

/// How long a lease that found its agent may count as waiting: for as long as its grant may take to be
/// written down.
const GRANTED: Duration = Duration::from_secs(10);
/// How late the end of a wait may be, after it and after a start.
const LATE: Duration = Duration::from_secs(15);

/// Bounds what waits in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("waits");
    if dice.below(3) > 0 {
        return;
    }
    plan.stage.waiting = one_of(&mut dice, &[0, 1, 2, 3]);
    plan.stage.wait = one_of(&mut dice, &[0, 20, 60, 240]);
}

/// Leases that wait, as records say.
#[derive(Debug, Default)]
pub(super) struct Waits {
    asks: BTreeMap<LeaseId, LeaseAsk>,
    since: BTreeMap<LeaseId, WallTime>,
    /// When the service started last.
    started: WallTime,
}

impl Waits {
    /// The service starts, and knows that these wait.
    pub(super) fn begin<'a>(&mut self, waiting: impl Iterator<Item = &'a LeaseAsk>, now: WallTime) {
        self.started = now;
        self.since.clear();
        for ask in waiting {
            self.since.insert(ask.lease.clone(), now);
            self.ask(ask, now);
        }
    }

    /// One that was asked for before the clock was set back waits from now on.
    fn ask(&mut self, ask: &LeaseAsk, now: WallTime) {
        let asked = ask.asked.min(now);
        self.asks.insert(ask.lease.clone(), LeaseAsk { asked, ..ask.clone() });
    }

    /// Every wall time that is kept.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut WallTime> {
        let asked = self.asks.values_mut().map(|ask| &mut ask.asked);
        asked.chain(self.since.values_mut()).chain([&mut self.started])
    }

    /// A record was taken; what is wrong with it, if anything.
    pub(super) fn record(&mut self, body: &Body, most: u32, now: WallTime) -> Option<String> {
        match body {
            Body::LeaseAsked(ask) => {
                let long = self.since.values().filter(|since| now - **since > GRANTED).count();
                self.ask(ask, now);
                self.since.insert(ask.lease.clone(), now);
                (long >= most as usize)
                    .then(|| format!("{} is the {}th to wait", ask.lease, long + 1))
            }
            Body::LeaseReturned { lease, .. } if self.asks.contains_key(lease) => {
                self.since.insert(lease.clone(), now);
                None
            }
            Body::LeaseGranted { ask, .. } => {
                self.since.remove(&ask.lease);
                None
            }
            Body::LeaseEnded { lease, .. } => {
                self.since.remove(lease);
                None
            }
            _ => None,
        }
    }

    /// Until when a lease waits.
    pub(super) fn until(&self, lease: &LeaseId, wait: Duration) -> Option<WallTime> {
        let ask = self.asks.get(lease)?;
        Some(ask.asked + ask.wait_ms.map_or(wait, Duration::from_millis))
    }

    /// One that waits longer than it may.
    fn late(&self, wait: Duration, now: WallTime) -> Option<&LeaseId> {
        let mut all = self.since.iter().filter(|(lease, since)| {
            let until = self.until(lease, wait).map(|until| until.max(self.started).max(**since));
            until.is_some_and(|until| until + LATE < now)
        });
        all.next().map(|(lease, _)| lease)
    }
}

impl Watch {
    /// Looks for leases that wait longer than they may.
    pub fn overdue(&self) {
        let mut seen = self.seen();
        let wait = seen.spec.leases.wait;
        let now = self.wall(&seen);
        if let Some(lease) = seen.waits.late(wait, now).cloned() {
            self.blame(
                &mut seen,
                "nobody-waits-longer-than-said",
                format!("{lease} after {wait:?}"),
            );
        }
    }
}
