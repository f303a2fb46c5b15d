//! What lies beside a journal in etcd, and what its members write by comparison.
//!
//! ```text
//! <prefix>/beside/<name>      things of a vault
//! <prefix>/register/<name>    entries of a register; their version is the revision that wrote them
//! ```

use std::time::Duration;

use drover_vault::{Entry, Register, StoreError, Vault, Version};

use super::address::EtcdAddress;
use super::gateway::{CallError, Gateway, Limits, Operation};
use super::layout::KeyRange;

/// How long a member of etcd may take to answer a call of the register: those who lead wait for it.
const REGISTER_ANSWER_LIMIT: Duration = Duration::from_millis(800);

/// A vault and a register in etcd.
pub struct EtcdStore {
    gateway: Gateway,
    prefix: String,
}

impl EtcdStore {
    /// Prepares the calls of a vault; connects at the first one.
    ///
    /// # Errors
    /// When the address names authorities that cannot be used.
    pub fn vault(address: &EtcdAddress) -> Result<Self, StoreError> {
        Self::new(address, Limits::default())
    }

    /// The same for a register, whose calls are given up earlier.
    ///
    /// # Errors
    /// As [`EtcdStore::vault`].
    pub fn register(address: &EtcdAddress) -> Result<Self, StoreError> {
        Self::new(address, Limits { answer: REGISTER_ANSWER_LIMIT, rounds: 1 })
    }

    fn new(address: &EtcdAddress, limits: Limits) -> Result<Self, StoreError> {
        let gateway = Gateway::limited(address, limits);
        let gateway =
            gateway.map_err(|error| StoreError::refused(&address.to_string(), "read", error))?;
        Ok(Self { gateway, prefix: address.prefix().to_owned() })
    }

    fn beside(&self, name: &str) -> String {
        format!("{}/beside/{name}", self.prefix)
    }

    fn entry(&self, name: &str) -> String {
        format!("{}/register/{name}", self.prefix)
    }
}

/// What a failed call says of what it was to do.
fn failed(name: &str, doing: &'static str, error: CallError) -> StoreError {
    match error {
        CallError::Refused(_) => StoreError::refused(name, doing, error),
        CallError::Unknown(_) | CallError::TooLarge(_) => {
            StoreError::Unknown { name: name.to_owned(), doing, source: error.into() }
        }
    }
}

impl Vault for EtcdStore {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.gateway.get(&self.beside(name));
        Ok(found.map_err(|error| failed(name, "read", error))?.value.map(|(bytes, _)| bytes))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let put = self.gateway.put(&self.beside(name), bytes);
        put.map_err(|error| failed(name, "written", error))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let key = self.beside(name);
        let removed = self.gateway.delete(&KeyRange(key.clone(), format!("{key}\0")));
        removed.map_err(|error| failed(name, "removed", error))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let folder_key = self.beside(folder);
        let range = KeyRange(format!("{folder_key}/"), format!("{folder_key}0"));
        let keys = self.gateway.keys(&range).map_err(|error| failed(folder, "listed", error))?;
        let start = folder_key.len() + 1;
        Ok(keys.into_iter().filter_map(|key| key.get(start..).map(str::to_owned)).collect())
    }
}

impl Register for EtcdStore {
    fn place(&self) -> String {
        self.gateway.place().to_owned()
    }

    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        let found = self.gateway.get(&self.entry(name));
        let found = found.map_err(|error| failed(name, "read", error))?;
        let entry = |(bytes, revision): (Vec<u8>, u64)| Entry {
            bytes,
            version: Version(revision.to_string()),
        };
        Ok(found.value.map(entry))
    }

    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        // A version that is no revision is nobody's: zero would mean that the entry is not there.
        let revision = before.map_or(Ok(0), |version| version.0.parse::<u64>().map(|it| it.max(1)));
        let Ok(revision) = revision else { return Ok(None) };
        let key = self.entry(name);
        let put = Operation::Put(key.clone(), bytes.to_owned());
        let written = self.gateway.txn(&key, revision, &[put]);
        let written = written.map_err(|error| failed(name, "written", error))?;
        Ok(written.map(|revision| Version(revision.to_string())))
    }
}
