//! Where a command prints, and how: text for people, or JSON or YAML for scripts.

use std::io::Write;

use drover_model::outside::steers;
use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::list_options::ViewOptions;
use super::progress::Live;
use super::screen::{Output, Screen};
use super::table::Page;

/// Where a command prints: results, and what is going on meanwhile.
pub struct Term<'a> {
    pub out: &'a mut (dyn Write + Send),
    /// Progress and warnings.
    pub err: &'a mut (dyn Write + Send),
    pub screen: Screen,
    /// Where the live line of long work stands.
    pub live: Live,
}

impl<'a> Term<'a> {
    /// A pipe: text is complete, and nothing is coloured.
    pub fn new(out: &'a mut (dyn Write + Send), err: &'a mut (dyn Write + Send)) -> Self {
        Self { out, err, screen: Screen::default(), live: Live::default() }
    }

    /// Prints a text in which nothing can move the cursor.
    pub(super) fn page(&mut self, page: Page) -> Result<(), CliError> {
        self.out.write_all(page.into_text().as_bytes())?;
        self.out.flush()?;
        Ok(())
    }

    /// Prints a value as scripts read it, JSON in one line.
    pub(super) fn line(&mut self, value: &Value) -> Result<(), CliError> {
        match self.screen.output {
            Output::Yaml => self.structured(value),
            Output::Table | Output::Wide | Output::Json | Output::Name => {
                Ok(writeln!(self.out, "{value}")?)
            }
        }
    }

    /// Prints an answer as scripts read it.
    pub(super) fn structured<T: Serialize>(&mut self, value: &T) -> Result<(), CliError> {
        let text = spelled(self.screen.output, value)?;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(())
    }
}

/// A value as YAML, a document of its own, where that is wanted, else as JSON.
pub(super) fn spelled<T: Serialize>(output: Output, value: &T) -> Result<String, CliError> {
    let fault = |fault: String| CliError::Failed(format!("cannot spell the answer: {fault}"));
    if output == Output::Yaml {
        let text = serde_yaml::to_string(value).map_err(|error| fault(error.to_string()))?;
        return Ok(format!("---\n{text}"));
    }
    let text = serde_json::to_string_pretty(value).map_err(|error| fault(error.to_string()))?;
    Ok(text + "\n")
}

/// A text of many lines as a terminal may have it. Texts of the service hold what came from elsewhere,
/// such as a label of a caller: nothing in them may move the cursor or colour what follows.
pub(super) fn shown(text: &str) -> String {
    let harmless = |c: &char| !steers(*c) || matches!(c, '\n' | '\t');
    text.chars().map(|c| if harmless(&c) { c } else { '?' }).collect()
}

/// Prints an answer: as scripts read it, or as the text made of it.
pub(super) fn print<T: Serialize>(
    term: &mut Term<'_>,
    json: bool,
    value: &T,
    text: impl Fn(&T) -> String,
) -> Result<(), CliError> {
    if json {
        return term.structured(value);
    }
    write!(term.out, "{}", shown(&text(value)))?;
    term.out.flush()?;
    Ok(())
}

/// Prints an answer: as scripts read it, or as a page drawn for the terminal.
pub(super) fn page<T: Serialize>(
    term: &mut Term<'_>,
    json: bool,
    options: &ViewOptions,
    value: &T,
    draw: impl FnOnce(&T, &mut Page),
) -> Result<(), CliError> {
    if json {
        return term.structured(value);
    }
    let mut page = Page::new(&term.screen.view(options));
    draw(value, &mut page);
    term.page(page)
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
