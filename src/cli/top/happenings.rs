//! The last events of the stream, newest first, each as the sentence that `drover events` prints.

use std::collections::VecDeque;

use drover_api::{EventKind, sentence};
use serde_json::Value;

use super::super::options::TopNoun;
use super::super::table::{Cell, Column, Kind, column};
use super::EVENTS_MAX;
use super::listing::{Entry, Listing};

/// The longest sentence that is kept, in characters.
const SENTENCE_MAX: usize = 500;
/// The longest event that is kept as it came, in bytes.
const THING_MAX: usize = 16 * 1024;

const COLUMNS: &[Column] = &[
    column("HAPPENED", Kind::Time, 0),
    column("KIND", Kind::Name, 1),
    column("EVENT", Kind::Text, 0),
];

/// Where an event names what it is about.
const ABOUT: [&str; 16] = [
    "/agent/id",
    "/agent/template",
    "/agent/node",
    "/step/agent",
    "/alarm/agent",
    "/lease/id",
    "/lease/agent",
    "/template/id",
    "/template",
    "/breaker/id",
    "/cloud/id",
    "/cloud",
    "/source/id",
    "/source",
    "/image/image",
    "/machine/name",
];

/// An event that happened.
#[derive(Debug, Clone)]
pub(super) struct Happening {
    id: String,
    at: Option<String>,
    kind: String,
    pub sentence: String,
    /// The names of the things that it is about.
    about: Vec<String>,
    thing: Value,
}

impl Happening {
    /// An event of the stream, its data as it came.
    pub(super) fn of(id: &str, kind: &str, data: &str) -> Self {
        let thing: Value = serde_json::from_str(data).unwrap_or_default();
        let about = ABOUT.iter().filter_map(|path| Some(thing.pointer(path)?.as_str()?.to_owned()));
        Self {
            id: id.to_owned(),
            at: thing["at"].as_str().map(str::to_owned),
            kind: kind.to_owned(),
            sentence: sentence(kind, &thing).chars().take(SENTENCE_MAX).collect(),
            about: about.collect(),
            thing: if data.len() <= THING_MAX { thing } else { Value::Null },
        }
    }

    /// Whether it says how a thing stands, rather than what was done.
    fn is_state(&self) -> bool {
        use EventKind::{Agent, Cloud, Lease, Source, Template};
        matches!(EventKind::of(&self.kind), Some(Agent | Lease | Template | Cloud | Source))
    }

    /// When it happened (RFC 3339), as far as it says so.
    pub(super) fn at(&self) -> &str {
        self.at.as_deref().unwrap_or_default()
    }
}

/// The last events.
#[derive(Debug, Default)]
pub(super) struct Happenings(VecDeque<Happening>);

impl Happenings {
    /// Takes an event, unless it says of its thing what the last one about it said: much of what changes is in
    /// no sentence.
    pub(super) fn add(&mut self, one: Happening) {
        let is_of_it =
            |other: &&Happening| other.kind == one.kind && other.about.first() == one.about.first();
        let last = self.0.iter().find(is_of_it).filter(|_| one.is_state());
        if last.is_some_and(|last| last.sentence == one.sentence) {
            return;
        }
        self.0.push_front(one);
        self.0.truncate(EVENTS_MAX);
    }

    /// The events about a thing of this name, newest first.
    pub(super) fn about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Happening> {
        self.0.iter().filter(move |one| one.about.iter().any(|about| about == name))
    }

    pub(super) fn listing(&self) -> Listing {
        let rows = self.0.iter().map(|one| {
            let entry =
                Entry { noun: TopNoun::Events, name: one.id.clone(), thing: one.thing.clone() };
            let cells =
                vec![Cell::time(one.at.as_ref()), Cell::of(&one.kind), Cell::of(&one.sentence)];
            (entry, cells)
        });
        Listing::new(COLUMNS, rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-11-21T08:00:00Z";

    // Invariant: what an event says of a thing is news, or it is not shown.

    #[test]
    fn a_state_is_said_once_and_what_was_done_each_time() {
        let mut all = Happenings::default();
        let mut add = |kind: &str, data: &str| all.add(Happening::of("1-1", kind, data));
        let ready = r#"{"agent":{"id":"a1","template":"lab/linux","state":"Ready"}}"#;
        let other = r#"{"agent":{"id":"a2","template":"lab/linux","state":"Ready"}}"#;
        let step = r#"{"step":{"agent":"a1","name":"prepare","exit":0}}"#;
        for (kind, data) in [("agent", ready), ("agent", ready), ("agent", other), ("agent", ready)]
        {
            add(kind, data);
        }
        add("step", step);
        add("step", step);
        assert_eq!(
            all.0.iter().map(|one| one.kind.as_str()).collect::<Vec<_>>(),
            ["step", "step", "agent", "agent"]
        );
    }

    // Invariant: events take no more than their room, however many come and however long they are.

    #[test]
    fn the_last_events_are_kept_and_a_long_one_as_its_sentence_alone() {
        let mut all = Happenings::default();
        for number in 0..EVENTS_MAX + 10 {
            let state = if number % 2 == 0 { "Booting" } else { "Ready" };
            let data = format!(r#"{{"at":"{AT}","agent":{{"id":"a1","state":"{state}"}}}}"#);
            all.add(Happening::of(&format!("1-{number}"), "agent", &data));
        }
        let listing = all.listing();
        assert_eq!(listing.entries.len(), EVENTS_MAX);
        assert_eq!(listing.entries[0].name, format!("1-{}", EVENTS_MAX + 9), "the newest first");
        assert_eq!(all.about("a1").count(), EVENTS_MAX);
        assert_eq!(all.about("a2").count(), 0);
        let long = format!(r#"{{"agent":{{"id":"a1","detail":"{}"}}}}"#, "x".repeat(THING_MAX));
        let long = Happening::of("1-1", "agent", &long);
        assert_eq!((long.thing, long.sentence.chars().count()), (Value::Null, SENTENCE_MAX));
    }
}
