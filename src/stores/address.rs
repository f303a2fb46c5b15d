//! Where a store is, whichever kind it is of.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use drover_journal::{Log, LogError};
use drover_vault::{Register, StoreError, Vault};

use super::etcd::{AddressError, EtcdAddress, EtcdLog, EtcdStore};
use super::objects::{ObjectAddress, ObjectAddressError, ObjectLog, ObjectRegister, ObjectVault};

/// Where a store is that several drovers share.
#[derive(Debug, Clone)]
pub enum StoreAddress {
    Etcd(EtcdAddress),
    Objects(Box<ObjectAddress>),
}

/// Why an address of a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreAddressError {
    #[error(transparent)]
    Etcd(#[from] AddressError),
    #[error(transparent)]
    Objects(#[from] ObjectAddressError),
    #[error(
        "`{0}` is no address of a store: write etcd://HOST:PORT,HOST:PORT/PREFIX, s3://BUCKET/PREFIX \
         or gs://BUCKET/PREFIX"
    )]
    Kind(String),
}

impl StoreAddress {
    /// Opens the journal in it.
    ///
    /// # Errors
    /// As [`EtcdLog::open`] and [`ObjectLog::open`].
    pub fn log(&self) -> Result<Box<dyn Log>, LogError> {
        Ok(match self {
            Self::Etcd(address) => Box::new(EtcdLog::open(address)?),
            Self::Objects(address) => Box::new(ObjectLog::open(address)?),
        })
    }

    /// Opens the journal in it to look at it. Nothing is written.
    ///
    /// # Errors
    /// As [`EtcdLog::look`] and [`ObjectLog::look`]; also where none is there.
    pub fn look(&self) -> Result<Box<dyn Log>, LogError> {
        Ok(match self {
            Self::Etcd(address) => Box::new(EtcdLog::look(address)?),
            Self::Objects(address) => Box::new(ObjectLog::look(address)?),
        })
    }

    /// What lies beside the journal.
    ///
    /// # Errors
    /// When calls cannot be prepared.
    pub fn vault(&self) -> Result<Arc<dyn Vault>, StoreError> {
        Ok(match self {
            Self::Etcd(address) => Arc::new(EtcdStore::vault(address)?),
            Self::Objects(address) => {
                let vault = ObjectVault::new(address);
                Arc::new(vault.map_err(|error| self.refused(error))?)
            }
        })
    }

    /// What its members write by comparison.
    ///
    /// # Errors
    /// As [`StoreAddress::vault`].
    pub fn register(&self) -> Result<Arc<dyn Register>, StoreError> {
        Ok(match self {
            Self::Etcd(address) => Arc::new(EtcdStore::register(address)?),
            Self::Objects(address) => {
                let register = ObjectRegister::open_to_lead(address);
                Arc::new(register.map_err(|error| self.refused(error))?)
            }
        })
    }

    /// The same entries for those who can wait: a call may take as long as one of a vault. A store that
    /// ignores conditions is refused where something `is_written`.
    ///
    /// # Errors
    /// As [`StoreAddress::register`].
    pub fn patient_register(&self, is_written: bool) -> Result<Arc<dyn Register>, StoreError> {
        Ok(match self {
            Self::Etcd(address) => Arc::new(EtcdStore::vault(address)?),
            Self::Objects(address) => {
                let open = if is_written { ObjectRegister::open } else { ObjectRegister::to_read };
                Arc::new(open(address).map_err(|error| self.refused(error))?)
            }
        })
    }

    fn refused(&self, error: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
        StoreError::refused(&self.to_string(), "read", error)
    }

    /// What is the same for all who use this journal, however they reach it.
    pub fn name(&self) -> String {
        match self {
            Self::Etcd(address) => address.prefix().to_owned(),
            Self::Objects(address) => address.to_string(),
        }
    }
}

impl FromStr for StoreAddress {
    type Err = StoreAddressError;

    /// Reads an address, and the files and variables that it names.
    fn from_str(text: &str) -> Result<Self, StoreAddressError> {
        if EtcdAddress::is_meant(text) {
            Ok(Self::Etcd(text.parse()?))
        } else if ObjectAddress::is_meant(text) {
            Ok(Self::Objects(Box::new(text.parse()?)))
        } else {
            Err(StoreAddressError::Kind(text.to_owned()))
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(address) => address.fmt(f),
            Self::Objects(address) => address.fmt(f),
        }
    }
}
