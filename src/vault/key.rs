//! The key that every member has from its operator, and what is made of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use sha2::Sha256;

/// A shorter key can be guessed.
const BYTES_MIN: usize = 32;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key has {0} bytes, and 32 are needed: make one with `openssl rand -hex 32`")]
    Short(usize),
}

/// The key of the members. What needs a key gets one of its own, made of this one.
#[derive(Clone)]
pub struct ClusterKey {
    key: Arc<SecretBox<[u8; 32]>>,
    /// The file that it is in; none where it is in none, or nobody said.
    file: Option<PathBuf>,
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// Takes the text that the operator gave, without the white space around it.
    ///
    /// # Errors
    /// [`KeyError`] for a text that can be guessed.
    pub fn new(text: &SecretString) -> Result<Self, KeyError> {
        let text = text.expose_secret().trim();
        if text.len() < BYTES_MIN {
            return Err(KeyError::Short(text.len()));
        }
        let key = derive(text.as_bytes(), "drover cluster key 1");
        Ok(Self { key: Arc::new(SecretBox::new(Box::new(key))), file: None })
    }

    /// The same key, which is in that file: errors name it.
    #[must_use]
    pub fn of_file(self, file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// A key for one use.
    pub(crate) fn of(&self, purpose: &str) -> [u8; 32] {
        derive(self.key.expose_secret(), purpose)
    }

    /// Whether another one was made of the same text.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_digest("drover same key 1", b"", &other.digest("drover same key 1", b""))
    }

    /// A keyed digest of a text: those who lack the key can neither make it nor test a guess.
    pub fn digest(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        let mut mac = keyed(&self.of(purpose));
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    /// Whether a keyed digest is the one of a text; takes the same time whatever differs.
    pub fn is_digest(&self, purpose: &str, bytes: &[u8], digest: &[u8]) -> bool {
        let mut mac = keyed(&self.of(purpose));
        mac.update(bytes);
        mac.verify_slice(digest).is_ok()
    }
}

/// HMAC as a function that makes keys (NIST SP 800-108): the output of one purpose says nothing of
/// another's.
fn derive(key: &[u8], purpose: &str) -> [u8; 32] {
    let mut mac = keyed(key);
    mac.update(purpose.as_bytes());
    mac.finalize().into_bytes().into()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // A key longer than a block is hashed, and a shorter one filled with zeros (RFC 2104).
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        use sha2::Digest as _;
        let hashed = Sha256::digest(key);
        block[..hashed.len()].copy_from_slice(&hashed);
    }
    Hmac::new(&block)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    fn key(text: &str) -> Result<ClusterKey, KeyError> {
        ClusterKey::new(&SecretString::from(text))
    }

    // Invariant: each use has a key of its own, and a short text is no key.

    #[test]
    fn equal_texts_make_equal_keys_and_each_use_another() {
        let text = "0123456789abcdef0123456789abcdef";
        let (one, two) = (key(text).unwrap(), key(&format!(" {text}\n")).unwrap());
        assert_eq!(one.of("a"), two.of("a"));
        assert_ne!(one.of("a"), one.of("b"));
        let other = key("0123456789abcdef0123456789abcdeF").unwrap();
        assert_ne!(one.of("a"), other.of("a"));
        let digest = one.digest("a", b"text");
        assert!(two.is_digest("a", b"text", &digest));
        assert!(!two.is_digest("b", b"text", &digest) && !two.is_digest("a", b"texT", &digest));
        assert!(!other.is_digest("a", b"text", &digest));
        // A long text counts whole.
        let long = "x".repeat(100);
        assert_ne!(key(&long).unwrap().of("a"), key(&format!("{long}y")).unwrap().of("a"));
    }

    #[test]
    fn a_short_text_is_refused_with_how_to_make_one() {
        let refused = key("  0123456789abcdef0123456789abcde \n").unwrap_err().to_string();
        assert!(refused.contains("31 bytes") && refused.contains("openssl rand -hex 32"));
        assert_eq!(format!("{:?}", key(&"k".repeat(32)).unwrap()), "ClusterKey");
    }
}
