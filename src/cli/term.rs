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

/// A text of many lines as a terminal may have it. Texts of the service hold what came from elsewhere,
/// such as a label of a caller: nothing in them may move the cursor or colour what follows.
pub(super) fn shown(text: &str) -> String {
    let harmless = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().map(|c| if harmless(&c) { c } else { '?' }).collect()
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
        write!(term.out, "{}", shown(&text(value)))?;
    }
    term.out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: nothing that came from elsewhere moves the cursor or rings the bell.

    #[test]
    fn a_text_from_elsewhere_keeps_its_lines_and_loses_what_a_terminal_obeys() {
        let label = "`linux a\u{7}b\u{1b}[31mRED\r\u{9b}2J`:\n\tserved by none";
        assert_eq!(shown(label), "`linux a?b?[31mRED??2J`:\n\tserved by none");
    }
}
