//! The page of events, the last first.

use askama::Template;

use crate::filter::Filter;
use crate::frame::Frame;

/// Rows of one page.
const ROWS: usize = 300;

/// An event, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number, such as `3-17`.
    pub id: String,
    /// When (RFC 3339).
    pub at: String,
    /// The kind of the event.
    pub kind: &'static str,
    pub text: String,
    /// What a step printed, where it did.
    pub log: Option<String>,
}

/// The last events.
#[derive(Template)]
#[template(path = "events.html")]
pub struct EventsPage {
    frame: Frame,
    query: String,
    all: usize,
    found: usize,
    events: Vec<EventRow>,
}

impl EventsPage {
    /// Those that a filter finds of all that are kept, the last first.
    pub fn new(frame: Frame, mut events: Vec<EventRow>, query: &str) -> Self {
        let filter = Filter::of(query, &["kind", "text"]);
        let all = events.len();
        events.retain(|one| filter.has(&[("kind", one.kind), ("text", &one.text)]));
        let found = events.len();
        events.truncate(ROWS);
        Self { frame, query: query.to_owned(), all, found, events }
    }
}
