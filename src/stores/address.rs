//! Where a store is, whichever kind it is of.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use drover_journal::{Log, LogError};
use drover_vault::{Register, StoreError, Vault};

use super::etcd::{AddressError, EtcdAddress, EtcdLog, EtcdStore};

/// Where a store is that several drovers share.
#[derive(Debug, Clone)]
pub enum StoreAddress {
    Etcd(EtcdAddress),
}

impl StoreAddress {
    /// Opens the journal in it.
    ///
    /// # Errors
    /// As [`EtcdLog::open`].
    pub fn log(&self) -> Result<Box<dyn Log>, LogError> {
        match self {
            Self::Etcd(address) => Ok(Box::new(EtcdLog::open(address)?)),
        }
    }

    /// What lies beside the journal.
    ///
    /// # Errors
    /// When calls cannot be prepared.
    pub fn vault(&self) -> Result<Arc<dyn Vault>, StoreError> {
        match self {
            Self::Etcd(address) => Ok(Arc::new(EtcdStore::vault(address)?)),
        }
    }

    /// What its members write by comparison.
    ///
    /// # Errors
    /// As [`StoreAddress::vault`].
    pub fn register(&self) -> Result<Arc<dyn Register>, StoreError> {
        match self {
            Self::Etcd(address) => Ok(Arc::new(EtcdStore::register(address)?)),
        }
    }
}

impl StoreAddress {
    /// What is the same for all who use this journal, however they reach it.
    pub fn name(&self) -> &str {
        match self {
            Self::Etcd(address) => address.prefix(),
        }
    }
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    /// Reads an address, and the files that it names.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        text.parse().map(Self::Etcd)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(address) => address.fmt(f),
        }
    }
}
