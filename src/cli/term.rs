//! Where a command prints, and how: text for people, or JSON for scripts.

use std::io::Write;

use serde::Serialize;

use super::error::CliError;

/// Where a command prints: results, and what is going on meanwhile.
pub struct Term<'a> {
    pub out: &'a mut (dyn Write + Send),
    /// Progress and warnings.
    pub err: &'a mut (dyn Write + Send),
}

/// Prints an answer: as JSON, or as the text made of it.
pub(super) fn print<T: Serialize>(
    term: &mut Term<'_>,
    json: bool,
    value: &T,
    text: impl Fn(&T) -> String,
) -> Result<(), CliError> {
    if json {
        let spelled = serde_json::to_string_pretty(value)
            .map_err(|fault| CliError::Failed(format!("cannot spell the answer: {fault}")))?;
        writeln!(term.out, "{spelled}")?;
    } else {
        write!(term.out, "{}", text(value))?;
    }
    term.out.flush()?;
    Ok(())
}
