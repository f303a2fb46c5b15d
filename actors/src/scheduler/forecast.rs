//! In how long a use is served, foreseen from how long agents took to be ready and uses lasted: places
//! come free one after another, and each use before it takes the first of them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use drover_model::demand::report::Serving;
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::specs::SpecId;
use super::state::Scheduler;

/// Places that are looked at, and uses before it that take one each: more are not kept apart.
const MOST: usize = 10_000;

/// Something that outlasts its mean is over soon, as far as anybody knows: after this part of the mean.
const OVERDUE: u32 = 4;

/// A use that has lasted for more than this many means, and for this much more than one, has
/// outlasted its mean by far: the mean says nothing of its end.
const OUTLASTED: u32 = 3;
const OUTLASTED_BY: Duration = Duration::from_secs(20);

/// Of what nobody knows when it is: longer than all that is foreseen, and sums do not overflow.
const UNKNOWN: Duration = Duration::from_secs(u64::MAX / 2);

/// When a use has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreseen {
    /// In so long.
    In(Duration),
    /// When a use ends that has outlasted by far what uses lasted so far, which is this.
    Outlasted(Duration),
    /// Nothing says how long that takes.
    Unknown,
}

/// A place of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// In how long it is free.
    free: Duration,
    /// For how long a use keeps it, until the next can have it or another in its stead.
    kept: Duration,
}

/// What is left of something that takes `mean` and has taken `elapsed`.
fn left(mean: Duration, elapsed: Duration) -> Duration {
    mean.checked_sub(elapsed).filter(|left| !left.is_zero()).unwrap_or(mean / OVERDUE)
}

/// What is left of a use of `elapsed` where uses last `mean`; none where it has outlasted that by
/// far.
fn left_of_use(mean: Duration, elapsed: Duration) -> Option<Duration> {
    let most = mean.saturating_mul(OUTLASTED).max(mean.saturating_add(OUTLASTED_BY));
    (elapsed <= most).then(|| left(mean, elapsed))
}

/// When the place of a use of `elapsed` comes free where uses last `mean`; such a mean that the use
/// has outlasted by far goes to `outlasted`, and the place is free in a time that is unknown.
fn freed(mean: Duration, elapsed: Duration, outlasted: &mut Vec<Duration>) -> Duration {
    left_of_use(mean, elapsed).unwrap_or_else(|| {
        outlasted.push(mean);
        UNKNOWN
    })
}

/// Whether an agent goes after its first uses. Where nobody said how many it serves, jobs of a source
/// find no guest that one was in before.
pub(super) fn goes_after_one(spec: &TemplateSpec, of_source: bool) -> bool {
    let by_source = of_source && spec.reset.is_none();
    spec.max_uses.map_or(by_source, |most| most <= spec.executors.max(1))
}

/// When the use behind `ahead` others has a place, where uses of such means have outlasted them.
fn foreseen(places: Vec<Place>, ahead: usize, outlasted: &[Duration]) -> Foreseen {
    match turn(places, ahead).filter(|span| *span < UNKNOWN) {
        Some(span) => Foreseen::In(span),
        None => outlasted.iter().min().map_or(Foreseen::Unknown, |mean| Foreseen::Outlasted(*mean)),
    }
}

/// When the use behind `ahead` others has a place.
fn turn(places: Vec<Place>, ahead: usize) -> Option<Duration> {
    let mut places: BinaryHeap<Reverse<Place>> = places.into_iter().map(Reverse).collect();
    for _ in 0..ahead.min(MOST) {
        let Reverse(first) = places.pop()?;
        places.push(Reverse(Place { free: first.free.saturating_add(first.kept), ..first }));
    }
    places.pop().map(|Reverse(first)| first.free)
}

impl Scheduler {
    /// In how long the use behind `ahead` others has a place on agents of these templates; of those on
    /// their way, agents of these specs.
    pub(super) fn foresee(
        &self,
        (able, fit): (&[&Serving], &BTreeSet<SpecId>),
        ahead: usize,
        of_source: bool,
        now: WallTime,
    ) -> Foreseen {
        let (mut places, mut outlasted) = (Vec::new(), Vec::new());
        for one in able {
            let Some(ready) = one.until_ready else { continue };
            let Some(view) = self.templates.get(&one.template) else { continue };
            let executors = view.spec.executors.max(1);
            let again = |of_source| match goes_after_one(&view.spec, of_source) {
                true => ready,
                false => Duration::ZERO,
            };
            // Where no use has ended yet, what is taken is not free again in a time that is known.
            let kept = one.of_uses.map_or(UNKNOWN, |lasts| lasts + again(of_source));
            let mut add = |free, count: u32| {
                let room = MOST.saturating_sub(places.len());
                let place = Place { free, kept };
                places.extend(std::iter::repeat_n(place, room.min(count as usize)));
            };
            add(Duration::ZERO, one.free);
            add(ready, (view.pending() + one.room).saturating_mul(executors));
            for agent in self.agents.values().filter(|agent| agent.spec.id == one.template) {
                match agent.status.standing {
                    Standing::Coming if !agent.going && !fit.contains(&agent.kind) => {}
                    Standing::Coming if !agent.going => {
                        let elapsed = agent.started.map_or(Duration::ZERO, |started| now - started);
                        add(left(ready, elapsed), executors);
                    }
                    // Its permit is another's soon.
                    Standing::Coming | Standing::Leaving => add(ready, executors),
                    Standing::Free { .. } | Standing::Busy | Standing::Parked | Standing::Gone => {}
                }
            }
            let Some(lasts) = one.of_uses else { continue };
            for (agent, entry) in self.book.placed() {
                let is_its = |view: &super::AgentView| view.spec.id == one.template;
                if self.agents.get(agent).is_some_and(is_its) {
                    let elapsed = entry.sent.map_or(Duration::ZERO, |sent| now - sent);
                    let free = freed(lasts, elapsed, &mut outlasted);
                    add(free + again(entry.ask.source.is_some()), 1);
                }
            }
        }
        foreseen(places, ahead, &outlasted)
    }

    /// In how long one of a source's own uses ends, or of anyone who asks for leases themselves, after
    /// `older` others have taken the place of one each; a use lasts so long where nothing is known
    /// of its template, and keeps its place for so long until another use begins in it.
    pub(super) fn own_turn(
        &self,
        source: Option<&drover_model::id::SourceId>,
        older: usize,
        (lasts, again): (Duration, Duration),
        now: WallTime,
    ) -> Foreseen {
        let (mut places, mut outlasted) = (Vec::new(), Vec::new());
        for (agent, entry) in self.book.placed_of(source).take(MOST) {
            let template = self.agents.get(agent).map(|view| &view.spec.id);
            let lasts = template.and_then(|id| self.start_backoff.of_uses(id)).unwrap_or(lasts);
            let elapsed = entry.sent.map_or(Duration::ZERO, |sent| now - sent);
            places.push(Place { free: freed(lasts, elapsed, &mut outlasted), kept: again });
        }
        foreseen(places, older, &outlasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    // Invariant: each use before it takes the first place that comes free, and gives it back.

    #[test]
    fn places_are_taken_in_turn_and_come_free_again() {
        let places = |free: &[u64]| -> Vec<Place> {
            free.iter().map(|free| Place { free: s(*free), kept: s(100) }).collect()
        };
        assert_eq!(turn(places(&[90, 10]), 0), Some(s(10)));
        assert_eq!(turn(places(&[90, 10]), 1), Some(s(90)));
        assert_eq!(turn(places(&[90, 10]), 2), Some(s(110)));
        assert_eq!(turn(places(&[90, 10]), 5), Some(s(290)));
        assert_eq!(turn(Vec::new(), 0), None);
    }

    #[test]
    fn places_that_nobody_knows_to_come_free_again_are_taken_by_any_number() {
        let places = vec![Place { free: s(40), kept: UNKNOWN }];
        assert_eq!(foreseen(places.clone(), 0, &[]), Foreseen::In(s(40)));
        assert_eq!(foreseen(places, 5, &[]), Foreseen::Unknown);
    }

    #[test]
    fn a_use_that_outlasts_its_mean_by_far_is_foreseen_by_nobody() {
        assert_eq!(left_of_use(s(100), s(300)), Some(s(25)));
        assert_eq!(left_of_use(s(100), s(301)), None);
        assert_eq!(left_of_use(s(4), s(24)), Some(s(1)), "seconds are no long time");
        assert_eq!(left_of_use(s(4), s(25)), None);
        let place = |free| Place { free, kept: s(100) };
        let both = vec![place(UNKNOWN), place(s(10))];
        assert_eq!(foreseen(both, 1, &[s(3)]), Foreseen::In(s(110)), "the other one serves");
        let outlasted = foreseen(vec![place(UNKNOWN)], 2, &[s(9), s(3)]);
        assert_eq!(outlasted, Foreseen::Outlasted(s(3)));
    }

    #[test]
    fn what_outlasts_its_mean_is_over_soon() {
        assert_eq!(left(s(100), s(30)), s(70));
        assert_eq!(left(s(100), s(90)), s(10));
        assert_eq!(left(s(100), s(500)), s(25));
    }
}
