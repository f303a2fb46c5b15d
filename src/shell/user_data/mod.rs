//! User data of leases: a text that the caller wants to find on its machine.
//!
//! It may hold secrets, so the journal records only that there is some. The text is in the vault
//! ([`UserDataStore`]) from the request until the lease ends; it is written before the lease is, and
//! removed again if the lease is not made ([`UserDataGuard`]). At a start, what no lease needs is
//! removed.
//!
//! `guest.rs` has the commands that put it into the guest and remove it there.

pub mod guest;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use causes::chain;
use drover_model::id::LeaseId;
use drover_model::journal_state::JournalState;
use drover_vault::{StoreError, Vault};
use parking_lot::{Mutex, MutexGuard};

/// The most bytes of user data that a lease may have.
pub const USER_DATA_MAX: usize = 64 * 1024;

/// The folder of the vault.
pub const FOLDER: &str = "user-data";

/// The user data that is kept, named by lease.
pub struct UserDataStore {
    vault: Arc<dyn Vault>,
    held: Mutex<BTreeSet<String>>,
}

impl UserDataStore {
    /// Removes what no lease of the journal state needs: it stays when the service ends between
    /// writing it and the journal, or between the end of a lease and the removal. Blocks.
    ///
    /// # Errors
    /// When the vault cannot be read or cleaned.
    pub fn open(vault: Arc<dyn Vault>, journal_state: &JournalState) -> Result<Self, StoreError> {
        let granted = journal_state.agents.values().flat_map(|entry| entry.leases.keys());
        let live: BTreeSet<&str> = journal_state
            .waiting
            .iter()
            .map(|ask| &ask.lease)
            .chain(granted)
            .map(LeaseId::as_str)
            .collect();
        let mut held = BTreeSet::new();
        for lease in vault.list(FOLDER)? {
            if live.contains(lease.as_str()) {
                held.insert(lease);
            } else {
                vault.remove(&name(&lease))?;
            }
        }
        Ok(Self { vault, held: Mutex::new(held) })
    }

    /// Writes the user data of a lease, whole or not at all, and durably. Blocks. Dropping the
    /// guard removes it again, unless [`UserDataGuard::keep`] was called.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(
        self: &Arc<Self>,
        lease: &LeaseId,
        content: &[u8],
    ) -> Result<UserDataGuard, StoreError> {
        self.held().insert(lease.as_str().to_owned());
        let kept = UserDataGuard { store: Arc::clone(self), lease: lease.clone(), keeps: false };
        self.vault.put(&name(lease.as_str()), content)?;
        Ok(kept)
    }

    /// The user data of a lease; none where there is none. Blocks.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, lease: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.vault.get(&name(lease))?.map(Bytes::from))
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
        if let Err(error) = self.vault.remove(&name(lease.as_str())) {
            let error = chain(&error);
            tracing::warn!(%lease, error, "user data stays until the next start");
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock()
    }
}

fn name(lease: &str) -> String {
    format!("{FOLDER}/{lease}")
}

/// User data of a lease that was not requested yet.
pub struct UserDataGuard {
    store: Arc<UserDataStore>,
    lease: LeaseId,
    keeps: bool,
}

impl UserDataGuard {
    /// Keeps it: from here on the end of the lease removes it.
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

    use drover_vault::MemoryVault;

    use super::*;

    fn opened(vault: &MemoryVault, journal_state: &JournalState) -> Arc<UserDataStore> {
        Arc::new(UserDataStore::open(Arc::new(vault.clone()), journal_state).unwrap())
    }

    // Invariant: user data exists from the request to the end of its lease.

    #[test]
    fn user_data_survives_a_start_while_its_lease_waits() {
        let vault = MemoryVault::default();
        let store = opened(&vault, &JournalState::default());
        for lease in ["l1", "l2"] {
            store.write(&LeaseId::new(lease), lease.as_bytes()).unwrap().keep();
        }
        // As journals were written before there was user data.
        let ask = r#"{"lease": "l2", "want": {"labels": []}, "principal": "p", "owner": "o",
            "ttlMs": 1, "publicKey": null, "keyHash": null, "bodyHash": "", "asked": 0}"#;
        let waiting = vec![serde_json::from_str(ask).unwrap()];
        let journal_state = JournalState { waiting, ..JournalState::default() };
        let store = opened(&vault, &journal_state);
        assert_eq!(vault.list(FOLDER).unwrap(), ["l2"], "nobody knows the other");
        assert_eq!(store.read("l2").unwrap().unwrap().as_ref(), b"l2");
        assert_eq!(store.read("l1").unwrap(), None);
        store.forget(&LeaseId::new("l2"));
        assert_eq!(vault.list(FOLDER).unwrap(), Vec::<String>::new());
        assert!(!store.holds(&LeaseId::new("l2")));
    }

    #[test]
    fn user_data_of_a_lease_that_was_never_asked_for_goes_at_once() {
        let vault = MemoryVault::default();
        let store = opened(&vault, &JournalState::default());
        drop(store.write(&LeaseId::new("l1"), b"secret").unwrap());
        assert_eq!(vault.list(FOLDER).unwrap(), Vec::<String>::new());
    }
}
