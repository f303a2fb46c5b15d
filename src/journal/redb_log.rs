//! The embedded log: one redb file in the state directory.
//!
//! A file that cannot be understood is never written to. After a failed write the file is opened
//! afresh at the next one, since redb refuses a database whose last I/O failed.

use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition,
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
        Ok(Self { path, database })
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

fn open(path: &Path) -> Result<Database, LogError> {
    // An empty file would be taken for a new one, and a lost journal for a first start.
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0) {
        return Err(LogError::Corrupt {
            path: path.to_owned(),
            source: "the file is empty".into(),
        });
    }
    let database = Database::create(path).map_err(|error| opening(path, error))?;
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

impl Log for RedbLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        let durability = if durable { Durability::Immediate } else { Durability::None };
        self.write(durability, |transaction| {
            let mut records = transaction.open_table(RECORDS)?;
            let snapshots = transaction.open_table(SNAPSHOT)?;
            let actual = match records.last()? {
                Some((seq, _)) => seq.value(),
                None => snapshots.last()?.map_or(0, |(seq, _)| seq.value()),
            };
            if actual != expected {
                return Ok(Err(LogError::Fenced { expected, actual }));
            }
            for (seq, record) in (expected + 1..).zip(batch) {
                records.insert(seq, record.as_slice())?;
            }
            Ok(Ok(()))
        })?;
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
        })
    }
}
