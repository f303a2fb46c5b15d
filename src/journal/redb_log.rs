//! The embedded log: one redb file in the state directory.
//!
//! ```text
//! journal.redb        the log: a snapshot in parts, and the records after it
//! journal.redb.next   its successor, while one is made: see `successor.rs`
//! ```
//!
//! redb never returns space to the file system; a successor does, because it holds only what
//! counts. A file that cannot be understood is never written to.
//!
//! After a failed write the file is opened again at the next one, because redb refuses a database
//! whose last I/O failed. Records that were accepted without being durable may then be missing from
//! the file, and records that were refused may be in it. The next write corrects both
//! ([`restore_tail`]).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
};

use super::disk::{Disk, Files};
use super::overlay::Overlay;
use super::successor::{NewFile, RedbSuccessor, Slot, successor_path};
use super::{Log, LogError, Predecessor, Successor};

/// The format of a file with a snapshot in parts.
pub(super) const FORMAT: u64 = 2;
/// The format of a file without a snapshot, or with one in a single piece.
const FIRST_FORMAT: u64 = 1;
pub(super) const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
pub(super) const RECORDS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("records");
/// The snapshot of the first format, in a single piece.
const SNAPSHOT: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("snapshot");
/// The parts of the snapshot.
pub(super) const PARTS: TableDefinition<'static, u32, &[u8]> = TableDefinition::new("parts");
/// The key in [`META`] of the last record that the snapshot includes.
pub(super) const SNAPSHOT_SEQ_KEY: &str = "snapshot";
/// The key in [`META`] of the number of the snapshot's parts.
pub(super) const PARTS_COUNT_KEY: &str = "parts";

/// redb's cache of what it read from the file.
pub(super) const CACHE_BYTES: usize = 16 << 20;
/// redb's cache for the first look at a file.
const CHECK_CACHE_BYTES: usize = 4 << 20;

/// A log in a redb file.
pub struct RedbLog<D: Disk = Files> {
    disk: D,
    path: PathBuf,
    database: Option<Database>,
    /// Records at the log's end that are accepted and not durable yet.
    accepted: Vec<Vec<u8>>,
    /// The records of the last failed write, which may have reached the file all the same.
    refused: Vec<Vec<u8>>,
    /// Where a successor in the making is left when it is ready. None after a failed write, because
    /// the file may not hold what the writer knows.
    slot: Option<Arc<Slot<D>>>,
    /// Whether a power cut may still lose the file's name.
    name_unsynced: bool,
}

impl RedbLog {
    /// Opens the log, or creates an empty one when there is no file.
    ///
    /// # Errors
    /// [`LogError::Busy`], [`LogError::Corrupt`], [`LogError::Newer`] or [`LogError::Io`]; the file
    /// does not change then.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LogError> {
        Self::open_on(Files, path)
    }

    /// Opens the log to look at it: what redb repairs stays in memory, and so would anything else that
    /// is written.
    ///
    /// # Errors
    /// As [`RedbLog::open`]; also where there is no file.
    pub fn look(path: &Path) -> Result<Self, LogError> {
        let found = Files.stat(path);
        let found = found.map_err(|error| failure(path, "opened", redb::Error::Io(error)))?;
        match found {
            Some(found) if found.length == 0 => return Err(empty(path)),
            Some(_) => {}
            None => {
                let missing = std::io::Error::new(ErrorKind::NotFound, "there is no such file");
                return Err(failure(path, "opened", redb::Error::Io(missing)));
            }
        }
        let database = in_memory(&Files, path)?;
        set_up_known(&database, path)?;
        let (accepted, refused) = (Vec::new(), Vec::new());
        let (path, database) = (path.to_owned(), Some(database));
        let (disk, slot, name_unsynced) = (Files, None, false);
        Ok(Self { disk, path, database, accepted, refused, slot, name_unsynced })
    }
}

impl<D: Disk> RedbLog<D> {
    pub(super) fn open_on(disk: D, path: impl Into<PathBuf>) -> Result<Self, LogError> {
        let path = path.into();
        let database = Some(open(&disk, &path)?);
        let (accepted, refused) = (Vec::new(), Vec::new());
        // A crash may have come between a rename and its durability.
        Ok(Self { disk, path, database, accepted, refused, slot: None, name_unsynced: true })
    }

    fn database(&mut self) -> Result<&Database, LogError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.disk, &self.path)?,
        };
        Ok(self.database.insert(database))
    }

    fn reading(&self, source: impl Into<redb::Error>) -> LogError {
        failure(&self.path, "read", source.into())
    }

    fn written(&self, source: std::io::Error) -> LogError {
        failure(&self.path, "written", redb::Error::Io(source))
    }

    fn write(
        &mut self,
        durability: Durability,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<(), LogError>, redb::Error>,
    ) -> Result<(), LogError> {
        let path = self.path.clone();
        let database = self.database()?;
        commit(database, durability, change).unwrap_or_else(|source| {
            self.database = None;
            self.slot = None;
            Err(failure(&path, "written", source))
        })
    }

    /// Makes the file's name durable: without it, what is written to the file may be lost.
    fn sync_name(&mut self) -> Result<(), LogError> {
        if self.name_unsynced {
            self.disk.sync_names(&self.path).map_err(|error| self.written(error))?;
            self.name_unsynced = false;
        }
        Ok(())
    }
}

/// Runs one transaction. When `change` refuses, nothing changes.
pub(super) fn commit(
    database: &Database,
    durability: Durability,
    change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<(), LogError>, redb::Error>,
) -> Result<Result<(), LogError>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(durability)?;
    match change(&transaction)? {
        Ok(()) => transaction.commit()?,
        Err(refused) => {
            transaction.abort()?;
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}

/// How people name the file.
fn place(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn failure(path: &Path, doing: &'static str, source: redb::Error) -> LogError {
    let place = place(path);
    if matches!(source, redb::Error::Corrupted(_)) {
        return LogError::Corrupt { place, source: Box::new(source) };
    }
    LogError::Io { place, doing, source: Box::new(source) }
}

/// redb would take an empty file for a new one, and a lost journal would pass for a first start.
fn empty(path: &Path) -> LogError {
    LogError::Corrupt { place: place(path), source: "the file is empty".into() }
}

/// Opens the file without changing it: redb repairs a file while it opens it, and a damaged file
/// must stay as it is.
fn in_memory<D: Disk>(disk: &D, path: &Path) -> Result<Database, LogError> {
    let io = |doing, source: std::io::Error| LogError::Io {
        place: place(path),
        doing,
        source: Box::new(source),
    };
    let file = disk.read(path).map_err(|error| {
        if error.kind() == ErrorKind::WouldBlock {
            return LogError::Busy { place: place(path) };
        }
        io("opened", error)
    })?;
    let copy = Overlay::new(file).map_err(|error| io("read", error))?;
    let mut builder = Database::builder();
    let opened = builder.set_cache_size(CHECK_CACHE_BYTES).create_with_backend(copy);
    // What cannot be read here is not in the file, or the disk fails.
    opened.map_err(|error| match opening(path, error) {
        LogError::Io { place, source, .. } => LogError::Corrupt { place, source },
        other @ (LogError::Fenced { .. }
        | LogError::Busy { .. }
        | LogError::Corrupt { .. }
        | LogError::Unknown { .. }
        | LogError::Newer { .. }) => other,
    })
}

/// Opens the file, or creates one.
fn open<D: Disk>(disk: &D, path: &Path) -> Result<Database, LogError> {
    let stat = || disk.stat(path).map_err(|error| failure(path, "opened", redb::Error::Io(error)));
    let found = match stat()? {
        Some(found) if found.length == 0 => return Err(empty(path)),
        Some(found) => found,
        // The file gets its name when it is complete.
        None => return NewFile::create(disk, path)?.rename_to(path),
    };
    drop(in_memory(disk, path)?);
    let file = disk.open(path);
    let file = file.map_err(|error| failure(path, "opened", redb::Error::Io(error)))?;
    let mut builder = Database::builder();
    let database = builder.set_cache_size(CACHE_BYTES).create_with_backend(file);
    let database = database.map_err(|error| opening(path, error))?;
    // Another process may have put a successor in the file's place before it let this one go.
    if stat()?.is_none_or(|now| now.identity != found.identity) {
        return Err(LogError::Busy { place: place(path) });
    }
    set_up_known(&database, path)?;
    // A successor that was never finished. No other process can be making one.
    if let Err(error) = disk.remove(&successor_path(path)) {
        tracing::warn!(%error, "unfinished journal snapshot stays");
    }
    Ok(database)
}

/// Creates the tables, unless a newer drover wrote the file.
fn set_up_known(database: &Database, path: &Path) -> Result<(), LogError> {
    match set_up(database) {
        Ok(found) if known(found) => Ok(()),
        Ok(found) => Err(LogError::Newer { place: place(path), found, known: FORMAT }),
        Err(error) => Err(failure(path, "opened", error)),
    }
}

fn known(format: u64) -> bool {
    (FIRST_FORMAT..=FORMAT).contains(&format)
}

/// Creates the tables if the format is known; returns the format.
pub(super) fn set_up(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let found = {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get("format")?.map(|value| value.value());
        if found.is_none() {
            meta.insert("format", FIRST_FORMAT)?;
        }
        found.unwrap_or(FIRST_FORMAT)
    };
    if known(found) {
        transaction.open_table(RECORDS)?;
        transaction.open_table(SNAPSHOT)?;
        transaction.open_table(PARTS)?;
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(found)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "redb's enums are non-exhaustive")]
fn opening(path: &Path, error: DatabaseError) -> LogError {
    let place = place(path);
    match error {
        DatabaseError::DatabaseAlreadyOpen => LogError::Busy { place },
        DatabaseError::UpgradeRequired(version) => {
            let source = Box::new(DatabaseError::UpgradeRequired(version));
            LogError::Corrupt { place, source }
        }
        DatabaseError::Storage(StorageError::Corrupted(text)) => {
            LogError::Corrupt { place, source: Box::new(StorageError::Corrupted(text)) }
        }
        DatabaseError::Storage(StorageError::Io(source))
            if source.kind() == std::io::ErrorKind::InvalidData
                || source.kind() == std::io::ErrorKind::UnexpectedEof =>
        {
            LogError::Corrupt { place, source: Box::new(source) }
        }
        other => LogError::Io { place, doing: "opened", source: Box::new(other) },
    }
}

/// Makes the log end at `expected` again after a failed write. Returns false when somebody else's
/// records are there.
fn restore_tail(
    records: &mut redb::Table<'_, u64, &'static [u8]>,
    (expected, actual): (u64, u64),
    accepted: &[Vec<u8>],
    refused: &[Vec<u8>],
) -> Result<bool, redb::Error> {
    let first = expected + 1 - accepted.len() as u64;
    if actual + 1 < first {
        return Ok(false);
    }
    if actual < expected {
        for (seq, record) in (first..).zip(accepted).filter(|(seq, _)| *seq > actual) {
            records.insert(seq, record.as_slice())?;
        }
        return Ok(true);
    }
    for (index, seq) in (expected + 1..=actual).enumerate() {
        let found = records.get(seq)?.map(|found| found.value().to_vec());
        if found.as_ref() != refused.get(index) {
            return Ok(false);
        }
    }
    for seq in expected + 1..=actual {
        records.remove(seq)?;
    }
    Ok(true)
}

/// The last record that the snapshot includes.
fn snapshot_seq(transaction: &redb::WriteTransaction) -> Result<Option<u64>, redb::Error> {
    let meta = transaction.open_table(META)?;
    if let Some(seq) = meta.get(SNAPSHOT_SEQ_KEY)? {
        return Ok(Some(seq.value()));
    }
    let snapshots = transaction.open_table(SNAPSHOT)?;
    Ok(snapshots.last()?.map(|(seq, _)| seq.value()))
}

/// The last record that the log holds or its snapshot includes.
fn last_seq(
    records: &redb::Table<'_, u64, &'static [u8]>,
    transaction: &redb::WriteTransaction,
) -> Result<u64, redb::Error> {
    match records.last()? {
        Some((seq, _)) => Ok(seq.value()),
        None => Ok(snapshot_seq(transaction)?.unwrap_or(0)),
    }
}

/// A snapshot with the last record that it includes.
type NumberedSnapshot = Option<(u64, Vec<u8>)>;

/// Reads the snapshot; an inner error says which part is missing.
fn read_snapshot(
    transaction: &redb::ReadTransaction,
) -> Result<Result<NumberedSnapshot, String>, redb::Error> {
    let meta = transaction.open_table(META)?;
    let named = meta.get(SNAPSHOT_SEQ_KEY)?.map(|seq| seq.value());
    let (Some(seq), Some(count)) = (named, meta.get(PARTS_COUNT_KEY)?.map(|count| count.value()))
    else {
        let snapshots = transaction.open_table(SNAPSHOT)?;
        let last = snapshots.last()?;
        return Ok(Ok(last.map(|(seq, snapshot)| (seq.value(), snapshot.value().to_vec()))));
    };
    let (mut bytes, mut next) = (Vec::new(), 0);
    for item in transaction.open_table(PARTS)?.range(0u32..)? {
        let (part, piece) = item?;
        if u64::from(part.value()) != next {
            return Ok(Err(format!("the snapshot of record {seq} lacks part {next}")));
        }
        bytes.extend_from_slice(piece.value());
        next += 1;
    }
    if next != count {
        return Ok(Err(format!("the snapshot of record {seq} has {next} parts of {count}")));
    }
    Ok(Ok(Some((seq, bytes))))
}

impl<D: Disk> Log for RedbLog<D> {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        self.sync_name()?;
        let accepted = std::mem::take(&mut self.accepted);
        let refused = std::mem::take(&mut self.refused);
        let durability = if durable { Durability::Immediate } else { Durability::None };
        let done = self.write(durability, |transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let actual = last_seq(&records, transaction)?;
            if !restore_tail(&mut records, (expected, actual), &accepted, &refused)? {
                return Ok(Err(LogError::Fenced { expected, actual }));
            }
            for (seq, record) in (expected + 1..).zip(batch) {
                records.insert(seq, record.as_slice())?;
            }
            Ok(Ok(()))
        });
        match (&done, durable) {
            (Ok(()), true) => {}
            (Ok(()), false) => self.accepted = accepted.into_iter().chain(batch.to_vec()).collect(),
            (Err(_), _) => (self.accepted, self.refused) = (accepted, batch.to_vec()),
        }
        done?;
        Ok(expected + batch.len() as u64)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let Some(database) = &self.database else { return Ok(Vec::new()) };
        let transaction = database.begin_read().map_err(|error| self.reading(error))?;
        let records = transaction.open_table(RECORDS).map_err(|error| self.reading(error))?;
        let mut out = Vec::new();
        for item in records.range(seq..).map_err(|error| self.reading(error))? {
            let (seq, record) = item.map_err(|error| self.reading(error))?;
            out.push((seq.value(), record.value().to_vec()));
        }
        Ok(out)
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        let Some(database) = &self.database else { return Ok(None) };
        let transaction = database.begin_read().map_err(|error| self.reading(error))?;
        let found = read_snapshot(&transaction).map_err(|error| self.reading(error))?;
        found.map_err(|text| LogError::Corrupt { place: self.place(), source: text.into() })
    }

    fn place(&self) -> String {
        place(&self.path)
    }

    fn size(&self) -> u64 {
        self.disk.stat(&self.path).ok().flatten().map_or(0, |found| found.length)
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.slot = None;
        self.database()?;
        // The successor is hardly larger than this file, and must not take the room that the next
        // append needs.
        let needed = self.size();
        if self.disk.room(&self.path).is_ok_and(|room| room < needed) {
            let text = format!("a snapshot needs {} MB of free space", needed.div_ceil(1 << 20));
            return Err(self.written(std::io::Error::new(ErrorKind::StorageFull, text)));
        }
        let slot = Arc::new(Slot::default());
        let successor = RedbSuccessor {
            disk: self.disk.clone(),
            path: self.path.clone(),
            slot: Arc::downgrade(&slot),
            seq,
            snapshot_at: seq,
            parts: 0,
            next: None,
        };
        self.slot = Some(slot);
        Ok(Box::new(successor))
    }

    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        let next = self.slot.take().and_then(|slot| slot.lock().take());
        let Some(next) = next else {
            return Err(self.written(std::io::Error::other(
                "a write to the journal failed while its snapshot was written",
            )));
        };
        let from = expected - behind.len() as u64;
        next.write(|transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let actual = last_seq(&records, transaction)?;
            if actual != from {
                return Ok(Err(LogError::Fenced { expected: from, actual }));
            }
            for (seq, record) in (from + 1..).zip(behind) {
                records.insert(seq, record.as_slice())?;
            }
            Ok(Ok(()))
        })?;
        let before = self.database.replace(next.rename_to(&self.path)?);
        self.accepted.clear();
        self.refused.clear();
        self.name_unsynced = true;
        // When this fails, the next append tries it again.
        self.sync_name()?;
        Ok(Box::new(before))
    }
}

#[cfg(test)]
mod tests;
