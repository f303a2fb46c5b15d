//! The journal: a compare-and-set log in which every decision is durable before drover acts on it.
//!
//! - [`Log`] is what a back end must do. [`RedbLog`] is the embedded one, a file in the state
//!   directory; [`MemoryLog`] serves virtual time; those that several machines share are in
//!   `drover-stores`.
//! - [`Writer`] implements the actors' journal port over any of them. It stamps records with
//!   sequence, epoch and time, and commits them in groups.
//! - `fold.rs` turns records into the journal state, at a start and beside the writer.
//!
//! ```text
//! actors ──append──> Writer ──group──> Log (redb file)        reply: durable, or accepted
//!                      │ records that were written
//!                      v
//!                    Fold ──when a snapshot is due──> Successor (file beside the log)
//!                      │ ready
//!                      v
//!                    Writer adds the last records and switches to the successor
//! ```
//!
//! Failures: a log that another process took over fences the writer for good
//! ([`LogError::Fenced`]). A write that fails is reported to the caller and to the watcher, and the
//! next one tries again. A file that is damaged or comes from a newer drover is never written to. A
//! snapshot that fails leaves the log as it is.
//!
//! Beside it: `follower.rs` (one who follows another's log), `copy.rs` (from one back end to another), `inspection.rs` (a look into a journal),
//! `disk.rs` (files, as a port), `overlay.rs` (a first look without writing), `strict.rs` (nothing is
//! read past), `successor.rs` (the file that takes the log's place). What the records mean is in
//! `drover_model::record` and `drover_model::journal_state`.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod copy;
mod disk;
mod fold;
mod follower;
mod inspection;
mod memory;
mod overlay;
mod redb_log;
mod strict;
mod successor;
mod writer;

#[cfg(test)]
mod testing;

pub use copy::{Contents, CopyError};
pub use follower::Follower;
pub use inspection::{Inspection, RecordHead, inspect, inspect_log};
pub use memory::MemoryLog;
pub use redb_log::RedbLog;
pub use writer::{Opened, Writer, WriterOptions};

/// Why a log could not be opened, read or written. Its `place` is [`Log::place`].
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log does not end where the writer expects: somebody else appended.
    #[error(
        "another drover process took the journal over: it ends at record {actual}, and this process \
         knew {expected}; stop one of the two"
    )]
    Fenced {
        /// The last record as the writer knows it.
        expected: u64,
        /// The last record in the log.
        actual: u64,
    },
    /// Another process holds the file.
    #[error("the journal `{}` is in use by another process: stop that process first", .place)]
    Busy { place: String },
    /// The file is damaged; it was not changed.
    #[error(
        "the journal `{}` is damaged, and drover has not changed it: restore it from a backup, or \
         move it away to start with an empty one (drover then reports the old guests and never \
         touches them)",
        .place
    )]
    Corrupt {
        place: String,
        /// What was found.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer drover wrote the file; it was not changed.
    #[error(
        "the journal `{}` has format {found}, and this drover reads up to {known}: run the newer \
         drover, or restore the journal from before the upgrade",
        .place
    )]
    Newer {
        place: String,
        /// The file's format.
        found: u64,
        /// The newest format that this drover knows.
        known: u64,
    },
    /// A record or the snapshot of this drover's own format says what it does not know, such as a
    /// phase that was added later; the file was left as it is.
    #[error(
        "{part} of the journal `{}` holds what drover {} does not know, and the journal was left \
         untouched: run the drover that wrote it, which is a newer one, or restore the journal from \
         before the upgrade",
        .place, env!("CARGO_PKG_VERSION")
    )]
    Unknown {
        place: String,
        /// `record 17` or `the snapshot`.
        part: String,
        /// What is not known.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading or writing failed.
    #[error("the journal `{}` could not be {doing}", .place)]
    Io {
        place: String,
        /// `opened`, `read` or `written`.
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A compare-and-set log of opaque records, numbered from 1.
pub trait Log: Send + 'static {
    /// Appends all records after `expected`, or none, and returns the last sequence.
    ///
    /// A `durable` append survives a crash once this returns. One that is not may be lost, together
    /// with everything after it.
    ///
    /// # Errors
    /// [`LogError::Fenced`] when the log does not end at `expected`.
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError>;

    /// Reads all records from `seq` on, in order.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError>;

    /// The newest snapshot and the last record that it includes.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError>;

    /// The last record, whether a snapshot includes it or not; zero for an empty log.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn last(&self) -> Result<u64, LogError> {
        let at = self.snapshot()?.map_or(0, |(at, _)| at);
        Ok(self.read_from(at + 1)?.last().map_or(at, |(seq, _)| *seq))
    }

    /// Where it is, for people: a path, or the address of a store.
    fn place(&self) -> String;

    /// The log's size on its disk in bytes; 0 when it is not known.
    fn size(&self) -> u64 {
        0
    }

    /// Starts a log that is to take the place of this one. Its snapshot includes all records up to
    /// `seq`. An earlier successor that is not finished is given up.
    ///
    /// # Errors
    /// When there is no room for it.
    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError>;

    /// Adds the records `behind` its last one, which end at `expected`, to the ready successor and
    /// switches to it. Everything is durable then. Returns the old log, which takes time to close.
    ///
    /// # Errors
    /// When there is no successor, or when it cannot be written; the log goes on as it is.
    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError>;

    /// Fills the log, which is empty, with a snapshot and the records after it; all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    fn restore(
        &mut self,
        snapshot: Option<(u64, &[u8])>,
        records: &[Vec<u8>],
    ) -> Result<(), LogError> {
        let Some((at, bytes)) = snapshot else { return self.append(0, records, true).map(drop) };
        let mut successor = self.successor(at)?;
        for piece in bytes.chunks(fold::PIECE_BYTES) {
            successor.put(piece)?;
        }
        successor.append(records)?;
        successor.ready()?;
        self.succeed(at + records.len() as u64, &[]).map(drop)
    }
}

/// The log whose place a successor took.
pub type Predecessor = Box<dyn Send>;

/// A log that is filled on another thread while appends go on in the one whose place it takes.
///
/// Dropped before it is ready, it leaves nothing behind.
pub trait Successor: Send {
    /// Writes the next part of the snapshot.
    ///
    /// # Errors
    /// When it cannot be written, or when a write to the log itself failed meanwhile.
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError>;

    /// Appends records after the snapshot, in order.
    ///
    /// # Errors
    /// As [`Successor::put`].
    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError>;

    /// Completes the successor and hands it to its log.
    ///
    /// # Errors
    /// As [`Successor::put`].
    fn ready(self: Box<Self>) -> Result<(), LogError>;
}
