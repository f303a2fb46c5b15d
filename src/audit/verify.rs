//! Checks the chain: of all files of a folder, or of one file.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::entry::Entry;
use crate::folder;
use crate::record::{Head, Linked, Record, digest, link};

/// What a check of a chain that is whole saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Files that were read.
    pub files: usize,
    /// Records in them.
    pub records: u64,
    /// The number of the first record; 0 where there is none.
    pub first_seq: u64,
    /// The number of the last record.
    pub last_seq: u64,
    /// The hash of the last record: the copy in the system's journal must have the same.
    pub last_hash: String,
    /// Pieces of lines that a record closes.
    pub torn_lines: u64,
    /// Records that could not be written, by what later records say.
    pub lost_records: u64,
    /// Bytes behind the last record: a record that is being written, or that a dead process left. The next
    /// start closes them.
    pub bytes_behind: u64,
}

/// Where a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("the chain is broken at record {seq}, line {line} of `{}`: {how}", file.display())]
pub struct Broken {
    /// The number of the first record that is not as it was written.
    pub seq: u64,
    /// The file with that record.
    pub file: PathBuf,
    /// Its line in the file; the first has 1.
    pub line: usize,
    /// What is wrong.
    pub how: How,
}

/// How a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "what", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum How {
    /// The line is no record.
    #[error("the line is no record, and no record after it says that it was torn")]
    NoRecord,
    /// The line stands where a write may have broken off, and no write leaves such a line.
    #[error("the line is no piece of a record whose write broke off: it was changed or added")]
    NotTorn,
    /// The record was changed after it was written.
    #[error("the record was changed: its hash is not that of the line")]
    Changed,
    /// The record has another number than the next one must have.
    #[error("the next record has the number {found}: records are missing, or were moved")]
    Missing {
        /// The number of that record.
        found: u64,
    },
    /// The record does not follow the one before it.
    #[error(
        "the record does not follow the one before: a record was changed with its hash, or added"
    )]
    OtherBefore,
    /// What stands before a record of a torn line is not what that record says.
    #[error("what is no record here is not what the record of a torn line says")]
    OtherPiece,
    /// Files are missing before the first one.
    #[error("the files before are missing, and no record says that drover removed them")]
    FilesMissing,
}

/// Why a check found no whole chain.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The chain is broken.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The chain is whole as far as it goes, and a record is not in it that was there once.
    #[error("no record has the hash {hash}: {}", lacks(*is_folder))]
    Lacks {
        /// The hash of that record.
        hash: String,
        /// Whether a whole folder was checked, and not one file.
        is_folder: bool,
    },
    /// Files cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unread {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn lacks(is_folder: bool) -> &'static str {
    if is_folder {
        "the end of the log was cut off, or all of it was made again; if the hash is old, drover may have removed its \
         file (`service.audit.keepMB`)"
    } else {
        "one file was checked, and it may be in another: check the folder"
    }
}

/// Checks the files of a folder, or one file by itself. A file by itself may begin anywhere in the chain.
///
/// # Errors
/// [`VerifyError::Broken`] for the first record that is not as it was written; [`VerifyError::Unread`].
pub fn verify(path: &Path) -> Result<Seen, VerifyError> {
    check(path, None)
}

/// The same, and whether the record with this hash is there: a chain does not know that its end was cut off, and
/// somebody who kept the last hash does.
///
/// # Errors
/// Those of [`verify`]; [`VerifyError::Lacks`].
pub fn verify_with(path: &Path, hash: &str) -> Result<Seen, VerifyError> {
    check(path, Some(hash))
}

fn check(path: &Path, hash: Option<&str>) -> Result<Seen, VerifyError> {
    let unread = |path: &Path| {
        let path = path.to_owned();
        move |source| VerifyError::Unread { path, source }
    };
    let files: Vec<PathBuf> = if path.is_dir() {
        let parts = folder::parts(path).map_err(unread(path))?;
        parts.into_iter().map(|part| part.path).collect()
    } else {
        vec![path.to_owned()]
    };
    let mut check = Check { wanted: hash.map(str::to_owned), ..Check::default() };
    for file in &files {
        let bytes = folder::read(file).map_err(unread(file))?;
        check.file(file, &bytes)?;
    }
    let lacked = check.lacked();
    let is_folder = path.is_dir();
    let seen = check.end(is_folder)?;
    lacked.map_or(Ok(seen), |hash| Err(VerifyError::Lacks { hash, is_folder }))
}

/// A check under way.
#[derive(Default)]
struct Check {
    files: usize,
    records: u64,
    torn_lines: u64,
    lost_records: u64,
    /// The record before the first one: its number and hash; where that first one is.
    begin: Option<(Head, PathBuf)>,
    head: Option<Head>,
    /// The hash of a record that must be there, until it is found.
    wanted: Option<String>,
    /// Ends of files that drover removed, by its own records.
    removed: Vec<Head>,
    /// What is no record, behind the last one, and the line where it begins.
    piece: Vec<u8>,
    piece_line: usize,
    last_file: PathBuf,
}

impl Check {
    fn file(&mut self, file: &Path, bytes: &[u8]) -> Result<(), Broken> {
        if !self.piece.is_empty() {
            // Only the last file may end with a piece.
            return Err(self.broken(self.next(), &self.last_file, self.piece_line, How::NoRecord));
        }
        self.files += 1;
        self.last_file = file.to_owned();
        for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            match std::str::from_utf8(text).ok().and_then(link) {
                Some(linked) => self.record(file, at + 1, linked, line)?,
                None => {
                    if self.piece.is_empty() {
                        self.piece_line = at + 1;
                    }
                    self.piece.extend_from_slice(line);
                }
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        file: &Path,
        line: usize,
        Linked { head, prev, is_whole }: Linked,
        text: &[u8],
    ) -> Result<(), Broken> {
        let (next, broken) = (self.next(), |how| self.broken(self.next(), file, line, how));
        let entry = serde_json::from_slice(text).ok().map(|record: Record| record.entry);
        let closes = match &entry {
            Some(Entry::TornLine { bytes, sha256 }) if is_whole => Some((*bytes, sha256)),
            Some(_) | None => None,
        };
        if closes.is_none() && !self.piece.is_empty() {
            return Err(self.broken(next, file, self.piece_line, How::NoRecord));
        }
        if !is_whole {
            return Err(broken(How::Changed));
        }
        let before = self.head.as_ref();
        if before.is_some() && head.seq != next {
            return Err(broken(How::Missing { found: head.seq }));
        }
        if before.is_some_and(|before| before.hash != prev) {
            return Err(broken(How::OtherBefore));
        }
        if let Some((bytes, sha256)) = closes {
            if (self.piece.len() as u64, &digest(&self.piece)) != (bytes, sha256) {
                return Err(broken(How::OtherPiece));
            }
            self.torn_off()?;
            self.piece.clear();
            self.torn_lines += 1;
        }
        if let Some(Entry::Lost { records, .. }) = entry {
            self.lost_records += records;
        } else if let Some(Entry::Removed { last_seq, last_hash, .. }) = entry {
            self.removed.push(Head { seq: last_seq, hash: last_hash });
        }
        if self.begin.is_none() {
            let before = Head { seq: head.seq.saturating_sub(1), hash: prev };
            self.begin = Some((before, file.to_owned()));
        }
        self.records += 1;
        self.wanted = self.wanted.take().filter(|hash| *hash != head.hash);
        self.head = Some(head);
        Ok(())
    }

    /// Whether each line of the piece is the beginning of the next record: a process dies while it writes that,
    /// and the next one may die while it closes the piece. A disk may hold zeros in the place of the rest.
    fn torn_off(&self) -> Result<(), Broken> {
        let begin = match &self.head {
            Some(head) => format!("{{\"seq\":{},", head.seq + 1),
            None => "{\"seq\":".to_owned(),
        };
        for (at, line) in self.piece.split(|byte| *byte == b'\n').enumerate() {
            let zeros = line.iter().rev().take_while(|byte| **byte == 0).count();
            let line = &line[..line.len() - zeros];
            let shared = line.len().min(begin.len());
            let is_start = line[..shared] == begin.as_bytes()[..shared];
            // A whole one with a wrong hash was changed.
            let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
            if !is_start || is_whole {
                let (next, line) = (self.next(), self.piece_line + at);
                return Err(self.broken(next, &self.last_file, line, How::NotTorn));
            }
        }
        Ok(())
    }

    /// The number of the record that must come next.
    fn next(&self) -> u64 {
        self.head.as_ref().map_or(1, |head| head.seq + 1)
    }

    /// The hash that is wanted, where nothing in the chain has it. The first record names the one before it, and
    /// drover the ends of the files that it removed.
    fn lacked(&self) -> Option<String> {
        let before = self.begin.iter().map(|(before, _)| before).chain(&self.removed);
        let mut named = before.map(|head| &head.hash);
        self.wanted.clone().filter(|hash| named.all(|one| one != hash))
    }

    fn broken(&self, seq: u64, file: &Path, line: usize, how: How) -> Broken {
        Broken { seq, file: file.to_owned(), line, how }
    }

    fn end(self, is_folder: bool) -> Result<Seen, Broken> {
        self.torn_off()?;
        if let Some((before, file)) = &self.begin {
            let is_begin = *before == Head::zero() || self.removed.contains(before);
            if is_folder && !is_begin {
                let seq = before.seq;
                return Err(Broken { seq, file: file.clone(), line: 1, how: How::FilesMissing });
            }
        }
        let first_seq = self.begin.as_ref().map_or(0, |(before, _)| before.seq + 1);
        let last = self.head.unwrap_or_else(Head::zero);
        Ok(Seen {
            files: self.files,
            records: self.records,
            first_seq,
            last_seq: last.seq,
            last_hash: last.hash,
            torn_lines: self.torn_lines,
            lost_records: self.lost_records,
            bytes_behind: self.piece.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests;
