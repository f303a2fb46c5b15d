//! GitHub's rate limit: what remains is spread over the time until the limit resets, a part is
//! reserved
//! for making and removing runners, and no call is sent while the limit allows none.

use std::time::{Duration, Instant};

/// The pause after a refusal that does not say how long; it doubles with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(60);
/// The longest pause after such refusals.
const PAUSE_LONGEST: Duration = Duration::from_secs(15 * 60);

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reading demand and rows.
    Look,
    /// Making and removing runners: a part of the limit is reserved for these calls.
    Act,
}

/// The rate limit as an answer reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Requests allowed in each period.
    pub limit: u64,
    /// Requests left in this period.
    pub remaining: u64,
    /// The time until this period ends.
    pub reset: Duration,
}

/// The state of a rate limit.
#[derive(Debug, Clone)]
pub struct Pace {
    told: Option<(Told, Instant)>,
    /// Until when no call is sent.
    closed: Option<Instant>,
    refusals: u32,
    /// Requests that calls which can wait may spend; none before the first poll.
    credit: Option<f64>,
    counted: Option<Instant>,
}

impl Pace {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self { told: None, closed: None, refusals: 0, credit: None, counted: None }
    }

    /// How long no call for this purpose may be sent; none where one may.
    pub fn closed(&self, purpose: Purpose, now: Instant) -> Option<Duration> {
        let closed = self.closed.filter(|until| *until > now).map(|until| until - now);
        closed.or_else(|| {
            let (told, at) = self.told?;
            let end = at + told.reset;
            let kept = if purpose == Purpose::Look { reserve(told.limit) } else { 0 };
            (told.remaining <= kept && end > now).then(|| end - now)
        })
    }

    /// Notes that a poll begins: it may spend the share of the limit since the last one.
    pub fn begin(&mut self, now: Instant) {
        let since = self.counted.replace(now);
        let (Some((told, at)), Some(since)) = (self.told, since) else { return };
        let left = spare(told);
        let span = (at + told.reset).saturating_duration_since(now).as_secs_f64().max(1.0);
        let gained = left / span * (now - since).as_secs_f64();
        self.credit = Some((self.credit.unwrap_or_default().min(0.0) + gained).min(left));
    }

    /// Whether a call that can wait may be sent now.
    pub fn affords(&self) -> bool {
        self.credit.is_none_or(|credit| credit > 0.0)
    }

    /// Notes an answer; `free` is one that says that nothing changed, which costs nothing.
    pub fn answered(&mut self, told: Option<Told>, free: bool, now: Instant) {
        self.refusals = 0;
        if let Some(told) = told {
            self.told = Some((told, now));
        }
        if let (false, Some(credit)) = (free, &mut self.credit) {
            *credit -= 1.0;
        }
    }

    /// Notes that the limit refused a call; returns how long no call is sent.
    pub fn refused(
        &mut self,
        told: Option<Told>,
        after: Option<Duration>,
        now: Instant,
    ) -> Duration {
        if let Some(told) = told {
            self.told = Some((told, now));
        }
        let used_up = told.filter(|told| told.remaining == 0).map(|told| told.reset);
        let blind = PAUSE.saturating_mul(1 << self.refusals.min(5)).min(PAUSE_LONGEST);
        self.refusals += 1;
        let pause = after.or(used_up).unwrap_or(blind).max(Duration::from_secs(1));
        let until = now + pause;
        self.closed = Some(self.closed.map_or(until, |known| known.max(until)));
        pause
    }
}

/// The part of a limit that is reserved for making and removing runners.
fn reserve(limit: u64) -> u64 {
    (limit / 10).min(500)
}

fn spare(told: Told) -> f64 {
    let spare = told.remaining.saturating_sub(reserve(told.limit));
    f64::from(u32::try_from(spare).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn told(remaining: u64) -> Option<Told> {
        Some(Told { limit: 5000, remaining, reset: HOUR })
    }

    // Invariant: what remains of a limit lasts until the limit resets.

    #[test]
    fn a_source_that_changes_all_the_time_is_read_no_more_than_lasts() {
        let (mut pace, start) = (Pace::new(), Instant::now());
        let (mut now, mut remaining) = (start, 5000);
        pace.answered(told(remaining), false, now);
        while now < start + HOUR {
            pace.begin(now);
            for _ in 0..1000 {
                if pace.affords() && pace.closed(Purpose::Look, now).is_none() {
                    remaining -= 1;
                    let left = (start + HOUR) - now;
                    let told = Told { limit: 5000, remaining, reset: left };
                    pace.answered(Some(told), false, now);
                }
            }
            now += Duration::from_secs(60);
        }
        assert!((400..=1600).contains(&remaining), "{remaining} of 5000 are left");
        assert_eq!(pace.closed(Purpose::Act, now), None, "there is enough for runners");
    }

    #[test]
    fn answers_that_nothing_changed_cost_nothing() {
        let (mut pace, start) = (Pace::new(), Instant::now());
        pace.answered(told(5000), false, start);
        pace.begin(start);
        pace.begin(start + Duration::from_secs(1));
        (0..1000).for_each(|_| pace.answered(told(5000), true, start));
        assert!(pace.affords());
        (0..2).for_each(|_| pace.answered(told(4998), false, start));
        assert!(!pace.affords(), "one second is worth one request and a quarter");
    }

    // Invariant: no call is sent while the limit allows none.

    #[test]
    fn looks_end_before_the_limit_does_and_runners_have_the_rest() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        pace.answered(told(500), false, now);
        assert_eq!(pace.closed(Purpose::Look, now), Some(HOUR));
        assert_eq!(pace.closed(Purpose::Act, now), None);
        pace.answered(told(0), false, now);
        assert_eq!(pace.closed(Purpose::Act, now), Some(HOUR));
        assert_eq!(pace.closed(Purpose::Look, now + HOUR), None, "it is filled up");
    }

    #[test]
    fn a_refusal_closes_it_for_as_long_as_it_says_and_longer_each_time_it_does_not() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        assert_eq!(pace.refused(None, Some(Duration::from_secs(7)), now).as_secs(), 7);
        assert_eq!(pace.closed(Purpose::Act, now), Some(Duration::from_secs(7)));
        assert_eq!(pace.refused(told(0), None, now), HOUR, "until it is filled up");
        let mut blind = Pace::new();
        let pauses: Vec<u64> = (0..6).map(|_| blind.refused(None, None, now).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 900, 900]);
        blind.answered(None, false, now);
        assert_eq!(blind.refused(None, None, now).as_secs(), 60);
    }
}
