//! Wall clocks that somebody sets while the service runs or is down, drawn by dice of their own for a
//! part of the seeds, and the times that the eye of a storm keeps, which move along.

use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::time::WallTime;

use super::draw::one_of;
use super::plan::{Deed, Event, Plan};
use super::seen::Seen;
use super::watch::{REST, Watch};

/// Whole weeks leave windows of schedules where they were; what is short is no step, or hardly one.
const STEPS: [i64; 6] = [-7 * 24 * 3600, -600, -8, 20, 600, 7 * 24 * 3600];
/// So long before a cut a clock is set at most, in milliseconds.
const BEFORE: u64 = 50;
/// More milliseconds than this are a step.
const STEP: u64 = 10_000;
/// Nothing of a storm is further ahead, but by a clock that was set.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a lease may last beyond its end where nothing is in the way.
const LATE: Duration = Duration::from_secs(60);

/// Adds them to a plan in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("clocks");
    if dice.below(4) > 0 {
        return;
    }
    let cut = |event: &&Event| event.deed.cuts();
    let cuts: Vec<u64> = plan.events.iter().filter(cut).map(|event| event.at).collect();
    let mut times: Vec<u64> = (0..2).map(|_| 20_000 + dice.below(300_000)).collect();
    times.extend(cuts.iter().map(|at| at.saturating_sub(dice.below(BEFORE))));
    for at in times {
        plan.events.push(Event { at, deed: Deed::Clock(one_of(&mut dice, &STEPS)) });
    }
    plan.events.sort_by_key(|event| event.at);
}

impl Watch {
    /// The service starts: what its clock was set by while nobody wrote that down. Backward nothing
    /// that lies ahead is judged by its time any more, forward leases end early.
    pub(super) fn clock_at_start(&self, seen: &mut Seen) {
        let set = self.set.load(Ordering::Acquire);
        let by_ms = set - std::mem::replace(&mut seen.set, set);
        let now = self.wall(seen);
        if by_ms > 0 {
            seen.harmed = true;
        }
        // A step that was not written down makes rests shorter, and ends lie too far ahead.
        seen.freed.retain(|_, (_, freed)| *freed + REST > now);
        if by_ms.unsigned_abs() > STEP {
            seen.addresses.forget_rests();
            // How much of several such steps the service can see hangs on what it wrote between them.
            seen.freed.clear();
        }
        let ahead = seen.times().filter(|time| **time > now + DAY);
        ahead.for_each(|time| *time = now);
        if by_ms < 0 {
            // A rest is no longer than its span, however far ahead its end was written.
            seen.rests().for_each(|time| *time = time.shifted(by_ms));
            let spans = seen.leases.values_mut().filter_map(|lease| lease.ends.as_mut());
            spans.for_each(|(ends, span)| *ends = self.now() + *span);
        }
    }

    /// The service writes something down, and before it that its clock was set.
    pub(super) fn clock_written(&self, seen: &mut Seen) {
        let by_ms = self.set.load(Ordering::Acquire) - seen.set;
        if by_ms.unsigned_abs() > STEP {
            seen.set += by_ms;
            seen.times().for_each(|time| *time = time.shifted(by_ms));
        }
    }

    /// By how much the clock was set in steps that are too small to be written down. The next large step
    /// takes them along, also for what was written between them.
    pub(super) fn hidden(&self, seen: &Seen) -> Duration {
        Duration::from_millis((self.set.load(Ordering::Acquire) - seen.set).unsigned_abs())
    }

    /// Looks for leases that outlive what they were granted for, where nothing has been in the way.
    pub fn late_leases(&self) {
        let mut seen = self.seen();
        let now = self.now();
        let late = seen.leases.iter().find_map(|(id, lease)| {
            let (ends, span) = lease.ends.filter(|_| lease.over.is_none())?;
            (ends + LATE < now).then(|| format!("{id}, of {span:?}, should be over since {ends:?}"))
        });
        if let Some(text) = late {
            self.blame(&mut seen, "nothing-outlives-its-span", text);
        }
    }
}

impl Seen {
    /// Every wall time that is kept.
    fn times(&mut self) -> impl Iterator<Item = &mut WallTime> {
        let leases = self.leases.values_mut().filter_map(|lease| lease.expires.as_mut());
        let trips = self.trips.values_mut().map(|trip| &mut trip.until);
        let freed = self.freed.values_mut().map(|(_, at)| at);
        freed.chain(leases).chain(trips).chain(self.places.times()).chain(self.waits.times())
    }

    /// The ends of what templates and places rest.
    fn rests(&mut self) -> impl Iterator<Item = &mut WallTime> {
        let trips = self.trips.values_mut().map(|trip| &mut trip.until);
        trips.chain(self.places.times())
    }
}
