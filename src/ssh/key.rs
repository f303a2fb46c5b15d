//! Keys: private keys are read from files, public keys from the line that people know.
//!
//! OpenSSH, PKCS#8 and SEC1 files with ed25519 and ECDSA keys are read, with or without a
//! passphrase. RSA is not compiled in and is refused by name. Each [`KeyError`] names the file, and
//! [`KeyError::remedy`] says what to do. No secret is ever printed.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{self, LineEnding};
use russh::keys::{Algorithm, HashAlg, decode_secret_key};
use secrecy::{ExposeSecret, SecretString};

/// A longer file is not a key file.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why a key cannot be used. Each error names the file, or whatever the caller calls the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("failed to read the key file `{name}`")]
    Unreadable {
        name: String,
        #[source]
        source: std::io::Error,
    },
    /// The text holds no private key.
    #[error("`{name}` holds no private key")]
    NotAKey { name: String },
    /// The key needs a passphrase, and none was given.
    #[error("the key `{name}` needs a passphrase")]
    Encrypted { name: String },
    /// The passphrase does not open the key.
    #[error("the passphrase does not open the key `{name}`")]
    WrongPassphrase { name: String },
    /// drover does not support this kind of key.
    #[error("the key `{name}` is of kind {kind}, which drover does not support")]
    Unsupported {
        name: String,
        /// The kind, such as `ssh-rsa`.
        kind: String,
    },
    /// The key is incomplete or was altered.
    #[error("the key `{name}` is damaged")]
    Damaged {
        name: String,
        #[source]
        source: russh::keys::Error,
    },
    /// A line that should be a public key is not one.
    #[error("`{line}` is not a public key line such as `ssh-ed25519 AAAA… comment`")]
    NotPublic {
        /// The line, cut to 80 characters.
        line: String,
    },
}

impl KeyError {
    /// How to fix it; `passphrase_in` names the setting for the file with the passphrase.
    #[must_use]
    pub fn remedy(&self, passphrase_in: &str) -> String {
        match self {
            Self::Unreadable { .. } => "check that the file exists and that you may read it".into(),
            Self::NotAKey { .. } => {
                "give the file that begins with `-----BEGIN OPENSSH PRIVATE KEY-----`, not the \
                 `.pub` beside it"
                    .into()
            }
            Self::Encrypted { .. } => format!(
                "name a file with the passphrase in {passphrase_in}, or remove the passphrase from \
                 a copy of the key with `ssh-keygen -p`"
            ),
            Self::WrongPassphrase { .. } => {
                format!("check the passphrase in the file named in {passphrase_in}")
            }
            Self::Unsupported { .. } => "make another with `ssh-keygen -t ed25519`".into(),
            Self::Damaged { .. } => "copy it again from where it was made".into(),
            Self::NotPublic { .. } => "give the one line of a `.pub` file".into(),
        }
    }
}

/// A private key, decrypted.
#[derive(Clone)]
pub struct PrivateKey(Arc<ssh_key::PrivateKey>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.fingerprint())
    }
}

impl PrivateKey {
    /// Reads a private key file.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn load(path: &Path, passphrase: Option<&SecretString>) -> Result<Self, KeyError> {
        let name = path.display().to_string();
        let unreadable = |source| KeyError::Unreadable { name: name.clone(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        // The key's bytes move into a secret, which is wiped when it is dropped.
        let text = String::from_utf8(bytes)
            .map(SecretString::from)
            .map_err(|_| KeyError::NotAKey { name: name.clone() })?;
        Self::parse(&name, &text, passphrase)
    }

    /// Reads a private key from the text of its file; `name` is what errors call it.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn parse(
        name: &str,
        text: &SecretString,
        passphrase: Option<&SecretString>,
    ) -> Result<Self, KeyError> {
        let text = text.expose_secret().trim();
        let key = if text.contains("-----BEGIN OPENSSH PRIVATE KEY-----") {
            parse_openssh(name, text, passphrase)?
        } else {
            parse_other(name, text, passphrase)?
        };
        refuse_unsupported(name, &key.algorithm())?;
        Ok(Self(Arc::new(key)))
    }

    /// Makes an ed25519 key from 32 random bytes; equal bytes make an equal key.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32], comment: &str) -> Self {
        let mut key = ssh_key::PrivateKey::from(Ed25519Keypair::from_seed(seed));
        key.set_comment(comment);
        Self(Arc::new(key))
    }

    /// The text of the key's file, not encrypted.
    ///
    /// # Errors
    /// [`KeyError::Damaged`] when the key cannot be encoded, which does not happen with keys read
    /// here.
    pub fn to_openssh(&self) -> Result<SecretString, KeyError> {
        let text = self.0.to_openssh(LineEnding::LF).map_err(|error| KeyError::Damaged {
            name: self.fingerprint(),
            source: error.into(),
        })?;
        Ok(SecretString::from(text.as_str()))
    }

    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().clone())
    }

    /// The line for cloud-init: `ssh-ed25519 AAAA… comment`.
    #[must_use]
    pub fn public_line(&self, comment: &str) -> String {
        let line = self.public().line();
        if comment.is_empty() { line } else { format!("{line} {comment}") }
    }

    /// `SHA256:` and the digest of the public key, as `ssh-keygen -l` prints it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The key in russh's own type, for servers.
    pub fn inner(&self) -> Arc<ssh_key::PrivateKey> {
        Arc::clone(&self.0)
    }
}

/// A public key. Comments do not count when two keys are compared.
#[derive(Debug, Clone)]
pub struct PublicKey(ssh_key::PublicKey);

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key_data() == other.0.key_data()
    }
}

impl Eq for PublicKey {}

impl PublicKey {
    /// Reads a line such as `ssh-ed25519 AAAA… comment`.
    ///
    /// # Errors
    /// [`KeyError::NotPublic`].
    pub fn parse(line: &str) -> Result<Self, KeyError> {
        let key = ssh_key::PublicKey::from_openssh(line.trim())
            .map_err(|_| KeyError::NotPublic { line: line.chars().take(80).collect() })?;
        Ok(Self(key))
    }

    /// The line without a comment.
    #[must_use]
    pub fn line(&self) -> String {
        let mut bare = self.0.clone();
        bare.set_comment("");
        // Encoding fails only for lengths that no parsed key has.
        bare.to_openssh().unwrap_or_default().trim().to_owned()
    }

    /// `SHA256:` and the digest, as `ssh-keygen -l` prints it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.0.algorithm()
    }
}

impl From<ssh_key::PublicKey> for PublicKey {
    fn from(key: ssh_key::PublicKey) -> Self {
        Self(key)
    }
}

fn parse_openssh(
    name: &str,
    text: &str,
    passphrase: Option<&SecretString>,
) -> Result<ssh_key::PrivateKey, KeyError> {
    let key = ssh_key::PrivateKey::from_openssh(text)
        .map_err(|error| KeyError::Damaged { name: name.to_owned(), source: error.into() })?;
    refuse_unsupported(name, &key.algorithm())?;
    if !key.is_encrypted() {
        return Ok(key);
    }
    let Some(passphrase) = passphrase else {
        return Err(KeyError::Encrypted { name: name.to_owned() });
    };
    let open = key
        .decrypt(passphrase.expose_secret())
        .map_err(|_| KeyError::WrongPassphrase { name: name.to_owned() })?;
    Ok(open)
}

/// Reads PKCS#8 and SEC1 files, which `openssl` and older tools write.
fn parse_other(
    name: &str,
    text: &str,
    passphrase: Option<&SecretString>,
) -> Result<ssh_key::PrivateKey, KeyError> {
    let unsupported =
        |kind: &str| KeyError::Unsupported { name: name.to_owned(), kind: kind.to_owned() };
    if text.contains("-----BEGIN RSA PRIVATE KEY-----") {
        return Err(unsupported("ssh-rsa"));
    }
    if text.contains("-----BEGIN DSA PRIVATE KEY-----") {
        return Err(unsupported("ssh-dss"));
    }
    if !text.contains("PRIVATE KEY-----") {
        return Err(KeyError::NotAKey { name: name.to_owned() });
    }
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(unsupported("old PEM with a passphrase"));
    }
    let locked = text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----");
    if locked && passphrase.is_none() {
        return Err(KeyError::Encrypted { name: name.to_owned() });
    }
    let key = decode_secret_key(text, passphrase.map(ExposeSecret::expose_secret));
    #[expect(clippy::wildcard_enum_match_arm, reason = "russh's errors are many and grow")]
    key.map_err(|source| match source {
        russh::keys::Error::UnknownAlgorithm(oid) => unsupported(&kind_of(&oid.to_string())),
        _ if locked => KeyError::WrongPassphrase { name: name.to_owned() },
        source => KeyError::Damaged { name: name.to_owned(), source },
    })
}

fn kind_of(oid: &str) -> String {
    if oid == "1.2.840.113549.1.1.1" { "ssh-rsa".to_owned() } else { format!("OID {oid}") }
}

fn refuse_unsupported(name: &str, algorithm: &Algorithm) -> Result<(), KeyError> {
    if matches!(algorithm, Algorithm::Ed25519 | Algorithm::Ecdsa { .. }) {
        return Ok(());
    }
    let kind = algorithm.as_str().to_owned();
    Err(KeyError::Unsupported { name: name.to_owned(), kind })
}
