//! The doctor's report, as text for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use drover_ci::{Remedy, Severity};
use drover_model::id::CloudId;
pub use drover_model::outside::clean;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    #[serde(rename = "mark")]
    pub severity: Severity,
    /// The subject of the check.
    pub about: String,
    /// What was found.
    pub text: String,
    /// What helps; empty for what is well.
    #[serde(rename = "mend")]
    pub remedies: Vec<Remedy>,
}

/// The findings about one cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CloudReport {
    /// The id of the cloud.
    pub cloud: String,
    pub name: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceReport {
    /// The id of the source.
    pub source: String,
    pub kind: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about the repository with part of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepositoryReport {
    pub url: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about the provider at which people log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderReport {
    pub issuer: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about the collector that takes traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollectorReport {
    pub endpoint: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about the store that several drovers share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreReport {
    pub store: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The findings about one channel of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChannelReport {
    /// The name of the channel.
    pub channel: String,
    /// Such as `mail`.
    pub via: String,
    /// The findings in the order of the checks.
    pub lines: Vec<Line>,
}

/// The reports of the store, of the repository, of the provider, of channels, of the collector, and of all
/// clouds and sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// None where this drover stands alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreReport>,
    /// None where no repository is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryReport>,
    /// None where nobody logs in at a provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelReport>,
    /// None where nobody takes traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorReport>,
    pub clouds: Vec<CloudReport>,
    pub sources: Vec<SourceReport>,
}

impl CloudReport {
    /// A report without findings.
    pub fn new(cloud: &CloudId, name: &str) -> Self {
        Self { cloud: cloud.to_string(), name: name.to_owned(), lines: Vec::new() }
    }

    pub(super) fn ok(&mut self, about: impl Into<String>, text: impl Into<String>) {
        self.add(Severity::Ok, about.into(), text.into(), Vec::new());
    }

    pub(super) fn warn(
        &mut self,
        about: impl Into<String>,
        text: impl Into<String>,
        remedies: impl Into<Vec<Remedy>>,
    ) {
        self.add(Severity::Warn, about.into(), text.into(), remedies.into());
    }

    pub(super) fn fail(
        &mut self,
        about: impl Into<String>,
        text: impl Into<String>,
        remedies: impl Into<Vec<Remedy>>,
    ) {
        self.add(Severity::Fail, about.into(), text.into(), remedies.into());
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        about: String,
        text: String,
        remedies: Vec<Remedy>,
    ) {
        self.lines.push(Line { severity, about, text, remedies });
    }

    /// The most severe of its findings.
    pub fn worst(&self) -> Severity {
        self.lines.iter().map(|line| line.severity).max().unwrap_or(Severity::Ok)
    }
}

/// Writes what helps: each place in a line, and below it what to type there.
pub fn write_remedies<'a>(
    out: &mut String,
    indent: &str,
    remedies: impl IntoIterator<Item = &'a Remedy>,
) {
    let mut place = None;
    for remedy in remedies {
        if place.replace(&remedy.place) != Some(&remedy.place) {
            let _ = writeln!(out, "{indent}{}:", clean(&remedy.place));
        }
        let _ = writeln!(out, "{indent}> {}", clean(&remedy.action));
    }
}

impl Report {
    /// Whether nothing failed.
    pub fn is_well(&self) -> bool {
        self.all().flat_map(|(_, lines)| lines).all(|line| line.severity < Severity::Fail)
    }

    /// The heading of the store, of the repository, of the provider, of the collector, and of each cloud and
    /// source, with its findings.
    fn all(&self) -> impl Iterator<Item = (String, &[Line])> {
        let called = |what: &str, id: &str, more: &str| format!("{what} {id} ({})", clean(more));
        let store = self.store.iter();
        let store = store.map(|one| (format!("store {}", clean(&one.store)), &one.lines[..]));
        let repository = self.repository.iter();
        let repository = repository
            .map(|one| (format!("configuration from {}", clean(&one.url)), &one.lines[..]));
        let provider = self.provider.iter();
        let provider =
            provider.map(|one| (format!("login at {}", clean(&one.issuer)), &one.lines[..]));
        let channels = self.channels.iter();
        let channels =
            channels.map(move |one| (called("channel", &one.channel, &one.via), &one.lines[..]));
        let collector = self.collector.iter();
        let collector =
            collector.map(|one| (format!("traces to {}", clean(&one.endpoint)), &one.lines[..]));
        let clouds = self.clouds.iter();
        let clouds =
            clouds.map(move |one| (called("cloud", &one.cloud, &one.name), &one.lines[..]));
        let sources = self.sources.iter();
        store
            .chain(repository)
            .chain(provider)
            .chain(channels)
            .chain(collector)
            .chain(clouds)
            .chain(
                sources.map(move |one| (called("source", &one.source, &one.kind), &one.lines[..])),
            )
    }

    /// The report for people: a line for each finding, and below it what helps: where, and behind
    /// `>` what to type there. A command is printed once and referred to afterwards, because many
    /// commands fail when they run again.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, lines) in self.all() {
            let _ = writeln!(out, "{name}");
            let mut first: BTreeMap<&Remedy, usize> = BTreeMap::new();
            for (at, line) in lines.iter().enumerate() {
                let (about, text) = (clean(&line.about), clean(&line.text));
                let _ = writeln!(out, "  {:<4}  {about}: {text}", line.severity.word());
                let indent = "        ";
                let mut from = |remedy| *first.entry(remedy).or_insert(at);
                let (own, earlier): (Vec<(usize, &Remedy)>, Vec<_>) = line
                    .remedies
                    .iter()
                    .map(&mut from)
                    .zip(&line.remedies)
                    .partition(|(from, _)| *from == at);
                write_remedies(&mut out, indent, own.into_iter().map(|(_, remedy)| remedy));
                let earlier: BTreeSet<usize> = earlier.into_iter().map(|(from, _)| from).collect();
                for from in earlier {
                    let _ = writeln!(out, "{indent}as above, for {}", clean(&lines[from].about));
                }
            }
        }
        let count = |mark| {
            self.all().flat_map(|(_, lines)| lines).filter(|line| line.severity == mark).count()
        };
        let (ok, warn, fail) = (count(Severity::Ok), count(Severity::Warn), count(Severity::Fail));
        let _ = writeln!(out, "{ok} ok, {warn} warn, {fail} fail");
        out
    }
}
