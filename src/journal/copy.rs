//! What a journal holds, as it goes from one back end to another or into a text file.
//!
//! A text file is JSON lines: a head, the snapshot where there is one, every record, and an end. A
//! file without its end is cut, and refused.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::fold::fold;
use super::memory::MemoryLog;
use super::{Inspection, Log, LogError, inspect_log};

/// The format of text files that this drover writes.
const TEXT_FORMAT: u64 = 1;
/// The most bytes of a line: a snapshot is one.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// The snapshot of a journal, and the records after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub(super) snapshot: Option<(u64, Vec<u8>)>,
    pub(super) records: Vec<Vec<u8>>,
}

/// Why a journal could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Log(#[from] LogError),
    /// Two journals never become one.
    #[error(
        "the journal `{place}` holds {last} records already, and nothing was copied: name one that \
         is empty"
    )]
    NotEmpty { place: String, last: u64 },
    #[error("the file `{}` is there already, and nothing was copied: name one that is not", .path.display())]
    Exists { path: PathBuf },
    #[error("the file `{}` could not be {doing}", .path.display())]
    File {
        path: PathBuf,
        /// `read` or `written`.
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    /// A text file is none, or cut.
    #[error("line {line} of the file `{}`: {text}", .path.display())]
    Text { path: PathBuf, line: usize, text: String },
}

/// The first line of a text file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TextHead {
    drover_journal: u64,
    /// The last record that the snapshot includes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot_at: Option<u64>,
}

/// The last line of a text file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TextEnd {
    end: u64,
}

impl Contents {
    /// Reads a log as strictly as a start would.
    ///
    /// # Errors
    /// What a start would say of it; [`LogError::Busy`] where somebody wrote meanwhile.
    pub fn of(log: &(impl Log + ?Sized)) -> Result<Self, LogError> {
        let snapshot = log.snapshot()?;
        let from = snapshot.as_ref().map_or(1, |(at, _)| at + 1);
        let records = log.read_from(from)?;
        let last = records.last().map_or(from - 1, |(seq, _)| *seq);
        let read =
            Self { snapshot, records: records.into_iter().map(|(_, bytes)| bytes).collect() };
        // A snapshot that was switched between the two reads leaves a hole, which is no damage.
        let still = log.read_from(last + 1)?.is_empty() && log.snapshot()? == read.snapshot;
        if !still {
            return Err(LogError::Busy { place: log.place() });
        }
        read.verify(log.place())?;
        Ok(read)
    }

    fn verify(&self, place: String) -> Result<(), LogError> {
        fold(&MemoryLog::of(self.clone(), place)).map(drop)
    }

    /// Looks into what was read.
    ///
    /// # Errors
    /// What a start would say of it.
    pub fn inspect(self, place: String) -> Result<Inspection, LogError> {
        inspect_log(&MemoryLog::of(self, place))
    }

    /// The last record.
    pub fn last(&self) -> u64 {
        self.snapshot_at() + self.records.len() as u64
    }

    /// The last record that the snapshot includes; zero without one.
    pub fn snapshot_at(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |(at, _)| *at)
    }

    /// The number of records after the snapshot.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// Fills an empty log, and reads it again to be sure.
    ///
    /// # Errors
    /// [`CopyError::NotEmpty`] and what the log says; it is empty then.
    pub fn put_into(&self, log: &mut (impl Log + ?Sized)) -> Result<(), CopyError> {
        let place = log.place();
        let before = log.snapshot()?.map_or(0, |(at, _)| at);
        let last = log.read_from(0)?.last().map_or(before, |(seq, _)| *seq);
        if last > 0 {
            return Err(CopyError::NotEmpty { place, last });
        }
        let snapshot = self.snapshot.as_ref().map(|(at, bytes)| (*at, bytes.as_slice()));
        log.restore(snapshot, &self.records)?;
        if Self::of(log)? != *self {
            let source = "it does not hold what was written to it".into();
            return Err(LogError::Corrupt { place, source }.into());
        }
        Ok(())
    }

    /// Writes a new text file that its owner alone can read.
    ///
    /// # Errors
    /// [`CopyError::Exists`] and [`CopyError::File`]; there is no new file then.
    pub fn write_text(&self, path: &Path) -> Result<(), CopyError> {
        let fault = |source| CopyError::File { path: path.to_owned(), doing: "written", source };
        let mut options = File::options();
        let opened = options.write(true).create_new(true).mode(0o600).open(path);
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        if opened.as_ref().is_err_and(is_there) {
            return Err(CopyError::Exists { path: path.to_owned() });
        }
        let file = opened.map_err(fault)?;
        let written = self.write_lines(&file).and_then(|()| file.sync_all());
        written.map_err(|source| {
            // What is half a journal is none.
            let _ = std::fs::remove_file(path);
            fault(source)
        })
    }

    fn write_lines(&self, file: &File) -> io::Result<()> {
        let mut out = BufWriter::new(file);
        let snapshot_at = self.snapshot.as_ref().map(|(at, _)| *at);
        let head = TextHead { drover_journal: TEXT_FORMAT, snapshot_at };
        writeln!(out, "{}", serde_json::to_string(&head)?)?;
        let snapshot = self.snapshot.iter().map(|(_, bytes)| bytes);
        for line in snapshot.chain(&self.records) {
            // JSON as drover writes it has no line breaks.
            if line.contains(&b'\n') {
                return Err(io::Error::other("a record has a line break"));
            }
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        writeln!(out, "{}", serde_json::to_string(&TextEnd { end: self.last() })?)?;
        out.flush()
    }

    /// Reads a text file as strictly as a start reads a journal.
    ///
    /// # Errors
    /// [`CopyError`]; also where the file is cut.
    pub fn read_text(path: &Path) -> Result<Self, CopyError> {
        let fault = |source| CopyError::File { path: path.to_owned(), doing: "read", source };
        let wrong = |line, text: String| CopyError::Text { path: path.to_owned(), line, text };
        let mut file = BufReader::new(File::open(path).map_err(fault)?);
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let mut bounded = io::Read::take(&mut file, LINE_BYTES_MAX);
            if bounded.read_until(b'\n', &mut line).map_err(fault)? == 0 {
                break;
            }
            if line.pop() != Some(b'\n') {
                return Err(wrong(lines.len() + 1, "the line is cut".to_owned()));
            }
            lines.push(line);
        }
        let no_head = || wrong(1, "it does not begin as the text of a journal does".to_owned());
        let mut lines = lines.into_iter();
        let head = lines.next().ok_or_else(no_head)?;
        let head: TextHead = serde_json::from_slice(&head).map_err(|_| no_head())?;
        if head.drover_journal > TEXT_FORMAT {
            let found = head.drover_journal;
            let place = path.display().to_string();
            return Err(LogError::Newer { place, found, known: TEXT_FORMAT }.into());
        }
        let mut records: Vec<Vec<u8>> = lines.collect();
        let count = records.len() + 1;
        let cut = || wrong(count, "the text ends before its end".to_owned());
        let end = records.pop().ok_or_else(cut)?;
        let end: TextEnd = serde_json::from_slice(&end).map_err(|_| cut())?;
        let snapshot = match head.snapshot_at {
            Some(_) if records.is_empty() => return Err(cut()),
            Some(at) => Some((at, records.remove(0))),
            None => None,
        };
        let read = Self { snapshot, records };
        if read.last() != end.end {
            let text = format!("it says that record {} is the last, not {}", end.end, read.last());
            return Err(wrong(count, text));
        }
        read.verify(path.display().to_string())?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
