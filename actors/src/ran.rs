//! What failed commands and calls mean where a guest is prepared.

use drover_model::fault::FaultKind;
use drover_model::ports::Ran;
use drover_model::record::LAST_SAID;

/// The most characters of a failed command's output that are shown.
const TAIL_SHOWN: usize = 600;

/// The end of a text, with at most `most` characters.
pub(crate) fn last_chars(text: &str, most: usize) -> String {
    text.chars().skip(text.chars().count().saturating_sub(most)).collect()
}

pub(crate) fn describe_failure(step: &str, ran: &Ran) -> String {
    let how = match ran.exit {
        Some(exit) => format!("ended with exit status {exit}"),
        None => "was ended by a signal or its limit".to_owned(),
    };
    let tail = last_chars(&ran.said(), TAIL_SHOWN);
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

    // Invariant: what a failed step printed is shown without its secrets: causes reach viewers, chats and traces.

    #[test]
    fn a_failed_step_is_described_without_the_secrets_that_it_printed() {
        let tail =
            "DB_PASSWORD=hunter2pw\nAuthorization: Bearer abcdef\ntry `drover reload`\n".to_owned();
        let ran = Ran { exit: Some(3), tail };
        assert_eq!(
            describe_failure("prepare", &ran),
            "the step `prepare` ended with exit status 3; last: DB_PASSWORD=***\n\
             Authorization: Bearer ***\ntry 'drover reload'"
        );
    }

    // Invariant: the output can be left out, for those who get no outputs.

    #[test]
    fn a_failure_can_be_said_without_its_output() {
        let ran = |tail: &str| Ran { exit: Some(3), tail: tail.to_owned() };
        for tail in ["no network; last: x", ""] {
            let text = describe_failure("run", &ran(tail));
            assert_eq!(without_output(&text), "the step `run` ended with exit status 3");
        }
    }
}
