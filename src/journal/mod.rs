//! The journal: a compare-and-set log that is durable before anything acts on it.
//!
//! [`Log`] is the contract of a back end, [`RedbLog`] the embedded one, [`MemoryLog`] the one of
//! virtual time. [`Writer`] implements the actors' journal port over any of them: it stamps
//! records, commits them in groups, folds them into the ledger, and trims behind snapshots.
//! Not here: what the records mean (`drover_actors::record`, `drover_actors::ledger`).

mod memory;
mod redb_log;
mod writer;

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

    /// Keeps a snapshot that stands for all records up to `seq`, and drops those records.
    ///
    /// # Errors
    /// When the log cannot be written.
    fn compact(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), LogError>;
}
