//! Appends records to the files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::entry::Entry;
use crate::folder::{self, End};
use crate::record::{Head, digest, seal};

/// The length in bytes at which a file is full, and the next one begins.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The audit log, open for its next records.
pub(crate) struct Log {
    folder: PathBuf,
    /// The bytes at which a file is full.
    file_bytes_max: u64,
    head: Head,
    /// None after a write that failed.
    open: Option<Open>,
}

struct Open {
    file: File,
    path: PathBuf,
    bytes: u64,
}

/// A record that is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) entry: Entry,
    pub(crate) head: Head,
}

impl Log {
    /// The log of a folder, of which nothing is read before the first record.
    pub(crate) fn new(folder: &Path, file_bytes_max: u64) -> Self {
        Self { folder: folder.to_owned(), file_bytes_max, head: Head::zero(), open: None }
    }

    /// The file that the next records go to; the folder where none is open.
    pub(crate) fn place(&self) -> &Path {
        self.open.as_ref().map_or(&self.folder, |open| &open.path)
    }

    /// Appends entries, each with the time when it was made, and syncs them; what the log says about itself was
    /// made at `now`. Older files go until `keep_bytes` are left.
    ///
    /// # Errors
    /// The system's. Some of the entries may be in the file; the chain goes on behind them.
    pub(crate) fn append(
        &mut self,
        now: Timestamp,
        entries: Vec<(Timestamp, Entry)>,
        keep_bytes: u64,
    ) -> io::Result<Vec<Written>> {
        let appended = self.try_append(now, entries, keep_bytes);
        if appended.is_err() {
            self.open = None;
        }
        appended
    }

    fn try_append(
        &mut self,
        now: Timestamp,
        entries: Vec<(Timestamp, Entry)>,
        keep_bytes: u64,
    ) -> io::Result<Vec<Written>> {
        let mut written = Vec::new();
        let still_open = self.open.take_if(|open| is_at(&open.file, &open.path));
        let mut open = match still_open {
            Some(open) => open,
            None => self.reopen(now, &mut written)?,
        };
        if open.bytes >= self.file_bytes_max {
            open = self.next_file()?;
            self.remove_old(now, keep_bytes, &mut open, &mut written)?;
        }
        let mut lines = String::new();
        let mut last = self.head.clone();
        for (made, entry) in entries {
            let entry = entry.bounded();
            let (line, head) = seal(&last, made, &entry)?;
            lines.push_str(&line);
            last = head.clone();
            written.push(Written { entry, head });
        }
        put(&mut open, lines.as_bytes())?;
        self.head = last;
        self.open = Some(open);
        Ok(written)
    }

    /// Opens the last file behind all that is in it. A piece of a line there is closed.
    fn reopen(&mut self, now: Timestamp, written: &mut Vec<Written>) -> io::Result<Open> {
        folder::make(&self.folder)?;
        let parts = folder::parts(&self.folder)?;
        let End { head, rest, ends_line } = folder::end(&parts)?;
        // Where records of this process are gone from the files, the gap stays to be seen.
        if head.seq >= self.head.seq {
            self.head = head;
        }
        let mut open = match parts.last() {
            Some(part) if part.first > self.head.seq + 1 => return Err(unreadable(&part.path)),
            Some(part) => open(&part.path)?,
            None => self.next_file()?,
        };
        let end: &[u8] = if ends_line { b"" } else { b"\n" };
        if rest.is_empty() {
            put(&mut open, end)?;
        } else {
            let piece = [&rest, end].concat();
            let (bytes, sha256) = (piece.len() as u64, digest(&piece));
            let entry = Entry::TornLine { bytes, sha256 };
            let (line, head) = seal(&self.head, now, &entry)?;
            put(&mut open, &[end, line.as_bytes()].concat())?;
            self.head = head.clone();
            written.push(Written { entry, head });
        }
        Ok(open)
    }

    fn next_file(&self) -> io::Result<Open> {
        let opened = open(&folder::path_of(&self.folder, self.head.seq + 1))?;
        folder::sync(&self.folder)?;
        Ok(opened)
    }

    /// Removes the oldest files, each after a record that says so.
    fn remove_old(
        &mut self,
        now: Timestamp,
        keep_bytes: u64,
        open: &mut Open,
        written: &mut Vec<Written>,
    ) -> io::Result<()> {
        let parts = folder::parts(&self.folder)?;
        let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        for part in &parts {
            if bytes <= keep_bytes || part.path == open.path {
                break;
            }
            let End { head: last, .. } = folder::end(std::slice::from_ref(part))?;
            let file = part.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let entry = Entry::Removed { file, last_seq: last.seq, last_hash: last.hash };
            let (line, head) = seal(&self.head, now, &entry)?;
            put(open, line.as_bytes())?;
            self.head = head.clone();
            written.push(Written { entry, head });
            std::fs::remove_file(&part.path)?;
            bytes -= part.bytes;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Open { file, path: path.to_owned(), bytes })
}

/// No record can be read where the chain must go on.
fn unreadable(path: &Path) -> io::Error {
    let path = path.display();
    let text = "has no record that can be read: `drover audit verify` shows the damage. Move the folder away, \
                and the next record begins a new chain";
    io::Error::other(format!("`{path}` {text}"))
}

/// Writes and syncs.
fn put(open: &mut Open, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    open.file.write_all(bytes)?;
    open.file.sync_data()?;
    open.bytes += bytes.len() as u64;
    Ok(())
}

/// Whether a file is still the one that has this name.
fn is_at(file: &File, path: &Path) -> bool {
    let same = file.metadata().and_then(|open| {
        let named = std::fs::metadata(path)?;
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
    });
    same.unwrap_or(false)
}

#[cfg(test)]
mod tests;
