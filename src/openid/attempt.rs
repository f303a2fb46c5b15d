//! What one login begins with, and what of it comes back.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use rand::rngs::SysRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// What nobody else can know of a login: each 256 random bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Comes back with the code: the browser that began a login ends it (RFC 6749, 10.12).
    pub state: String,
    /// Comes back in the token: the token was made for this login.
    pub nonce: String,
    /// Its digest goes to the provider first, and it itself with the code (RFC 7636).
    pub verifier: String,
}

impl Attempt {
    /// A new one; none where the system has no random numbers.
    pub fn new() -> Option<Self> {
        let text = || {
            let mut random = [0; 32];
            SysRng.try_fill_bytes(&mut random).ok()?;
            Some(URL_SAFE_NO_PAD.encode(random))
        };
        Some(Self { state: text()?, nonce: text()?, verifier: text()? })
    }

    /// Whether a state is that of this login.
    pub fn is_of(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }

    /// What the provider learns first of the verifier.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: no two logins have anything in common, and a state is of one login alone.

    #[test]
    fn two_logins_have_nothing_in_common() {
        let (one, other) = (Attempt::new().unwrap(), Attempt::new().unwrap());
        let all =
            [&one, &other].map(|of| [of.state.clone(), of.nonce.clone(), of.verifier.clone()]);
        let all: std::collections::BTreeSet<String> = all.into_iter().flatten().collect();
        assert_eq!(all.len(), 6);
        // RFC 7636, 4.1: 43 letters at least.
        assert!(all.iter().all(|text| text.len() == 43), "{all:?}");
        assert!(one.is_of(&one.state.clone()));
        assert!(!one.is_of(&other.state) && !one.is_of("") && !one.is_of(&one.state[1..]));
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = Attempt { state: String::new(), nonce: String::new(), verifier };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
