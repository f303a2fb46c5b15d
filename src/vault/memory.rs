//! A vault and a register in memory, for virtual time. Clones share what they hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Entry, Register, StoreError, Vault, Version};

/// A vault in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryVault(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Vault for MemoryVault {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.lock().get(name).cloned())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.lock().insert(name.to_owned(), bytes.to_owned());
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.0.lock().remove(name);
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let held = self.0.lock();
        let names = held.keys().filter_map(|name| name.strip_prefix(folder)?.strip_prefix('/'));
        Ok(names.map(str::to_owned).collect())
    }
}

/// A register in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryRegister(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    writes: u64,
    entries: BTreeMap<String, Entry>,
}

impl Register for MemoryRegister {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.0.lock().entries.get(name).cloned())
    }

    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        let mut held = self.0.lock();
        if held.entries.get(name).map(|entry| &entry.version) != before {
            return Ok(None);
        }
        held.writes += 1;
        let version = Version(held.writes.to_string());
        let entry = Entry { bytes: bytes.to_owned(), version: version.clone() };
        held.entries.insert(name.to_owned(), entry);
        Ok(Some(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;

    // Invariant: what virtual time uses does what the real ones do.

    #[test]
    fn memory_does_what_every_vault_and_every_register_does() {
        for each in contract::VAULT {
            let vault = MemoryVault::default();
            each(&mut || Box::new(vault.clone()));
        }
        for each in contract::REGISTER {
            let register = MemoryRegister::default();
            each(&mut || Box::new(register.clone()));
        }
    }
}
