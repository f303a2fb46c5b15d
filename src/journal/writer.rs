//! The one writer of a journal: stamps, commits in groups, folds, compacts.
//!
//! Threaded, it owns a thread that commits whatever has queued up meanwhile as one group, so that
//! a thousand agents share a few fsyncs. Inline, it commits within the call, which is what virtual
//! time needs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use drover_actors::ledger::Ledger;
use drover_actors::ports::{Ambient, Journal, JournalFault};
use drover_actors::record::{Body, RECORD_VERSION, Record};
use drover_actors::time::Moment;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Log, LogError};
use crate::causes::chain;

/// How a writer works.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// Commit on a thread of its own (real time), or within the call (virtual time).
    pub threaded: bool,
    /// Records after which a snapshot is taken and the log trimmed.
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
    Threaded(Mutex<mpsc::Sender<Request>>),
    Inline(Box<Mutex<Committer>>),
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

struct Committer {
    under: Arc<Under>,
    log: Box<dyn Log>,
    ledger: Ledger,
    epoch: u64,
    ambient: Arc<dyn Ambient>,
    snapshot_every: u64,
    snapshot_at: u64,
    last: Arc<AtomicU64>,
    fenced: bool,
    /// Since when the oldest accepted record waits to be made durable.
    dirty: Option<Moment>,
    ended: Option<oneshot::Sender<JournalFault>>,
    /// When a write failed last, until that is told to be over.
    failed_at: Option<Moment>,
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
        let ledger = fold(&log, path)?;
        let last = Arc::new(AtomicU64::new(ledger.seq));
        let (told, ended) = oneshot::channel();
        let watcher = Arc::new(Watcher::new());
        let under = Arc::new(Under::default());
        let committer = Committer {
            under: Arc::clone(&under),
            log: Box::new(log),
            epoch: ledger.epoch + 1,
            snapshot_at: ledger.seq,
            ledger: ledger.clone(),
            ambient,
            snapshot_every: options.snapshot_every.max(1),
            last: Arc::clone(&last),
            fenced: false,
            dirty: None,
            ended: Some(told),
            failed_at: None,
            watcher: Arc::clone(&watcher),
        };
        let way = if options.threaded {
            let (sender, receiver) = mpsc::channel();
            std::thread::Builder::new()
                .name("journal".into())
                .spawn(move || committer.serve(&receiver))
                .map_err(|source| LogError::Io {
                    path: path.to_owned(),
                    doing: "opened",
                    source: Box::new(source),
                })?;
            Way::Threaded(Mutex::new(sender))
        } else {
            Way::Inline(Box::new(Mutex::new(committer)))
        };
        let writer = Arc::new(Self { last, watcher, under, way });
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
    pub fn look(&self, now: Moment) {
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

fn fold(log: &impl Log, path: &std::path::Path) -> Result<Ledger, LogError> {
    let corrupt = |source: serde_json::Error| LogError::Corrupt {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let mut ledger = match log.snapshot()? {
        Some((_, bytes)) => serde_json::from_slice::<Ledger>(&bytes).map_err(corrupt)?,
        None => Ledger::default(),
    };
    for (seq, bytes) in log.read_from(ledger.seq + 1)? {
        let read = serde_json::from_slice::<Record>(&bytes);
        // A newer record may or may not look like one of ours.
        let version = match &read {
            Ok(record) => record.version,
            Err(_) => serde_json::from_slice::<Version>(&bytes).map_err(corrupt)?.version,
        };
        if version > RECORD_VERSION {
            return Err(LogError::Newer {
                path: path.to_owned(),
                found: u64::from(version),
                known: u64::from(RECORD_VERSION),
            });
        }
        let record = read.map_err(corrupt)?;
        if record.seq != seq || seq != ledger.seq + 1 {
            let text =
                format!("record {seq} follows {} and calls itself {}", ledger.seq, record.seq);
            return Err(LogError::Corrupt { path: path.to_owned(), source: text.into() });
        }
        ledger.apply(&record);
    }
    Ok(ledger)
}

#[derive(serde::Deserialize)]
struct Version {
    version: u32,
}

impl Committer {
    fn serve(mut self, requests: &mpsc::Receiver<Request>) {
        loop {
            let first = match self.patience() {
                Some(patience) => requests.recv_timeout(patience),
                None => requests.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            };
            let mut group = match first {
                Ok(first) => vec![first],
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    // A failure shows again at the next append, which has somebody to tell; that it
                    // is over shows here.
                    let _ = self.commit(vec![&[]]);
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            group.extend(requests.try_iter().take(1023));
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
        let expected = self.ledger.seq;
        let now = self.ambient.now();
        let wall_time = now.wall;
        let due = self.dirty.is_some_and(|since| now.mono - since >= DURABLE_WITHIN);
        let durable = due
            || groups
                .iter()
                .any(|bodies| bodies.is_empty() || bodies.iter().any(Body::before_acting));
        let (mut seq, mut firsts, mut records, mut bytes) = (expected, vec![], vec![], vec![]);
        for bodies in groups {
            firsts.push(seq + 1);
            for body in bodies {
                seq += 1;
                let body = body.clone();
                let record =
                    Record { version: RECORD_VERSION, seq, epoch: self.epoch, wall_time, body };
                let encoded = serde_json::to_vec(&record)
                    .map_err(|error| JournalFault::Failed(error.to_string()))?;
                bytes.push(encoded);
                records.push(record);
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
        self.dirty = (!durable).then_some(self.dirty.unwrap_or(now.mono));
        for record in &records {
            self.ledger.apply(record);
        }
        self.last.store(seq, Ordering::Release);
        self.compact_when_due();
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

    /// A snapshot that fails is only tried again later: the records are all still there.
    fn compact_when_due(&mut self) {
        if self.ledger.seq - self.snapshot_at < self.snapshot_every {
            return;
        }
        let seq = self.ledger.seq;
        let done = serde_json::to_vec(&self.ledger)
            .map_err(|error| error.to_string())
            .and_then(|bytes| self.log.compact(seq, &bytes).map_err(|error| error.to_string()));
        if let Err(error) = done {
            tracing::warn!(error, seq, "journal snapshot failed");
        }
        self.snapshot_at = seq;
    }
}

impl Journal for Writer {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        match &self.way {
            Way::Inline(committer) => {
                let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome = committer.commit(vec![bodies.as_slice()]);
                let first = outcome.and_then(|firsts| {
                    firsts.first().copied().ok_or_else(|| JournalFault::Failed("empty".into()))
                });
                futures_util::future::ready(first).boxed()
            }
            Way::Threaded(sender) => {
                let (reply, answer) = oneshot::channel();
                let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
                let sent = sender.send(Request { bodies, reply });
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
