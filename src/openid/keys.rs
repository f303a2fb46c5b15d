//! A provider's keys (RFC 7517), and signatures by them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// Keys that are read of one provider.
const KEYS_MAX: usize = 64;
/// The bytes of the shortest modulus that proves anything: 2048 bits.
const MODULUS_BYTES_MIN: usize = 256;

/// The algorithms that prove a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

/// A key as it is published.
#[derive(Deserialize)]
struct Published {
    kty: String,
    #[serde(rename = "use")]
    used_for: Option<String>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Public {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point of P-256, not compressed.
    Point(Vec<u8>),
}

/// A key that may prove tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    public: Public,
}

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// None of these keys could have made it.
    NoKey,
    /// The key that should have made it did not.
    Wrong,
}

/// The keys of a provider that drover can use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Keys(Vec<Key>);

impl Keys {
    /// Reads a set of keys; those that prove nothing here are left out.
    pub(crate) fn read(body: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let read = |one| serde_json::from_value(one).ok().and_then(key);
        Ok(Self(set.keys.into_iter().take(KEYS_MAX).filter_map(read).collect()))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether a signature of a message is by the key of this name, or by any where none is named.
    pub(crate) fn prove(
        &self,
        (algorithm, id): (Algorithm, Option<&str>),
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Unproven> {
        let is_meant = |key: &&Key| {
            key.algorithm == algorithm && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        let mut tried = self.0.iter().filter(is_meant).peekable();
        tried.peek().ok_or(Unproven::NoKey)?;
        let is_proven = tried.any(|key| key.public.proves(message, signature));
        // Without a name, a newer key may be the one that is meant.
        let otherwise = if id.is_some() { Unproven::Wrong } else { Unproven::NoKey };
        if is_proven { Ok(()) } else { Err(otherwise) }
    }
}

impl Public {
    fn proves(&self, message: &[u8], signature: &[u8]) -> bool {
        let proven = match self {
            Self::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::Point(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
        };
        proven.is_ok()
    }
}

/// A published key, where it may prove tokens by an algorithm that counts.
fn key(published: Published) -> Option<Key> {
    if published.used_for.is_some_and(|of| of != "sig") {
        return None;
    }
    let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok();
    let (algorithm, public) = match published.kty.as_str() {
        "RSA" => {
            let modulus = bytes(published.n)?.into_iter().skip_while(|byte| *byte == 0);
            let (modulus, exponent) = (modulus.collect::<Vec<_>>(), bytes(published.e)?);
            if modulus.len() < MODULUS_BYTES_MIN {
                return None;
            }
            (Algorithm::Rs256, Public::Rsa { modulus, exponent })
        }
        "EC" if published.crv.as_deref() == Some("P-256") => {
            let (x, y) = (bytes(published.x)?, bytes(published.y)?);
            let is_whole = x.len() == 32 && y.len() == 32;
            let point = [&[4][..], &x, &y].concat();
            (Algorithm::Es256, Public::Point(is_whole.then_some(point)?))
        }
        _ => return None,
    };
    let is_named = published.alg.is_none_or(|name| name == algorithm.name());
    is_named.then_some(Key { id: published.kid, algorithm, public })
}
