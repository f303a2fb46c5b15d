//! The vault of a leader: it takes no writes once another member may lead, and its calls, which block, hold
//! up no other work.

use std::sync::Arc;

use drover_members::SendBy;
use drover_vault::{StoreError, Vault};
use tokio::runtime::{Handle, RuntimeFlavor};

/// A vault for the one that leads.
pub(super) struct LeadersVault {
    vault: Arc<dyn Vault>,
    send_by: SendBy,
}

impl LeadersVault {
    pub(super) fn new(vault: Arc<dyn Vault>, send_by: SendBy) -> Self {
        Self { vault, send_by }
    }

    fn may(&self, name: &str, doing: &'static str) -> Result<(), StoreError> {
        if self.send_by.is_open() {
            return Ok(());
        }
        Err(StoreError::refused(name, doing, "this member does not lead at the moment"))
    }
}

/// Does what blocks where others need not wait for it.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        Ok(_) | Err(_) => work(),
    }
}

impl Vault for LeadersVault {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        aside(|| self.vault.get(name))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.may(name, "written")?;
        aside(|| self.vault.put(name, bytes))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.may(name, "removed")?;
        aside(|| self.vault.remove(name))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        aside(|| self.vault.list(folder))
    }
}
