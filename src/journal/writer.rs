//! The one writer of a journal: stamps, commits in groups, switches to successors.
//!
//! Threaded, it owns a thread that commits whatever has queued up meanwhile as one group, so that
//! a thousand agents share a few fsyncs. Inline, it commits within the call, which is what virtual
//! time needs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use causes::chain;
use drover_model::ledger::Ledger;
use drover_model::ports::{Ambient, Journal, JournalFault};
use drover_model::record::{Body, RECORD_VERSION, Record};
use drover_model::time::{Moment, Now, WallTime};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::fold::{Ended, Fold, Folded, Made, fold};
use super::{Log, LogError};

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Commit on a thread of its own (real time), or within the call (virtual time).
    pub threaded: bool,
    /// Records after which a snapshot is taken.
    pub snapshot_every: u64,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { threaded: true, snapshot_every: 20_000 }
    }
}

/// A journal that was opened and folded.
pub struct Opened {
    /// The port for the actors.
    pub writer: Arc<Writer>,
    /// What the journal says, before this start's own records.
    pub ledger: Ledger,
    /// Filled when the writer will never write again because somebody else leads, and closed when
    /// its thread panicked.
    pub ended: oneshot::Receiver<JournalFault>,
}

/// The journal port.
pub struct Writer {
    last: Arc<AtomicU64>,
    watcher: Arc<Watcher>,
    under: Arc<Under>,
    clock: Arc<Clock>,
    way: Way,
}

/// The write under way.
#[derive(Default)]
struct Under {
    /// When it began, in milliseconds above zero; zero while there is none.
    begun: AtomicU64,
    /// Whether it was told that it takes too long.
    told: AtomicBool,
}

/// Who hears why the journal cannot be written, and that it can again.
type Watcher = OnceLock<Box<dyn Fn(Option<&str>) + Send + Sync>>;

enum Way {
    Threaded(Arc<Mutex<mpsc::Sender<Message>>>),
    Inline(Box<Mutex<Committer>>),
}

/// To the writer's thread.
enum Message {
    /// Somebody appends.
    Append(Request),
    /// A successor of the log is ready, or came to nothing.
    Made(Made),
}

/// Records to commit; none asks for what was accepted so far to be made durable.
struct Request {
    bodies: Vec<Body>,
    reply: oneshot::Sender<Result<u64, JournalFault>>,
}

/// How long accepted records may wait before they are made durable all the same.
const DURABLE_WITHIN: Duration = Duration::from_secs(1);

/// How long no write may fail before the journal counts as writable again.
const QUIET: Duration = Duration::from_secs(5);

/// A write that takes longer is told: a disk may hang for ever.
const SLOW: Duration = Duration::from_secs(10);

/// A snapshot of more bytes than this is taken only when the records behind it are worth it.
const LARGE_SNAPSHOT_BYTES: u64 = 4 << 20;
/// Of a large snapshot, the share that the records behind it reach before the next one.
const WORTH: u64 = 4;
/// A snapshot is taken behind so many bytes of records, however few these are.
const MOST_RECORD_BYTES: u64 = 16 << 20;
/// A file of fewer bytes is small enough.
const SMALL_FILE_BYTES: u64 = 8 << 20;
/// A file of more than so many times what counts in it is replaced soon after the start.
const WASTE: u64 = 4;

/// How the wall clock goes beside the monotonic one.
struct Clock {
    /// The wall time at which the monotonic clock was at zero, in milliseconds.
    zero: AtomicI64,
}

impl Clock {
    fn new(now: Now) -> Self {
        let clock = Self { zero: AtomicI64::new(0) };
        clock.follow(now);
        clock
    }

    fn follow(&self, now: Now) {
        self.zero.store(now.zero().0, Ordering::Release);
    }

    /// By how much it was set, in milliseconds, since that was written down last.
    fn set_by(&self, now: Now) -> Option<i64> {
        now.set_by(WallTime(self.zero.load(Ordering::Acquire)))
    }
}

struct Committer {
    under: Arc<Under>,
    log: Box<dyn Log>,
    fold: Fold,
    /// The last record that was written.
    seq: u64,
    epoch: u64,
    ambient: Arc<dyn Ambient>,
    snapshot_every: u64,
    /// Where the last snapshot ends, or was tried in vain.
    snapshot_at: u64,
    snapshot_bytes: u64,
    /// Bytes of the records behind it.
    record_bytes: u64,
    /// Whether the file is mostly room that nothing needs.
    wasteful: bool,
    /// Whether a successor is being made.
    making: bool,
    /// Whether the fold has not ended.
    folds: bool,
    /// To the writer's own thread, where it has one and the writer lives.
    own: Weak<Mutex<mpsc::Sender<Message>>>,
    last: Arc<AtomicU64>,
    fenced: bool,
    /// Since when the oldest accepted record waits to be made durable.
    dirty: Option<Moment>,
    ended: Option<oneshot::Sender<JournalFault>>,
    /// When a write failed last, until that is told to be over.
    failed_at: Option<Moment>,
    clock: Arc<Clock>,
    watcher: Arc<Watcher>,
}

impl Writer {
    /// Folds the log and readies the writer; the epoch is one above the last start's.
    ///
    /// # Errors
    /// When the log cannot be read, holds a record that does not parse ([`LogError::Corrupt`]), or
    /// one of a newer format ([`LogError::Newer`]). Nothing is written then.
    pub fn open(
        log: impl Log,
        path: &std::path::Path,
        ambient: Arc<dyn Ambient>,
        options: WriterOptions,
    ) -> Result<Opened, LogError> {
        let Folded { ledger, snapshot_at, snapshot_bytes, record_bytes } = fold(&log, path)?;
        let size = log.size();
        let wasteful =
            size > SMALL_FILE_BYTES && size / WASTE > snapshot_bytes.saturating_add(record_bytes);
        let no_thread = |source| LogError::Io {
            path: path.to_owned(),
            doing: "opened",
            source: Box::new(source),
        };
        let (sender, receiver) = mpsc::channel();
        let sender = Arc::new(Mutex::new(sender));
        let side = if options.threaded {
            Fold::beside(ledger.clone()).map_err(no_thread)?
        } else {
            Fold::Within(Box::new(ledger.clone()))
        };
        let last = Arc::new(AtomicU64::new(ledger.seq));
        let (told, ended) = oneshot::channel();
        let watcher = Arc::new(Watcher::new());
        let under = Arc::new(Under::default());
        let clock = Arc::new(Clock::new(ambient.now()));
        let committer = Committer {
            under: Arc::clone(&under),
            log: Box::new(log),
            epoch: ledger.epoch + 1,
            fold: side,
            seq: ledger.seq,
            snapshot_at,
            snapshot_bytes,
            record_bytes,
            wasteful,
            making: false,
            folds: true,
            own: Arc::downgrade(&sender),
            ambient,
            snapshot_every: options.snapshot_every.max(1),
            last: Arc::clone(&last),
            fenced: false,
            dirty: None,
            ended: Some(told),
            failed_at: None,
            clock: Arc::clone(&clock),
            watcher: Arc::clone(&watcher),
        };
        let way = if options.threaded {
            std::thread::Builder::new()
                .name("journal".into())
                .spawn(move || committer.serve(&receiver))
                .map_err(no_thread)?;
            Way::Threaded(sender)
        } else {
            Way::Inline(Box::new(Mutex::new(committer)))
        };
        let writer = Arc::new(Self { last, watcher, under, clock, way });
        Ok(Opened { writer, ledger, ended })
    }

    /// Tells why the journal cannot be written whenever a write fails, and once that it can again.
    /// The first watcher stays.
    pub fn watch(&self, watcher: impl Fn(Option<&str>) + Send + Sync + 'static) {
        if self.watcher.set(Box::new(watcher)).is_err() {
            tracing::warn!("the journal is watched already");
        }
    }

    /// Looks whether the write under way takes too long, and tells so. Nothing can be begun
    /// meanwhile, and it is not repeated: it may still have its effect.
    ///
    /// Where the wall clock was set, that is written down: nothing else may be for hours.
    pub fn look(&self, now: Now) {
        if self.clock.set_by(now).is_some() {
            // Whoever appends next hears why it fails.
            drop(self.append(Vec::new()));
        }
        let now = now.mono;
        let begun = self.under.begun.load(Ordering::Acquire);
        let spent = now - Moment(begun);
        if begun == 0 || spent < SLOW {
            return;
        }
        let text =
            format!("a write is under way for {} s: the disk does not answer", spent.as_secs());
        if !self.under.told.swap(true, Ordering::AcqRel) {
            tracing::error!(spent_s = spent.as_secs(), "journal's disk does not answer");
        }
        if let Some(watcher) = self.watcher.get() {
            watcher(Some(&text));
        }
    }

    /// Makes everything accepted so far durable, before an orderly stop.
    ///
    /// # Errors
    /// [`JournalFault`] when it could not be written.
    pub async fn flush(&self) -> Result<(), JournalFault> {
        self.append(Vec::new()).await.map(|_| ())
    }
}

impl Committer {
    fn serve(mut self, messages: &mpsc::Receiver<Message>) {
        loop {
            let first = match self.patience() {
                Some(patience) => messages.recv_timeout(patience),
                None => messages.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
            let first = match first {
                Ok(first) => first,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // A failure shows again at the next append, which has somebody to tell; that it
                    // is over shows here.
                    let _ = self.commit(vec![&[]]);
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            let (mut group, mut made) = (Vec::new(), None);
            for message in std::iter::once(first).chain(messages.try_iter().take(1023)) {
                match message {
                    Message::Append(request) => group.push(request),
                    Message::Made(outcome) => made = Some(outcome),
                }
            }
            if group.is_empty() {
                self.made(made);
                continue;
            }
            let bodies = group.iter().map(|request| request.bodies.as_slice());
            let outcome = self.commit(bodies.collect());
            for (index, request) in group.into_iter().enumerate() {
                let answer = match &outcome {
                    Ok(firsts) => Ok(firsts[index]),
                    Err(fault) => Err(fault.clone()),
                };
                // The asker may have gone; the record stands all the same.
                let _ = request.reply.send(answer);
            }
            // After the answers: nobody waits for a switch that comes with them.
            self.made(made);
            if !self.folds || self.snapshot_when_due().is_err() {
                tracing::error!("journal is not folded any more, and is not written any more");
                return;
            }
        }
    }

    /// How long nothing need be written unless somebody asks for it.
    fn patience(&self) -> Option<Duration> {
        // After a failure a whole pause: a disk that is full would be tried without rest.
        match (self.failed_at, self.dirty) {
            (Some(_), _) => Some(DURABLE_WITHIN),
            (None, Some(since)) => {
                Some(DURABLE_WITHIN.saturating_sub(self.ambient.now().mono - since))
            }
            (None, None) => None,
        }
    }

    /// Commits groups of bodies as one write and gives the first sequence of each.
    fn commit(&mut self, groups: Vec<&[Body]>) -> Result<Vec<u64>, JournalFault> {
        if self.fenced {
            return Err(JournalFault::Fenced);
        }
        let expected = self.seq;
        let now = self.ambient.now();
        let wall_time = now.wall;
        let due = self.dirty.is_some_and(|since| now.mono - since >= DURABLE_WITHIN);
        let durable = due
            || groups
                .iter()
                .any(|bodies| bodies.is_empty() || bodies.iter().any(Body::before_acting));
        let (mut seq, mut firsts, mut records, mut bytes) = (expected, vec![], vec![], vec![]);
        let epoch = self.epoch;
        let mut add = |seq, body| {
            let record = Record { version: RECORD_VERSION, seq, epoch, wall_time, body };
            let encoded = serde_json::to_vec(&record);
            bytes.push(encoded.map_err(|error| JournalFault::Failed(error.to_string()))?);
            records.push(record);
            Ok::<(), JournalFault>(())
        };
        let set_by = self.clock.set_by(now);
        if let Some(by_ms) = set_by {
            seq += 1;
            add(seq, Body::ClockSet { by_ms })?;
        }
        for bodies in groups {
            firsts.push(seq + 1);
            for body in bodies {
                seq += 1;
                add(seq, body.clone())?;
            }
        }
        self.under.begun.store(now.mono.0.max(1), Ordering::Release);
        let written = self.log.append(expected, &bytes, durable);
        self.under.begun.store(0, Ordering::Release);
        let hung = self.under.told.swap(false, Ordering::AcqRel);
        if let Err(error) = written {
            return Err(self.failed(&error));
        }
        if hung {
            self.tell(None);
        }
        self.calm();
        if let Some(by_ms) = set_by {
            tracing::warn!(by_ms, "the wall clock was set; leases keep what is left of them");
            self.clock.follow(now);
        }
        self.dirty = (!durable).then_some(self.dirty.unwrap_or(now.mono));
        self.seq = seq;
        self.record_bytes += bytes.iter().map(|record| record.len() as u64).sum::<u64>();
        self.last.store(seq, Ordering::Release);
        // Where the fold has ended the writer ends with its turn.
        let folded = self.fold.wrote(records);
        self.folds = folded.is_ok();
        if self.folds && self.is_inline() {
            self.folds = self.snapshot_when_due().is_ok();
        }
        Ok(firsts)
    }

    fn failed(&mut self, error: &LogError) -> JournalFault {
        if matches!(error, LogError::Fenced { .. }) {
            self.fenced = true;
            if let Some(ended) = self.ended.take() {
                // Nobody may be there to hear it.
                let _ = ended.send(JournalFault::Fenced);
            }
            return JournalFault::Fenced;
        }
        let text = chain(error);
        if self.failed_at.replace(self.ambient.now().mono).is_none() {
            tracing::error!(error = text, "journal cannot be written, nothing new is begun");
        }
        self.tell(Some(&text));
        JournalFault::Failed(text)
    }

    /// On a disk that is full a small record may still find room: only quiet is an end.
    fn calm(&mut self) {
        let now = self.ambient.now().mono;
        if self.failed_at.is_some_and(|failed| now - failed >= QUIET) {
            self.failed_at = None;
            self.tell(None);
            tracing::info!("journal can be written again");
        }
    }

    fn tell(&self, trouble: Option<&str>) {
        if let Some(watcher) = self.watcher.get() {
            watcher(trouble);
        }
    }

    fn is_inline(&self) -> bool {
        matches!(self.fold, Fold::Within(_))
    }

    /// Whether the records behind the last snapshot are worth the next one.
    fn is_due(&self) -> bool {
        let many = self.seq - self.snapshot_at >= self.snapshot_every
            && (self.snapshot_bytes <= LARGE_SNAPSHOT_BYTES
                || self.record_bytes >= self.snapshot_bytes / WORTH);
        many || self.wasteful || self.record_bytes >= self.snapshot_bytes.max(MOST_RECORD_BYTES)
    }

    /// Has the fold make a successor of the log, when it is time for one. Fails when the fold has
    /// ended.
    fn snapshot_when_due(&mut self) -> Result<(), Ended> {
        // While writes fail there is no room for it either.
        if self.making || self.fenced || self.failed_at.is_some() || !self.is_due() {
            return Ok(());
        }
        (self.snapshot_at, self.record_bytes, self.wasteful) = (self.seq, 0, false);
        let own = match self.own.upgrade() {
            Some(own) => Some(own.lock().clone()),
            None if self.is_inline() => None,
            // The service stops.
            None => return Ok(()),
        };
        let successor = match self.log.successor(self.seq) {
            Ok(successor) => successor,
            Err(error) => {
                self.made(Some(Err(chain(&error))));
                return Ok(());
            }
        };
        self.making = true;
        let done = Box::new(move |made| {
            if let Some(own) = own {
                // The writer may have stopped meanwhile.
                let _ = own.send(Message::Made(made));
            }
        });
        let made = self.fold.snapshot(successor, done)?;
        self.made(made);
        Ok(())
    }

    /// Switches to a successor that was made. One that fails is tried again later: the records are
    /// all still there.
    fn made(&mut self, made: Option<Made>) {
        let Some(made) = made else { return };
        self.making = false;
        if self.fenced {
            return;
        }
        let begun = self.ambient.now().mono;
        self.under.begun.store(begun.0.max(1), Ordering::Release);
        let done = made.and_then(|ready| {
            let behind = self.log.read_from(ready.seq + 1).map_err(|error| chain(&error))?;
            let behind: Vec<Vec<u8>> = behind.into_iter().map(|(_, record)| record).collect();
            let before = self.log.succeed(self.seq, &behind).map_err(|error| chain(&error))?;
            Ok((ready, before))
        });
        self.under.begun.store(0, Ordering::Release);
        match done {
            Ok((ready, before)) => {
                self.fold.close(before);
                self.dirty = None;
                self.snapshot_bytes = ready.bytes;
                let (seq, bytes) = (self.snapshot_at, ready.bytes);
                tracing::debug!(seq, bytes, "journal snapshot taken");
            }
            Err(error) => tracing::warn!(error, seq = self.snapshot_at, "journal snapshot failed"),
        }
    }
}

impl Journal for Writer {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        match &self.way {
            Way::Inline(committer) => {
                let mut committer = committer.lock();
                let outcome = committer.commit(vec![bodies.as_slice()]);
                let first = outcome.and_then(|firsts| {
                    firsts.first().copied().ok_or_else(|| JournalFault::Failed("empty".into()))
                });
                futures_util::future::ready(first).boxed()
            }
            Way::Threaded(sender) => {
                let (reply, answer) = oneshot::channel();
                let sender = sender.lock();
                let sent = sender.send(Message::Append(Request { bodies, reply }));
                drop(sender);
                async move {
                    let stopped =
                        || JournalFault::Failed("the journal's writer has stopped".into());
                    sent.map_err(|_| stopped())?;
                    answer.await.map_err(|_| stopped())?
                }
                .boxed()
            }
        }
    }

    fn last_seq(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod tests;
