//! What is wrong with a configuration and where: one [`Fault`] per mistake, shown in its place.
//!
//! Finds no fault itself; the checks do.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity};
use serde::Serialize;

use super::source::Sources;

/// As many are shown: who has more of them has one cause for all.
const MOST: usize = 100;

/// The longest line shown, in bytes; nobody reads a longer one.
const WIDEST: usize = 1000;

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

/// Faults that a log has one by one.
const LINES: usize = 5;

/// One mistake: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where in the files; none for a variable of the environment or something missing altogether.
    pub place: Option<Place>,
    /// The key, such as `cloudConfigurations.primary.apiUrl`, or the variable's name.
    pub path: String,
    /// What is wrong.
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

    /// The same as scripts read it.
    pub fn told(&self, sources: &Sources) -> ToldFault {
        let file = self.place.and_then(|place| sources.file(place.file));
        ToldFault {
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
pub struct ToldFault {
    /// The file; null for a variable of the environment or something missing altogether.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The key, or the variable's name.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
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

/// Puts faults in the order of their places, without doubles; those without a place come last.
pub(super) fn sort(faults: &mut Vec<Fault>) {
    faults.sort_by_cached_key(|fault| {
        (fault.place.is_none(), fault.place, fault.path.clone(), fault.message.clone())
    });
    faults.dedup();
}

/// Keeps the first [`MOST`], and says how many more there are.
pub(super) fn bound(faults: &mut Vec<Fault>) {
    let more = faults.len().saturating_sub(MOST);
    if more > 0 {
        faults.truncate(MOST);
        faults.push(Fault::nowhere("", format!("{more} more like these are not shown")));
    }
}

/// Takes out of faults what is hidden in the files: a slip of the finger makes a key of a secret.
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
    Fault::at(place_of(file, text, sound), "", "not UTF-8 text from here on")
        .help("save it as plain UTF-8 text")
}

/// The fault of a file with a control character at this byte of its text.
pub(super) fn control(file: usize, text: &str, at: usize) -> Fault {
    let code = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, u32::from);
    let message = format!("the control character {code:#04x}, which no text has");
    Fault::at(place_of(file, text, at), "", message)
        .help("look whether the file was damaged; save it as plain text")
}

fn place_of(file: usize, text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Place { file, line, column, length: 1 }
}

/// Draws faults with the lines they are about, without colour, secrets masked.
pub fn render(faults: &[Fault], sources: &Sources) -> String {
    drawn(faults, sources, Severity::Error)
}

/// Draws warnings as [`render`] does faults.
pub fn render_warnings(warnings: &[Fault], sources: &Sources) -> String {
    drawn(warnings, sources, Severity::Warning)
}

/// Faults a line each, as `FILE:LINE:COLUMN: KEY: what; what to do`, of the first ones.
pub fn lines(faults: &[Fault], sources: &Sources) -> Vec<String> {
    let line = |fault: &Fault| {
        let file = fault.place.and_then(|place| Some((place, sources.file(place.file)?)));
        let at = file.map_or_else(String::new, |(place, file)| {
            format!("{}:{}:{}: ", file.name, place.line, place.column)
        });
        let help = fault.help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
        format!("{at}{fault}{help}").replace('\n', " ")
    };
    let mut lines: Vec<String> = faults.iter().take(LINES).map(line).collect();
    if faults.len() > LINES {
        lines.push(format!("and {} more: `drover check` shows all", faults.len() - LINES));
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
        let shown = Shown::new(fault, sources, severity);
        if handler.render_report(&mut text, &shown).is_err() {
            text.push_str(&format!("{fault}\n"));
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

/// A fault joined with the text around it, as miette wants it.
#[derive(Debug)]
struct Shown<'a> {
    fault: &'a Fault,
    severity: Severity,
    /// Where it is, when the text around it is not shown.
    at: Option<String>,
    source: Option<NamedSource<String>>,
    label: Option<LabeledSpan>,
}

impl<'a> Shown<'a> {
    fn new(fault: &'a Fault, sources: &Sources, severity: Severity) -> Self {
        let file = fault.place.and_then(|place| Some((place, sources.file(place.file)?)));
        let Some((place, file)) = file else {
            return Self { fault, severity, at: None, source: None, label: None };
        };
        let text = file.masked();
        let (start, length) = bytes_of(text, place);
        let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
        if text[line..].find('\n').unwrap_or(text.len() - line) > WIDEST {
            let at = Some(format!("{}:{}:{}", file.name, place.line, place.column));
            return Self { fault, severity, at, source: None, label: None };
        }
        Self {
            fault,
            severity,
            at: None,
            source: Some(NamedSource::new(file.name.clone(), file.masked().to_owned())),
            label: Some(LabeledSpan::new(Some("here".to_owned()), start, length)),
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        self.fault.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.source.as_ref().map(|source| source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.label.clone().map(|label| Box::new(std::iter::once(label)) as Box<_>)
    }
}

/// Where a place starts in the text, and how long it is, in bytes; never past its line.
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
