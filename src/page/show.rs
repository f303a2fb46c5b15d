//! Times, lengths and counts as people read them; `said.rs` has reasons.

pub(crate) use crate::said::marked;

use drover_api::KindOut;
use drover_model::phase::BreakerPhase;

/// A time (RFC 3339) to the second, in UTC; the text as it is where it is none.
pub(crate) fn time(rfc3339: &str) -> String {
    let whole = rfc3339.get(..19).filter(|text| text.as_bytes().get(10) == Some(&b'T'));
    whole.map_or_else(|| rfc3339.to_owned(), |text| text.replacen('T', " ", 1))
}

/// Milliseconds as seconds, minutes or hours.
pub(crate) fn length(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=59 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600.. => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Mebibytes as gibibytes, to a tenth.
pub(crate) fn gib(mebibytes: i64) -> String {
    let tenths = mebibytes * 10 / 1024;
    let sign = if tenths < 0 { "-" } else { "" };
    format!("{sign}{}.{} GiB", (tenths / 10).abs(), (tenths % 10).abs())
}

/// How many of how many at most.
pub(crate) fn of_most(count: u32, most: Option<u32>) -> String {
    most.map_or_else(|| count.to_string(), |most| format!("{count} of {most}"))
}

/// Marks below the characters that are wrong in a line.
pub(crate) fn caret(before: &str, wrong: &str) -> String {
    " ".repeat(before.chars().count()) + &"^".repeat(wrong.chars().count())
}

/// What comes before something that waits.
pub(crate) fn ahead(uses: usize) -> String {
    match uses {
        0 => "Nothing is served before it.".to_owned(),
        1 => "One use is served before it.".to_owned(),
        more => format!("{more} uses are served before it."),
    }
}

/// When something is served, in a sentence.
pub(crate) fn served(kind: &KindOut) -> String {
    match kind.estimate_seconds {
        Some(seconds) => format!("in about {seconds} s: {}", kind.estimate),
        None => kind.estimate.clone(),
    }
}

/// A circuit breaker's state, as people call it.
pub(crate) fn breaker(phase: BreakerPhase) -> &'static str {
    match phase {
        BreakerPhase::Closed => "closed",
        BreakerPhase::Open => "open",
        BreakerPhase::HalfOpen => "half-open",
    }
}

/// The word for a class of the style: letters alone.
pub(crate) fn class(word: &str) -> String {
    word.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a number is shown with its unit, and no text is lost.

    #[test]
    fn times_and_lengths_are_read_at_once() {
        assert_eq!(time("2026-11-28T17:30:42.406Z"), "2026-11-28 17:30:42");
        assert_eq!(time("soon"), "soon");
        assert_eq!(
            [length(50), length(61_000), length(7_260_000)],
            ["0.0 s", "1 min 01 s", "2 h 01 min"]
        );
        assert_eq!([gib(1536), gib(-512), gib(0)], ["1.5 GiB", "-0.5 GiB", "0.0 GiB"]);
        assert_eq!([of_most(2, Some(3)), of_most(2, None)], ["2 of 3", "2"]);
        assert_eq!(class("Half-Open"), "halfopen");
    }
}
