//! In how long a use is served, foreseen from how long agents took to be ready and uses lasted: places
//! come free one after another, and each use before it takes the first of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use drover_model::demand::report::Serving;
use drover_model::spec::TemplateSpec;
use drover_model::time::WallTime;

use super::state::Broker;
use crate::message::Standing;

/// Places that are looked at, and uses before it that take one each: more are not told apart.
const MOST: usize = 10_000;

/// Something that outlasts its mean is over soon, as far as anybody knows: after this part of the mean.
const OVERDUE: u32 = 4;

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

/// Whether an agent goes after its first uses. Where nobody said how many it serves, jobs of a source
/// find no guest that one was in before.
pub(super) fn goes_after_one(spec: &TemplateSpec, of_source: bool) -> bool {
    let by_source = of_source && spec.reset.is_none();
    spec.max_uses.map_or(by_source, |most| most <= spec.executors.max(1))
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

impl Broker {
    /// In how long the use behind `ahead` others has a place on agents of these templates; none where
    /// nothing says how long that takes.
    pub(super) fn foresee(
        &self,
        able: &[&Serving],
        ahead: usize,
        of_source: bool,
        now: WallTime,
    ) -> Option<Duration> {
        let mut places = Vec::new();
        for one in able {
            let Some(ready) = one.until_ready else { continue };
            let Some(view) = self.templates.get(&one.template) else { continue };
            let executors = view.spec.executors.max(1);
            let again = |of_source| match goes_after_one(&view.spec, of_source) {
                true => ready,
                false => Duration::ZERO,
            };
            // Where no use has ended yet, what is taken is not free again in a time that is known.
            let kept = one.of_uses.map_or(Duration::MAX / 2, |lasts| lasts + again(of_source));
            let mut add = |free, count: u32| {
                let room = MOST.saturating_sub(places.len());
                let place = Place { free, kept };
                places.extend(std::iter::repeat_n(place, room.min(count as usize)));
            };
            add(Duration::ZERO, one.free);
            add(ready, (view.pending + one.room).saturating_mul(executors));
            for agent in self.agents.values().filter(|agent| agent.spec.id == one.template) {
                match agent.standing {
                    Standing::Coming if !agent.going => {
                        let elapsed = agent.begun.map_or(Duration::ZERO, |begun| now - begun);
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
                    add(left(lasts, elapsed) + again(entry.ask.source.is_some()), 1);
                }
            }
        }
        turn(places, ahead).filter(|span| *span < Duration::MAX / 4)
    }

    /// In how long one of a source's own uses ends, or of whoever asks for leases themselves, after
    /// `older` others have taken the place of one each; a use lasts so long, and keeps its place for so
    /// long until another use begins in it.
    pub(super) fn own_turn(
        &self,
        source: Option<&drover_model::id::SourceId>,
        older: usize,
        (lasts, again): (Duration, Duration),
        now: WallTime,
    ) -> Option<Duration> {
        let own = self.book.placed_of(source).take(MOST);
        let places = own.map(|(_, entry)| {
            let elapsed = entry.sent.map_or(Duration::ZERO, |sent| now - sent);
            Place { free: left(lasts, elapsed), kept: again }
        });
        turn(places.collect(), older)
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
        let places = vec![Place { free: s(40), kept: Duration::MAX / 2 }];
        assert!(turn(places, 5).is_some_and(|span| span > Duration::MAX / 4));
    }

    #[test]
    fn what_outlasts_its_mean_is_over_soon() {
        assert_eq!(left(s(100), s(30)), s(70));
        assert_eq!(left(s(100), s(90)), s(10));
        assert_eq!(left(s(100), s(500)), s(25));
    }
}
