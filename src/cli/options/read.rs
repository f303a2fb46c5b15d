//! How arguments are read that are more than words and numbers.

use std::time::Duration;

use drover_model::size::Part;
use drover_server::view::EventId;

use super::Limit;

/// Checks the id of an event.
pub(super) fn read_event_id(text: &str) -> Result<String, String> {
    let wrong = |_| "write the id of an event, such as 3-17, or 0 for all that are kept".to_owned();
    text.parse::<EventId>().map(|_| text.to_owned()).map_err(wrong)
}

/// Reads a number, or `template`.
pub(super) fn read_limit(text: &str) -> Result<Limit, String> {
    if text == "template" {
        return Ok(Limit::Template);
    }
    let wrong = |_| format!("`{text}` is neither a whole number nor `template`");
    text.parse().map(Limit::Own).map_err(wrong)
}

/// Reads the size of a part of a machine.
pub(super) fn read_size(part: Part) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let wrong = || format!("`{text}` is no size; write it as {}", part.example());
        part.parse(text).ok_or_else(wrong)
    }
}

/// Reads a span such as `90s`, `30m`, `2h`, `1d`.
pub(super) fn read_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write it as 90s, 30m, 2h or 1d");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        "d" => number.checked_mul(86400),
        _ => None,
    };
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        Some(_) | None => Err(wrong()),
    }
}
