//! Forgejo's program in the guest, where it is too old for how it is started.

use drover_model::demand::words::{Life, Words};

/// The first `forgejo-runner` that is given its connection by options of `one-job`.
const LEAST: &str = "12.8";
/// What an older one logs before it ends with 1: cobra's words for what it does not know
/// (`internal/app/cmd/cmd.go` of forgejo-runner, at 0988a0cb1e0b before those options, at bbc747c06795 of its
/// fork creator-signal/fork-forgejo-runner with them).
const UNKNOWN: [&str; 3] =
    ["unknown flag: --", "unknown shorthand flag:", "unknown command \"one-job\""];

/// That a runner which drover's own command started is too old, by how it ended and what it logged.
pub fn too_old(words: &Words) -> Option<String> {
    let line = words.lines.lines().find(|line| UNKNOWN.iter().any(|text| line.contains(text)))?;
    let line = line.trim_start_matches("Error: ").trim();
    matches!(words.life, Life::Ended(Some(1))).then(|| {
        format!(
            "its forgejo-runner is too old for how it is started ({line}): put {LEAST} or later into \
             the template's image"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a program that does not know how drover starts it is told as too old, with the least version
    // that does.

    #[test]
    fn a_forgejo_runner_that_does_not_know_its_options_is_too_old() {
        let words = |code, lines: &str| {
            let (life, lines) = (Life::Ended(Some(code)), lines.to_owned());
            Words { life, seconds: 1, ago: 0, lines, too_old: None }
        };
        assert_eq!(
            too_old(&words(1, "Error: unknown flag: --url")).as_deref(),
            Some(
                "its forgejo-runner is too old for how it is started (unknown flag: --url): put 12.8 or \
                 later into the template's image"
            )
        );
        let command = "Error: unknown command \"one-job\" for \"forgejo-runner\"";
        assert!(too_old(&words(1, command)).is_some());
        for (code, lines) in [(0, "unknown flag: --url"), (1, "failed to fetch task"), (1, "")] {
            assert_eq!(too_old(&words(code, lines)), None, "{lines}");
        }
    }
}
