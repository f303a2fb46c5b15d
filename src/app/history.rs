//! The history that drover has seen, in files of the state directory.
//!
//! ```text
//! facts, notes, what guests use ──▶ queue ──▶ thread: Fold ──▶ history/000000000007.jsonl
//!                                                                      │
//! GET /v1/trace, GET /v1/usage ◀── one record after the other ◀────────┘
//! ```
//!
//! Nothing is decided by it, so nothing waits for it: what comes faster than its thread takes it is left out,
//! and the log says so. Ends are not: what has no end would be counted for weeks. They wait apart, and the thread
//! takes them behind all that came before them. A disk that fails costs the records of that time.
//!
//! - **Files.** Each starts with all records that were open when it was started, so that a start of the
//!   service reads the newest one alone. Once the next one is started, those that are over stay in it, and
//!   nothing else (`files.rs`).
//! - **Death.** Every record is written as it comes, and synced once a minute, at the end of a file and at a
//!   stop: a process that dies loses the records of the last moments at most. A torn line is left out.
//! - **Bounds.** The oldest files go where they are older than `service.history.keepDays`, or all of them
//!   have more than `keepMB`.
//! - **Members.** Each member of a store has the history of the times in which it led.
//!
//! Files: `history/files.rs` writes and removes files, `history/reading.rs` reads them.

mod files;
mod reading;

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use causes::chain;
use drover_config::{HourPrices, PriceSpec, ServiceSpec};
use drover_history::{Fold, Line, PriceList, Prices, Range, Use};
use drover_hypervisor::GuestUse;
use drover_model::fact::Fact;
use drover_model::id::{CloudId, SourceId};
use drover_model::noted::Noted;
use drover_model::ports::Ambient;
use drover_model::time::WallTime;
use drover_server::{HistoryDoor, HistorySeen};
use parking_lot::Mutex;

use files::{Files, Keep};

/// The folder of the history in the state directory.
const FOLDER: &str = "history";
/// What may wait for the thread; more is left out.
const WAITING_MAX: usize = 16_384;
/// Ends that may wait beside it: those of all that can be open.
const ENDS_MAX: usize = 200_000;
/// How often the thread looks at what is due while nothing comes.
const LOOK: Duration = Duration::from_secs(5);
/// How long who asks for the records waits for those that are on their way.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

fn keep_of(spec: &ServiceSpec) -> Keep {
    Keep { age: spec.history.keep, bytes: spec.history.keep_bytes }
}

enum Message {
    Fact(Fact),
    Noted(WallTime, Noted),
    Used(CloudId, Vec<Use>),
    Configured {
        at: WallTime,
        generation: u64,
        digest: String,
        lease_priority: i32,
    },
    Settled(BTreeSet<SourceId>),
    Keep(Keep),
    /// Answers once all before it is written.
    Flush(SyncSender<()>),
    /// The last of all: answers once it is on the disk.
    Stop(SyncSender<()>),
}

/// The way to the thread of the history.
pub struct History {
    messages: SyncSender<Message>,
    folder: PathBuf,
    left_out: AtomicU64,
    /// Ends for which the queue had no room.
    ends: Ends,
    prices: Mutex<Option<PriceSpec>>,
}

type Ends = Arc<Mutex<Vec<Fact>>>;

impl History {
    /// Reads what was open at the last start, and begins to take in facts.
    pub fn start(state: &Path, spec: &ServiceSpec, ambient: Arc<dyn Ambient>) -> Arc<Self> {
        let history = Self::with(state, keep_of(spec), ambient);
        history.prices.lock().clone_from(&spec.prices);
        history
    }

    fn with(state: &Path, keep: Keep, ambient: Arc<dyn Ambient>) -> Arc<Self> {
        let (messages, received) = sync_channel(WAITING_MAX);
        let folder = state.join(FOLDER);
        let ends = Ends::default();
        let work = Work::new(folder.clone(), keep, ambient, Arc::clone(&ends));
        let thread = std::thread::Builder::new().name("history".to_owned());
        if let Err(error) = thread.spawn(move || work.run(&received)) {
            tracing::warn!(%error, "cannot start the thread that writes the history");
        }
        let (left_out, prices) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { messages, folder, left_out, ends, prices })
    }

    fn send(&self, message: Message) {
        match self.messages.try_send(message) {
            // The thread's end was said when it ended.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(Message::Fact(fact)))
                if fact.what.is_end() && self.keep_end(&fact) => {}
            Err(TrySendError::Full(_)) => {
                let before = self.left_out.fetch_add(1, Ordering::Relaxed);
                if before == 0 {
                    tracing::warn!("facts come faster than the history takes them: it has gaps");
                }
            }
        }
    }

    /// Whether an end has room beside the queue.
    fn keep_end(&self, fact: &Fact) -> bool {
        let mut ends = self.ends.lock();
        let has_room = ends.len() < ENDS_MAX;
        if has_room {
            ends.push(fact.clone());
        }
        has_room
    }

    /// Takes in a fact, where the history has a use for it.
    pub fn observe(&self, fact: &Fact) {
        if drover_history::takes(&fact.what) {
            self.send(Message::Fact(fact.clone()));
        }
    }

    /// Takes in what the history alone hears.
    pub fn note(&self, at: WallTime, noted: Noted) {
        self.send(Message::Noted(at, noted));
    }

    /// Takes in what guests of a cluster use.
    pub fn used(&self, cloud: &CloudId, uses: Vec<GuestUse>) {
        let uses =
            uses.into_iter().map(|GuestUse { vmid, cores, memory_mib, busy_milli, used_mib }| {
                Use { vmid, cores, memory_mib, busy_milli, used_mib }
            });
        self.send(Message::Used(cloud.clone(), uses.collect()));
    }

    /// A configuration came into force, with this priority of leases.
    pub fn configured(&self, at: WallTime, generation: u64, digest: String, lease_priority: i32) {
        self.send(Message::Configured { at, generation, digest, lease_priority });
    }

    /// All agents and leases of the journal were shown; these sources show jobs.
    pub fn settled(&self, sources: BTreeSet<SourceId>) {
        self.send(Message::Settled(sources));
    }

    /// Takes other limits and prices.
    pub fn configure(&self, spec: &ServiceSpec) {
        self.prices.lock().clone_from(&spec.prices);
        self.send(Message::Keep(keep_of(spec)));
    }

    /// The way to it for the API.
    pub fn door(self: &Arc<Self>) -> HistoryDoor {
        let (reads, sells) = (Arc::clone(self), Arc::clone(self));
        HistoryDoor {
            read: Arc::new(move |range, each| reads.read(range, each)),
            prices: Arc::new(move || {
                let PriceSpec { all, of, currency } = sells.prices.lock().clone()?;
                let of = of.into_iter().map(|(name, prices)| (name, priced(prices)));
                Some((PriceList { all: priced(all), of: of.collect() }, currency))
            }),
        }
    }

    /// Gives every record of a range, one after the other: those that are over in order of their end, then
    /// those that go on in order of their start. Says since when there are records, and how many could not
    /// be read.
    ///
    /// # Errors
    /// The files cannot be read.
    fn read(
        &self,
        range: Range,
        each: &mut dyn FnMut(Line) -> ControlFlow<()>,
    ) -> io::Result<HistorySeen> {
        self.wait(Message::Flush);
        let mut seen = reading::read(&self.folder, range, each)?;
        seen.left_out = self.left_out.load(Ordering::Relaxed);
        Ok(seen)
    }

    /// Writes all that came, and what is open: the end of this start.
    pub async fn stop(self: &Arc<Self>) {
        let history = Arc::clone(self);
        let stopped = tokio::task::spawn_blocking(move || history.wait(Message::Stop)).await;
        if !stopped.unwrap_or(false) {
            tracing::warn!("the end of the history may be missing after the restart");
        }
    }

    fn wait(&self, message: impl FnOnce(SyncSender<()>) -> Message) -> bool {
        let (done, written) = sync_channel(1);
        let sent = self.messages.try_send(message(done)).is_ok();
        sent && written.recv_timeout(FLUSH_LIMIT).is_ok()
    }
}

fn priced(HourPrices { core, gib }: HourPrices) -> Prices {
    Prices { core_hour: core, gib_hour: gib }
}

/// What the thread has.
struct Work {
    fold: Fold,
    files: Files,
    ambient: Arc<dyn Ambient>,
    ends: Ends,
}

impl Work {
    fn new(folder: PathBuf, keep: Keep, ambient: Arc<dyn Ambient>, ends: Ends) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let now = ambient.now().wall;
        let (open, last) = reading::open(&folder).unwrap_or_else(|error| {
            let path = folder.display().to_string();
            tracing::warn!(
                path,
                error = chain(&error),
                "the history cannot be read; it starts again"
            );
            (Vec::new(), now)
        });
        let fold = Fold::restored(version, now, open, last);
        Self { fold, files: Files::new(folder, keep, last), ambient, ends }
    }

    fn run(mut self, received: &Receiver<Message>) {
        self.write();
        loop {
            let first = match received.recv_timeout(LOOK) {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => None,
            };
            // All that came before these is in the queue, and is taken first.
            let mut ends = std::mem::take(&mut *self.ends.lock());
            let mut done = Vec::new();
            for message in first.into_iter().chain(received.try_iter().take(WAITING_MAX)) {
                if matches!(message, Message::Stop(_)) {
                    ends.drain(..).for_each(|fact| self.fold.observe(&fact));
                }
                done.extend(self.take(message));
            }
            ends.drain(..).for_each(|fact| self.fold.observe(&fact));
            self.write();
            // Who waited may have given up.
            for done in done {
                let _ = done.send(());
            }
        }
    }

    fn take(&mut self, message: Message) -> Option<SyncSender<()>> {
        match message {
            Message::Fact(fact) => self.fold.observe(&fact),
            Message::Noted(at, noted) => self.fold.note(at, &noted),
            Message::Used(cloud, uses) => self.fold.used(&cloud, &uses),
            Message::Configured { at, generation, digest, lease_priority } => {
                self.fold.configured(at, generation, Some(digest), lease_priority);
            }
            Message::Settled(sources) => self.fold.settled(&sources),
            Message::Keep(keep) => self.files.configure(keep),
            Message::Flush(done) => return Some(done),
            Message::Stop(done) => {
                let now = self.ambient.now().wall;
                self.fold.stopped(now);
                self.write();
                self.files.sync();
                return Some(done);
            }
        }
        None
    }

    fn write(&mut self) {
        let now = self.ambient.now().wall;
        let kept = self.fold.take();
        let fold = &mut self.fold;
        self.files.append(now, &kept, || fold.open(now));
    }
}

#[cfg(test)]
mod tests;
