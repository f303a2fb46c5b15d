//! Cron patterns and time zones: when the windows of a template's schedule are open.
//!
//! A fixed time that a change of the clock skips comes at the first moment after the gap; one that
//! comes twice counts once. Patterns with `*` or steps in the minute or the hour follow the wall
//! clock. A window is open for its minutes of real time.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use drover_model::ports::{Calendar, WindowStatus};
use drover_model::spec::WindowSpec;
use drover_model::time::WallTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// A pattern must come at least once after this time.
const SOME_TIME: Timestamp = Timestamp::UNIX_EPOCH;

/// Reads a pattern of five fields, or a nickname such as `@daily`.
///
/// # Errors
/// The reason, in one line.
pub(crate) fn pattern(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(text).map_err(|error| error.to_string())?;
    match cron.find_next_occurrence(&SOME_TIME.to_zoned(TimeZone::UTC), true) {
        Ok(_) => Ok(cron),
        Err(_) => Err("it never comes".to_owned()),
    }
}

/// Finds a time zone by its IANA name.
///
/// # Errors
/// The zone does not exist.
pub(crate) fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| format!("unknown time zone `{name}`"))
}

/// When a pattern comes next after a time; none where pattern or zone are wrong, which the check of
/// the configuration finds.
pub fn next(cron: &str, time_zone: &str, after: WallTime) -> Option<WallTime> {
    let (cron, zone) = (pattern(cron).ok()?, zone(time_zone).ok()?);
    let now = Timestamp::from_millisecond(after.0).ok()?.to_zoned(zone);
    let next = cron.find_next_occurrence(&now, false).ok()?;
    Some(WallTime(next.timestamp().as_millisecond()))
}

/// The calendar of the real service.
pub struct Almanac;

impl Calendar for Almanac {
    fn observation(&self, window: &WindowSpec, at: WallTime) -> WindowStatus {
        observation(window, at).unwrap_or_default()
    }
}

/// The last start decides, since all openings of a window last equally long.
fn observation(window: &WindowSpec, at: WallTime) -> Option<WindowStatus> {
    let cron = pattern(&window.cron).ok()?;
    let zone = zone(&window.time_zone).ok()?;
    let now = Timestamp::from_millisecond(at.0).ok()?.to_zoned(zone);
    let wall = |at: &Zoned| WallTime(at.timestamp().as_millisecond());
    let opened = cron.find_previous_occurrence(&now, true).ok();
    let closes = opened.map(|opened| wall(&opened) + window.duration);
    let next = cron.find_next_occurrence(&now, false).ok();
    Some(match closes {
        Some(closes) if at < closes => {
            WindowStatus { open: true, closed: None, until: Some(closes) }
        }
        closed => WindowStatus { open: false, closed, until: next.as_ref().map(wall) },
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    fn wall(text: &str) -> WallTime {
        WallTime(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    fn at(cron: &str, minutes: u64, time_zone: &str, when: &str) -> String {
        let window = WindowSpec {
            cron: cron.to_owned(),
            duration: Duration::from_secs(minutes * 60),
            time_zone: time_zone.to_owned(),
            minimum: 1,
            idle_minimum: 0,
        };
        let WindowStatus { open, closed, until } = Almanac.observation(&window, wall(when));
        let spell = |at: Option<WallTime>| at.map_or("never".to_owned(), WallTime::rfc3339);
        if open {
            format!("open until {}", spell(until))
        } else {
            format!("closed since {}, opens {}", spell(closed), spell(until))
        }
    }

    // Invariant: a window opens by the clock on the wall of its zone, and lasts its minutes.

    #[test]
    fn a_working_day_is_open_from_morning_to_evening_and_not_at_the_weekend() {
        let at = |when| at("0 8 * * mon-fri", 600, "Europe/Berlin", when);
        let morning = "2026-11-20T07:00:00Z";
        assert_eq!(
            at("2026-11-20T06:59:59Z"),
            format!("closed since 2026-11-19T17:00:00Z, opens {morning}")
        );
        assert_eq!(at(morning), "open until 2026-11-20T17:00:00Z");
        let weekend = "closed since 2026-11-20T17:00:00Z, opens 2026-11-23T07:00:00Z";
        assert_eq!(at("2026-11-20T17:00:00Z"), weekend);
        assert_eq!(at("2026-11-22T09:00:00Z"), weekend);
    }

    #[test]
    fn starts_within_an_open_window_make_it_longer() {
        let at = |when| at("0,30 9 * * *", 45, "UTC", when);
        assert_eq!(at("2026-11-20T09:20:00Z"), "open until 2026-11-20T09:45:00Z");
        assert_eq!(at("2026-11-20T09:40:00Z"), "open until 2026-11-20T10:15:00Z");
    }

    // Invariant: a change of the clock moves a window with the wall, and neither drops nor doubles
    // it.

    #[test]
    fn a_change_of_the_clock_moves_a_window_along() {
        let at = |when| at("0 8 * * *", 60, "Europe/Berlin", when);
        assert_eq!(at("2026-03-28T07:30:00Z"), "open until 2026-03-28T08:00:00Z");
        assert_eq!(at("2026-03-29T06:30:00Z"), "open until 2026-03-29T07:00:00Z");
        assert_eq!(at("2026-10-25T07:30:00Z"), "open until 2026-10-25T08:00:00Z");
    }

    #[test]
    fn a_start_in_the_hour_that_is_left_out_comes_right_after_it() {
        let at = |when| at("30 2 * * *", 90, "Europe/Berlin", when);
        let gap = "2026-03-29T01:00:00Z";
        assert!(at("2026-03-29T00:59:59Z").ends_with(&format!("opens {gap}")), "{}", at(gap));
        assert_eq!(at(gap), "open until 2026-03-29T02:30:00Z");
        assert!(at("2026-03-29T02:30:00Z").ends_with("opens 2026-03-30T00:30:00Z"));
    }

    #[test]
    fn a_start_in_the_hour_that_comes_twice_counts_once_and_lasts_its_minutes() {
        let at = |when| at("30 2 * * *", 90, "Europe/Berlin", when);
        assert_eq!(at("2026-10-25T00:30:00Z"), "open until 2026-10-25T02:00:00Z");
        assert_eq!(at("2026-10-25T01:30:00Z"), "open until 2026-10-25T02:00:00Z");
        let after = "closed since 2026-10-25T02:00:00Z, opens 2026-10-26T01:30:00Z";
        assert_eq!(at("2026-10-25T02:00:00Z"), after);
    }

    // Invariant: a window with a wrong pattern or zone is never open.

    #[test]
    fn patterns_and_zones_are_reported_right_from_wrong() {
        for good in ["0 8 * * mon-fri", "*/15 * * * *", "@daily", "0 0 L * *", "0 0 29 2 *"] {
            assert!(pattern(good).is_ok(), "{good}");
        }
        for bad in ["", "8", "0 0 8 * * mon", "0 24 * * *", "0 0 30 2 *", "often"] {
            assert!(pattern(bad).is_err(), "{bad}");
        }
        assert!(zone("Europe/Berlin").is_ok() && zone("UTC").is_ok() && zone("Mars/Base").is_err());
        assert_eq!(
            at("often", 1, "UTC", "2026-11-20T09:20:00Z"),
            "closed since never, opens never"
        );
    }
}
