//! The file system, as far as a log needs it. A port: [`Files`] is the machine's own, and tests put
//! a disk in its place that fails at a chosen step (`testing.rs`).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use redb::StorageBackend;
use redb::backends::FileBackend;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The file's length in bytes.
    pub length: u64,
    /// Distinguishes this file from every other one in its folder (the inode number).
    pub identity: u64,
}

/// A folder with files.
pub trait Disk: Clone + Send + Sync + 'static {
    type File: StorageBackend;

    /// The file at `path`; none when there is no file.
    fn stat(&self, path: &Path) -> io::Result<Option<Stat>>;

    /// Opens a file for reading. Fails with [`ErrorKind::WouldBlock`] while another process holds
    /// it.
    fn read(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Creates an empty file that only its owner may read, in place of a file that has the path
    /// already.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Renames a file in one step, replacing the file at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; succeeds when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the file names in the folder of `path` durable.
    fn sync_names(&self, path: &Path) -> io::Result<()>;

    /// The free bytes in the folder of `path`.
    fn room(&self, path: &Path) -> io::Result<u64>;
}

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

fn backend(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

impl Disk for Files {
    type File = FileBackend;

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        match std::fs::metadata(path) {
            Ok(meta) => Ok(Some(Stat { length: meta.len(), identity: meta.ino() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, path: &Path) -> io::Result<FileBackend> {
        let file = File::open(path)?;
        match file.try_lock() {
            Ok(()) => backend(file),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn open(&self, path: &Path) -> io::Result<FileBackend> {
        backend(OpenOptions::new().read(true).write(true).open(path)?)
    }

    fn create(&self, path: &Path) -> io::Result<FileBackend> {
        self.remove(path)?;
        let mut options = OpenOptions::new();
        backend(options.read(true).write(true).create_new(true).mode(0o600).open(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn sync_names(&self, path: &Path) -> io::Result<()> {
        File::open(folder(path))?.sync_all()
    }

    fn room(&self, path: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(folder(path))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}
