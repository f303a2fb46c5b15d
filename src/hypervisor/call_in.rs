//! Call-in tokens: the secrets with which guests without a guest agent identify themselves when
//! they call drover, once each.
//!
//! A token is an agent's id and a digest of it under a key that only this service has
//! (HMAC-SHA-256, cut to 128 bits). So no token needs to be stored: after a restart it is
//! recognized again. Whether the agent waits for a call is checked by the agent itself.

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

/// The name of the key file in the state directory.
const KEY_FILE: &str = "call-in.key";
/// The length of the key.
const KEY_BYTES: usize = 32;
/// The length of an agent's id, with which a token starts.
const AGENT_ID_CHARS: usize = 16;
/// How many bytes of the digest a token has.
const DIGEST_BYTES: usize = 16;

/// The key of all tokens of this service.
pub struct CallInKey(Hmac<Sha256>);

impl fmt::Debug for CallInKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallInKey")
    }
}

impl CallInKey {
    pub fn from_bytes(key: [u8; KEY_BYTES]) -> Self {
        // HMAC fills a key shorter than a block with zeros (RFC 2104).
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..KEY_BYTES].copy_from_slice(&key);
        Self(Hmac::new(&block))
    }

    /// Reads the key from the state directory, or makes one there.
    ///
    /// # Errors
    /// When the key can neither be read nor made, or the file is not a key.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(KEY_FILE);
        match fs::File::open(&path) {
            Ok(file) => Self::read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(&path),
            Err(error) => Err(error),
        }
    }

    fn read(file: fs::File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(33).read_to_end(&mut bytes)?;
        let key: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| {
            let text = format!(
                "`{KEY_FILE}` in the state directory is not a key of 32 bytes: remove it, and the \
                 next start makes a new one"
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok(Self::from_bytes(key))
    }

    /// Writes the file under another name first, so that it is there complete or not at all.
    fn make(path: &Path) -> io::Result<Self> {
        let mut key = [0; KEY_BYTES];
        SysRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
        let beside = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&key)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        Ok(Self::from_bytes(key))
    }

    /// The token for an agent's guest.
    pub fn token(&self, agent: &AgentId) -> SecretString {
        let digest = self.digest(agent);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{agent}{digits}").into()
    }

    /// The agent whose token this is; none for any other text. Takes the same time for right and
    /// wrong digests.
    pub fn agent(&self, token: &str) -> Option<AgentId> {
        let (agent, digits) = token.split_at_checked(AGENT_ID_CHARS)?;
        let agent = AgentId::new(agent);
        if digits.len() != 2 * DIGEST_BYTES || !digits.is_ascii() {
            return None;
        }
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok();
        let said = (0..DIGEST_BYTES).map(byte).collect::<Option<Vec<u8>>>()?;
        bool::from(self.digest(&agent).as_slice().ct_eq(&said)).then_some(agent)
    }

    fn digest(&self, agent: &AgentId) -> [u8; DIGEST_BYTES] {
        let mut whole = self.0.clone();
        whole.update(format!("drover call-in {agent}").as_bytes());
        let whole = whole.finalize().into_bytes();
        let mut kept = [0; DIGEST_BYTES];
        kept.copy_from_slice(&whole[..DIGEST_BYTES]);
        kept
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;

    use super::*;

    // Invariant: a token belongs to one agent, and cannot be made without the key.

    #[test]
    fn only_the_whole_token_of_this_service_names_its_agent() {
        let key = CallInKey::from_bytes([7; KEY_BYTES]);
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        let token = key.token(&agent).expose_secret().to_owned();
        assert_eq!(token.len(), 48);
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(key.agent(&token), Some(agent));
        assert_eq!(CallInKey::from_bytes([8; KEY_BYTES]).agent(&token), None);
        let other = format!("5{}", &token[1..]);
        let last = if token.ends_with('0') { '1' } else { '0' };
        let changed = format!("{}{last}", &token[..47]);
        let signed = format!("{}+{}", &token[..16], &token[17..]);
        for wrong in ["", &token[..47], &other, &changed, &signed, "ü", &"ü".repeat(24)] {
            assert_eq!(key.agent(wrong), None, "{wrong:?}");
        }
    }

    // Invariant: the key stays the same over restarts, and only its owner may read it.

    #[test]
    fn a_key_is_made_once_and_read_by_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let first = CallInKey::open(dir.path()).unwrap();
        let again = CallInKey::open(dir.path()).unwrap();
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        assert_eq!(again.digest(&agent), first.digest(&agent));
        let meta = fs::metadata(dir.path().join(KEY_FILE)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(format!("{first:?}"), "CallInKey");
        fs::write(dir.path().join(KEY_FILE), b"short").unwrap();
        assert!(CallInKey::open(dir.path()).unwrap_err().to_string().contains("32 bytes"));
    }
}
