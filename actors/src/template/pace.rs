//! How soon a template is tried again after failures that nobody is to blame for (contention, a
//! silent cluster): they never trip the breaker, and they must not be repeated at full speed.

use std::time::Duration;

use drover_model::time::Moment;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// The longest pause after an agent for which there was no place, and how often the cluster is looked at
/// while there is none: nothing is asked of it but what it has.
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// A growing pause between starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    in_a_row: u32,
    until: Option<Moment>,
    /// Whether the last agent had a place, and the cluster did not do what it was asked for.
    placed: bool,
}

impl Pace {
    /// An agent ended before it was ready, through nobody's fault.
    ///
    /// Agents that end during a pause were started together with the one that caused it, and do
    /// not lengthen it. One that was not `placed` can be tried again soon.
    pub fn stumbled(&mut self, placed: bool, now: Moment) {
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let longest = if placed { LONGEST } else { LONGEST_LOOK };
        let pause = FIRST.saturating_mul(1 << self.in_a_row.min(6)).min(longest);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.until = Some(now + pause);
        self.placed = placed;
    }

    /// An agent got ready.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// There may be a place again: the pause of an agent without one is over.
    pub fn place_opened(&mut self) {
        if !self.placed {
            *self = Self::default();
        }
    }

    /// When the cluster is asked again for what it did not do; none where no place was found.
    pub fn retry(&self, now: Moment) -> Option<Moment> {
        self.pause(now).filter(|_| self.placed)
    }

    /// When starts go on, while they pause.
    pub fn pause(&self, now: Moment) -> Option<Moment> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: contention slows starts down and never stops them.

    #[test]
    fn the_pause_doubles_to_a_minute_and_ends_with_a_success() {
        let mut pace = Pace::default();
        let mut now = Moment(0);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pace.stumbled(true, now);
            let until = pace.pause(now).unwrap_or_default();
            pauses.push((until - now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        pace.succeeded();
        assert_eq!(pace.pause(now), None);
    }

    #[test]
    fn a_place_is_looked_for_again_within_ten_seconds() {
        let mut pace = Pace::default();
        let mut now = Moment(0);
        for longest in [1, 2, 4, 8, 10, 10] {
            pace.stumbled(false, now);
            let until = pace.pause(now).unwrap_or_default();
            assert_eq!((until - now).as_secs(), longest);
            now = until;
        }
    }

    // Invariant: a place that opens ends the wait for one, and never the wait for a busy cluster.

    #[test]
    fn a_pause_without_a_place_ends_when_one_opens_and_any_other_stays() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            let at = pace.until.unwrap_or_default();
            pace.stumbled(false, at);
        }
        let now = pace.until.unwrap_or_default();
        pace.stumbled(false, now);
        pace.place_opened();
        assert_eq!(pace.pause(now), None);
        pace.stumbled(false, now);
        assert_eq!(pace.pause(now), Some(now + FIRST), "it begins small again");
        pace.stumbled(true, now + FIRST);
        let paused = pace.clone();
        pace.place_opened();
        assert_eq!(pace, paused);
    }

    // Invariant: a time is named only where the next try may succeed by itself.

    #[test]
    fn a_retry_has_a_time_only_after_an_agent_that_had_a_place() {
        let mut pace = Pace::default();
        pace.stumbled(false, Moment(0));
        assert_eq!((pace.retry(Moment(0)), pace.pause(Moment(0))), (None, Some(Moment(1000))));
        pace.stumbled(true, Moment(1000));
        assert_eq!(pace.retry(Moment(1000)), Some(Moment(3000)));
    }

    #[test]
    fn agents_that_stumble_together_count_as_one() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.stumbled(true, Moment(10));
        }
        assert_eq!(pace.pause(Moment(10)), Some(Moment(1010)));
    }
}
