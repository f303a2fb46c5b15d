//! User data of leases: a text that the caller wants to find on its machine.
//!
//! It may hold secrets, so the journal records only that there is some. The text is in a file of
//! the state directory ([`UserDataStore`]) from the request until the lease ends; the file is
//! written before the lease is, and removed again if the lease is not made ([`UserDataGuard`]). At
//! a start, files without a lease are removed.
//!
//! `guest.rs` has the commands that put it into the guest and remove it there.

pub mod guest;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use drover_model::id::LeaseId;
use drover_model::journal_state::JournalState;
use parking_lot::{Mutex, MutexGuard};

/// The most bytes of user data that a lease may have.
pub const USER_DATA_MAX: usize = 64 * 1024;

/// The name of the folder in the state directory.
const FOLDER: &str = "user-data";

/// The files, each named by its lease and readable by the service alone.
#[derive(Debug)]
pub struct UserDataStore {
    folder: PathBuf,
    held: Mutex<BTreeSet<String>>,
}

impl UserDataStore {
    /// Opens the folder in the state directory, and removes files that no lease of the journal state
    /// needs. Such files stay when the service ends between writing the file and the journal, or
    /// between the end of a lease and the removal.
    ///
    /// # Errors
    /// When the folder cannot be created, read or cleaned.
    pub fn open(state: &Path, journal_state: &JournalState) -> io::Result<Self> {
        let folder = state.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let granted = journal_state.agents.values().flat_map(|entry| entry.leases.keys());
        let live: BTreeSet<&str> = journal_state
            .waiting
            .iter()
            .map(|ask| &ask.lease)
            .chain(granted)
            .map(LeaseId::as_str)
            .collect();
        let mut held = BTreeSet::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            match entry.file_name().to_str().filter(|name| live.contains(name)) {
                Some(lease) => drop(held.insert(lease.to_owned())),
                None => fs::remove_file(entry.path())?,
            }
        }
        Ok(Self { folder, held: Mutex::new(held) })
    }

    /// Writes the user data of a lease, whole or not at all, and durably. Blocks. Dropping the
    /// guard removes the file again, unless [`UserDataGuard::keep`] was called.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(self: &Arc<Self>, lease: &LeaseId, content: &[u8]) -> io::Result<UserDataGuard> {
        let path = self.folder.join(lease.as_str());
        let beside = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.held().insert(lease.as_str().to_owned());
        let kept = UserDataGuard { store: Arc::clone(self), lease: lease.clone(), keeps: false };
        let mut file = options.open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(kept)
    }

    /// Reads the user data of a lease. Blocks.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read(&self, lease: &str) -> io::Result<Bytes> {
        fs::read(self.folder.join(lease)).map(Bytes::from)
    }

    /// Whether a lease has user data. Does not block.
    pub fn holds(&self, lease: &LeaseId) -> bool {
        self.held().contains(lease.as_str())
    }

    /// Removes the user data of a lease, if it has some. Blocks.
    pub fn forget(&self, lease: &LeaseId) {
        if !self.held().remove(lease.as_str()) {
            return;
        }
        let path = self.folder.join(lease.as_str());
        for path in [path.with_extension("new"), path] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%lease, %error, "user data stays until the next start");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock()
    }
}

/// User data of a lease that was not requested yet.
#[derive(Debug)]
pub struct UserDataGuard {
    store: Arc<UserDataStore>,
    lease: LeaseId,
    keeps: bool,
}

impl UserDataGuard {
    /// Keeps the file: from here on the end of the lease removes it.
    pub fn keep(mut self) {
        self.keeps = true;
    }
}

impl Drop for UserDataGuard {
    fn drop(&mut self) {
        if !self.keeps {
            self.store.forget(&self.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn files(state: &Path) -> Vec<String> {
        let all = fs::read_dir(state.join(FOLDER)).unwrap();
        let mut names: Vec<_> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    // Invariant: user data exists from the request to the end of its lease, readable by the service
    // alone.

    #[test]
    fn user_data_is_for_its_owner_alone_and_survives_a_start_while_its_lease_waits() {
        let state = tempfile::tempdir().unwrap();
        let store = Arc::new(UserDataStore::open(state.path(), &JournalState::default()).unwrap());
        for lease in ["l1", "l2"] {
            store.write(&LeaseId::new(lease), lease.as_bytes()).unwrap().keep();
        }
        let folder = state.path().join(FOLDER);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("l1"))), (0o700, 0o600));
        // As journals were written before there was user data.
        let ask = r#"{"lease": "l2", "want": {"labels": []}, "principal": "p", "owner": "o",
            "ttlMs": 1, "publicKey": null, "keyHash": null, "bodyHash": "", "asked": 0}"#;
        let waiting = vec![serde_json::from_str(ask).unwrap()];
        let journal_state = JournalState { waiting, ..JournalState::default() };
        let store = UserDataStore::open(state.path(), &journal_state).unwrap();
        assert_eq!(files(state.path()), ["l2"], "nobody knows the other");
        assert_eq!(store.read("l2").unwrap().as_ref(), b"l2");
        store.forget(&LeaseId::new("l2"));
        assert_eq!(files(state.path()), Vec::<String>::new());
        assert!(!store.holds(&LeaseId::new("l2")));
    }

    #[test]
    fn user_data_of_a_lease_that_was_never_asked_for_goes_at_once() {
        let state = tempfile::tempdir().unwrap();
        let store = Arc::new(UserDataStore::open(state.path(), &JournalState::default()).unwrap());
        drop(store.write(&LeaseId::new("l1"), b"secret").unwrap());
        assert_eq!(files(state.path()), Vec::<String>::new());
    }
}
