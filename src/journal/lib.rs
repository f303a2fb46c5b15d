//! The journal: a compare-and-set log that is durable before anything acts on it.
//!
//! [`Log`] is the contract of a back end, [`RedbLog`] the embedded one, [`MemoryLog`] the one of
//! virtual time. [`Writer`] implements the actors' journal port over any of them: it stamps
//! records and commits them in groups. Beside it, `fold.rs` folds them into the ledger; when a
//! snapshot is due it writes the log's [`Successor`] from there, while appends go on in the log. The
//! writer adds the last few records and switches.
//! Not here: what the records mean (`drover_model::record`, `drover_model::ledger`).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod disk;
mod fold;
mod memory;
mod overlay;
mod redb_log;
mod successor;
mod writer;

#[cfg(test)]
mod power;

use std::path::PathBuf;

pub use memory::MemoryLog;
pub use redb_log::RedbLog;
pub use writer::{Opened, Writer, WriterOptions};

/// Why a log could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log does not end where the writer believes: somebody else appended.
    #[error(
        "the journal ends at record {actual}, not at {expected}: another drover has taken it over"
    )]
    Fenced {
        /// Where the writer believed it to end.
        expected: u64,
        /// Where it ends.
        actual: u64,
    },
    /// Another process holds the file.
    #[error("the journal `{}` is in use by another process: stop that one first", .path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged; it was left as it is.
    #[error(
        "the journal `{}` is damaged and was left untouched: restore it from a backup, or move it away to start \
         with an empty one (guests of the old one are then reported, never touched)", .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file was written by a newer drover; it was left as it is.
    #[error(
        "the journal `{}` has format {found}, this drover knows up to {known}: run the newer drover, or restore \
         the journal from before the upgrade", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format known here.
        known: u64,
    },
    /// Reading or writing failed.
    #[error("the journal `{}` could not be {doing}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `opened`, `read` or `written`.
        doing: &'static str,
        /// What failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A compare-and-set log of opaque records, numbered from 1.
pub trait Log: Send + 'static {
    /// Appends records after `expected`, all or none, and gives the last sequence.
    ///
    /// With `durable` they survive a crash once this returns; without, they may be lost together
    /// with everything after them.
    ///
    /// # Errors
    /// [`LogError::Fenced`] when the log does not end at `expected`.
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError>;

    /// Reads all records from `seq` on, in order.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError>;

    /// The newest snapshot and the sequence it stands for.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError>;

    /// Bytes that the log takes on its disk, as far as they are known.
    fn size(&self) -> u64 {
        0
    }

    /// Starts a log that is to take the place of this one, with a snapshot that stands for all
    /// records up to `seq`. One that was started before comes to nothing.
    ///
    /// # Errors
    /// When there is no room for it.
    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError>;

    /// Switches to the successor, once it is ready, after adding the records `behind` it that end at
    /// `expected`. Everything is durable then. Gives the log before, whose closing may take time.
    ///
    /// # Errors
    /// When there is no successor, or when it cannot be written; the log goes on as it is.
    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError>;
}

/// A log that a successor took the place of.
pub type Predecessor = Box<dyn Send>;

/// A log that is filled on another thread while appends go on in the one whose place it takes.
///
/// Dropped before it is ready, it leaves nothing.
pub trait Successor: Send {
    /// Writes the next part of the snapshot.
    ///
    /// # Errors
    /// When it cannot be written, or when a write to the log itself failed meanwhile.
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError>;

    /// Appends records behind the snapshot, in order.
    ///
    /// # Errors
    /// As [`Successor::put`].
    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError>;

    /// Completes it and hands it to its log.
    ///
    /// # Errors
    /// As [`Successor::put`].
    fn ready(self: Box<Self>) -> Result<(), LogError>;
}
