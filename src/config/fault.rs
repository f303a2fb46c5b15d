//! Faults of a configuration: one [`Fault`] per mistake, with its place in the files, and their
//! rendering.
//!
//! In: faults from all checks. Out: text with the lines around each fault, one-line texts for the
//! log, and records for scripts. This module finds no fault itself.

use std::fmt;

use drover_api::nearest;
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report,
    Severity,
};
use serde::Serialize;

use super::source::Sources;

/// Faults shown; more of them usually have one cause.
const MAX_FAULTS_SHOWN: usize = 100;
/// Faults that the log has one by one.
const MAX_FAULTS_LOGGED: usize = 5;
/// The longest line shown, in bytes.
const MAX_LINE_BYTES: usize = 1000;

/// A stretch of text in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which of the files, in their order.
    pub file: usize,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The length in characters, at least 1.
    pub length: usize,
}

/// One mistake: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// None for a variable of the environment and for something that is missing altogether.
    pub place: Option<Place>,
    /// Such as `cloudConfigurations.primary.apiUrl`, or the name of the variable.
    pub path: String,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Fault {
    pub(super) fn at(place: Place, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Some(place), path: path.into(), message: message.into(), help: None }
    }

    pub(super) fn nowhere(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: None, path: path.into(), message: message.into(), help: None }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Proposes the nearest of the known words, or else says `otherwise` where it is not blank.
    pub(super) fn nearest<'a>(
        self,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: impl Into<String>,
    ) -> Self {
        let otherwise = otherwise.into();
        match nearest(word, known.into_iter()) {
            Some(near) => self.help(format!("did you mean `{near}`?")),
            None if otherwise.is_empty() => self,
            None => self.help(otherwise),
        }
    }

    /// Proposes the nearest of the names of a section, or else lists them.
    pub(super) fn known_in<'a>(
        self,
        section: &str,
        word: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let all = known.clone().collect::<Vec<_>>().join(", ");
        let empty = all.is_empty();
        let help = if empty {
            format!("add it to {section}")
        } else {
            format!("known in {section}: {all}")
        };
        self.nearest(word, known, help)
    }

    /// The fault as scripts read it.
    pub fn located(&self, sources: &Sources) -> LocatedFault {
        let file = self.place.and_then(|place| sources.file(place.file));
        LocatedFault {
            file: file.map(|file| file.name.clone()),
            line: self.place.map(|place| place.line),
            column: self.place.map(|place| place.column),
            key: Some(self.path.clone()).filter(|key| !key.is_empty()),
            what: self.message.clone(),
            help: self.help.clone(),
        }
    }
}

/// A fault or a warning as scripts read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocatedFault {
    /// Null for a variable of the environment and for something that is missing altogether.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The key, or the variable's name.
    pub key: Option<String>,
    pub what: String,
    pub help: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Sorts faults by place and removes duplicates; those without a place come last.
pub(super) fn sort(faults: &mut Vec<Fault>) {
    faults.sort_by_cached_key(|fault| {
        (fault.place.is_none(), fault.place, fault.path.clone(), fault.message.clone())
    });
    faults.dedup();
}

/// Keeps the first [`MAX_FAULTS_SHOWN`] faults and adds one that counts the others.
pub(super) fn bound(faults: &mut Vec<Fault>) {
    let more = faults.len().saturating_sub(MAX_FAULTS_SHOWN);
    if more > 0 {
        faults.truncate(MAX_FAULTS_SHOWN);
        faults.push(Fault::nowhere("", format!("{more} more faults are not shown")));
    }
}

/// Removes from faults what is masked in the files: a typing error can turn a secret into a key.
pub(super) fn hide(faults: &mut [Fault], sources: &Sources) {
    let hidden = sources.hidden_words();
    for fault in faults {
        let Fault { path, message, help, .. } = fault;
        for text in [path, message].into_iter().chain(help) {
            for word in &hidden {
                if text.contains(word) {
                    *text = text.replace(word, "***");
                }
            }
        }
    }
}

/// The fault of a file that is UTF-8 only up to this byte of its text.
pub(super) fn no_text(file: usize, text: &str, sound: usize) -> Fault {
    Fault::at(place_of(file, text, sound), "", "the text is not UTF-8 from here on")
        .help("save it as plain UTF-8 text")
}

/// The fault of a file with a control character at this byte of its text.
pub(super) fn control(file: usize, text: &str, at: usize) -> Fault {
    let code = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, u32::from);
    let message = format!("control character {code:#04x}: YAML does not allow it");
    Fault::at(place_of(file, text, at), "", message)
        .help("check whether the file is damaged; save it as plain text")
}

fn place_of(file: usize, text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Place { file, line, column, length: 1 }
}

/// Renders faults with the lines around them, without colour, secrets masked.
pub(super) fn render(faults: &[Fault], sources: &Sources) -> String {
    drawn(faults, sources, Severity::Error)
}

/// Renders warnings as [`render`] does faults.
pub(super) fn render_warnings(warnings: &[Fault], sources: &Sources) -> String {
    drawn(warnings, sources, Severity::Warning)
}

/// The first faults, one line each: `FILE:LINE:COLUMN: KEY: message; help`.
pub fn lines(faults: &[Fault], sources: &Sources) -> Vec<String> {
    let line = |fault: &Fault| {
        let file = fault.place.and_then(|place| Some((place, sources.file(place.file)?)));
        let at = file.map_or_else(String::new, |(place, file)| {
            format!("{}:{}:{}: ", file.name, place.line, place.column)
        });
        let help = fault.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
        format!("{at}{fault}{help}").replace('\n', " ")
    };
    let mut lines: Vec<String> = faults.iter().take(MAX_FAULTS_LOGGED).map(line).collect();
    if faults.len() > MAX_FAULTS_LOGGED {
        lines.push(format!(
            "and {} more: `drover check` shows all",
            faults.len() - MAX_FAULTS_LOGGED
        ));
    }
    lines
}

fn drawn(faults: &[Fault], sources: &Sources, severity: Severity) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .with_wrap_lines(false)
        .with_links(false)
        .without_syntax_highlighting();
    let mut text = String::new();
    for fault in faults {
        if !text.is_empty() {
            text.push('\n');
        }
        let report = report(fault, sources, severity);
        if handler.render_report(&mut text, report.as_ref()).is_err() {
            text.push_str(&format!("{fault}\n"));
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

/// A fault with the text around it; with its place alone where the line is too long.
fn report(fault: &Fault, sources: &Sources, severity: Severity) -> Report {
    let mut shown = MietteDiagnostic::new(fault.to_string()).with_severity(severity);
    shown.help.clone_from(&fault.help);
    let file = fault.place.and_then(|place| Some((place, sources.file(place.file)?)));
    let Some((place, file)) = file else { return shown.into() };
    let text = file.masked();
    let (start, length) = bytes_of(text, place);
    let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
    if text[line..].find('\n').unwrap_or(text.len() - line) > MAX_LINE_BYTES {
        shown.message = format!("{}:{}:{}: {fault}", file.name, place.line, place.column);
        return shown.into();
    }
    let label = LabeledSpan::new(Some("here".to_owned()), start, length);
    let source = NamedSource::new(file.name.clone(), text.to_owned());
    Report::new(shown.with_label(label)).with_source_code(source)
}

/// Start and length of a place in bytes; never past the end of its line.
fn bytes_of(text: &str, place: Place) -> (usize, usize) {
    let mut start = 0;
    let mut rest = text;
    for _ in 1..place.line {
        let Some(end) = rest.find('\n') else { break };
        start += end + 1;
        rest = &rest[end + 1..];
    }
    let line = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
    let offset =
        |characters: usize| line.char_indices().nth(characters).map_or(line.len(), |(at, _)| at);
    let from = offset(place.column - 1);
    let to = offset(place.column - 1 + place.length);
    (start + from, to - from)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    fn place(line: usize, column: usize, length: usize) -> Place {
        Place { file: 0, line, column, length }
    }

    // Invariant: a place is turned into the bytes it covers, whatever stands before it.

    #[test]
    fn a_place_after_wide_characters_covers_the_right_bytes() {
        let text = "a: 1\nüöä: wrong\n";
        let (start, length) = bytes_of(text, place(2, 6, 5));
        assert_eq!(text.get(start..start + length).unwrap(), "wrong");
    }

    #[test]
    fn a_place_past_the_text_stays_inside_it() {
        assert_eq!(bytes_of("ab", place(9, 9, 9)), (2, 0));
    }

    #[test]
    fn faults_are_ordered_by_place_and_said_once() {
        let late = Fault::at(place(9, 1, 1), "b", "late");
        let early = Fault::at(place(2, 1, 1), "a", "early");
        let outside = Fault::nowhere("PVE_ENDPOINT", "bad");
        let mut faults = vec![outside.clone(), late.clone(), early.clone(), late.clone()];
        sort(&mut faults);
        assert_eq!(faults, [early, late, outside]);
    }
}
