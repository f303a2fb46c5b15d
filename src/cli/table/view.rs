//! For whom a text is drawn: the width, the time, and what was asked for.

use jiff::{SignedDuration, Timestamp};

/// How a text is drawn.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct View {
    pub now: Timestamp,
    /// The columns of the terminal; none where lines may have any length.
    pub width: Option<usize>,
    /// Whether every column is shown, and ids in full.
    pub wide: bool,
    /// Whether nothing is cut.
    pub whole: bool,
    /// Whether times are in RFC 3339.
    pub utc: bool,
    pub color: bool,
}

impl View {
    /// For a pipe or a file: complete, and the same at any time.
    pub(in crate::cli) const fn complete(now: Timestamp) -> Self {
        Self { now, width: None, wide: true, whole: true, utc: true, color: false }
    }

    /// A time for a cell: `2m ago`, `in 14m`.
    pub(in crate::cli) fn time(&self, at: &str) -> String {
        self.spell(
            at,
            "",
            |span, is_past| {
                if is_past { format!("{span} ago") } else { format!("in {span}") }
            },
        )
    }

    /// A time in a sentence: `2m ago`, `in 14m`, `at 2026-11-21T08:11:02Z`.
    pub(in crate::cli) fn when(&self, at: &str) -> String {
        self.spell(
            at,
            "at ",
            |span, is_past| {
                if is_past { format!("{span} ago") } else { format!("in {span}") }
            },
        )
    }

    /// How long something lasts: `for 2m`, `since 2026-11-21T08:11:02Z`.
    pub(in crate::cli) fn since(&self, at: &str) -> String {
        self.spell(at, "since ", |span, _| format!("for {span}"))
    }

    fn spell(&self, at: &str, before: &str, relative: impl Fn(String, bool) -> String) -> String {
        match at.parse::<Timestamp>() {
            Ok(time) if !self.utc => {
                let past = self.now.duration_since(time);
                relative(span(past.abs()), past >= SignedDuration::ZERO)
            }
            Ok(_) | Err(_) => format!("{before}{at}"),
        }
    }
}

/// A span in the two units that matter, at most.
fn span(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m"),
        3600..36_000 if minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        3600..172_800 => format!("{hours}h"),
        _ => format!("{}d", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    // Invariant: a time says how far away it is on a terminal, and exactly when for scripts.

    #[test]
    fn a_time_is_relative_for_people_and_exact_for_scripts() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let exact = View::complete(now);
        let people = View { utc: false, ..exact };
        for (at, expected) in [
            ("2026-11-21T08:00:00Z", "0s ago"),
            ("2026-11-21T07:59:18Z", "42s ago"),
            ("2026-11-21T07:57:59.6Z", "2m ago"),
            ("2026-11-21T06:00:00Z", "2h ago"),
            ("2026-11-21T04:35:00Z", "3h25m ago"),
            ("2026-11-20T07:35:00Z", "24h ago"),
            ("2026-11-01T07:35:00Z", "20d ago"),
            ("2026-11-21T08:14:09Z", "in 14m"),
        ] {
            assert_eq!(people.time(at), expected);
            assert_eq!(exact.time(at), at);
        }
        assert_eq!(people.since("2026-11-21T07:58:00Z"), "for 2m");
        assert_eq!(exact.since("2026-11-21T07:58:00Z"), "since 2026-11-21T07:58:00Z");
        assert_eq!(exact.when("2026-11-21T07:58:00Z"), "at 2026-11-21T07:58:00Z");
        assert_eq!(people.time("yesterday"), "yesterday");
    }
}
