//! The file of past events, `events.jsonl` in the state directory.
//!
//! In: each event of the view. Out, at the next start: what people may still ask about.
//!
//! ```text
//! {"version":1}
//! {"id":"3-17","fact":{"at":1764230000000,"what":{"agentGone":{…}}}}
//! ```
//!
//! Nothing is decided by it, so nothing waits for it: facts that come faster than the disk takes them are
//! left out, and a line that cannot be read costs that line. The journal has all that counts.
//!
//! The file is bounded. It is written again with the last of each kind where it has grown by
//! [`APPENDED_MAX`], and at each start.
//!
//! Beside this: `past_events/reading.rs` reads it, and `retention.rs` says which events stay.

mod reading;
mod retention;

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use drover_model::fact::Fact;
use drover_server::view::{Event, View};
use serde::{Deserialize, Serialize};

/// The file's name.
const FILE: &str = "events.jsonl";
/// The name of the next file, until it is whole.
const NEXT: &str = "events.jsonl.next";
/// The name of a file that could not be read, so that nothing of it is lost.
const ASIDE: &str = "events.jsonl.unread";
/// The format that this drover writes and reads.
const VERSION: u32 = 1;
/// Lines and bytes after which the file is written again.
const APPENDED_MAX: Grown = Grown { lines: 4096, bytes: 8 << 20 };
/// A longer line is not written.
const LINE_MAX: usize = 256 << 10;
/// Events that may wait for the disk at once; more are left out.
const WAITING_MAX: usize = 4096;
/// How long a stop waits for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a disk that failed is left alone.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes that wait for it at most.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
}

/// Every other line.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    id: String,
    fact: Cow<'a, Fact>,
}

/// A line as text, and the event in it.
struct Kept {
    text: String,
    event: Event,
}

#[derive(Default)]
struct Grown {
    lines: usize,
    bytes: usize,
}

enum Message {
    Event(Arc<Event>),
    /// Answers once all before it is written.
    Flush(SyncSender<()>),
}

/// The way to the thread that writes the file.
pub struct PastEvents {
    messages: SyncSender<Message>,
}

impl PastEvents {
    /// Gives the view the events of earlier starts, and writes down those of this one from here on.
    ///
    /// A file that cannot be read or written costs warnings, and no event of this start.
    pub fn attach(state: &Path, view: &View) -> Self {
        let mut kept = read(state);
        // A journal that was lost begins to count its starts again: one id names one event.
        kept.retain(|kept| kept.event.id.run < view.run());
        let kept = retention::retained(kept);
        let file = EventFile::begin(state, &kept);
        view.restore(kept.into_iter().map(|kept| kept.event).collect());
        let (messages, received) = sync_channel(WAITING_MAX);
        let writing = std::thread::Builder::new().name("past-events".to_owned());
        if let Err(error) = writing.spawn(move || write_all(file, &received)) {
            tracing::warn!(%error, "cannot start the thread that writes past events down");
        }
        let sender = messages.clone();
        view.keep_with(Box::new(move |event| {
            // One that finds no room is left out; the thread's end was said when it ended.
            match sender.try_send(Message::Event(Arc::clone(event))) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }));
        Self { messages }
    }

    /// Waits until all that was reported is in the file, or the disk takes too long.
    pub async fn flush(&self) {
        let messages = self.messages.clone();
        let flushed = tokio::task::spawn_blocking(move || {
            let (done, written) = sync_channel(1);
            match messages.try_send(Message::Flush(done)) {
                Ok(()) => written.recv_timeout(FLUSH_TIMEOUT),
                Err(_) => Err(RecvTimeoutError::Timeout),
            }
        });
        if !matches!(flushed.await, Ok(Ok(()))) {
            tracing::warn!("the last events may be unknown after the restart");
        }
    }
}

fn write_all(mut file: EventFile, received: &Receiver<Message>) {
    loop {
        let first = match received.recv_timeout(RETRY_INTERVAL) {
            Ok(first) => first,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                file.append("");
                continue;
            }
        };
        let mut lines = String::new();
        let mut flushed = Vec::new();
        for message in std::iter::once(first).chain(received.try_iter().take(WAITING_MAX)) {
            match message {
                Message::Event(event) => lines.extend(line_of(&event)),
                Message::Flush(done) => flushed.push(done),
            }
        }
        file.append(&lines);
        for done in flushed {
            // Who waited may have given up.
            let _ = done.send(());
        }
    }
}

/// An event as a line; none where it is too long to keep.
fn line_of(event: &Event) -> Option<String> {
    let fact = Cow::Borrowed(&event.fact);
    let mut line = serde_json::to_string(&Line { id: event.id.to_string(), fact }).ok()?;
    line.push('\n');
    (line.len() <= LINE_MAX).then_some(line)
}

/// The events of the file that can be read. A file that gives none is put aside.
fn read(state: &Path) -> Vec<Kept> {
    let file = state.join(FILE);
    let path = file.display().to_string();
    match reading::read(&file) {
        Ok((all, unread)) => {
            if unread > 0 {
                tracing::warn!(path, unread, read = all.len(), "some past events cannot be read");
            }
            all
        }
        Err(why) => {
            let aside = std::fs::rename(&file, state.join(ASIDE));
            let kept = if aside.is_ok() { ASIDE } else { "" };
            tracing::warn!(path, %why, kept, "past events cannot be read; drover goes on without them");
            Vec::new()
        }
    }
}

/// The file, open for its next lines.
struct EventFile {
    state: PathBuf,
    /// None where it could not be written at the last attempt.
    open: Option<File>,
    grown: Grown,
    /// When the last attempt failed, and what waits since then.
    failed: Option<Instant>,
    waiting: String,
}

impl EventFile {
    /// Writes the file again with those lines.
    fn begin(state: &Path, kept: &[Kept]) -> Self {
        let mut file = Self {
            state: state.to_owned(),
            open: None,
            grown: Grown::default(),
            failed: None,
            waiting: String::new(),
        };
        match renew(state, kept) {
            Ok(open) => file.open = Some(open),
            Err(error) => file.fail(&error),
        }
        file
    }

    fn append(&mut self, lines: &str) {
        // The newest of what does not fit are left out.
        if self.waiting.len() + lines.len() <= WAITING_BYTES_MAX {
            self.waiting.push_str(lines);
        }
        let rests = self.failed.is_some_and(|failed| failed.elapsed() < RETRY_INTERVAL);
        if rests || self.waiting.is_empty() {
            return;
        }
        let is_full =
            self.grown.lines >= APPENDED_MAX.lines || self.grown.bytes >= APPENDED_MAX.bytes;
        let path = self.state.join(FILE);
        let may_go_on = |open: &&mut File| !is_full && is_at(open, &path);
        let written = match self.open.as_mut().filter(may_go_on) {
            Some(open) => Ok(open),
            None => {
                // What a write that failed left behind goes with it.
                let kept = retention::retained(read(&self.state));
                renew(&self.state, &kept).map(|open| {
                    self.grown = Grown::default();
                    self.open.insert(open)
                })
            }
        };
        match written.and_then(|open| open.write_all(self.waiting.as_bytes())) {
            Ok(()) => {
                self.grown.lines += self.waiting.matches('\n').count();
                self.grown.bytes += self.waiting.len();
                self.failed = None;
                self.waiting.clear();
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.open = None;
        if self.failed.replace(Instant::now()).is_some() {
            return;
        }
        let path = self.state.join(FILE).display().to_string();
        tracing::warn!(path, %error, "cannot write events down; a restart forgets them");
    }
}

/// Whether an open file is still the one with that name: somebody may have removed it.
fn is_at(open: &File, path: &Path) -> bool {
    let named = std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let written = open.metadata().map(|meta| (meta.dev(), meta.ino()));
    matches!((named, written), (Ok(named), Ok(written)) if named == written)
}

/// Writes the lines to a new file, puts it in the place of the old one, and leaves it open.
fn renew(state: &Path, kept: &[Kept]) -> io::Result<File> {
    let next = state.join(NEXT);
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Appended to, so that somebody who empties it leaves no hole.
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create_new(true).mode(0o600).open(&next)?;
    let mut text = serde_json::to_string(&Head { version: VERSION })?;
    text.push('\n');
    for line in kept {
        text.push_str(&line.text);
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    std::fs::rename(next, state.join(FILE))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
