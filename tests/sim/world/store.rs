//! The way of a service to the store of its journal. It may be cut, it may take its time, and the drover at
//! its end may write the next format.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drover_journal::{Log, LogError, MemoryLog, Predecessor, Successor, Writer};
use drover_model::ports::{Journal, JournalFault};
use drover_model::record::{Body, RECORD_VERSION};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// A field that the drover of the next format has in each snapshot.
const NEW_FIELD: &[u8] = b"\"addedLater\":true,";

/// How a service reaches the store. Clones share it.
#[derive(Clone, Default)]
pub struct Store {
    /// Whether the store cannot be reached.
    pub away: Arc<AtomicBool>,
    /// How long each call takes, in milliseconds.
    delay: Arc<AtomicU64>,
    /// Whether another process took the journal over from the one at its end.
    fenced: Arc<AtomicBool>,
    /// Whether the drover at its end writes the next format, and reads both.
    newer: Arc<AtomicBool>,
}

impl Store {
    /// Each call takes so long from here on.
    pub fn delay(&self, span: Duration) {
        self.delay.store(u64::try_from(span.as_millis()).unwrap(), Ordering::Release);
    }

    /// How long each call takes.
    pub fn takes(&self) -> Duration {
        Duration::from_millis(self.delay.load(Ordering::Acquire))
    }

    /// The next process is a drover of the next format.
    pub fn upgrade(&self) {
        self.newer.store(true, Ordering::Release);
    }

    /// Whether the drover at its end writes the next format.
    pub fn is_newer(&self) -> bool {
        self.newer.load(Ordering::Acquire)
    }

    /// The log as the drover at this end of the way has it.
    pub fn log(&self, log: &MemoryLog) -> Box<dyn Log> {
        if self.is_newer() { Box::new(NewerLog(log.clone())) } else { Box::new(log.clone()) }
    }

    /// Whether another process took the journal over since the last look.
    pub fn was_fenced(&self) -> bool {
        self.fenced.swap(false, Ordering::AcqRel)
    }

    fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }
}

/// An append that notes where another process took the journal over.
fn noted(
    done: BoxFuture<'static, Result<u64, JournalFault>>,
    fenced: Arc<AtomicBool>,
) -> BoxFuture<'static, Result<u64, JournalFault>> {
    let note = move |done: &Result<u64, JournalFault>| {
        fenced.fetch_or(matches!(done, Err(JournalFault::Fenced)), Ordering::AcqRel);
    };
    done.inspect(note).boxed()
}

type Sent = (Vec<Body>, oneshot::Sender<Result<u64, JournalFault>>);

/// The appends of one process, in their order. What was sent arrives, also when the process is gone by
/// then.
pub struct Line {
    writer: Arc<Writer>,
    store: Store,
    /// Appends on their way.
    under_way: Arc<AtomicU64>,
    sender: mpsc::UnboundedSender<Sent>,
}

impl Line {
    /// From a process to its writer.
    pub fn new(writer: Arc<Writer>, store: Store) -> Self {
        let (sender, mut arriving) = mpsc::unbounded_channel::<Sent>();
        let under_way = Arc::new(AtomicU64::new(0));
        let (to, way, left) = (Arc::clone(&writer), store.clone(), Arc::clone(&under_way));
        tokio::spawn(async move {
            while let Some((bodies, reply)) = arriving.recv().await {
                sleep(way.takes() / 2).await;
                let done = if way.is_away() { Err(no_answer()) } else { to.append(bodies).await };
                sleep(way.takes() / 2).await;
                left.fetch_sub(1, Ordering::AcqRel);
                // A process that was killed hears no answer.
                let _ = reply.send(done);
            }
        });
        Self { writer, store, under_way, sender }
    }

    /// Sends an append. One to a store that takes no time is written within the call.
    pub fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        if self.store.takes().is_zero() && self.under_way.load(Ordering::Acquire) == 0 {
            return noted(self.writer.append(bodies), Arc::clone(&self.store.fenced));
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let (reply, answer) = oneshot::channel();
        self.sender.send((bodies, reply)).unwrap();
        let done = async move { answer.await.unwrap_or_else(|_| Err(no_answer())) }.boxed();
        noted(done, Arc::clone(&self.store.fenced))
    }

    /// Whether the store cannot be reached.
    pub fn is_away(&self) -> bool {
        self.store.is_away()
    }

    pub fn last_seq(&self) -> u64 {
        self.writer.last_seq()
    }
}

/// What a writer says of a store that is away.
pub fn no_answer() -> JournalFault {
    JournalFault::Failed("the store does not answer".to_owned())
}

/// The log as a drover has it that writes the next version of records and one field more in snapshots.
struct NewerLog(MemoryLog);

/// A record of one version as one of another; others stay as they are.
fn as_version(record: &[u8], from: u32, to: u32) -> Vec<u8> {
    let (before, after) = (format!("{{\"version\":{from},"), format!("{{\"version\":{to},"));
    match record.strip_prefix(before.as_bytes()) {
        Some(rest) => [after.as_bytes(), rest].concat(),
        None => record.to_vec(),
    }
}

fn newer(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let records = records.iter();
    records.map(|record| as_version(record, RECORD_VERSION, RECORD_VERSION + 1)).collect()
}

impl Log for NewerLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        self.0.append(expected, &newer(batch), durable)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let records = self.0.read_from(seq)?.into_iter();
        let read = |record: Vec<u8>| as_version(&record, RECORD_VERSION + 1, RECORD_VERSION);
        Ok(records.map(|(seq, record)| (seq, read(record))).collect())
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        let snapshot = self.0.snapshot()?;
        Ok(snapshot.map(|(at, bytes)| {
            let known = bytes.strip_prefix(b"{").and_then(|rest| rest.strip_prefix(NEW_FIELD));
            let known = known.map(|rest| [b"{", rest].concat());
            (at, known.unwrap_or(bytes))
        }))
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        let inner = self.0.successor(seq)?;
        Ok(Box::new(NewerSuccessor { inner, started: false }))
    }

    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        self.0.succeed(expected, &newer(behind))
    }
}

struct NewerSuccessor {
    inner: Box<dyn Successor>,
    started: bool,
}

impl Successor for NewerSuccessor {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        if std::mem::replace(&mut self.started, true) {
            return self.inner.put(bytes);
        }
        let rest = bytes.strip_prefix(b"{").expect("a snapshot is an object");
        self.inner.put(&[b"{", NEW_FIELD, rest].concat())
    }

    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        self.inner.append(&newer(records))
    }

    fn ready(self: Box<Self>) -> Result<(), LogError> {
        self.inner.ready()
    }
}
