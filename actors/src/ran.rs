//! What failed commands and calls mean where a guest is prepared.

use drover_model::fault::FaultKind;
use drover_model::strip::stripped;
use drover_model::ports::Ran;
use drover_model::record::LAST_SAID;

/// The most characters of a failed command's output that are shown.
const TAIL_SHOWN: usize = 600;

/// The end of a text, with at most `most` characters.
pub(crate) fn last_chars(text: &str, most: usize) -> String {
    text.chars().skip(text.chars().count().saturating_sub(most)).collect()
}

/// How a command failed, and the end of what it said without what looks like a secret: people who see this text
/// may not see what jobs know.
pub(crate) fn describe_failure(step: &str, ran: &Ran) -> String {
    let how = match ran.exit {
        Some(exit) => format!("ended with exit status {exit}"),
        None => "was ended by a signal or its limit".to_owned(),
    };
    // A cut may part a secret from its name.
    let tail = last_chars(&stripped(ran.tail.trim_end()), TAIL_SHOWN);
    let said = if tail.is_empty() { String::new() } else { format!("{LAST_SAID}{tail}") };
    format!("the step `{step}` {how}{said}")
}

/// Whether a fault may pass by itself.
pub(crate) fn can_pass(kind: &FaultKind) -> bool {
    match kind {
        FaultKind::Contention
        | FaultKind::Locked { .. }
        | FaultKind::Unreachable
        | FaultKind::UnknownOutcome => true,
        FaultKind::Denied { .. }
        | FaultKind::Gone
        | FaultKind::IdTaken
        | FaultKind::Capacity
        | FaultKind::Foreign
        | FaultKind::KeyRejected
        | FaultKind::Impostor
        | FaultKind::Broken => false,
    }
}

#[cfg(test)]
mod tests {
    use drover_model::record::without_output;

    use super::*;

    // Invariant: what a failed step said is shown without its secrets, and can be left out.

    #[test]
    fn a_failure_says_the_end_of_the_output_without_secrets() {
        let long = "x".repeat(2 * TAIL_SHOWN);
        let ran = Ran { exit: Some(3), tail: format!("{long}\nDB_PASSWORD=hunter2pw\nno network\n") };
        let text = describe_failure("run", &ran);
        assert!(text.ends_with("x\nDB_PASSWORD=***\nno network"), "{text}");
        assert_eq!(without_output(&text), "the step `run` ended with exit status 3");
        let quiet = describe_failure("run", &Ran { exit: None, tail: String::new() });
        assert_eq!(quiet, "the step `run` was ended by a signal or its limit");
        assert_eq!(without_output(&quiet), quiet);
    }
}
