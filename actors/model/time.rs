//! The two clocks: monotonic in memory, wall time in the journal. Minds get both as one argument.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on the monotonic clock: milliseconds since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Moment {
    /// The point so long before this one.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// The span between two moments; zero when the other is later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Wall time: milliseconds since the Unix epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WallTime(pub i64);

impl WallTime {
    /// Spells it as RFC 3339 in UTC, to the second, such as `2026-11-21T08:11:02Z`.
    pub fn rfc3339(self) -> String {
        let seconds = self.0.div_euclid(1000);
        let (days, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// The Gregorian date of a day counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl WallTime {
    /// The time this long before.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub for WallTime {
    type Output = Duration;

    /// The span between two wall times; zero when the other is later.
    fn sub(self, earlier: Self) -> Duration {
        let span = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(span).unwrap_or(0))
    }
}

/// What a mind knows of time in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// For deadlines and spans.
    pub mono: Moment,
    /// For records and people.
    pub wall: WallTime,
}

impl Now {
    /// Stands where nobody read the clock, because nobody looks at the time.
    pub const UNREAD: Self = Self { mono: Moment(0), wall: WallTime(0) };
}

/// The wall clock is taken to be set when it moves by more than this against the monotonic one.
const CLOCK_STEP_MS: u64 = 10_000;

impl Now {
    /// The wall time at which the monotonic clock was at zero.
    pub fn zero(self) -> WallTime {
        WallTime(self.wall.0.saturating_sub(i64::try_from(self.mono.0).unwrap_or(i64::MAX)))
    }

    /// By how many milliseconds the wall clock was set since it had this zero, if it was.
    pub fn set_by(self, zero: WallTime) -> Option<i64> {
        let by = self.zero().0.saturating_sub(zero.0);
        (by.unsigned_abs() > CLOCK_STEP_MS).then_some(by)
    }
}

impl WallTime {
    /// The same time by a clock that was set by so many milliseconds.
    #[must_use]
    pub fn shifted(self, by_ms: i64) -> Self {
        Self(self.0.saturating_add(by_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_spelt_as_rfc_3339() {
        assert_eq!(WallTime(0).rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(WallTime(951_782_400_000).rfc3339(), "2000-02-29T00:00:00Z");
        assert_eq!(WallTime(1_795_249_862_999).rfc3339(), "2026-11-21T08:31:02Z");
        assert_eq!(WallTime(-1).rfc3339(), "1969-12-31T23:59:59Z");
    }
}
