//! Secrets that are encrypted in the configuration itself, by age (age-encryption.org/v1): only the
//! holder of the identity can read them, so git may have them.
//!
//! X25519 alone: a passphrase would cost a second of computing for each value, and what git holds
//! must not be able to ask for that.

use std::io::Read as _;
use std::str::FromStr as _;

use age::armor::ArmoredReader;
use age::x25519::{Identity, Recipient};
use age::{DecryptError, Decryptor};
use causes::chain;
use secrecy::{ExposeSecret as _, SecretString};

/// The largest secret, in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// How an identity begins.
const IDENTITY: &str = "AGE-SECRET-KEY-1";

/// What encrypted secrets are read with.
#[derive(Clone)]
pub struct Identities(Vec<Identity>);

/// Prints how many there are: they are secrets.
impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Identities").field(&self.0.len()).finish()
    }
}

impl Identities {
    /// Reads the lines of an identity file as `age-keygen` writes it.
    ///
    /// # Errors
    /// What is wrong with it, without its text.
    pub fn parse(text: &SecretString) -> Result<Self, String> {
        let lines = text.expose_secret().lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut all = Vec::new();
        for (at, line) in lines.enumerate() {
            if !line.starts_with(IDENTITY) {
                return Err(format!("key {} does not begin with {IDENTITY}", at + 1));
            }
            let identity = Identity::from_str(line)
                .map_err(|reason| format!("key {} is no X25519 identity: {reason}", at + 1))?;
            all.push(identity);
        }
        if all.is_empty() { Err("it has no identity".to_owned()) } else { Ok(Self(all)) }
    }

    /// A new identity, as its file.
    pub fn generate() -> (Self, SecretString) {
        let identity = Identity::generate();
        let text = format!(
            "# recipient: {}\n{}\n",
            identity.to_public(),
            identity.to_string().expose_secret()
        );
        (Self(vec![identity]), SecretString::from(text))
    }

    /// The recipients for which secrets must be encrypted, such as `age1…`.
    pub fn recipients(&self) -> Vec<String> {
        self.0.iter().map(|identity| identity.to_public().to_string()).collect()
    }

    /// The secret in an armored text.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn decrypt(&self, armored: &str) -> Result<SecretString, String> {
        let broken = |error: &DecryptError| format!("it is no age file: {}", chain(error));
        let reader = ArmoredReader::new(armored.trim().as_bytes());
        let decryptor = Decryptor::new_buffered(reader).map_err(|error| broken(&error))?;
        if decryptor.is_scrypt() {
            return Err("it is encrypted by a passphrase".to_owned());
        }
        let identities = self.0.iter().map(|identity| identity as &dyn age::Identity);
        let plain = decryptor.decrypt(identities).map_err(|error| {
            if matches!(error, DecryptError::NoMatchingKeys) {
                return format!("it is not encrypted for {}", self.recipients().join(" or "));
            }
            broken(&error)
        })?;
        let mut text = String::new();
        plain
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| format!("it cannot be read: {error}"))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
        Ok(SecretString::from(text))
    }
}

/// Encrypts a secret for a recipient such as `age1…`, as an armored text.
///
/// # Errors
/// What is wrong with the recipient.
pub fn encrypt(recipient: &str, secret: &SecretString) -> Result<String, String> {
    let known = Recipient::from_str(recipient)
        .map_err(|reason| format!("`{recipient}` is no recipient of age: {reason}"))?;
    age::encrypt_and_armor(&known, secret.expose_secret().as_bytes()).map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: a secret is read by the identity that it was encrypted for, and by no other.

    #[test]
    fn a_secret_comes_back_by_its_own_identity_alone() {
        let (own, file) = Identities::generate();
        let (other, _) = Identities::generate();
        let armored = encrypt(&own.recipients()[0], &SecretString::from("hunter2")).unwrap();
        assert!(armored.starts_with("-----BEGIN AGE ENCRYPTED FILE-----"), "{armored}");
        let again = Identities::parse(&file).unwrap();
        assert_eq!(again.decrypt(&armored).unwrap().expose_secret(), "hunter2");
        let refused = other.decrypt(&armored).unwrap_err();
        assert_eq!(refused, format!("it is not encrypted for {}", other.recipients()[0]));
    }

    #[test]
    fn what_is_no_secret_of_ours_is_refused_by_name() {
        let (own, _) = Identities::generate();
        let of = |text: &str| own.decrypt(text).unwrap_err();
        assert!(of("hunter2").starts_with("it is no age file: "), "{}", of("hunter2"));
        let whole = encrypt(&own.recipients()[0], &SecretString::from("hunter2")).unwrap();
        let cut: String = whole.lines().take(3).collect::<Vec<_>>().join("\n");
        assert!(of(&cut).starts_with("it "), "{}", of(&cut));
        let locked = age::scrypt::Recipient::new("pass".to_owned().into());
        let locked = age::encrypt_and_armor(&locked, b"hunter2").unwrap();
        assert_eq!(of(&locked), "it is encrypted by a passphrase");
        let long = encrypt(&own.recipients()[0], &SecretString::from("x".repeat(70_000))).unwrap();
        assert_eq!(of(&long), "it has more than 65536 bytes");
    }

    #[test]
    fn a_wrong_identity_is_named_without_its_text() {
        let of = |text: &str| Identities::parse(&SecretString::from(text)).unwrap_err();
        assert_eq!(of("# only a comment\n"), "it has no identity");
        assert_eq!(of("hunter2"), "key 1 does not begin with AGE-SECRET-KEY-1");
        assert!(!of("AGE-SECRET-KEY-1HUNTER2").contains("HUNTER2"));
    }
}
