//! The temporary folder of `drover sim`, and the folders that killed simulators left behind.
//!
//! A simulator holds a lock on a file in its folder for as long as it lives. A folder whose lock is
//! free belongs to nobody any more.

use std::fs::{File, remove_dir_all, rename};
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "drover-sim-";
const LOCK: &str = "lock";

/// The folder; it is removed at the end.
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes one among the temporary files, and removes those of simulators that were killed.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        for entry in parent.read_dir()?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                remove_if_abandoned(&entry.path());
            }
        }
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // The file appears under its name only when it is locked.
        let unlocked = folder.path().join("lock.new");
        let lock = File::create(&unlocked)?;
        lock.lock()?;
        rename(unlocked, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_if_abandoned(folder: &Path) {
    // Another user's folder cannot be opened, and one without a lock is not ours to judge.
    let Ok(lock) = File::open(folder.join(LOCK)) else { return };
    if lock.try_lock().is_ok()
        && let Err(error) = remove_dir_all(folder)
    {
        tracing::debug!(folder = %folder.display(), %error, "an abandoned folder stays");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant: a simulator removes what a killed one left, and nothing of one that lives.

    #[test]
    fn folders_of_killed_simulators_are_removed_and_those_of_living_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let living = Folder::new_in(parent.path()).unwrap();
        let killed = parent.path().join("drover-sim-killed");
        let unknown = parent.path().join("drover-sim-unknown");
        let other = parent.path().join("other");
        for folder in [&killed, &unknown, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        for folder in [&killed, &other] {
            std::fs::write(folder.join(LOCK), "").unwrap();
        }
        let next = Folder::new_in(parent.path()).unwrap();
        assert!(!killed.exists());
        assert!([living.path(), next.path(), &unknown, &other].iter().all(|path| path.exists()));
    }
}
