//! The spans that wait for the collector: which of them go next, when, and what is said of it.
//!
//! ```text
//! push ──▶ waiting ──▶ under way ──┬─ taken ──▶ gone, counted
//!             ▲           ▲        ├─ later ──▶ the same ones again, after a pause that doubles
//!             │           └────────┘
//!             └ full: new ones are dropped and counted
//! ```
//!
//! One request is under way at a time. A collector that does not answer is said once, and once more when it
//! answers again; one that fails again and again at most every [`SAY_AGAIN`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use drover_spans::{Answer, BATCH_SPANS, Span, batch};
use tokio::time::Instant;

/// The most spans that wait, and about the most bytes of them.
pub(super) const WAITING_MAX: usize = 8192;
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long spans wait for others, so that they go in one request.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// The pause before a request is sent again, where the collector does not say one; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The same trouble is said again after this time at the soonest.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// What keeps spans from being taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It does not answer, or asks to wait.
    Silent,
    /// It refuses requests.
    Refuses,
    /// It took part of a request.
    Partly,
    /// Spans come faster than it takes them.
    Full,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Say {
    Silent {
        why: String,
    },
    Refuses {
        why: String,
    },
    Partly {
        why: String,
    },
    Full,
    /// It takes spans again; so many were lost meanwhile.
    Again {
        lost: u64,
    },
    /// What it says beside that it took spans.
    Warning {
        why: String,
    },
}

/// What became of spans, and what is said of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) sent: u64,
    pub(super) refused: u64,
    pub(super) dropped: u64,
    pub(super) say: Option<Say>,
}

/// The spans that wait.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Span>,
    bytes: usize,
    /// What is sent, or is to be sent again.
    under_way: Option<Arc<Vec<Span>>>,
    is_sending: bool,
    /// When the next request may go.
    due: Option<Instant>,
    pause: Option<Duration>,
    trouble: Option<Trouble>,
    /// What was said last of a trouble, and when.
    said: Option<(Trouble, Instant)>,
    /// Spans that were lost since the trouble started.
    lost: u64,
    warned: Option<String>,
}

fn count(spans: usize) -> u64 {
    u64::try_from(spans).unwrap_or(u64::MAX)
}

impl Outbox {
    /// Takes in spans; those that have no room are dropped.
    pub(super) fn push(&mut self, spans: Vec<Span>, now: Instant) -> Outcome {
        let mut dropped = 0;
        for span in spans {
            let bytes = span.bytes();
            if self.waiting.len() >= WAITING_MAX || self.bytes + bytes > WAITING_BYTES_MAX {
                dropped += 1;
                continue;
            }
            self.bytes += bytes;
            self.waiting.push_back(span);
        }
        if self.under_way.is_none() && !self.waiting.is_empty() {
            let soon = if self.waiting.len() >= BATCH_SPANS { now } else { now + LINGER };
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
        if dropped == 0 {
            return Outcome::default();
        }
        self.lost += dropped;
        // While the collector is silent, all of this is one outage.
        let say = self.trouble.is_none() && self.troubled(Trouble::Full, now);
        Outcome { dropped, say: say.then_some(Say::Full), ..Outcome::default() }
    }

    /// When the next request is due; none while one is under way, or nothing waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_sending)
    }

    /// The spans of the next request.
    pub(super) fn begin(&mut self) -> Arc<Vec<Span>> {
        let spans = self.under_way.take().unwrap_or_else(|| {
            let many = batch(&self.waiting);
            let spans: Vec<Span> = self.waiting.drain(..many).collect();
            self.bytes -= spans.iter().map(Span::bytes).sum::<usize>();
            Arc::new(spans)
        });
        self.under_way = Some(Arc::clone(&spans));
        (self.is_sending, self.due) = (true, None);
        spans
    }

    /// The request under way was answered.
    pub(super) fn answered(&mut self, answer: Answer, now: Instant) -> Outcome {
        self.is_sending = false;
        let many = self.under_way.as_ref().map_or(0, |spans| count(spans.len()));
        match answer {
            Answer::Taken { warning } => {
                self.next(now);
                let say = match (self.recovered(), warning) {
                    (Some(say), _) => Some(say),
                    (None, Some(why)) if self.warned.as_ref() != Some(&why) => {
                        self.warned = Some(why.clone());
                        Some(Say::Warning { why })
                    }
                    (None, _) => None,
                };
                Outcome { sent: many, say, ..Outcome::default() }
            }
            Answer::Partly { refused, why } => {
                self.next(now);
                let refused = refused.min(many);
                self.lost += refused;
                let say = self.troubled(Trouble::Partly, now).then_some(Say::Partly { why });
                Outcome { sent: many - refused, refused, say, ..Outcome::default() }
            }
            Answer::Refused { why } => {
                self.next(now);
                self.lost += many;
                let say = self.troubled(Trouble::Refuses, now).then_some(Say::Refuses { why });
                Outcome { refused: many, say, ..Outcome::default() }
            }
            Answer::Later { why, after } => {
                let pause = self.pause.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX));
                self.pause = Some(pause);
                self.due = Some(now + after.unwrap_or(pause));
                let say = self.troubled(Trouble::Silent, now).then_some(Say::Silent { why });
                Outcome { say, ..Outcome::default() }
            }
        }
    }

    /// The request is over: the next one goes at once where enough waits.
    fn next(&mut self, now: Instant) {
        (self.under_way, self.pause) = (None, None);
        let soon = if self.waiting.len() >= BATCH_SPANS { now } else { now + LINGER };
        self.due = (!self.waiting.is_empty()).then_some(soon);
    }

    /// Whether a trouble is to be said.
    fn troubled(&mut self, trouble: Trouble, now: Instant) -> bool {
        if self.trouble.replace(trouble) == Some(trouble) {
            return false;
        }
        let is_new = self.said.is_none_or(|(last, at)| last != trouble || now - at >= SAY_AGAIN);
        if is_new {
            self.said = Some((trouble, now));
        }
        is_new
    }

    /// Spans are taken: what is said where that was not so.
    fn recovered(&mut self) -> Option<Say> {
        let trouble = self.trouble.take()?;
        let lost = std::mem::take(&mut self.lost);
        // A part that is refused now and then is no outage that ends.
        let is_outage = matches!(trouble, Trouble::Silent | Trouble::Refuses);
        is_outage.then_some(Say::Again { lost })
    }

    /// The collector is another one, or is called otherwise: what waits goes there at once.
    pub(super) fn reconfigured(&mut self, now: Instant) {
        (self.is_sending, self.pause, self.trouble, self.said) = (false, None, None, None);
        (self.lost, self.warned) = (0, None);
        let waits = self.under_way.is_some() || !self.waiting.is_empty();
        self.due = waits.then_some(now);
    }

    /// Gives up all that waits.
    pub(super) fn clear(&mut self) -> Outcome {
        let under_way = self.under_way.as_ref().map_or(0, |spans| spans.len());
        let dropped = count(self.waiting.len() + under_way);
        *self = Self::default();
        Outcome { dropped, ..Outcome::default() }
    }

    /// Whether anything waits or is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }
}

#[cfg(test)]
mod tests;
