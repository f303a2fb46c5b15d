//! The stream of facts: numbered, with a bounded past over several starts of the service, and never
//! waiting for a slow reader.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use drover_model::fact::Fact;
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

use super::history::keep;

/// Facts kept for readers that come back, and the most a reader may fall behind.
pub const FACTS_KEPT: usize = 1024;

/// Which fact of which start of the service; written `run-number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The start of the service.
    pub run: u64,
    /// The fact's number in it, from 1.
    pub number: u64,
}

impl EventId {
    /// Before all events that are kept.
    pub const OLDEST: Self = Self { run: 0, number: 0 };
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.number)
    }
}

impl FromStr for EventId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "0" {
            return Ok(Self::OLDEST);
        }
        let (run, number) = text.trim().split_once('-').unwrap_or((text, ""));
        Ok(Self { run: run.parse()?, number: number.parse()? })
    }
}

/// A numbered fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: EventId,
    pub fact: Fact,
}

/// What a reader of the stream gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Reported {
    Event(Arc<Event>),
    /// Facts were missed; the reader should look at the whole again.
    Lagged {
        /// How many; none when they belong to another start of the service.
        missed: Option<u64>,
    },
    /// Another member of the store led: what happened between these two is in its state directory, and not
    /// known here.
    Elsewhere {
        after: EventId,
        before: EventId,
    },
}

/// Takes each event to where it is kept over a restart; never waits.
pub type Keeper = Box<dyn Fn(&Arc<Event>) + Send + Sync>;

pub(super) struct Feed {
    pub(super) run: u64,
    ring: Mutex<Ring>,
    live: broadcast::Sender<Arc<Event>>,
    keeper: OnceLock<Keeper>,
    /// Whether other drovers of the same herd may have led other starts.
    is_shared: AtomicBool,
}

struct Ring {
    last: u64,
    kept: VecDeque<Arc<Event>>,
}

impl Ring {
    /// How many events of this start were missed since that one, if any, and those after it that are
    /// kept. Of an earlier start it is not known how many; where the event itself is kept, none.
    fn after(
        &self,
        id: EventId,
        run: u64,
    ) -> (Option<Option<u64>>, impl Iterator<Item = Arc<Event>>) {
        let place = self.kept.iter().position(|event| event.id == id);
        let is_own = id.run == run && id.number <= self.last;
        let (missed, skipped) = match place {
            Some(place) => (None, place + 1),
            None if is_own => {
                let first = self.kept.iter().position(|event| event.id.run == run && event.id > id);
                let first = first.unwrap_or(self.kept.len());
                let oldest = self.kept.get(first).map_or(self.last + 1, |event| event.id.number);
                let missed = oldest.saturating_sub(id.number + 1);
                ((missed > 0).then_some(Some(missed)), first)
            }
            // One that is not known: of an earlier start, what happened since then goes on.
            None => (Some(None), self.kept.partition_point(|event| event.id <= id)),
        };
        (missed, self.kept.iter().skip(skipped).cloned())
    }

    /// The place where this start's next event comes.
    fn next(&self, run: u64) -> EventId {
        EventId { run, number: self.last + 1 }
    }
}

/// Says where starts of other members lie between events: their events are not known here.
struct Elsewhere {
    /// The last event that the reader has, or that another one stands for.
    last: EventId,
}

impl Elsewhere {
    fn before(&mut self, next: EventId) -> Option<Reported> {
        let after = std::mem::replace(&mut self.last, next);
        // The first event of a start follows the last one of the start before.
        let is_known = next.run <= after.run + 1 || (after == EventId::OLDEST && next.number > 1);
        (!is_known).then_some(Reported::Elsewhere { after, before: next })
    }
}

impl Feed {
    pub(super) fn new(run: u64) -> Self {
        let ring = Mutex::new(Ring { last: 0, kept: VecDeque::new() });
        let (live, keeper) = (broadcast::Sender::new(FACTS_KEPT), OnceLock::new());
        Self { run, ring, live, keeper, is_shared: AtomicBool::new(false) }
    }

    /// Says that other members of a store may have led other starts.
    pub(super) fn mark_shared(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// The last event of this start, or what stands before its first one.
    pub(super) fn last(&self) -> EventId {
        EventId { run: self.run, number: self.ring.lock().last }
    }

    /// Puts an event of an earlier start before all of this one.
    pub(super) fn restore(&self, event: Arc<Event>) {
        keep(&mut self.ring.lock().kept, event, FACTS_KEPT);
    }

    /// Says where events are kept over a restart; once.
    pub(super) fn keep_with(&self, keeper: Keeper) {
        // The first stays: there is one file.
        let _ = self.keeper.set(keeper);
    }

    pub(super) fn report(&self, fact: Fact) {
        let mut ring = self.ring.lock();
        ring.last += 1;
        let event = Arc::new(Event { id: EventId { run: self.run, number: ring.last }, fact });
        keep(&mut ring.kept, event.clone(), FACTS_KEPT);
        if let Some(keeper) = self.keeper.get() {
            keeper(&event);
        }
        // Sent under the lock, so that a reader's past and present meet without a gap. Nobody
        // listening is no fault.
        let _ = self.live.send(event);
    }

    /// The events that are kept, the oldest first.
    pub(super) fn kept(&self) -> Vec<Arc<Event>> {
        self.ring.lock().kept.iter().cloned().collect()
    }

    pub(super) fn read(&self, after: Option<EventId>) -> Reader {
        let ring = self.ring.lock();
        let live = self.live.subscribe();
        let Some(id) = after else { return Reader { past: VecDeque::new(), live } };
        let is_known = ring.kept.iter().any(|event| event.id == id);
        let (missed, later) = ring.after(id, self.run);
        // Before the oldest nothing is missed that was kept.
        let missed = missed.filter(|_| id != EventId::OLDEST);
        let mut past = VecDeque::new();
        if self.is_shared.load(Ordering::Relaxed) {
            let is_own = id.run == self.run;
            past.extend(missed.filter(|_| is_own).map(|missed| Reported::Lagged { missed }));
            let mut elsewhere = Elsewhere { last: id };
            if !is_known && !is_own && id != EventId::OLDEST {
                let next = ring.kept.iter().map(|event| event.id).find(|known| *known > id);
                let before = next.unwrap_or_else(|| ring.next(self.run));
                past.push_back(Reported::Elsewhere { after: id, before });
                elsewhere.last = before;
            }
            for event in later {
                past.extend(elsewhere.before(event.id));
                past.push_back(Reported::Event(event));
            }
            past.extend(elsewhere.before(ring.next(self.run)));
        } else {
            past.extend(missed.map(|missed| Reported::Lagged { missed }));
            past.extend(later.map(Reported::Event));
        }
        Reader { past, live }
    }
}

/// One reader's place in the stream.
pub struct Reader {
    past: VecDeque<Reported>,
    live: broadcast::Receiver<Arc<Event>>,
}

impl Reader {
    /// Whether events are left that happened before this reader began.
    pub fn has_past(&self) -> bool {
        !self.past.is_empty()
    }

    /// Waits for what comes next; none when the view is gone.
    pub async fn next(&mut self) -> Option<Reported> {
        if let Some(reported) = self.past.pop_front() {
            return Some(reported);
        }
        match self.live.recv().await {
            Ok(event) => Some(Reported::Event(event)),
            Err(RecvError::Lagged(missed)) => Some(Reported::Lagged { missed: Some(missed) }),
            Err(RecvError::Closed) => None,
        }
    }
}
