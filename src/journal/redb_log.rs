//! The embedded log: one redb file in the state directory.
//!
//! A file that cannot be understood is never written to. After a failed write the file is opened
//! afresh at the next one, since redb refuses a database whose last I/O failed. What was accepted
//! without being durable may then be missing from it, and what was refused may be in it: the next
//! write mends both.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::backends::InMemoryBackend;
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, TableDefinition,
};

use super::{Log, LogError};

const FORMAT: u64 = 1;
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("meta");
const RECORDS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("records");
const SNAPSHOT: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("snapshot");

/// A log in a redb file.
pub struct RedbLog {
    path: PathBuf,
    database: Option<Database>,
    /// Accepted and not durable yet, the last ones of the log.
    accepted: Vec<Vec<u8>>,
    /// The write that failed last: it may have reached the file all the same.
    refused: Vec<Vec<u8>>,
}

impl RedbLog {
    /// Opens the log, or makes an empty one where there is no file.
    ///
    /// # Errors
    /// [`LogError::Busy`], [`LogError::Corrupt`], [`LogError::Newer`] or [`LogError::Io`]; the file
    /// is then unchanged.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LogError> {
        let path = path.into();
        let database = Some(open(&path)?);
        Ok(Self { path, database, accepted: Vec::new(), refused: Vec::new() })
    }

    fn database(&mut self) -> Result<&Database, LogError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.path)?,
        };
        Ok(self.database.insert(database))
    }

    fn reading(&self, source: impl Into<redb::Error>) -> LogError {
        failure(&self.path, "read", source.into())
    }

    fn write(
        &mut self,
        durability: Durability,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<(), LogError>, redb::Error>,
    ) -> Result<(), LogError> {
        let path = self.path.clone();
        let database = self.database()?;
        let outcome = (|| -> Result<Result<(), LogError>, redb::Error> {
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
        })();
        match outcome {
            Ok(done) => done,
            Err(source) => {
                self.database = None;
                Err(failure(&path, "written", source))
            }
        }
    }
}

fn failure(path: &Path, doing: &'static str, source: redb::Error) -> LogError {
    let path = path.to_owned();
    if matches!(source, redb::Error::Corrupted(_)) {
        return LogError::Corrupt { path, source: Box::new(source) };
    }
    LogError::Io { path, doing, source: Box::new(source) }
}

/// Opens a copy in memory first: a file that is mended while it is opened must not be changed when
/// that turns out to be in vain.
fn look(path: &Path) -> Result<(), LogError> {
    let io = |doing, source: std::io::Error| LogError::Io {
        path: path.to_owned(),
        doing,
        source: Box::new(source),
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("opened", error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            return Err(LogError::Busy { path: path.to_owned() });
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(io("opened", error)),
    }
    let bytes = std::fs::read(path).map_err(|error| io("read", error))?;
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)
        .and_then(|()| copy.write(0, &bytes))
        .map_err(|error| io("read", error))?;
    let opened = Database::builder().create_with_backend(copy);
    // Memory does not fail: what cannot be read there is not in the file.
    opened.map(drop).map_err(|error| match opening(path, error) {
        LogError::Io { path, source, .. } => LogError::Corrupt { path, source },
        other @ (LogError::Fenced { .. }
        | LogError::Busy { .. }
        | LogError::Corrupt { .. }
        | LogError::Newer { .. }) => other,
    })
}

/// Opens the file, or makes one that its owner alone may read.
fn owners_file(path: &Path) -> Result<std::fs::File, LogError> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|source| LogError::Io {
        path: path.to_owned(),
        doing: "opened",
        source: Box::new(source),
    })
}

fn open(path: &Path) -> Result<Database, LogError> {
    // An empty file would be taken for a new one, and a lost journal for a first start.
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0) {
        return Err(LogError::Corrupt {
            path: path.to_owned(),
            source: "the file is empty".into(),
        });
    }
    look(path)?;
    let file = owners_file(path)?;
    let database = Database::builder().create_file(file).map_err(|error| opening(path, error))?;
    let check = || -> Result<u64, redb::Error> {
        let transaction = database.begin_write()?;
        let found = {
            let mut meta = transaction.open_table(META)?;
            let found = meta.get("format")?.map(|value| value.value());
            if found.is_none() {
                meta.insert("format", FORMAT)?;
            }
            found.unwrap_or(FORMAT)
        };
        if found == FORMAT {
            transaction.open_table(RECORDS)?;
            transaction.open_table(SNAPSHOT)?;
            transaction.commit()?;
        } else {
            transaction.abort()?;
        }
        Ok(found)
    };
    match check() {
        Ok(FORMAT) => Ok(database),
        Ok(found) => Err(LogError::Newer { path: path.to_owned(), found, known: FORMAT }),
        Err(error) => Err(failure(path, "opened", error)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "redb's enums are non-exhaustive")]
fn opening(path: &Path, error: DatabaseError) -> LogError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => LogError::Busy { path },
        DatabaseError::UpgradeRequired(version) => {
            let source = Box::new(DatabaseError::UpgradeRequired(version));
            LogError::Corrupt { path, source }
        }
        DatabaseError::Storage(StorageError::Corrupted(text)) => {
            LogError::Corrupt { path, source: Box::new(StorageError::Corrupted(text)) }
        }
        DatabaseError::Storage(StorageError::Io(source))
            if source.kind() == std::io::ErrorKind::InvalidData
                || source.kind() == std::io::ErrorKind::UnexpectedEof =>
        {
            LogError::Corrupt { path, source: Box::new(source) }
        }
        other => LogError::Io { path, doing: "opened", source: Box::new(other) },
    }
}

/// Makes the log end at `expected` again after a write that failed; false when somebody else's
/// records stand there.
fn mend(
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

impl Log for RedbLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        let accepted = std::mem::take(&mut self.accepted);
        let refused = std::mem::take(&mut self.refused);
        let durability = if durable { Durability::Immediate } else { Durability::None };
        let done = self.write(durability, |transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let snapshots = transaction.open_table(SNAPSHOT)?;
            let actual = match records.last()? {
                Some((seq, _)) => seq.value(),
                None => snapshots.last()?.map_or(0, |(seq, _)| seq.value()),
            };
            if !mend(&mut records, (expected, actual), &accepted, &refused)? {
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
        let snapshots = transaction.open_table(SNAPSHOT).map_err(|error| self.reading(error))?;
        let last = snapshots.last().map_err(|error| self.reading(error))?;
        Ok(last.map(|(seq, snapshot)| (seq.value(), snapshot.value().to_vec())))
    }

    fn compact(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), LogError> {
        self.write(Durability::Immediate, |transaction| {
            let mut snapshots = transaction.open_table(SNAPSHOT)?;
            snapshots.retain(|_, _| false)?;
            snapshots.insert(seq, snapshot)?;
            transaction.open_table(RECORDS)?.retain(|record, _| record > seq)?;
            Ok(Ok(()))
        })?;
        self.accepted.clear();
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]
mod tests {
    use super::*;

    fn record(text: &str) -> Vec<Vec<u8>> {
        vec![text.as_bytes().to_vec()]
    }

    fn texts(log: &RedbLog) -> Vec<String> {
        let all = log.read_from(1).unwrap().into_iter();
        all.map(|(seq, bytes)| format!("{seq} {}", String::from_utf8(bytes).unwrap())).collect()
    }

    /// A log whose file is set back to an earlier state and opened afresh at the next write, as
    /// after a disk that was full.
    fn set_back(log: &mut RedbLog, file: &[u8]) {
        log.database = None;
        std::fs::write(&log.path, file).unwrap();
    }

    // Invariant: what the journal holds is for its owner alone.

    #[test]
    fn a_new_file_can_be_read_by_nobody_else() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let mut log = RedbLog::open(&path).unwrap();
        log.append(0, &record("one"), true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Invariant: after a failed write the log holds what was accepted, and nothing that was refused.

    #[test]
    fn what_was_accepted_before_a_failed_write_is_written_with_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let mut log = RedbLog::open(&path).unwrap();
        log.append(0, &record("one"), true).unwrap();
        let file = std::fs::read(&path).unwrap();
        log.append(1, &record("two"), false).unwrap();
        log.append(2, &record("three"), false).unwrap();
        set_back(&mut log, &file);
        assert_eq!(log.append(3, &record("four"), true).unwrap(), 4);
        assert_eq!(texts(&log), ["1 one", "2 two", "3 three", "4 four"]);
    }

    #[test]
    fn what_was_refused_and_reached_the_file_all_the_same_is_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let mut log = RedbLog::open(&path).unwrap();
        log.append(0, &record("one"), true).unwrap();
        log.append(1, &record("refused"), true).unwrap();
        log.refused = record("refused");
        log.database = None;
        assert_eq!(log.append(1, &record("two"), true).unwrap(), 2);
        assert_eq!(texts(&log), ["1 one", "2 two"]);
    }

    #[test]
    fn somebody_elses_records_fence_it_after_a_failed_write_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let mut log = RedbLog::open(&path).unwrap();
        log.append(0, &record("one"), true).unwrap();
        log.append(1, &record("another's"), true).unwrap();
        log.refused = record("refused");
        log.database = None;
        let fenced = log.append(1, &record("two"), true);
        assert!(matches!(fenced, Err(LogError::Fenced { expected: 1, actual: 2 })), "{fenced:?}");
    }
}
