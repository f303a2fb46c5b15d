//! One thing in full: what it is, where its time went, why it waits, what happened to it, and what to run
//! next, as `drover show` has it.

use std::time::Duration;

use drover_api::{Role, WhySubjectOut};
use jiff::Timestamp;
use serde_json::Value;

use super::super::options::TopNoun;
use super::super::sentences::clean;
use super::super::table::{Page, View};
use super::super::{logs, show, why};
use super::input::Fault;
use super::listing::{Entry, Listing};
use super::model::{Pane, Top};
use crate::waterfall;

/// The events that are shown of one thing.
const EVENTS_SHOWN: usize = 50;
/// The columns of a waterfall's bars, on a terminal of 80 columns and more.
const BAR_COLUMNS: usize = 40;

/// Why a thing waits, as far as the service said it.
#[derive(Debug)]
pub(super) enum Why {
    /// It was not asked.
    Not,
    Asked,
    Known(Box<WhySubjectOut>),
    Failed(String),
}

/// A thing that is shown in full.
#[derive(Debug)]
pub(super) struct Detail {
    pub entry: Entry,
    pub why: Why,
    /// When the service was asked why, since the start of the command.
    pub asked: Option<Duration>,
    /// Whether an answer to that is awaited.
    pub is_open: bool,
    /// Whether the last answer did not have it any more.
    pub is_gone: bool,
}

impl Detail {
    pub(super) fn of(entry: Entry) -> Self {
        Self { entry, why: Why::Not, asked: None, is_open: false, is_gone: false }
    }

    /// Takes the thing as a newer answer has it.
    pub(super) fn renew(&mut self, listing: &Listing) {
        let is_it = |entry: &&Entry| entry.is_same(&self.entry);
        // Several versions of an image have one name.
        if self.entry.noun == TopNoun::Images || self.entry.noun == TopNoun::Events {
            return;
        }
        match listing.entries.iter().find(is_it) {
            Some(entry) => (self.entry, self.is_gone) = (entry.clone(), false),
            None => self.is_gone = true,
        }
    }

    /// Takes why the thing of this name waits.
    pub(super) fn heard(&mut self, name: &str, answer: Result<Box<WhySubjectOut>, Fault>) {
        if self.entry.name == name {
            self.is_open = false;
            self.why = match answer {
                Ok(why) => Why::Known(why),
                Err(fault) => Why::Failed(fault.text),
            };
        }
    }
}

impl Top {
    /// The title of the pane.
    pub(super) fn pane_title(&self) -> Option<String> {
        match self.pane.as_ref()? {
            Pane::Help => Some("keys".to_owned()),
            Pane::Text(_) => Some("what the command printed".to_owned()),
            Pane::Detail(detail) => {
                let Entry { noun, name, .. } = &detail.entry;
                let gone = if detail.is_gone { " (not in the list any more)" } else { "" };
                Some(clean(&format!("{}: {name}{gone}", noun.word())))
            }
        }
    }

    /// The text of the pane, as wide as the terminal.
    pub(super) fn pane_text(&self) -> String {
        let width = usize::from(self.size.0).saturating_sub(2).max(20);
        let view = View {
            utc: false,
            whole: false,
            width: Some(width),
            ..View::complete(self.clock.wall)
        };
        match &self.pane {
            None => String::new(),
            Some(Pane::Help) => self.help(&view),
            Some(Pane::Text(text)) => {
                let mut page = Page::new(&view);
                page.lines(text);
                page.into_text()
            }
            Some(Pane::Detail(detail)) => self.detail(detail, &view),
        }
    }

    /// How many lines the pane has.
    pub(super) fn pane_lines(&self) -> usize {
        if self.pane.is_some() { self.pane_text().lines().count() } else { 0 }
    }

    fn detail(&self, detail: &Detail, view: &View) -> String {
        let mut page = Page::new(view);
        let Entry { noun, name, thing } = &detail.entry;
        let mut facts = thing.clone();
        let phases = facts.as_object_mut().and_then(|fields| fields.remove("phases"));
        let id = if *noun == TopNoun::Nodes { "node" } else { "id" };
        for line in show::facts(&facts, id, view, 0).lines() {
            page.line(line);
        }
        if let Some(bars) = phases.and_then(|phases| bars(&phases, view)) {
            page.heading("TIME");
            page.lines(&bars);
        }
        match &detail.why {
            Why::Not => {}
            Why::Asked => {
                page.heading("WHY");
                page.line("drover asks its clusters");
            }
            Why::Known(known) => {
                page.heading("WHY");
                why::subject(known, &mut page);
            }
            Why::Failed(fault) => {
                page.heading("WHY");
                page.line(fault);
            }
        }
        let mut events = self.happenings.about(name).take(EVENTS_SHOWN).peekable();
        if *noun != TopNoun::Events && events.peek().is_some() {
            page.heading("EVENTS");
            for one in events {
                page.line(&format!("{:>8}  {}", ago(one.at(), view), one.sentence));
            }
        }
        let next = noun.one().map(|one| show::next(one, name, thing)).unwrap_or_default();
        if !next.is_empty() {
            page.heading("NEXT");
            for command in next {
                page.line(&self.spelled(&command));
            }
        }
        page.into_text()
    }

    /// A command as it asks the same service.
    fn spelled(&self, command: &str) -> String {
        match command.strip_prefix("drover ") {
            Some(rest) => format!("{} {rest}", self.program),
            None => command.to_owned(),
        }
    }

    fn help(&self, view: &View) -> String {
        let mut page = Page::new(view);
        page.heading("LISTS");
        page.line(&format!(":NOUN  one of {}", self.nouns().join(", ")));
        page.line("/TEXT  rows that hold TEXT; !TEXT those that do not; COLUMN=VALUE, such as state=Ready");
        page.line("s, S   sort by the next column; the other way round");
        page.line(
            "Enter  all about one thing: its time, why it waits, its events, what to run next",
        );
        page.line("Esc    back");
        page.heading("MOVE");
        page.line("j, k, arrows, PgUp, PgDn, g (first), G (last)");
        page.heading("ACTIONS");
        let all = super::action::every();
        let mut may = all.filter(|(_, one)| self.refusal(one.least).is_none()).peekable();
        if may.peek().is_some() {
            page.line("each shows its command first, and runs it after y");
        } else {
            let why = self.refusal(Role::Operator).unwrap_or_default();
            page.line(&format!("none: {why}"));
        }
        for (noun, one) in may {
            let place = noun.map_or_else(|| "anywhere".to_owned(), TopNoun::word);
            page.line(&format!("{}      {}, {place}", one.key, one.word));
        }
        page.heading("END");
        page.line("q, :q or Ctrl-C");
        page.into_text()
    }
}

/// How long ago something happened; nothing where that is not known.
fn ago(at: &str, view: &View) -> String {
    at.parse::<Timestamp>().map(|_| view.time(at)).unwrap_or_default()
}

/// The parts of a life as bars on one axis.
fn bars(phases: &Value, view: &View) -> Option<String> {
    let part = |one: &Value| {
        Some((clean(&logs::part(one["state"].as_str()?)), one["ms"].as_u64().unwrap_or(0)))
    };
    let phases: Vec<(String, u64)> = phases.as_array()?.iter().filter_map(part).collect();
    let room = view.width.unwrap_or(80).saturating_sub(36).min(BAR_COLUMNS);
    (!phases.is_empty()).then(|| waterfall::draw("in all", &phases, room))
}
