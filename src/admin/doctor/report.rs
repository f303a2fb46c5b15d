//! What the doctor says, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drover_ci::Mark;
use drover_model::id::CloudId;
use serde::Serialize;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How bad it is.
    pub mark: Mark,
    /// What was looked at.
    pub about: String,
    /// What was found.
    pub text: String,
    /// Commands that mend it, or what to do; empty for what is well.
    pub mend: Vec<String>,
}

/// All findings about one cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CloudReport {
    /// The cloud.
    pub cloud: String,
    /// Its name.
    pub name: String,
    /// The findings, in the order they were made.
    pub lines: Vec<Line>,
}

/// All findings about one source of demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// The source.
    pub source: String,
    /// Its kind.
    pub kind: String,
    /// The findings, in the order they were made.
    pub lines: Vec<Line>,
}

/// All clouds and sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Each cloud.
    pub clouds: Vec<CloudReport>,
    /// Each source of demand.
    pub sources: Vec<SourceReport>,
}

impl CloudReport {
    /// Begins without findings.
    pub fn new(cloud: &CloudId, name: &str) -> Self {
        Self { cloud: cloud.to_string(), name: name.to_owned(), lines: Vec::new() }
    }

    pub(super) fn ok(&mut self, about: impl Into<String>, text: impl Into<String>) {
        self.add(Mark::Ok, about.into(), text.into(), Vec::new());
    }

    pub(super) fn warn<I>(&mut self, about: impl Into<String>, text: impl Into<String>, mend: I)
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let mend = mend.into_iter().map(Into::into).collect();
        self.add(Mark::Warn, about.into(), text.into(), mend);
    }

    pub(super) fn fail<const N: usize>(
        &mut self,
        about: impl Into<String>,
        text: impl Into<String>,
        mend: [&str; N],
    ) {
        let mend = mend.map(str::to_owned).into();
        self.add(Mark::Fail, about.into(), text.into(), mend);
    }

    pub(super) fn add(&mut self, mark: Mark, about: String, text: String, mend: Vec<String>) {
        self.lines.push(Line { mark, about, text, mend });
    }

    /// The worst of its findings.
    pub fn worst(&self) -> Mark {
        self.lines.iter().map(|line| line.mark).max().unwrap_or(Mark::Ok)
    }
}

/// Text from elsewhere on one line, without anything that could move the cursor.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Report {
    /// Whether nothing has failed.
    pub fn is_well(&self) -> bool {
        self.all().flat_map(|(_, lines)| lines).all(|line| line.mark < Mark::Fail)
    }

    /// Clouds and sources by what they are called, each with its findings.
    fn all(&self) -> impl Iterator<Item = (String, &[Line])> {
        let called = |what: &str, id: &str, more: &str| format!("{what} {id} ({})", clean(more));
        let clouds = self.clouds.iter();
        let clouds =
            clouds.map(move |one| (called("cloud", &one.cloud, &one.name), &one.lines[..]));
        let sources = self.sources.iter();
        clouds.chain(
            sources.map(move |one| (called("source", &one.source, &one.kind), &one.lines[..])),
        )
    }

    /// The findings for people: a line each, and below it what mends it, which is told the first
    /// time alone: many commands are refused when they are run again.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, lines) in self.all() {
            let _ = writeln!(out, "{name}");
            let mut first: BTreeMap<&str, usize> = BTreeMap::new();
            for (at, line) in lines.iter().enumerate() {
                let (about, text) = (clean(&line.about), clean(&line.text));
                let _ = writeln!(out, "  {:<4}  {about}: {text}", line.mark.word());
                let mut told = None;
                for mend in &line.mend {
                    let before = *first.entry(mend).or_insert(at);
                    if before == at {
                        let _ = writeln!(out, "        > {}", clean(mend));
                    } else if told.replace(before) != Some(before) {
                        let about = clean(&lines[before].about);
                        let _ = writeln!(out, "        > # the same as above: {about}");
                    }
                }
            }
        }
        let count =
            |mark| self.all().flat_map(|(_, lines)| lines).filter(|line| line.mark == mark).count();
        let (ok, warn, fail) = (count(Mark::Ok), count(Mark::Warn), count(Mark::Fail));
        let _ = writeln!(out, "{ok} ok, {warn} warn, {fail} fail");
        out
    }
}
