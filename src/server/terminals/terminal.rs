//! One terminal: its screen, what is typed into it, and who looks at it.
//!
//! A [`Terminal`] is shared by its pump (`pump.rs`) and the requests of its owner. The lock is held for as long as a
//! piece of output or a screen takes, and never across an await.

use std::time::{Duration, Instant};

use bytes::Bytes;
use drover_api::TerminalScreenOut;
use drover_audit as audit;
use drover_model::id::AgentId;
use drover_ssh::{TerminalInput, TerminalSize};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::right::Ages;
use super::screen::{Known, Screen};
use crate::auth::Caller;
use crate::pass::Pass;

/// How long keys wait for a guest that reads none.
const KEYS_LIMIT: Duration = Duration::from_secs(2);

/// A terminal that somebody opened.
pub(crate) struct Terminal {
    pub id: String,
    pub agent: AgentId,
    /// Who opened it, and may use it alone.
    pub caller: Caller,
    /// What let them in: a terminal ends when it does not any more.
    pub pass: Pass,
    /// Where they were.
    pub peer: String,
    pub opened: Instant,
    live: Mutex<Live>,
    /// Counts what a reader should look at again.
    changes: watch::Sender<u64>,
    /// Why it is to end, once somebody closed it.
    closed: watch::Sender<Option<&'static str>>,
}

struct Live {
    screen: Screen,
    /// None when it has ended.
    keys: Option<mpsc::Sender<TerminalInput>>,
    last_key: Instant,
    typed: u64,
    shown: u64,
    /// The number of the reader who looks at it; a new one takes the place of the one before.
    reader: u64,
    unread_since: Option<Instant>,
    ended: Option<String>,
}

/// Somebody who looks at a terminal.
pub(crate) struct Reader {
    terminal: std::sync::Arc<Terminal>,
    number: u64,
    known: Known,
    changes: watch::Receiver<u64>,
}

/// What a reader gets next.
pub(crate) enum Next {
    Screen(Box<TerminalScreenOut>),
    /// It is over, for this reason.
    Ended(String),
}

/// Why keys were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTyped {
    /// The terminal has ended.
    Ended,
    /// The guest does not read what was typed before.
    Full,
}

impl Terminal {
    pub(crate) fn new(
        id: String,
        agent: AgentId,
        (caller, pass, peer): (Caller, Pass, String),
        size: TerminalSize,
        keys: mpsc::Sender<TerminalInput>,
    ) -> Self {
        let now = Instant::now();
        let live = Live {
            screen: Screen::new(size),
            keys: Some(keys),
            last_key: now,
            typed: 0,
            shown: 0,
            reader: 0,
            unread_since: Some(now),
            ended: None,
        };
        let (changes, closed) = (watch::Sender::new(0), watch::Sender::new(None));
        let live = Mutex::new(live);
        Self { id, agent, caller, pass, peer, opened: now, live, changes, closed }
    }

    /// Puts what the guest sent on the screen; gives what the terminal answers by itself.
    pub(crate) fn show(&self, bytes: &Bytes) -> Vec<u8> {
        let mut live = self.live.lock();
        live.shown += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let answer = live.screen.take(bytes);
        drop(live);
        self.note();
        answer
    }

    /// Sends what the terminal answers by itself; where the guest reads nothing, it gets no answer either.
    pub(crate) fn answer(&self, bytes: Vec<u8>) {
        let live = self.live.lock();
        if let Some(keys) = live.keys.as_ref().filter(|_| !bytes.is_empty()) {
            let _full = keys.try_send(TerminalInput::Bytes(bytes.into()));
        }
    }

    /// Sends keys to the guest.
    pub(crate) async fn type_in(&self, text: String) -> Result<(), NotTyped> {
        let keys = {
            let mut live = self.live.lock();
            let keys = live.keys.clone().ok_or(NotTyped::Ended)?;
            live.last_key = Instant::now();
            live.typed += u64::try_from(text.len()).unwrap_or(u64::MAX);
            keys
        };
        send(&keys, TerminalInput::Bytes(text.into())).await
    }

    pub(crate) async fn resize(&self, size: TerminalSize) -> Result<(), NotTyped> {
        let keys = self.live.lock().keys.clone().ok_or(NotTyped::Ended)?;
        send(&keys, TerminalInput::Size(size)).await?;
        self.live.lock().screen.resize(size);
        self.note();
        Ok(())
    }

    pub(crate) fn ages(&self, now: Instant) -> Ages {
        let live = self.live.lock();
        let since = |then| now.saturating_duration_since(then);
        Ages {
            opened: since(self.opened),
            last_key: since(live.last_key),
            unread: live.unread_since.map(since),
        }
    }

    /// Asks its pump to end it.
    pub(crate) fn close(&self, why: &'static str) {
        self.closed.send_replace(Some(why));
    }

    /// Waits until somebody closes it.
    pub(crate) async fn until_closed(&self) -> &'static str {
        let mut closed = self.closed.subscribe();
        // The sender lives in `self`, so the wait cannot end early.
        let why = closed.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or("it was closed")
    }

    /// Ends it. The guest hears it from the end of the keys.
    pub(crate) fn end(&self, why: &str) {
        let mut live = self.live.lock();
        live.keys = None;
        live.ended.get_or_insert_with(|| why.to_owned());
        drop(live);
        self.note();
    }

    fn note(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// As the audit log has it.
    pub(crate) fn named(&self) -> audit::Terminal {
        audit::Terminal {
            id: self.id.clone(),
            agent: self.agent.to_string(),
            principal: self.caller.principal.clone(),
            role: self.caller.role.to_string(),
            peer: self.peer.clone(),
        }
    }

    /// Its end as the audit log has it.
    pub(crate) fn ended(&self, why: &str) -> audit::Entry {
        let live = self.live.lock();
        audit::Entry::TerminalEnded {
            terminal: self.named(),
            seconds: self.opened.elapsed().as_secs(),
            typed_bytes: live.typed,
            shown_bytes: live.shown,
            why: why.to_owned(),
        }
    }
}

async fn send(keys: &mpsc::Sender<TerminalInput>, input: TerminalInput) -> Result<(), NotTyped> {
    match tokio::time::timeout(KEYS_LIMIT, keys.send(input)).await {
        Ok(sent) => sent.map_err(|_| NotTyped::Ended),
        Err(_) => Err(NotTyped::Full),
    }
}

impl Reader {
    /// Looks at a terminal, in the place of the reader before.
    pub(crate) fn of(terminal: std::sync::Arc<Terminal>) -> Self {
        let mut live = terminal.live.lock();
        live.reader += 1;
        live.unread_since = None;
        let number = live.reader;
        drop(live);
        // The one before looks up, and sees that it is none any more.
        terminal.note();
        let mut changes = terminal.changes.subscribe();
        changes.mark_changed();
        Self { terminal, number, known: Known::default(), changes }
    }

    /// Waits until something is new.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in the terminal, which this reader has.
        let _alive = self.changes.changed().await.is_ok();
    }

    /// What is new on the screen, and whether the terminal has ended.
    pub(crate) fn next(&mut self) -> (Next, Option<String>) {
        let mut live = self.terminal.live.lock();
        if live.reader != self.number {
            return (Next::Ended("another window shows it now".to_owned()), None);
        }
        let (out, known) = live.screen.since(&self.known);
        self.known = known;
        (Next::Screen(Box::new(out)), live.ended.clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut live = self.terminal.live.lock();
        if live.reader == self.number {
            live.unread_since = Some(Instant::now());
        }
    }
}
