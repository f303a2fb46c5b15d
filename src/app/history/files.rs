//! Writes the files of the history, begins the next one, and removes the oldest.
//!
//! A file is named by its number. The next one is written under another name until it has all open records,
//! so that the newest file is always whole at its start. Then the one before loses all but the records that
//! are over: the next one has the others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causes::chain;
use drover_history::{FORMAT, Kept};
use drover_model::time::WallTime;

use super::reading;

/// What a file has at most before the next one is started.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// The least of it, where little is kept.
const FILE_BYTES_MIN: u64 = 64 << 10;
/// The part of all that is kept which one file may have: as many files at least.
const FILES_MIN: u64 = 16;
/// How often the disk is asked to have what was written.
const SYNC_INTERVAL: Duration = Duration::from_secs(60);
/// How long a disk that failed is left alone.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// A longer line is not written.
const LINE_MAX: usize = 64 << 10;

/// How much stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Older files go; where it is zero there is no history.
    pub age: Duration,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Keep {
    fn is_off(self) -> bool {
        self.age.is_zero() || self.bytes == 0
    }

    fn file_bytes(self) -> u64 {
        (self.bytes / FILES_MIN).clamp(FILE_BYTES_MIN, FILE_BYTES_MAX)
    }
}

/// The files, the newest open for its next lines.
pub(super) struct Files {
    folder: PathBuf,
    keep: Keep,
    /// None before the first line, and where it could not be written at the last try.
    open: Option<File>,
    bytes: u64,
    /// The bytes that it began with: all that was open then.
    started_bytes: u64,
    /// The latest time so far: what a file begins with is not before it, also after the clock was set back.
    latest: WallTime,
    synced: Instant,
    is_dirty: bool,
    /// When the last try failed.
    failed: Option<Instant>,
    alive: Option<WallTime>,
}

impl Files {
    pub(super) fn new(folder: PathBuf, keep: Keep, latest: WallTime) -> Self {
        let synced = Instant::now();
        let (open, failed, alive) = (None, None, None);
        let (bytes, started_bytes) = (0, 0);
        Self {
            folder,
            keep,
            open,
            bytes,
            started_bytes,
            latest,
            synced,
            is_dirty: false,
            failed,
            alive,
        }
    }

    pub(super) fn configure(&mut self, keep: Keep) {
        self.keep = keep;
        // The next line begins a file, or removes all.
        self.open = None;
    }

    /// Writes lines. `open` gives all open records, where a file is started.
    pub(super) fn append(
        &mut self,
        now: WallTime,
        kept: &[Kept],
        open: impl FnOnce() -> Vec<Kept>,
    ) {
        if self.failed.is_some_and(|failed| failed.elapsed() < RETRY_INTERVAL) {
            return;
        }
        match self.try_append(now, kept, open) {
            Ok(()) => self.failed = None,
            Err(error) => {
                // What was lost may be the end of a record that is open in the newest file.
                (self.open, self.bytes, self.started_bytes) = (None, u64::MAX, 0);
                if self.failed.replace(Instant::now()).is_none() {
                    let path = self.folder.display().to_string();
                    tracing::warn!(path, error = chain(&error), "the history cannot be written");
                }
            }
        }
    }

    fn try_append(
        &mut self,
        now: WallTime,
        kept: &[Kept],
        open: impl FnOnce() -> Vec<Kept>,
    ) -> io::Result<()> {
        if self.keep.is_off() {
            return remove_all(&self.folder);
        }
        let ends = kept.iter().filter_map(ended);
        self.latest = ends.chain([now]).fold(self.latest, WallTime::max);
        // What it began with is no reason to begin the next one, which would begin with the same.
        let is_full = self.bytes - self.started_bytes >= self.keep.file_bytes();
        if self.open.is_none() && !is_full {
            self.go_on()?;
        }
        if self.open.is_none() || is_full {
            self.begin(kept, open())?;
            self.prune(now)?;
            return self.sync_now();
        }
        let mut text = lines(kept);
        // Once a minute, so that a start knows when this one was there last.
        if self.alive.is_none_or(|last| now - last >= SYNC_INTERVAL || now < last) {
            text.push_str(&lines(&[Kept::Alive(now)]));
            self.alive = Some(now);
        }
        if let Some(file) = self.open.as_mut().filter(|_| !text.is_empty()) {
            file.write_all(text.as_bytes())?;
            self.bytes += text.len() as u64;
            self.is_dirty = true;
        }
        if self.is_dirty && self.synced.elapsed() >= SYNC_INTERVAL {
            self.sync_now()?;
            self.prune(now)?;
        }
        Ok(())
    }

    /// Asks the disk to have all that was written.
    pub(super) fn sync(&mut self) {
        if let Err(error) = self.sync_now() {
            let path = self.folder.display().to_string();
            tracing::warn!(path, error = chain(&error), "the history cannot be synced");
        }
    }

    fn sync_now(&mut self) -> io::Result<()> {
        if let Some(file) = &self.open {
            file.sync_data()?;
        }
        (self.synced, self.is_dirty) = (Instant::now(), false);
        Ok(())
    }

    /// Opens the newest file for its next line, where it is one of this format with room.
    fn go_on(&mut self) -> io::Result<()> {
        let Some((_, newest)) = reading::listed(&self.folder)?.pop() else { return Ok(()) };
        let bytes = fs::metadata(&newest)?.len();
        if bytes >= self.keep.file_bytes() || reading::head(&newest)?.is_none() {
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).open(&newest)?;
        // What was torn stays a line of its own.
        if !reading::ends_whole(&newest)? {
            file.write_all(b"\n")?;
        }
        (self.open, self.bytes, self.started_bytes) = (Some(file), bytes, 0);
        Ok(())
    }

    /// Begins the next file with the lines that are over, and all open records.
    fn begin(&mut self, kept: &[Kept], open: Vec<Kept>) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let before = reading::listed(&self.folder)?.pop();
        let number = before.as_ref().map_or(1, |(number, _)| number + 1);
        // The first file begins with its first record.
        let first = kept.iter().filter_map(ended).fold(self.latest, WallTime::min);
        let from = if before.is_none() { first } else { self.latest };
        let head = Kept::Head { format: FORMAT, from };
        let over = kept.iter().filter(|kept| matches!(kept, Kept::Closed(_))).cloned();
        let all: Vec<Kept> = std::iter::once(head).chain(open).chain(over).collect();
        let text = lines(&all);
        let path = self.folder.join(format!("{number:012}.jsonl"));
        let file = put(&path, text.as_bytes())?;
        (self.open, self.alive) = (Some(file), None);
        (self.bytes, self.started_bytes) = (text.len() as u64, text.len() as u64);
        let ours = before.filter(|(_, before)| matches!(reading::head(before), Ok(Some(_))));
        if let Some((_, before)) = ours {
            let over = reading::closed(&before)?;
            put(&before, over.as_bytes())?;
        }
        Ok(())
    }

    /// Removes the oldest files: those that ended too long ago, and as many as are too much.
    fn prune(&self, now: WallTime) -> io::Result<()> {
        let all = reading::listed(&self.folder)?;
        let mut bytes: u64 =
            all.iter().filter_map(|(_, path)| Some(fs::metadata(path).ok()?.len())).sum();
        // A file ended before the next one began.
        for pair in all.windows(2) {
            let [(_, oldest), (_, next)] = pair else { break };
            let ended = reading::head(next)?.unwrap_or(now);
            let is_old = ended < now.before(self.keep.age);
            if !is_old && bytes <= self.keep.bytes {
                break;
            }
            bytes = bytes.saturating_sub(fs::metadata(oldest)?.len());
            fs::remove_file(oldest)?;
            let path = oldest.display().to_string();
            tracing::info!(path, "the oldest file of the history is removed");
        }
        Ok(())
    }
}

/// When a record was over; none where it goes on.
fn ended(kept: &Kept) -> Option<WallTime> {
    match kept {
        Kept::Closed(line) => line.ended(),
        Kept::Open(_) | Kept::Head { .. } | Kept::Alive(_) => None,
    }
}

/// Lines as text, without those that are too long.
fn lines(kept: &[Kept]) -> String {
    let mut text = String::new();
    for line in kept.iter().filter_map(|kept| serde_json::to_string(kept).ok()) {
        if line.len() < LINE_MAX {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// Writes a file as a whole, under its name once it is on the disk, and leaves it open for more.
fn put(path: &Path, text: &[u8]) -> io::Result<File> {
    let next = path.with_extension("next");
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(text)?;
    file.sync_data()?;
    fs::rename(next, path)?;
    Ok(file)
}

fn remove_all(folder: &Path) -> io::Result<()> {
    reading::listed(folder)?.into_iter().try_for_each(|(_, path)| fs::remove_file(path))
}
