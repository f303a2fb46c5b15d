//! The thread that writes, and the handle that everybody else has.
//!
//! A record that finds no room in the queue is lost and counted, like one that the disk does not take. A
//! second thread watches the first: a write that does not end is trouble too, although no call failed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::FOLDER;
use crate::entry::Entry;
use crate::left_out::{LeftOut, Sifted};
use crate::log::{FILE_BYTES_MAX, Log, Written};

/// Records that may wait for the disk at once.
const WAITING_MAX: usize = 4096;
/// Records that are written together at most.
const TOGETHER_MAX: usize = 256;
/// The times of the threads.
const WAITS: Waits = Waits {
    retry: Duration::from_secs(1),
    probe: Duration::from_secs(5),
    write: Duration::from_secs(5),
};
/// What helps where the system refuses a write.
const CHECK_FILES: &str = "drover audit verify";
/// What helps where a write does not end: the kernel's log names the disk.
const CHECK_DISK: &str = "journalctl -k -p warning -n 50";

/// What the service does where no record can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It says so and goes on: an operator can still act.
    GoOn,
    /// It refuses calls that change something.
    Refuse,
}

/// What is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub on_failure: OnFailure,
    /// How many bytes all files may have; the newest file stays in any case.
    pub keep_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { on_failure: OnFailure::GoOn, keep_bytes: 512 << 20 }
    }
}

/// Why no record can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub why: String,
    /// The command that shows more.
    pub command: &'static str,
}

/// How long the threads wait.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// How long a disk that failed is left alone.
    retry: Duration,
    /// After this time without a record a disk that failed is tried again, so that the trouble ends.
    probe: Duration,
    /// How long one write may take before it counts as trouble.
    write: Duration,
}

type Watcher = Box<dyn Fn(Option<&Trouble>) + Send>;
type Done = Box<dyn FnOnce(bool) + Send>;

enum Message {
    /// Says whether the entry is on the disk.
    Entry(Timestamp, Box<Entry>, Done),
    /// Says whether entries can be written now.
    Probe(Done),
}

/// The audit log of this process. Clones are the same one.
#[derive(Clone)]
pub struct Audit {
    messages: SyncSender<Message>,
    shared: Arc<Shared>,
}

struct Shared {
    folder: PathBuf,
    options: Mutex<Options>,
    /// Records that are lost since the last one that was written.
    lost: AtomicU64,
    state: Mutex<State>,
}

/// Whether records can be written, and who hears when that changes.
#[derive(Default)]
struct State {
    trouble: Option<Trouble>,
    watcher: Option<Watcher>,
    /// Counts the writes.
    writes: u64,
    /// Whether the last of them has not ended.
    is_writing: bool,
    /// Whether it takes longer than [`Waits::write`].
    hangs: bool,
}

impl Audit {
    /// The audit log in a state directory. Trouble with its files does not show here ([`Audit::watch`]).
    ///
    /// # Errors
    /// The system's, where it starts no thread.
    pub fn open(state: &Path, options: Options) -> std::io::Result<Self> {
        Self::bounded(state, options, FILE_BYTES_MAX, WAITS)
    }

    fn bounded(
        state: &Path,
        options: Options,
        file_bytes_max: u64,
        waits: Waits,
    ) -> std::io::Result<Self> {
        let folder = state.join(FOLDER);
        let (messages, received) = sync_channel(WAITING_MAX);
        let writer_log = Log::new(&folder, file_bytes_max);
        let shared = Arc::new(Shared {
            folder,
            options: Mutex::new(options),
            lost: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let (writes, watched) = channel();
        let writer = Writer {
            log: writer_log,
            shared: Arc::clone(&shared),
            left_out: LeftOut::default(),
            failed: None,
            waits,
            writes,
        };
        let watched_log = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("audit-watch".to_owned())
            .spawn(move || watched_log.watch_writes(&watched, waits.write))?;
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&received))?;
        Ok(Self { messages, shared })
    }

    /// Takes other options, from the next record on.
    pub fn configure(&self, options: Options) {
        *self.shared.options.lock() = options;
    }

    /// What is configured.
    pub fn options(&self) -> Options {
        *self.shared.options.lock()
    }

    /// The folder of the files.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Calls this at once and at each change, with why no record can be written; it replaces the
    /// watcher before.
    pub fn watch(&self, watcher: impl Fn(Option<&Trouble>) + Send + 'static) {
        let mut state = self.shared.state.lock();
        watcher(state.trouble.as_ref());
        state.watcher = Some(Box::new(watcher));
    }

    /// Records an entry. `done` hears from another thread whether it is on the disk, or left out as one of
    /// many that were refused.
    pub fn record(&self, entry: Entry, done: impl FnOnce(bool) + Send + 'static) {
        self.send(Message::Entry(now(), Box::new(entry), Box::new(done)));
    }

    /// Records an entry that nobody waits for.
    pub fn note(&self, entry: Entry) {
        self.record(entry, |_| {});
    }

    /// Calls `done` with whether entries can be written now.
    pub fn probe(&self, done: impl FnOnce(bool) + Send + 'static) {
        self.send(Message::Probe(Box::new(done)));
    }

    /// Whether a write does not end: nobody needs to wait for a record.
    pub fn hangs(&self) -> bool {
        self.shared.state.lock().hangs
    }

    fn send(&self, message: Message) {
        match self.messages.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                let why = format!("{WAITING_MAX} records wait for the disk");
                self.shared.fail(vec![message], &why);
            }
            Err(TrySendError::Disconnected(message)) => {
                self.shared.fail(vec![message], "the thread that writes it ended");
            }
        }
    }
}

impl Shared {
    /// Counts what is lost, logs it, and says why, before anybody hears that it is lost.
    fn fail(&self, messages: Vec<Message>, why: &str) {
        self.note_failing(why);
        for message in messages {
            match message {
                Message::Entry(_, entry, done) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    log(&entry.bounded(), None);
                    done(false);
                }
                Message::Probe(done) => done(false),
            }
        }
    }

    fn note_failing(&self, why: &str) {
        let mut state = self.state.lock();
        // A disk that hangs is why the queue is full.
        if state.hangs {
            return;
        }
        if state.trouble.is_none() {
            let folder = self.folder.display();
            tracing::error!(%folder, why, "the audit log cannot be written");
        }
        if state.trouble.as_ref().is_none_or(|trouble| trouble.why != why) {
            state.set(Some(Trouble { why: why.to_owned(), command: CHECK_FILES }));
        }
    }

    fn succeed(&self) {
        let mut state = self.state.lock();
        if state.trouble.is_some() {
            tracing::warn!("the audit log can be written again");
            state.set(None);
        }
    }

    /// A write begins; gives its number.
    fn begin_write(&self) -> u64 {
        let mut state = self.state.lock();
        state.writes += 1;
        state.is_writing = true;
        state.writes
    }

    /// The write ended, well or not.
    fn end_write(&self) {
        let mut state = self.state.lock();
        (state.is_writing, state.hangs) = (false, false);
    }

    /// Waits for the end of each write, and says so where one takes too long.
    fn watch_writes(&self, writes: &Receiver<Write>, limit: Duration) {
        while let Ok(write) = writes.recv() {
            let Write::Began(write, path) = write else { continue };
            if let Err(RecvTimeoutError::Timeout) = writes.recv_timeout(limit) {
                self.note_hanging(write, &path, limit);
            }
        }
    }

    fn note_hanging(&self, write: u64, path: &Path, limit: Duration) {
        let mut state = self.state.lock();
        // The write may have ended just now.
        if !state.is_writing || state.writes != write {
            return;
        }
        state.hangs = true;
        let path = path.display();
        let why = format!(
            "a write to `{path}` has not ended for {} s: the disk hangs. Check the disk or the network share; \
             drover goes on by itself once the write ends",
            limit.as_secs()
        );
        tracing::error!(%path, why, "the audit log cannot be written");
        state.set(Some(Trouble { why, command: CHECK_DISK }));
    }
}

impl State {
    fn set(&mut self, trouble: Option<Trouble>) {
        self.trouble = trouble;
        if let Some(watcher) = &self.watcher {
            watcher(self.trouble.as_ref());
        }
    }
}

/// What the watching thread hears.
enum Write {
    /// The write with this number goes to this file.
    Began(u64, PathBuf),
    Ended,
}

/// What the thread has.
struct Writer {
    log: Log,
    shared: Arc<Shared>,
    left_out: LeftOut,
    /// When the last attempt failed, and why.
    failed: Option<(Instant, String)>,
    waits: Waits,
    writes: Sender<Write>,
}

impl Writer {
    fn run(mut self, received: &Receiver<Message>) {
        while let Some(messages) = self.next(received) {
            self.write(messages);
        }
    }

    /// What came; nothing where a disk that failed is to be tried again. None once nobody can send any more.
    fn next(&self, received: &Receiver<Message>) -> Option<Vec<Message>> {
        let first = match &self.failed {
            None => received.recv().ok()?,
            Some(_) => match received.recv_timeout(self.waits.probe) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return None,
            },
        };
        let more = received.try_iter().take(TOGETHER_MAX - 1);
        Some(std::iter::once(first).chain(more).collect())
    }

    fn write(&mut self, messages: Vec<Message>) {
        let (mut entries, mut left_out, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for message in messages {
            let Message::Entry(made, entry, done) = message else {
                waiting.push(message);
                continue;
            };
            let Sifted { counts, is_recorded } = self.left_out.sift(&entry, made);
            entries.extend(counts.iter().map(|count| (made, count.clone())));
            left_out.extend(counts);
            if is_recorded {
                entries.push((made, (*entry).clone()));
                waiting.push(Message::Entry(made, entry, done));
            } else {
                done(true);
            }
        }
        if let Some((failed, why)) = &self.failed
            && failed.elapsed() < self.waits.retry
        {
            self.left_out.give_back(left_out);
            return self.shared.fail(waiting, why);
        }
        let keep_bytes = self.shared.options.lock().keep_bytes;
        let (now, lost) = (now(), self.shared.lost.swap(0, Ordering::Relaxed));
        if lost > 0 {
            let why = self.failed.as_ref().map_or("too many records at once", |(_, why)| why);
            entries.insert(0, (now, Entry::Lost { records: lost, why: why.to_owned() }));
        }
        match self.append(now, entries, keep_bytes) {
            Ok(written) => {
                self.failed = None;
                for Written { entry, head } in written {
                    log(&entry, Some((head.seq, &head.hash)));
                }
                self.shared.succeed();
                for message in waiting {
                    match message {
                        Message::Entry(_, _, done) | Message::Probe(done) => done(true),
                    }
                }
            }
            Err(error) => {
                self.shared.lost.fetch_add(lost, Ordering::Relaxed);
                self.left_out.give_back(left_out);
                let why = error.to_string();
                self.shared.fail(waiting, &why);
                self.failed = Some((Instant::now(), why));
            }
        }
    }

    /// Appends under the eyes of the thread that watches.
    fn append(
        &mut self,
        now: Timestamp,
        entries: Vec<(Timestamp, Entry)>,
        keep_bytes: u64,
    ) -> std::io::Result<Vec<Written>> {
        let began = Write::Began(self.shared.begin_write(), self.log.place().to_owned());
        // It ends only with this thread.
        let _ = self.writes.send(began);
        let appended = self.log.append(now, entries, keep_bytes);
        self.shared.end_write();
        let _ = self.writes.send(Write::Ended);
        appended
    }
}

/// The time, to the millisecond.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// The copy of a record for the log of the process, and from there for the system's journal. Its level is
/// `warn` where the record is in no file.
fn log(entry: &Entry, place: Option<(u64, &str)>) {
    let text = serde_json::to_string(entry).unwrap_or_default();
    let (seq, hash) = place.unwrap_or_default();
    let principal = entry.principal().unwrap_or_default();
    let Entry::Call(call) = entry else {
        match place {
            Some(_) => tracing::info!(target: "audit", seq, hash, entry = text, "audit"),
            None => tracing::warn!(
                target: "audit", entry = text, "record that is in no file of the audit log"
            ),
        }
        return;
    };
    let (peer, method, request) = (&*call.peer, &*call.method, &*call.request);
    let role = call.role.as_deref().unwrap_or_default();
    let member = call.member.as_deref().unwrap_or_default();
    let route = call.route.as_deref().unwrap_or_default();
    let object = call.object.as_deref().unwrap_or_default();
    let status = call.status.unwrap_or_default();
    match place {
        Some(_) => tracing::info!(
            target: "audit",
            seq, hash, principal, role, peer, member, method, route, object, status, request, "call"
        ),
        None => tracing::warn!(
            target: "audit",
            principal, role, peer, member, method, route, object, status, request,
            "call that is in no file of the audit log"
        ),
    }
}

#[cfg(test)]
mod tests;
