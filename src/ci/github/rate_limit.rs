//! GitHub's rate limit: what remains is spread over the time until the limit resets, a part is
//! reserved for making and removing runners, and no call is sent while the limit allows none.

use std::time::{Duration, Instant};

/// The pause after a refusal that does not say how long; it doubles with each refusal in a row.
const BLIND_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause after such refusals.
const BLIND_PAUSE_LONGEST: Duration = Duration::from_secs(15 * 60);

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Reading demand and rows.
    Poll,
    /// Making and removing runners: a part of the limit is reserved for these calls.
    Change,
}

/// The rate limit as an answer reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitReport {
    /// Requests allowed in each period.
    pub limit: u64,
    /// Requests left in this period.
    pub remaining: u64,
    /// The time until this period ends.
    pub reset: Duration,
}

/// The state of a rate limit.
#[derive(Debug, Clone)]
pub(super) struct RateLimit {
    report: Option<(LimitReport, Instant)>,
    /// Until when no call is sent.
    blocked: Option<Instant>,
    refusals: u32,
    /// Requests that calls which can wait may spend; none before the first poll.
    credit: Option<f64>,
    counted: Option<Instant>,
}

impl RateLimit {
    /// Starts without any report of the limit.
    pub(super) const fn new() -> Self {
        Self { report: None, blocked: None, refusals: 0, credit: None, counted: None }
    }

    /// How long no call for this purpose may be sent; none where one may.
    pub(super) fn blocked(&self, purpose: Purpose, now: Instant) -> Option<Duration> {
        let blocked = self.blocked.filter(|until| *until > now).map(|until| until - now);
        blocked.or_else(|| {
            let (report, at) = self.report?;
            let end = at + report.reset;
            let kept = if purpose == Purpose::Poll { reserve(report.limit) } else { 0 };
            (report.remaining <= kept && end > now).then(|| end - now)
        })
    }

    /// Notes that a poll begins: it may spend the share of the limit since the last one.
    pub(super) fn begin(&mut self, now: Instant) {
        let since = self.counted.replace(now);
        let (Some((report, at)), Some(since)) = (self.report, since) else { return };
        let left = spare(report);
        let span = (at + report.reset).saturating_duration_since(now).as_secs_f64().max(1.0);
        let gained = left / span * (now - since).as_secs_f64();
        self.credit = Some((self.credit.unwrap_or_default().min(0.0) + gained).min(left));
    }

    /// Whether a call that can wait may be sent now.
    pub(super) fn affords(&self) -> bool {
        self.credit.is_none_or(|credit| credit > 0.0)
    }

    /// Notes an answer; `free` is one that says that nothing changed, which costs nothing.
    pub(super) fn answered(&mut self, report: Option<LimitReport>, free: bool, now: Instant) {
        self.refusals = 0;
        if let Some(report) = report {
            self.report = Some((report, now));
        }
        if let (false, Some(credit)) = (free, &mut self.credit) {
            *credit -= 1.0;
        }
    }

    /// Notes that the limit refused a call; returns how long no call is sent.
    pub(super) fn refused(
        &mut self,
        report: Option<LimitReport>,
        after: Option<Duration>,
        now: Instant,
    ) -> Duration {
        if let Some(report) = report {
            self.report = Some((report, now));
        }
        let used_up = report.filter(|report| report.remaining == 0).map(|report| report.reset);
        let blind = BLIND_PAUSE.saturating_mul(1 << self.refusals.min(5)).min(BLIND_PAUSE_LONGEST);
        self.refusals += 1;
        let pause = after.or(used_up).unwrap_or(blind).max(Duration::from_secs(1));
        let until = now + pause;
        self.blocked = Some(self.blocked.map_or(until, |known| known.max(until)));
        pause
    }
}

/// The part of a limit that is reserved for making and removing runners.
fn reserve(limit: u64) -> u64 {
    (limit / 10).min(500)
}

fn spare(report: LimitReport) -> f64 {
    let spare = report.remaining.saturating_sub(reserve(report.limit));
    f64::from(u32::try_from(spare).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn report(remaining: u64) -> Option<LimitReport> {
        Some(LimitReport { limit: 5000, remaining, reset: HOUR })
    }

    // Invariant: what remains of a limit lasts until the limit resets.

    #[test]
    fn a_source_that_changes_all_the_time_is_read_no_more_than_lasts() {
        let (mut rate_limit, start) = (RateLimit::new(), Instant::now());
        let (mut now, mut remaining) = (start, 5000);
        rate_limit.answered(report(remaining), false, now);
        while now < start + HOUR {
            rate_limit.begin(now);
            for _ in 0..1000 {
                if rate_limit.affords() && rate_limit.blocked(Purpose::Poll, now).is_none() {
                    remaining -= 1;
                    let left = (start + HOUR) - now;
                    let report = LimitReport { limit: 5000, remaining, reset: left };
                    rate_limit.answered(Some(report), false, now);
                }
            }
            now += Duration::from_secs(60);
        }
        assert!((400..=1600).contains(&remaining), "{remaining} of 5000 are left");
        assert_eq!(rate_limit.blocked(Purpose::Change, now), None, "there is enough for runners");
    }

    #[test]
    fn answers_that_nothing_changed_cost_nothing() {
        let (mut rate_limit, start) = (RateLimit::new(), Instant::now());
        rate_limit.answered(report(5000), false, start);
        rate_limit.begin(start);
        rate_limit.begin(start + Duration::from_secs(1));
        (0..1000).for_each(|_| rate_limit.answered(report(5000), true, start));
        assert!(rate_limit.affords());
        (0..2).for_each(|_| rate_limit.answered(report(4998), false, start));
        assert!(!rate_limit.affords(), "one second is worth one request and a quarter");
    }

    // Invariant: no call is sent while the limit allows none.

    #[test]
    fn looks_end_before_the_limit_does_and_runners_have_the_rest() {
        let (mut rate_limit, now) = (RateLimit::new(), Instant::now());
        rate_limit.answered(report(500), false, now);
        assert_eq!(rate_limit.blocked(Purpose::Poll, now), Some(HOUR));
        assert_eq!(rate_limit.blocked(Purpose::Change, now), None);
        rate_limit.answered(report(0), false, now);
        assert_eq!(rate_limit.blocked(Purpose::Change, now), Some(HOUR));
        assert_eq!(rate_limit.blocked(Purpose::Poll, now + HOUR), None, "it is filled up");
    }

    #[test]
    fn a_refusal_closes_it_for_as_long_as_it_says_and_longer_each_time_it_does_not() {
        let (mut rate_limit, now) = (RateLimit::new(), Instant::now());
        assert_eq!(rate_limit.refused(None, Some(Duration::from_secs(7)), now).as_secs(), 7);
        assert_eq!(rate_limit.blocked(Purpose::Change, now), Some(Duration::from_secs(7)));
        assert_eq!(rate_limit.refused(report(0), None, now), HOUR, "until it is filled up");
        let mut blind = RateLimit::new();
        let pauses: Vec<u64> = (0..6).map(|_| blind.refused(None, None, now).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 900, 900]);
        blind.answered(None, false, now);
        assert_eq!(blind.refused(None, None, now).as_secs(), 60);
    }
}
