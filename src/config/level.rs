//! Levels of the log.

use tracing_subscriber::EnvFilter;

/// Why the level was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LevelError {
    /// The text is not a level.
    #[error(
        "`{given}` is not a log level: use error, warn, info, debug, trace, or target=level pairs"
    )]
    Unknown { given: String },
    /// Logging is not set up.
    #[error("logging is not set up in this process")]
    NotSetUp,
}

/// Whether a text is a level or a set of directives.
pub(crate) fn is_level(given: &str) -> bool {
    parse(given).is_ok()
}

/// Reads a level, or a set of directives.
///
/// # Errors
/// [`LevelError::Unknown`] with the choices.
pub fn parse(given: &str) -> Result<EnvFilter, LevelError> {
    let unknown = || LevelError::Unknown { given: given.to_owned() };
    let known = ["error", "warn", "info", "debug", "trace", "off"];
    for part in given.split(',') {
        let level = part.rsplit('=').next().unwrap_or(part).trim().to_ascii_lowercase();
        if !known.contains(&level.as_str()) {
            return Err(unknown());
        }
    }
    // The file watcher would log every write to a log in the directory of the configuration, and
    // that line is the next write. It warns of each watched directory that was replaced, which is watched
    // again where it matters. The copy of the audit log is no matter of the level, unless somebody names it.
    EnvFilter::builder().parse(format!("notify=error,audit=info,{given}")).map_err(|_| unknown())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a level that is not understood is refused with the choices, and nothing changes.

    #[test]
    fn a_misspelt_level_is_refused_with_the_choices() {
        let refused = parse("verbos").err().map(|error| error.to_string());
        insta::assert_snapshot!(refused.unwrap_or_default(), @"`verbos` is not a log level: use error, warn, info, debug, trace, or target=level pairs");
    }

    #[test]
    fn levels_and_directives_are_taken() {
        assert!(parse("debug").is_ok() && parse("info,proxmox_client=trace").is_ok());
    }
}
