//! A `forgejo-runner` in a guest that is too old for drover's command line.

use drover_model::demand::words::{Life, Words};

/// The first `forgejo-runner` whose command `one-job` takes the connection as options.
const FIRST_WITH_OPTIONS: &str = "12.8";
/// What an older program logs before it exits with 1: the texts of cobra for unknown arguments
/// (`internal/app/cmd/cmd.go` of forgejo-runner: at 0988a0cb1e0b before those options, at
/// bbc747c06795 of its fork creator-signal/fork-forgejo-runner with them).
const UNKNOWN_ARGUMENT: [&str; 3] =
    ["unknown flag: --", "unknown shorthand flag:", "unknown command \"one-job\""];

/// Says that a runner started by drover's own command is too old, by how it ended and what it
/// logged.
pub(super) fn too_old(words: &Words) -> Option<String> {
    let line =
        words.lines.lines().find(|line| UNKNOWN_ARGUMENT.iter().any(|text| line.contains(text)))?;
    let line = line.trim_start_matches("Error: ").trim();
    matches!(words.life, Life::Ended(Some(1))).then(|| {
        format!(
            "its forgejo-runner is too old for drover's command line ({line}); install \
             {FIRST_WITH_OPTIONS} or later in the template image"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a program that does not know drover's command line is reported as too old, with
    // the first version that does.

    #[test]
    fn a_forgejo_runner_that_does_not_know_its_options_is_too_old() {
        let words = |code, lines: &str| {
            let (life, lines) = (Life::Ended(Some(code)), lines.to_owned());
            Words { life, seconds: 1, ago: 0, lines, too_old: None }
        };
        assert_eq!(
            too_old(&words(1, "Error: unknown flag: --url")).as_deref(),
            Some(
                "its forgejo-runner is too old for drover's command line (unknown flag: --url); \
                 install 12.8 or later in the template image"
            )
        );
        let command = "Error: unknown command \"one-job\" for \"forgejo-runner\"";
        assert!(too_old(&words(1, command)).is_some());
        for (code, lines) in [(0, "unknown flag: --url"), (1, "failed to fetch task"), (1, "")] {
            assert_eq!(too_old(&words(code, lines)), None, "{lines}");
        }
    }
}
