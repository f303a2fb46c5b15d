//! Call-in tokens: the secrets with which guests without a guest agent identify themselves when
//! they call drover, once each.
//!
//! A token is an agent's id and a digest of it under a key that only this service has
//! (HMAC-SHA-256, cut to 128 bits). So no token needs to be stored: after a restart it is
//! recognized again. Whether the agent waits for a call is checked by the agent itself.

use std::fmt;

use drover_model::id::AgentId;
use drover_vault::{StoreError, Vault};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// The name of the key in the vault.
pub const CALL_IN_KEY: &str = "call-in.key";
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

    /// Reads the key from the vault, or makes one there. Blocks.
    ///
    /// # Errors
    /// When the key can neither be read nor made, or what is there is no key.
    pub fn open(vault: &dyn Vault) -> Result<Self, StoreError> {
        let Some(bytes) = vault.get(CALL_IN_KEY)? else {
            let mut key = [0; KEY_BYTES];
            let drawn = SysRng.try_fill_bytes(&mut key);
            drawn.map_err(|error| {
                StoreError::refused(CALL_IN_KEY, "written", std::io::Error::other(error))
            })?;
            vault.put(CALL_IN_KEY, &key)?;
            return Ok(Self::from_bytes(key));
        };
        let key: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| {
            let text = "it is not a key of 32 bytes: remove it, and the next start makes a new one";
            StoreError::refused(CALL_IN_KEY, "read", text)
        })?;
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

    /// A key for another use, by which no token can be made.
    pub fn derived(&self, purpose: &str) -> [u8; KEY_BYTES] {
        let mut whole = self.0.clone();
        whole.update(format!("drover key {purpose}").as_bytes());
        whole.finalize().into_bytes().into()
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

    use causes::chain;
    use drover_vault::MemoryVault;
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

    // Invariant: the key stays the same over restarts.

    #[test]
    fn a_key_is_made_once() {
        let vault = MemoryVault::default();
        let first = CallInKey::open(&vault).unwrap();
        let again = CallInKey::open(&vault).unwrap();
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        assert_eq!(again.digest(&agent), first.digest(&agent));
        assert_eq!(format!("{first:?}"), "CallInKey");
        vault.put(CALL_IN_KEY, b"short").unwrap();
        let refused = chain(&CallInKey::open(&vault).unwrap_err());
        assert!(refused.contains("`call-in.key` could not be read: it is not a key"), "{refused}");
    }
}
