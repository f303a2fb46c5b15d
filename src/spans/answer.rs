//! What a collector's answer means, by OTLP/HTTP 1.10.0.
//!
//! | answer | what follows |
//! |---|---|
//! | 200 | taken; `partialSuccess` counts spans that were not |
//! | 429, 502, 503, 504 | the same request again, after `Retry-After` where it has one |
//! | other | dropped: the same request would be refused again |

use std::time::Duration;

use drover_model::strip::{MASK, stripped};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::Deserialize;

/// The longest that a collector can have drover wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// The longest text of a collector that is shown, in characters.
const SAID_CHARS_MAX: usize = 300;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// All of it was taken, with what the collector says beside that.
    Taken { warning: Option<String> },
    /// So many spans were not, for this reason; the others were.
    Partly { refused: u64, why: String },
    /// It can be sent again: after this time, where the collector says it.
    Later { why: String, after: Option<Duration> },
    /// It is not to be sent again.
    Refused { why: String },
}

/// `ExportTraceServiceResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    partial_success: Option<PartialSuccess>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: Count,
    error_message: String,
}

/// A 64-bit number, which JSON of Protocol Buffers may write as text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl Default for Count {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Count {
    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().unwrap_or(0),
        }
    }
}

/// `google.rpc.Status`, as far as people need it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

/// A shorter part of a secret can be a part of any text.
const SECRET_MIN: usize = 4;

/// A text of a collector on one line, not endless. It may repeat what it was sent: these secrets are masked, and
/// what looks like one.
fn said(text: &str, secrets: &[&str]) -> String {
    let words = secrets.iter().flat_map(|secret| secret.split_whitespace());
    let mut parts: Vec<&str> = secrets.iter().copied().chain(words).collect();
    parts.retain(|part| part.len() >= SECRET_MIN);
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let text = parts.iter().fold(text.to_owned(), |text, part| text.replace(part, MASK));
    let line = stripped(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    // The cut comes last: a part of a secret is none that is known.
    line.chars().take(SAID_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What is said of a refusal: the message of its status, or the text as it is.
fn refusal(status: u16, body: &[u8], secrets: &[&str]) -> String {
    let message = serde_json::from_slice(body).map(|Status { message }| message);
    let text = message.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    let text = said(&text, secrets);
    let more = if text.is_empty() { String::new() } else { format!(": {text}") };
    format!("it answered with status {status}{more}")
}

/// How long to wait: seconds, or until a date.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let seconds = text.parse::<u64>().ok().map(Duration::from_secs);
    let until = || {
        let date = rfc2822::parse(text).ok()?.timestamp();
        Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
    };
    seconds.or_else(until).map(|after| after.min(RETRY_AFTER_MAX))
}

/// What an answer with this status, this `Retry-After` and this body means, to a request with these secrets.
pub fn answer(
    (status, after, body): (u16, Option<&str>, &[u8]),
    secrets: &[&str],
    now: Timestamp,
) -> Answer {
    match status {
        200..=299 => {
            // An empty body is one without a field; one that cannot be read says nothing against it.
            let response: Response = serde_json::from_slice(body).unwrap_or_default();
            let partial = response.partial_success.unwrap_or_default();
            let (refused, why) =
                (partial.rejected_spans.number(), said(&partial.error_message, secrets));
            if refused > 0 {
                let why = if why.is_empty() { "it does not say why".to_owned() } else { why };
                return Answer::Partly { refused, why };
            }
            Answer::Taken { warning: Some(why).filter(|why| !why.is_empty()) }
        }
        429 | 502 | 503 | 504 => Answer::Later {
            why: refusal(status, body, secrets),
            after: after.and_then(|text| retry_after(text, now)),
        },
        _ => Answer::Refused { why: refusal(status, body, secrets) },
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn read(status: u16, after: Option<&str>, body: &str) -> Answer {
        let now: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        answer((status, after, body.as_bytes()), &["Key s3cret/value"], now)
    }

    // Invariant: what may be sent again is what the specification names, after the time that is asked for.

    #[test]
    fn what_may_be_sent_again_waits_as_long_as_the_collector_asks() {
        for (after, expected) in [
            (None, None),
            (Some("7"), Some(7)),
            (Some(" 0 "), Some(0)),
            (Some("Sun, 29 Nov 2026 10:00:30 GMT"), Some(30)),
            (Some("Sun, 29 Nov 2026 09:00:00 GMT"), Some(0)),
            (Some("999999999"), Some(300)),
            (Some("soon"), None),
        ] {
            for status in [429, 502, 503, 504] {
                let Answer::Later { why, after: said } = read(status, after, "") else {
                    panic!("{status}")
                };
                assert_eq!(said, expected.map(Duration::from_secs), "{after:?}");
                assert_eq!(why, format!("it answered with status {status}"));
            }
        }
        for status in [301, 400, 401, 404, 408, 413, 500, 501] {
            assert!(matches!(read(status, Some("1"), ""), Answer::Refused { .. }), "{status}");
        }
    }

    // Invariant: spans that were not taken are counted, whatever form the number has.

    #[test]
    fn spans_that_a_collector_did_not_take_are_counted() {
        let taken = |warning: Option<&str>| Answer::Taken { warning: warning.map(str::to_owned) };
        assert_eq!(read(200, None, ""), taken(None));
        assert_eq!(read(200, None, "{}"), taken(None));
        assert_eq!(read(200, None, r#"{"partialSuccess":{}}"#), taken(None));
        assert_eq!(read(200, None, "not JSON"), taken(None));
        let warns = r#"{"partialSuccess":{"errorMessage":"old\nschema"}}"#;
        assert_eq!(read(200, None, warns), taken(Some("old schema")));
        for count in ["3", "\"3\""] {
            let body = format!(
                r#"{{"partialSuccess":{{"rejectedSpans":{count},"errorMessage":"too old"}}}}"#
            );
            let expected = Answer::Partly { refused: 3, why: "too old".to_owned() };
            assert_eq!(read(200, None, &body), expected);
        }
    }

    // Invariant: a refusal says what the collector says, on one line.

    #[test]
    fn a_refusal_says_what_the_collector_says() {
        let why = |status, body: &str| {
            let answer = read(status, None, body);
            let Answer::Refused { why } = answer else { panic!("{answer:?}") };
            why
        };
        assert_eq!(
            why(400, r#"{"code":3,"message":"no\tspan"}"#),
            "it answered with status 400: no span"
        );
        assert_eq!(why(404, "not\nhere"), "it answered with status 404: not here");
        assert!(why(400, &"x".repeat(10_000)).len() < 400);
    }

    // Invariant: no text of a collector has a secret of the configuration, wherever the text is cut.

    #[test]
    fn what_a_collector_repeats_of_a_request_is_masked() {
        for body in [
            r#"{"message":"unknown key s3cret/value"}"#.to_owned(),
            "unknown Key s3cret/value".to_owned(),
            format!("{}s3cret/value", "x".repeat(SAID_CHARS_MAX - 3)),
        ] {
            for status in [401, 503] {
                let (Answer::Refused { why } | Answer::Later { why, .. }) =
                    read(status, None, &body)
                else {
                    panic!("{status}")
                };
                assert!(why.contains(MASK) && !why.contains("s3c"), "{why}");
            }
        }
        let partial =
            r#"{"partialSuccess":{"rejectedSpans":1,"errorMessage":"s3cret/value, password=abc"}}"#;
        let expected = Answer::Partly { refused: 1, why: "***, password=***".to_owned() };
        assert_eq!(read(200, None, partial), expected);
    }
}
