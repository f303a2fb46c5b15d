//! Encryption of what lies in a vault or a register that others can read.
//!
//! A thing is one byte that names the format, a nonce of 24 bytes, and the text under
//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03; a random nonce never comes again). Its name is
//! authenticated with it, so that nobody can put one thing in another's place.

use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::TryRng as _;
use rand::rngs::SysRng;

use super::{ClusterKey, StoreError, Vault};

/// The format that this drover writes.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
/// A text that is encrypted, so that another key shows.
const MARK: &str = "cluster-key";
/// What the key is made for.
const PURPOSE: &str = "drover vault 1";

/// What encrypts things under a key of one use, and opens them.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    /// The file of the key, where that is known.
    file: Option<PathBuf>,
}

/// A vault whose things are encrypted.
pub struct SealedVault<V> {
    vault: V,
    sealer: Sealer,
}

/// Why a thing cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    #[error("it was written by a newer drover: run that one")]
    Newer,
    /// The text says where this key is, or is empty.
    #[error(
        "it was encrypted under another service.clusterKey{of}, or changed since: give every member the \
         same key"
    )]
    OtherKey { of: String },
}

impl Sealer {
    /// Makes the key of a purpose.
    pub fn new(key: &ClusterKey, purpose: &str) -> Self {
        let file = key.file().map(Path::to_owned);
        Self { cipher: XChaCha20Poly1305::new(&key.of(purpose).into()), file }
    }

    fn other_key(&self) -> NotOpened {
        let of = self.file.as_ref().map(|file| format!(" than that in `{}`", file.display()));
        NotOpened::OtherKey { of: of.unwrap_or_default() }
    }

    /// Encrypts a thing under its name.
    ///
    /// # Errors
    /// When the system gives no random numbers, or the thing is too large.
    pub fn seal(&self, name: &str, bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE_BYTES];
        let drawn = SysRng.try_fill_bytes(&mut nonce);
        drawn
            .map_err(|error| StoreError::refused(name, "written", std::io::Error::other(error)))?;
        let payload = Payload { msg: bytes, aad: name.as_bytes() };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed
            .map_err(|_| StoreError::refused(name, "written", "it is too large to encrypt"))?;
        Ok([&[FORMAT][..], &nonce, &sealed].concat())
    }

    /// Opens what was encrypted under this name.
    ///
    /// # Errors
    /// [`NotOpened`] for what this key did not seal, or somebody changed or moved.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
        let (format, rest) = sealed.split_first().ok_or_else(|| self.other_key())?;
        if *format > FORMAT {
            return Err(NotOpened::Newer);
        }
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES).ok_or_else(|| self.other_key())?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        let opened = self.cipher.decrypt(XNonce::from_slice(nonce), payload);
        opened.map_err(|_| self.other_key())
    }
}

impl<V: Vault> SealedVault<V> {
    pub fn new(vault: V, key: &ClusterKey) -> Self {
        Self { vault, sealer: Sealer::new(key, PURPOSE) }
    }
}

impl<V: Vault> SealedVault<V> {
    /// Whether somebody has marked the vault as one of this key ([`SealedVault::mark`]). Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or was marked under another key.
    pub fn is_marked(&self) -> Result<bool, StoreError> {
        Ok(self.get(MARK)?.is_some())
    }

    /// Marks the vault as one of this key, unless somebody has. Blocks.
    ///
    /// # Errors
    /// As [`SealedVault::is_marked`], and when it cannot be written.
    pub fn mark_if_new(&self) -> Result<(), StoreError> {
        if self.is_marked()? { Ok(()) } else { self.mark() }
    }

    /// Marks the vault as one of this key. Blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn mark(&self) -> Result<(), StoreError> {
        self.put(MARK, b"drover")
    }
}

impl<V: Vault> Vault for SealedVault<V> {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(sealed) = self.vault.get(name)? else { return Ok(None) };
        self.sealer
            .open(name, &sealed)
            .map(Some)
            .map_err(|error| StoreError::refused(name, "read", error))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.vault.put(name, &self.sealer.seal(name, bytes)?)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.vault.remove(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.vault.list(folder)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use secrecy::SecretString;

    use super::*;
    use crate::{MemoryVault, contract};

    fn key(last: char) -> ClusterKey {
        ClusterKey::new(&SecretString::from(format!("0123456789abcdef0123456789abcde{last}")))
            .unwrap()
    }

    // Invariant: who lacks the key reads nothing and changes nothing unnoticed.

    #[test]
    fn a_sealed_vault_does_what_every_vault_does() {
        for each in contract::VAULT {
            let vault = MemoryVault::default();
            each(&mut || Box::new(SealedVault::new(vault.clone(), &key('f'))));
        }
    }

    #[test]
    fn what_lies_in_the_store_says_nothing_and_cannot_be_moved_or_changed() {
        let vault = MemoryVault::default();
        let sealed = SealedVault::new(vault.clone(), &key('f'));
        for name in ["user-data/a", "user-data/b"] {
            sealed.put(name, b"password: swordfish").unwrap();
        }
        let lies = |name: &str| vault.get(name).unwrap().unwrap();
        assert_ne!(lies("user-data/a"), lies("user-data/b"));
        assert!(!lies("user-data/a").windows(9).any(|part| part == b"swordfish"));
        let refused = |name: &str| sealed.get(name).unwrap_err();
        vault.put("user-data/c", &lies("user-data/a")).unwrap();
        let mut changed = lies("user-data/b");
        changed[30] ^= 1;
        vault.put("user-data/b", &changed).unwrap();
        vault.put("user-data/d", b"").unwrap();
        vault.put("user-data/e", &[1, 2, 3]).unwrap();
        for name in ["user-data/b", "user-data/c", "user-data/d", "user-data/e"] {
            let error = refused(name);
            assert_eq!(error.to_string(), format!("`{name}` could not be read"));
        }
        vault.put("user-data/f", &[9; 60]).unwrap();
        let newer = std::error::Error::source(&refused("user-data/f")).unwrap().to_string();
        assert_eq!(newer, "it was written by a newer drover: run that one");
    }

    #[test]
    fn another_key_opens_nothing_and_says_so() {
        let vault = MemoryVault::default();
        SealedVault::new(vault.clone(), &key('f')).put("call-in.key", b"secret").unwrap();
        let error = SealedVault::new(vault, &key('e')).get("call-in.key").unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("another service.clusterKey"), "{why}");
    }
}
