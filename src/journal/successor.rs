//! The log that takes the place of an embedded one: a file beside it, with a snapshot and the
//! records behind it, that gets the name at once.
//!
//! Until then the old file is the log: whatever fails here leaves it in force, and this one is
//! removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use parking_lot::Mutex;
use redb::{Database, Durability};

use super::disk::Disk;
use super::redb_log::{
    CACHE_BYTES, COUNT, FORMAT, META, NEWEST, PARTS, RECORDS, commit, failure, set_up,
};
use super::{LogError, Successor};

/// A file that has not got its name yet; removed when that never comes.
pub(super) struct Next<D: Disk> {
    disk: D,
    path: PathBuf,
    database: Option<Database>,
}

/// Where a successor is put once it is ready.
pub(super) type Slot<D> = Mutex<Option<Next<D>>>;

/// The name of a log's successor.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    PathBuf::from(name)
}

impl<D: Disk> Next<D> {
    /// An empty log beside the one at `path`.
    pub(super) fn create(disk: &D, path: &Path) -> Result<Self, LogError> {
        let at = beside(path);
        let failed = |source: redb::Error| failure(&at, "written", source);
        let file = disk.create(&at).map_err(|error| failed(redb::Error::Io(error)))?;
        // From here on the file is removed with this value.
        let mut next = Self { disk: disk.clone(), path: at.clone(), database: None };
        let mut builder = Database::builder();
        let database = builder.set_cache_size(CACHE_BYTES).create_with_backend(file);
        let database = database.map_err(|error| failed(error.into()))?;
        set_up(&database).map_err(failed)?;
        next.database = Some(database);
        Ok(next)
    }

    /// Changes it, durably.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<(), LogError>, redb::Error>,
    ) -> Result<(), LogError> {
        let Some(database) = &self.database else { return Err(gone(&self.path)) };
        commit(database, Durability::Immediate, change)
            .map_err(|error| failure(&self.path, "written", error))?
    }

    /// Gives it the log's name. When this fails the log is the one that it was.
    pub(super) fn place(mut self, path: &Path) -> Result<Database, LogError> {
        let renamed = self.disk.rename(&self.path, path);
        renamed.map_err(|error| failure(path, "written", redb::Error::Io(error)))?;
        self.database.take().ok_or_else(|| gone(&self.path))
    }
}

impl<D: Disk> Drop for Next<D> {
    fn drop(&mut self) {
        // One that was placed has no file of this name any more.
        drop(self.database.take());
        if let Err(error) = self.disk.remove(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "leftover of the journal stays");
        }
    }
}

fn gone(path: &Path) -> LogError {
    let source = io::Error::other("a write to the journal failed meanwhile");
    failure(path, "written", redb::Error::Io(source))
}

/// A successor that is being filled.
pub(super) struct RedbSuccessor<D: Disk> {
    pub(super) disk: D,
    /// The log's own path.
    pub(super) path: PathBuf,
    pub(super) slot: Weak<Slot<D>>,
    /// The last record that it stands for or holds.
    pub(super) seq: u64,
    pub(super) snapshot_at: u64,
    pub(super) parts: u32,
    pub(super) next: Option<Next<D>>,
}

impl<D: Disk> RedbSuccessor<D> {
    /// The file, as long as the log wants it.
    fn file(&mut self) -> Result<&Next<D>, LogError> {
        if self.slot.strong_count() == 0 {
            self.next = None;
            return Err(gone(&beside(&self.path)));
        }
        let next = match self.next.take() {
            Some(next) => next,
            None => Next::create(&self.disk, &self.path)?,
        };
        Ok(self.next.insert(next))
    }
}

impl<D: Disk> Successor for RedbSuccessor<D> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        let part = self.parts;
        self.file()?.write(|transaction| {
            transaction.open_table(PARTS)?.insert(part, bytes)?;
            Ok(Ok(()))
        })?;
        self.parts += 1;
        Ok(())
    }

    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        let last = self.seq;
        self.file()?.write(|transaction| {
            let mut table = transaction.open_table(RECORDS)?;
            for (seq, record) in (last + 1..).zip(records) {
                table.insert(seq, record.as_slice())?;
            }
            Ok(Ok(()))
        })?;
        self.seq += records.len() as u64;
        Ok(())
    }

    fn ready(mut self: Box<Self>) -> Result<(), LogError> {
        let (snapshot_at, parts) = (self.snapshot_at, self.parts);
        self.file()?.write(|transaction| {
            let mut meta = transaction.open_table(META)?;
            meta.insert(NEWEST, snapshot_at)?;
            meta.insert(COUNT, u64::from(parts))?;
            meta.insert("format", FORMAT)?;
            Ok(Ok(()))
        })?;
        let slot = self.slot.upgrade().ok_or_else(|| gone(&beside(&self.path)))?;
        *slot.lock() = self.next.take();
        Ok(())
    }
}
