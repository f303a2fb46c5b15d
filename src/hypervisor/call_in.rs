//! The secrets by which guests without a guest agent say who they are, once, when they call.
//!
//! A token is an agent's id and a digest of it under a key that only this service has
//! (HMAC-SHA-256, cut to 128 bits). So none has to be written down: after a restart it is known
//! again, and what it is good for is the agent's own matter (it must be waiting for the call).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use drover_model::id::AgentId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// The name of the key in the state directory.
const FILE: &str = "call-in.key";
/// Bytes of the key.
const KEY: usize = 32;
/// Characters of an agent's id, which a token begins with.
const AGENT: usize = 16;
/// Bytes of the digest that are kept.
const KEPT: usize = 16;

/// The key of all tokens of this service.
pub struct CallInKey(Hmac<Sha256>);

impl fmt::Debug for CallInKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallInKey")
    }
}

impl CallInKey {
    /// A key of these bytes.
    pub fn of(key: [u8; KEY]) -> Self {
        // A key shorter than a block is filled up with zeros (RFC 2104).
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..KEY].copy_from_slice(&key);
        Self(Hmac::new(&block))
    }

    /// Reads the key from the state directory, or makes one there.
    ///
    /// # Errors
    /// When it can neither be read nor made, or is no key.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        match fs::File::open(&path) {
            Ok(file) => Self::read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(&path),
            Err(error) => Err(error),
        }
    }

    fn read(file: fs::File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(33).read_to_end(&mut bytes)?;
        let key: [u8; KEY] = bytes.try_into().map_err(|_| {
            let text =
                format!("`{FILE}` is no key of 32 bytes; take it away to have a new one made");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok(Self::of(key))
    }

    /// Whole or not at all: under another name first.
    fn make(path: &Path) -> io::Result<Self> {
        let mut key = [0; KEY];
        SysRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
        let beside = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&key)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        Ok(Self::of(key))
    }

    /// The token of an agent's guest.
    pub fn token(&self, agent: &AgentId) -> SecretString {
        let digest = self.digest(agent);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{agent}{digits}").into()
    }

    /// Whose token it is; none when it is nobody's. The time it takes tells nothing.
    pub fn agent(&self, token: &str) -> Option<AgentId> {
        let (agent, digits) = token.split_at_checked(AGENT)?;
        let agent = AgentId::new(agent);
        if digits.len() != 2 * KEPT || !digits.is_ascii() {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok();
        let said = (0..KEPT).map(byte).collect::<Option<Vec<u8>>>()?;
        bool::from(self.digest(&agent).as_slice().ct_eq(&said)).then_some(agent)
    }

    fn digest(&self, agent: &AgentId) -> [u8; KEPT] {
        let mut whole = self.0.clone();
        whole.update(format!("drover call-in {agent}").as_bytes());
        let whole = whole.finalize().into_bytes();
        let mut kept = [0; KEPT];
        kept.copy_from_slice(&whole[..KEPT]);
        kept
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;

    use super::*;

    // Invariant: a token is its agent's alone, and cannot be made without the key.

    #[test]
    fn only_the_whole_token_of_this_service_names_its_agent() {
        let key = CallInKey::of([7; KEY]);
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        let token = key.token(&agent).expose_secret().to_owned();
        assert_eq!(token.len(), 48);
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(key.agent(&token), Some(agent));
        assert_eq!(CallInKey::of([8; KEY]).agent(&token), None);
        let other = format!("5{}", &token[1..]);
        let last = if token.ends_with('0') { '1' } else { '0' };
        let changed = format!("{}{last}", &token[..47]);
        let signed = format!("{}+{}", &token[..16], &token[17..]);
        for wrong in ["", &token[..47], &other, &changed, &signed, "ü", &"ü".repeat(24)] {
            assert_eq!(key.agent(wrong), None, "{wrong:?}");
        }
    }

    // Invariant: the key stays the same over restarts, and is its owner's alone.

    #[test]
    fn a_key_is_made_once_and_read_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let first = CallInKey::open(dir.path()).unwrap();
        let again = CallInKey::open(dir.path()).unwrap();
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        assert_eq!(again.digest(&agent), first.digest(&agent));
        let meta = fs::metadata(dir.path().join(FILE)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(format!("{first:?}"), "CallInKey");
        fs::write(dir.path().join(FILE), b"short").unwrap();
        assert!(CallInKey::open(dir.path()).unwrap_err().to_string().contains("32 bytes"));
    }
}
