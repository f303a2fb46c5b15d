//! Login tickets and the tokens against cross-site writes (behaviour section 3).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const LIFE: u64 = 2 * 60 * 60;
const TOLERANCE: u64 = 5 * 60;

/// Signs and checks tickets; the key is derived, so that a simulation repeats itself.
pub struct Signer {
    key: Mutex<[u8; 32]>,
}

impl Signer {
    /// A signer with a key made of this seed.
    pub fn new(seed: &str) -> Self {
        Self { key: Mutex::new(Sha256::digest(seed.as_bytes()).into()) }
    }

    fn key(&self) -> MutexGuard<'_, [u8; 32]> {
        self.key.lock()
    }

    /// Takes another key: nothing that was signed before is good any more.
    pub fn rotate(&self) {
        let mut key = self.key();
        *key = Sha256::digest(&key[..]).into();
    }

    /// A login ticket.
    pub fn ticket(&self, userid: &str, now: u64) -> String {
        let plain = format!("PVE:{userid}:{now:08X}");
        format!("{plain}::{}", self.sign(&plain))
    }

    /// The user of a ticket that is genuine and not too old.
    pub fn verify(&self, ticket: &str, now: u64) -> Option<String> {
        let (plain, signature) = ticket.split_once("::")?;
        let (userid, time) = plain.strip_prefix("PVE:")?.rsplit_once(':')?;
        let made = u64::from_str_radix(time, 16).ok()?;
        let fresh = made <= now + TOLERANCE && now <= made + LIFE + TOLERANCE;
        let genuine = same(&self.sign(plain), signature);
        (fresh && genuine).then(|| userid.to_owned())
    }

    /// The token that writes with a ticket must carry.
    pub fn csrf(&self, userid: &str, now: u64) -> String {
        let time = format!("{now:08X}");
        let signature = self.sign(&format!("csrf:{time}:{userid}"));
        format!("{time}:{}", signature.trim_end_matches('='))
    }

    /// Whether such a token is genuine and not too old.
    pub fn verify_csrf(&self, token: &str, userid: &str, now: u64) -> bool {
        let Some((time, _)) = token.split_once(':') else { return false };
        let Ok(made) = u64::from_str_radix(time, 16) else { return false };
        made <= now + TOLERANCE
            && now <= made + LIFE + TOLERANCE
            && same(&self.csrf(userid, made), token)
    }

    /// A token secret in the shape of a random UUID.
    pub fn uuid(&self, what: &str) -> String {
        let digest: [u8; 32] = Sha256::digest([&self.key()[..], what.as_bytes()].concat()).into();
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    fn sign(&self, text: &str) -> String {
        let key = *self.key();
        STANDARD.encode(Sha256::digest([&key[..], text.as_bytes(), &key[..]].concat()))
    }
}

/// Compares secrets without telling where they differ.
pub fn same(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_ends_every_ticket() {
        let signer = Signer::new("x");
        let ticket = signer.ticket("ci@pve", 10_000);
        signer.rotate();
        assert_eq!(signer.verify(&ticket, 10_000), None);
        let fresh = signer.ticket("ci@pve", 10_000);
        assert_eq!(signer.verify(&fresh, 10_000), Some("ci@pve".into()));
    }

    #[test]
    fn a_ticket_lives_two_hours_and_five_minutes() {
        let signer = Signer::new("x");
        let ticket = signer.ticket("ci@pve", 10_000);
        assert_eq!(signer.verify(&ticket, 10_000 + 7_500), Some("ci@pve".into()));
        assert_eq!(signer.verify(&ticket, 10_000 + 7_501), None);
        assert_eq!(signer.verify(&ticket.replace("ci@", "xi@"), 10_000), None);
        assert_eq!(Signer::new("y").verify(&ticket, 10_000), None);
    }

    #[test]
    fn a_csrf_token_belongs_to_one_user() {
        let signer = Signer::new("x");
        let token = signer.csrf("ci@pve", 10_000);
        assert!(signer.verify_csrf(&token, "ci@pve", 10_000));
        assert!(!signer.verify_csrf(&token, "root@pam", 10_000));
        assert!(!signer.verify_csrf("x", "ci@pve", 10_000));
    }
}
