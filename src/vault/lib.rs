//! What lies beside the journal: a [`Vault`] of small named things, and a [`Register`] that only the
//! one may write who knows what it holds.
//!
//! - [`FolderVault`] is a folder of one machine. [`SealedVault`] encrypts what goes into a vault that
//!   others can read, under the [`ClusterKey`] that every member has; [`Sealer`] does it for a register. [`MemoryVault`] and
//!   [`MemoryRegister`] serve virtual time. Those that several machines share are in
//!   `drover-stores`.
//!
//! ```text
//! user data, keys ──> Vault ──┬── FolderVault: files of the state directory
//!                             └── SealedVault ──> a store that machines share
//! ```
//!
//! Failures: a write that failed may have happened, where [`StoreError::Unknown`] says so; writing it
//! again is safe. What was sealed under another key is refused, and stays.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod folder;
mod key;
mod memory;
mod sealed;

pub use folder::FolderVault;
pub use key::{ClusterKey, KeyError};
pub use memory::{MemoryRegister, MemoryVault};
pub use sealed::{NotOpened, SealedVault, Sealer};

use std::sync::Arc;

/// Why something was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It was not done.
    #[error("`{name}` could not be {doing}")]
    Refused {
        name: String,
        /// `read`, `written`, `removed` or `listed`.
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It may have been done.
    #[error("`{name}` may have been {doing}, and no answer came")]
    Unknown {
        name: String,
        /// `written` or `removed`.
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// It was not done.
    pub fn refused(
        name: &str,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Refused { name: name.to_owned(), doing, source: source.into() }
    }
}

/// Small named things. A name has at most two parts, such as `user-data/k3x`; a part has letters,
/// digits, `.`, `_` and `-`, and does not end with `.new`. Nothing is a first part and a name. Calls
/// block.
pub trait Vault: Send + Sync {
    /// What has a name; none where nothing has.
    ///
    /// # Errors
    /// When it cannot be read, which says nothing of whether it is there.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes it, whole or not at all, and durably.
    ///
    /// # Errors
    /// When it was not written, or may have been.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Removes it; nothing happens where it is not there.
    ///
    /// # Errors
    /// When it was not removed, or may have been.
    fn remove(&self, name: &str) -> Result<(), StoreError>;

    /// The second parts of all names whose first part is this, sorted.
    ///
    /// # Errors
    /// When they cannot be listed completely.
    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError>;
}

impl<V: Vault + ?Sized> Vault for Arc<V> {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        (**self).put(name, bytes)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        (**self).remove(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        (**self).list(folder)
    }
}

/// Which write made an entry what it is: no two writes have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(pub String);

/// What an entry of a register holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub bytes: Vec<u8>,
    pub version: Version,
}

/// Named entries that are written by comparison: a write names the version that it replaces, and comes to
/// nothing where another one is there. Names are as those of a [`Vault`]. Calls block.
pub trait Register: Send + Sync {
    /// Where it is, for people.
    fn place(&self) -> String;

    /// An entry as it is now: after a write that was answered, never an older one.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError>;

    /// Writes an entry if it still has this version, none where it must not be there. Returns the new
    /// version; none where it was not so.
    ///
    /// # Errors
    /// When it was not written, or may have been.
    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError>;
}
