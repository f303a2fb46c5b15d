//! What a guest reports of its runner, with the secrets that drover gave the runner masked.

use std::collections::BTreeMap;

use drover_model::demand::words::{Life, Words};
use drover_model::id::RunnerName;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use crate::guest::LOG_TAIL_BYTES;

/// The most lines of a log that are reported.
const LOG_LINES_MAX: usize = 12;
/// The most bytes of these lines.
const LOG_LINES_MAX_BYTES: usize = 2048;
/// A shorter text is no secret, and masking it would garble the log.
const SECRET_MIN_BYTES: usize = 6;
/// Replaces a log whose secrets this process does not know.
const WITHHELD: &str =
    "withheld: drover was restarted since it gave the runner its secrets and cannot mask them";

/// The secrets of runners that this process started.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<BTreeMap<RunnerName, Vec<SecretString>>>);

impl Secrets {
    /// Remembers the secrets that a runner was given.
    pub(crate) fn keep(&self, runner: &RunnerName, secrets: Vec<SecretString>) {
        let mut all = self.0.lock();
        all.insert(runner.clone(), secrets);
    }

    pub(crate) fn forget(&self, runner: &RunnerName) {
        self.0.lock().remove(runner);
    }

    /// Reads the output of [`crate::guest::status`]; none where it has another form.
    pub(crate) fn read(&self, runner: &RunnerName, text: &str) -> Option<Words> {
        let (first, log) = text.split_once('\n')?;
        let mut fields = first.split_whitespace();
        let (life, code, seconds) = (fields.next()?, fields.next()?, fields.next()?);
        let code = code.parse().ok()?;
        let life = match life {
            "runs" => Life::Runs,
            "ended" => Life::Ended(Some(code)),
            "left" => Life::Left,
            "died" => Life::Ended(None),
            _ => return None,
        };
        let all = self.0.lock();
        let lines = match all.get(runner) {
            Some(secrets) => bounded(&masked(log, secrets)),
            None if log.trim().is_empty() => String::new(),
            None => WITHHELD.to_owned(),
        };
        // Absent or odd where the guest's clock was set meanwhile.
        let ago = fields.next().and_then(|ago| ago.parse().ok()).unwrap_or_default();
        Some(Words { life, seconds: seconds.parse().ok()?, ago, lines, too_old: None })
    }
}

/// Masks these secrets in a log or in the end of one, also a secret whose beginning is cut off.
fn masked(log: &str, secrets: &[SecretString]) -> String {
    let mut secrets: Vec<&str> = secrets.iter().map(|one| one.expose_secret().trim()).collect();
    secrets.retain(|one| one.len() >= SECRET_MIN_BYTES);
    secrets.sort_unstable_by_key(|one| std::cmp::Reverse(one.len()));
    let mut log = log;
    if log.len() >= LOG_TAIL_BYTES {
        let cut = |secret: &&str| {
            let from = (1..secret.len()).filter(|from| secret.is_char_boundary(*from));
            let mut ends = from.map(|from| &secret[from..]);
            ends.find(|end| log.starts_with(*end)).map_or(0, str::len)
        };
        log = &log[secrets.iter().map(cut).max().unwrap_or_default()..];
    }
    secrets.iter().fold(log.to_owned(), |log, secret| log.replace(secret, "***"))
}

/// The last lines of a log.
fn bounded(log: &str) -> String {
    let plain: String = log.chars().filter(|ch| !ch.is_control() || *ch == '\n').collect();
    let lines: Vec<&str> =
        plain.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
    let mut from = last.len().saturating_sub(LOG_LINES_MAX_BYTES);
    while !last.is_char_boundary(from) {
        from += 1;
    }
    last[from..].to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn name() -> RunnerName {
        RunnerName::new("drover-a1b2c3d4-0123456789abcdef")
    }

    fn secrets(all: &[&str]) -> Secrets {
        let kept = Secrets::default();
        kept.keep(&name(), all.iter().map(|one| (*one).to_owned().into()).collect());
        kept
    }

    // Invariant: nothing that drover gave to a runner appears in what is reported of it.

    #[test]
    fn secrets_are_blanked_out_the_longest_first_and_short_words_stay() {
        let kept = secrets(&["s3cret-of-ci", "s3cret-of-ci-and-more", "no"]);
        let words = kept.read(&name(), "ended 7 2\nno s3cret-of-ci-and-more s3cret-of-ci\n");
        let lines = "no *** ***".to_owned();
        let (life, too_old) = (Life::Ended(Some(7)), None);
        assert_eq!(words, Some(Words { life, seconds: 2, ago: 0, lines, too_old }));
    }

    #[test]
    fn a_secret_that_the_part_of_a_log_begins_in_is_blanked_out_too() {
        let kept = secrets(&["s3cret-of-ci"]);
        let log = format!("cret-of-ci {}", "x".repeat(LOG_TAIL_BYTES - 11));
        let words = masked(&log, &["s3cret-of-ci".to_owned().into()]);
        assert!(words.starts_with(" x"), "{}", &words[..20]);
        let short = kept.read(&name(), "runs 0 1\nci starts\n").unwrap();
        assert_eq!(short.lines, "ci starts", "a whole log begins with itself");
    }

    #[test]
    fn the_log_of_a_runner_whose_secrets_nobody_knows_is_kept_back() {
        let kept = secrets(&[]);
        kept.forget(&name());
        assert_eq!(kept.read(&name(), "ended 1 2\ntoken is abc\n").unwrap().lines, WITHHELD);
        assert_eq!(kept.read(&name(), "ended 1 2\n").unwrap().lines, "");
    }

    // Invariant: what a guest reports is bounded, and read in one way or not at all.

    #[test]
    fn the_last_lines_are_reported_and_no_more_of_them_than_fit() {
        let long: String = (0..40).map(|n| format!("line {n}\n")).collect();
        let words = secrets(&[]).read(&name(), &format!("died 0 9\n{long}")).unwrap();
        assert_eq!(words.life, Life::Ended(None));
        assert_eq!(
            (words.lines.lines().count(), words.lines.lines().next()),
            (12, Some("line 28"))
        );
        let wide = "ä".repeat(3000);
        let words = secrets(&[]).read(&name(), &format!("left 0 9\n{wide}")).unwrap();
        assert_eq!((words.life, words.lines.len()), (Life::Left, LOG_LINES_MAX_BYTES));
    }

    #[test]
    fn what_is_not_of_that_form_says_nothing() {
        for text in ["", "ended 1 2", "ended x 2\n", "gone 1 2\n", "runs 0\n", "runs 0 -1\n"] {
            assert_eq!(secrets(&[]).read(&name(), text), None, "{text}");
        }
    }
}
