//! The only writer of a journal: it stamps records, commits them in groups, and switches to
//! successors.
//!
//! Threaded, it has a thread that commits everything that has queued up as one group, so that a
//! thousand agents share a few fsyncs. Inline, it commits within the call, for virtual time.
//!
//! In come bodies of records (`append`), and once a second the service's question whether a write
//! hangs ([`Writer::check`]). Out go the first sequence of each batch, the reason why the journal
//! cannot be written ([`Writer::watch`]), and [`Opened::ended`] when it never will be again.
//!
//! Records that need not be durable before acting are accepted at once and made durable within
//! `DURABLE_WITHIN`. After a failed write the writer tries again once in that time, until one
//! succeeds.

mod clock;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use causes::chain;
use drover_model::journal_state::JournalState;
use drover_model::ports::{Ambient, Journal, JournalFault};
use drover_model::record::{Body, RECORD_VERSION, Record};
use drover_model::time::{Moment, Now};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use clock::Clock;

use super::fold::{Fold, FoldEnded, Folded, SuccessorResult};
use super::follower::Follower;
use super::{Log, LogError};

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Commits on a thread of its own (real time), or within the call (virtual time).
    pub threaded: bool,
    /// The number of records after which a snapshot is taken.
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
    /// The state that the journal adds up to, before this start's own records.
    pub journal_state: JournalState,
    /// Resolves when the writer will never write again because another process took the journal
    /// over. Closed when the writer's thread panicked.
    pub ended: oneshot::Receiver<JournalFault>,
}

/// The journal port.
pub struct Writer {
    last: Arc<AtomicU64>,
    watcher: Arc<Watcher>,
    timer: Arc<Timer>,
    in_flight: Arc<WriteInFlight>,
    clock: Arc<Clock>,
    mode: Mode,
}

/// The write that runs now.
#[derive(Default)]
struct WriteInFlight {
    /// When it started, in milliseconds and at least 1; zero when no write runs.
    started_ms: AtomicU64,
    /// Whether its length was reported.
    reported: AtomicBool,
}

/// Receives why the journal cannot be written, and none when it can again.
type Watcher = OnceLock<Box<dyn Fn(Option<&str>) + Send + Sync>>;

/// Receives how long each write took, failed ones included.
type Timer = OnceLock<Box<dyn Fn(Duration) + Send + Sync>>;

enum Mode {
    Threaded(Arc<Mutex<mpsc::Sender<Message>>>),
    Inline(Box<Mutex<Committer>>),
}

/// What the writer's thread receives.
enum Message {
    /// Records to append.
    Append(Request),
    /// A successor of the log is ready, or could not be made.
    SuccessorDone(SuccessorResult),
}

/// Records to commit. An empty list asks to make durable what was accepted so far.
struct Request {
    bodies: Vec<Body>,
    reply: oneshot::Sender<Result<u64, JournalFault>>,
}

/// How long accepted records may wait before they are made durable.
const DURABLE_WITHIN: Duration = Duration::from_secs(1);

/// How long no write may fail before the journal counts as writable again.
const WRITABLE_AFTER: Duration = Duration::from_secs(5);

/// A write that takes longer is reported: a disk may hang for ever.
const SLOW_WRITE: Duration = Duration::from_secs(10);

/// A larger snapshot is repeated only when enough records came after it.
const LARGE_SNAPSHOT_BYTES: u64 = 4 << 20;
/// The next large snapshot is due when the records after the last one reach this fraction of its
/// size (1/N).
const LARGE_SNAPSHOT_FRACTION: u64 = 4;
/// A snapshot is due after this many bytes of records, however few these are.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// A smaller file is never replaced for its size.
const SMALL_FILE_BYTES: u64 = 8 << 20;
/// A file that is more than this many times larger than what it must hold is replaced soon after
/// the start.
const WASTEFUL_FACTOR: u64 = 4;

struct Committer {
    in_flight: Arc<WriteInFlight>,
    log: Box<dyn Log>,
    fold: Fold,
    /// The last record that was written.
    seq: u64,
    epoch: u64,
    ambient: Arc<dyn Ambient>,
    snapshot_every: u64,
    /// The last record that the last snapshot includes, or that was tried in vain.
    snapshot_at: u64,
    snapshot_bytes: u64,
    /// The size of the records after it.
    record_bytes: u64,
    /// Whether most of the file is unused space.
    wasteful: bool,
    /// Whether a successor is in the making.
    making: bool,
    /// Whether the fold thread still runs.
    fold_runs: bool,
    /// The way to the writer's own thread; empty when it has none or the writer is gone.
    thread: Weak<Mutex<mpsc::Sender<Message>>>,
    last: Arc<AtomicU64>,
    fenced: bool,
    /// Since when the oldest accepted record waits to be made durable.
    dirty: Option<Moment>,
    ended: Option<oneshot::Sender<JournalFault>>,
    /// When a write failed last; none once the journal was reported as writable again.
    failed_at: Option<Moment>,
    clock: Arc<Clock>,
    watcher: Arc<Watcher>,
    timer: Arc<Timer>,
}

impl Writer {
    /// Folds the log and starts the writer; its epoch is one above that of the last start.
    ///
    /// # Errors
    /// When the log cannot be read, has a record that does not parse ([`LogError::Corrupt`]), one
    /// with an unknown word ([`LogError::Unknown`]), or
    /// has one of a newer format ([`LogError::Newer`]). Nothing is written then.
    pub fn open(
        log: impl Log,
        ambient: Arc<dyn Ambient>,
        options: WriterOptions,
    ) -> Result<Opened, LogError> {
        Self::open_any(Box::new(log), ambient, options)
    }

    /// The same for a log of any kind.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open_any(
        log: Box<dyn Log>,
        ambient: Arc<dyn Ambient>,
        options: WriterOptions,
    ) -> Result<Opened, LogError> {
        let folded = super::fold::fold(&*log)?;
        Self::open_folded(log, folded, ambient, options)
    }

    /// The same for a log that was followed: what is new since is read.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open_followed(
        log: Box<dyn Log>,
        follower: &mut Follower,
        ambient: Arc<dyn Ambient>,
        options: WriterOptions,
    ) -> Result<Opened, LogError> {
        follower.follow(&*log)?;
        let folded = follower.folded()?.clone();
        Self::open_folded(log, folded, ambient, options)
    }

    fn open_folded(
        log: Box<dyn Log>,
        folded: Folded,
        ambient: Arc<dyn Ambient>,
        options: WriterOptions,
    ) -> Result<Opened, LogError> {
        let Folded { journal_state, snapshot_at, snapshot_bytes, record_bytes } = folded;
        let size = log.size();
        let wasteful = size > SMALL_FILE_BYTES
            && size / WASTEFUL_FACTOR > snapshot_bytes.saturating_add(record_bytes);
        let place = log.place();
        let no_thread = |source| LogError::Io {
            place: place.clone(),
            doing: "opened",
            source: Box::new(source),
        };
        let (sender, receiver) = mpsc::channel();
        let sender = Arc::new(Mutex::new(sender));
        let fold = if options.threaded {
            Fold::threaded(journal_state.clone()).map_err(no_thread)?
        } else {
            Fold::Inline(Box::new(journal_state.clone()))
        };
        let last = Arc::new(AtomicU64::new(journal_state.seq));
        let (ended_sender, ended) = oneshot::channel();
        let (watcher, timer) = (Arc::new(Watcher::new()), Arc::new(Timer::new()));
        let in_flight = Arc::new(WriteInFlight::default());
        let clock = Arc::new(Clock::new(ambient.now()));
        let committer = Committer {
            in_flight: Arc::clone(&in_flight),
            log,
            epoch: journal_state.epoch + 1,
            fold,
            seq: journal_state.seq,
            snapshot_at,
            snapshot_bytes,
            record_bytes,
            wasteful,
            making: false,
            fold_runs: true,
            thread: Arc::downgrade(&sender),
            ambient,
            snapshot_every: options.snapshot_every.max(1),
            last: Arc::clone(&last),
            fenced: false,
            dirty: None,
            ended: Some(ended_sender),
            failed_at: None,
            clock: Arc::clone(&clock),
            watcher: Arc::clone(&watcher),
            timer: Arc::clone(&timer),
        };
        let mode = if options.threaded {
            std::thread::Builder::new()
                .name("journal".into())
                .spawn(move || committer.serve(&receiver))
                .map_err(no_thread)?;
            Mode::Threaded(sender)
        } else {
            Mode::Inline(Box::new(Mutex::new(committer)))
        };
        let writer = Arc::new(Self { last, watcher, timer, in_flight, clock, mode });
        Ok(Opened { writer, journal_state, ended })
    }

    /// Calls `watcher` with the reason whenever a write fails, and with none once when it succeeds
    /// again. The first watcher stays.
    pub fn watch(&self, watcher: impl Fn(Option<&str>) + Send + Sync + 'static) {
        if self.watcher.set(Box::new(watcher)).is_err() {
            tracing::warn!("the journal has a watcher already");
        }
    }

    /// Calls `timer` with the duration of each write, failed ones included. The first timer stays.
    pub fn time_appends(&self, timer: impl Fn(Duration) + Send + Sync + 'static) {
        if self.timer.set(Box::new(timer)).is_err() {
            tracing::warn!("the writes to the journal are timed already");
        }
    }

    /// Reports a write that takes longer than `SLOW_WRITE`. Nothing else can start meanwhile, and
    /// the write is not repeated: it may still take effect.
    ///
    /// When the wall clock was set, this writes it down: no other record may come for hours.
    pub fn check(&self, now: Now) {
        if self.clock.set_by(now).is_some() {
            // When this fails, the next append reports why.
            drop(self.append(Vec::new()));
        }
        let now = now.mono;
        let started = self.in_flight.started_ms.load(Ordering::Acquire);
        let spent = now - Moment(started);
        if started == 0 || spent < SLOW_WRITE {
            return;
        }
        let text = format!("a write has taken {} s: the disk does not answer", spent.as_secs());
        if !self.in_flight.reported.swap(true, Ordering::AcqRel) {
            tracing::error!(spent_s = spent.as_secs(), "disk of the journal does not answer");
        }
        if let Some(watcher) = self.watcher.get() {
            watcher(Some(&text));
        }
    }

    /// Makes everything accepted so far durable, before an orderly stop.
    ///
    /// # Errors
    /// [`JournalFault`] when it cannot be written.
    pub async fn flush(&self) -> Result<(), JournalFault> {
        self.append(Vec::new()).await.map(|_| ())
    }
}

impl Committer {
    fn serve(mut self, messages: &mpsc::Receiver<Message>) {
        loop {
            let first = match self.idle_time() {
                Some(idle) => messages.recv_timeout(idle),
                None => messages.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
            let first = match first {
                Ok(first) => first,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // A failure shows again at the next append, which has a caller to report to. That
                    // the failure is over shows here.
                    let _ = self.commit(vec![&[]]);
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            let (mut group, mut made) = (Vec::new(), None);
            for message in std::iter::once(first).chain(messages.try_iter().take(1023)) {
                match message {
                    Message::Append(request) => group.push(request),
                    Message::SuccessorDone(outcome) => made = Some(outcome),
                }
            }
            if group.is_empty() {
                self.switch(made);
                continue;
            }
            let bodies = group.iter().map(|request| request.bodies.as_slice());
            let outcome = self.commit(bodies.collect());
            for (index, request) in group.into_iter().enumerate() {
                let answer = match &outcome {
                    Ok(firsts) => Ok(firsts[index]),
                    Err(fault) => Err(fault.clone()),
                };
                // The caller may be gone; the record counts all the same.
                let _ = request.reply.send(answer);
            }
            // After the answers, so that no caller waits for a switch that comes with them.
            self.switch(made);
            if !self.fold_runs || self.snapshot_when_due().is_err() {
                tracing::error!("journal stops: its fold thread ended");
                return;
            }
        }
    }

    /// How long nothing needs to be written unless somebody asks for it.
    fn idle_time(&self) -> Option<Duration> {
        // After a failure a whole pause, or a full disk would be tried without rest.
        match (self.failed_at, self.dirty) {
            (Some(_), _) => Some(DURABLE_WITHIN),
            (None, Some(since)) => {
                Some(DURABLE_WITHIN.saturating_sub(self.ambient.now().mono - since))
            }
            (None, None) => None,
        }
    }

    /// Commits groups of bodies as one write; returns the first sequence of each.
    fn commit(&mut self, groups: Vec<&[Body]>) -> Result<Vec<u64>, JournalFault> {
        if self.fenced {
            return Err(JournalFault::Fenced);
        }
        let expected = self.seq;
        let now = self.ambient.now();
        let wall_time = now.wall;
        let due = self.dirty.is_some_and(|since| now.mono - since >= DURABLE_WITHIN);
        let set_by = self.clock.set_by(now);
        // A crash that loses this record would let leases and rests end early.
        let durable = due
            || set_by.is_some()
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
        self.in_flight.started_ms.store(now.mono.0.max(1), Ordering::Release);
        let written = self.log.append(expected, &bytes, durable);
        self.in_flight.started_ms.store(0, Ordering::Release);
        if let Some(timer) = self.timer.get() {
            timer(self.ambient.now().mono - now.mono);
        }
        let hung = self.in_flight.reported.swap(false, Ordering::AcqRel);
        if let Err(error) = written {
            return Err(self.failed(&error));
        }
        if hung {
            self.notify(None);
        }
        self.report_recovery();
        if let Some(by_ms) = set_by {
            tracing::warn!(by_ms, "wall clock was set: leases keep their remaining time");
            self.clock.follow(now);
        }
        self.dirty = (!durable).then_some(self.dirty.unwrap_or(now.mono));
        self.seq = seq;
        self.record_bytes += bytes.iter().map(|record| record.len() as u64).sum::<u64>();
        self.last.store(seq, Ordering::Release);
        // When the fold thread has ended, the writer ends with this turn.
        let folded = self.fold.record(records);
        self.fold_runs = folded.is_ok();
        if self.fold_runs && self.is_inline() {
            self.fold_runs = self.snapshot_when_due().is_ok();
        }
        Ok(firsts)
    }

    fn failed(&mut self, error: &LogError) -> JournalFault {
        if matches!(error, LogError::Fenced { .. }) {
            self.fenced = true;
            if let Some(ended) = self.ended.take() {
                // Nobody may wait for it.
                let _ = ended.send(JournalFault::Fenced);
            }
            return JournalFault::Fenced;
        }
        let text = chain(error);
        if self.failed_at.replace(self.ambient.now().mono).is_none() {
            tracing::error!(error = text, "journal cannot be written: nothing new starts");
        }
        self.notify(Some(&text));
        JournalFault::Failed(text)
    }

    /// Reports recovery after a while without failures: on a full disk a small record may still
    /// find room.
    fn report_recovery(&mut self) {
        let now = self.ambient.now().mono;
        if self.failed_at.is_some_and(|failed| now - failed >= WRITABLE_AFTER) {
            self.failed_at = None;
            self.notify(None);
            tracing::info!("journal can be written again");
        }
    }

    fn notify(&self, trouble: Option<&str>) {
        if let Some(watcher) = self.watcher.get() {
            watcher(trouble);
        }
    }

    fn is_inline(&self) -> bool {
        matches!(self.fold, Fold::Inline(_))
    }

    /// Whether enough records came after the last snapshot for the next one.
    fn is_due(&self) -> bool {
        let many = self.seq - self.snapshot_at >= self.snapshot_every
            && (self.snapshot_bytes <= LARGE_SNAPSHOT_BYTES
                || self.record_bytes >= self.snapshot_bytes / LARGE_SNAPSHOT_FRACTION);
        many || self.wasteful || self.record_bytes >= self.snapshot_bytes.max(RECORD_BYTES_MAX)
    }

    /// Starts a snapshot when one is due. Fails when the fold thread has ended.
    fn snapshot_when_due(&mut self) -> Result<(), FoldEnded> {
        // While writes fail there is no room for a snapshot either.
        if self.making || self.fenced || self.failed_at.is_some() || !self.is_due() {
            return Ok(());
        }
        (self.snapshot_at, self.record_bytes, self.wasteful) = (self.seq, 0, false);
        let sender = match self.thread.upgrade() {
            Some(sender) => Some(sender.lock().clone()),
            None if self.is_inline() => None,
            // The service stops.
            None => return Ok(()),
        };
        let successor = match self.log.successor(self.seq) {
            Ok(successor) => successor,
            Err(error) => {
                self.switch(Some(Err(chain(&error))));
                return Ok(());
            }
        };
        self.making = true;
        let done = Box::new(move |made| {
            if let Some(sender) = sender {
                // The writer may have stopped meanwhile.
                let _ = sender.send(Message::SuccessorDone(made));
            }
        });
        let made = self.fold.snapshot(successor, done)?;
        self.switch(made);
        Ok(())
    }

    /// Switches to a finished successor. A failure is tried again with the next snapshot: all
    /// records are still in the log.
    fn switch(&mut self, made: Option<SuccessorResult>) {
        let Some(made) = made else { return };
        self.making = false;
        if self.fenced {
            return;
        }
        let started = self.ambient.now().mono;
        self.in_flight.started_ms.store(started.0.max(1), Ordering::Release);
        let done = made.and_then(|ready| {
            let behind = self.log.read_from(ready.seq + 1).map_err(|error| chain(&error))?;
            let behind: Vec<Vec<u8>> = behind.into_iter().map(|(_, record)| record).collect();
            let before = self.log.succeed(self.seq, &behind).map_err(|error| chain(&error))?;
            Ok((ready, before))
        });
        self.in_flight.started_ms.store(0, Ordering::Release);
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
        match &self.mode {
            Mode::Inline(committer) => {
                let mut committer = committer.lock();
                let outcome = committer.commit(vec![bodies.as_slice()]);
                let first = outcome.and_then(|firsts| {
                    firsts
                        .first()
                        .copied()
                        .ok_or_else(|| JournalFault::Failed("the batch was empty".into()))
                });
                futures_util::future::ready(first).boxed()
            }
            Mode::Threaded(sender) => {
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
mod tests;
