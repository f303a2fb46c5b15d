//! The successor of an embedded log: a new file beside it, with a snapshot and the records after
//! it.
//!
//! The fold thread fills the file, the writer adds the last records and renames it over the log in
//! one step. Until that rename the old file is the log. Whatever fails before it leaves the old
//! file in force, and the new one is removed. A write to the log that fails takes the [`Slot`]
//! away, so that a successor in the making gives up.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use parking_lot::Mutex;
use redb::{Database, Durability};

use super::disk::Disk;
use super::redb_log::{
    CACHE_BYTES, FORMAT, META, PARTS, PARTS_COUNT_KEY, RECORDS, SNAPSHOT_SEQ_KEY, commit, failure,
    set_up,
};
use super::{LogError, Successor};

/// A file without its final name; removed when it never gets one.
pub(super) struct NewFile<D: Disk> {
    disk: D,
    path: PathBuf,
    database: Option<Database>,
}

/// Where the fold thread leaves a successor that is ready.
pub(super) type Slot<D> = Mutex<Option<NewFile<D>>>;

/// The path of a log's successor while it is made.
pub(super) fn successor_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    PathBuf::from(name)
}

impl<D: Disk> NewFile<D> {
    /// Creates an empty log beside the one at `path`.
    pub(super) fn create(disk: &D, path: &Path) -> Result<Self, LogError> {
        let at = successor_path(path);
        let failed = |source: redb::Error| failure(&at, "written", source);
        let file = disk.create(&at).map_err(|error| failed(redb::Error::Io(error)))?;
        // From here on, dropping this value removes the file.
        let mut next = Self { disk: disk.clone(), path: at.clone(), database: None };
        let mut builder = Database::builder();
        let database = builder.set_cache_size(CACHE_BYTES).create_with_backend(file);
        let database = database.map_err(|error| failed(error.into()))?;
        set_up(&database).map_err(failed)?;
        next.database = Some(database);
        Ok(next)
    }

    /// Changes the file, durably.
    pub(super) fn write(
        &self,
        change: impl FnOnce(&redb::WriteTransaction) -> Result<Result<(), LogError>, redb::Error>,
    ) -> Result<(), LogError> {
        let Some(database) = &self.database else { return Err(write_failed(&self.path)) };
        commit(database, Durability::Immediate, change)
            .map_err(|error| failure(&self.path, "written", error))?
    }

    /// Renames the file over the log. When this fails, the old file stays the log.
    pub(super) fn rename_to(mut self, path: &Path) -> Result<Database, LogError> {
        let renamed = self.disk.rename(&self.path, path);
        renamed.map_err(|error| failure(path, "written", redb::Error::Io(error)))?;
        self.database.take().ok_or_else(|| write_failed(&self.path))
    }
}

impl<D: Disk> Drop for NewFile<D> {
    fn drop(&mut self) {
        // After the rename there is no file of this name any more.
        drop(self.database.take());
        if let Err(error) = self.disk.remove(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "unfinished journal snapshot stays");
        }
    }
}

fn write_failed(path: &Path) -> LogError {
    let source = io::Error::other("a write to the journal failed while its snapshot was written");
    failure(path, "written", redb::Error::Io(source))
}

/// A successor that is being filled.
pub(super) struct RedbSuccessor<D: Disk> {
    pub(super) disk: D,
    /// The path of the log itself.
    pub(super) path: PathBuf,
    pub(super) slot: Weak<Slot<D>>,
    /// The last record that the snapshot includes or the file holds.
    pub(super) seq: u64,
    pub(super) snapshot_at: u64,
    pub(super) parts: u32,
    pub(super) next: Option<NewFile<D>>,
}

impl<D: Disk> RedbSuccessor<D> {
    /// The file, created at first use; an error when the log has given the successor up.
    fn file(&mut self) -> Result<&NewFile<D>, LogError> {
        if self.slot.strong_count() == 0 {
            self.next = None;
            return Err(write_failed(&successor_path(&self.path)));
        }
        let next = match self.next.take() {
            Some(next) => next,
            None => NewFile::create(&self.disk, &self.path)?,
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
            meta.insert(SNAPSHOT_SEQ_KEY, snapshot_at)?;
            meta.insert(PARTS_COUNT_KEY, u64::from(parts))?;
            meta.insert("format", FORMAT)?;
            Ok(Ok(()))
        })?;
        let slot = self.slot.upgrade().ok_or_else(|| write_failed(&successor_path(&self.path)))?;
        *slot.lock() = self.next.take();
        Ok(())
    }
}
