//! Checks of an ID token (OpenID Connect Core 1.0, 3.1.3.7). Nothing is asked and nothing is kept here: the
//! time, the keys and what is expected are arguments.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subtle::ConstantTimeEq as _;

use crate::discovery::bounded;
use crate::fault::TokenFault;
use crate::keys::{Algorithm, Keys, Unproven};

/// How far the clocks of provider and drover may differ, in seconds.
pub(crate) const SKEW_SECS: i64 = 60;
/// The longest token that is looked at, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// The claims of a token or of `userinfo`.
pub(crate) type Claims = Map<String, Value>;

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client: &'a str,
    pub(crate) nonce: &'a str,
    /// Seconds since 1970.
    pub(crate) now: i64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token in its parts, of which nothing is proven yet.
struct Parts<'a> {
    header: Header,
    claims: &'a str,
    signed: &'a str,
    signature: Vec<u8>,
}

/// The claims of a token that was proven to be the provider's, for this login, and in its time.
pub(crate) fn check(
    token: &str,
    keys: &Keys,
    expected: Expected<'_>,
) -> Result<Claims, TokenFault> {
    let parts = parts(token)?;
    // The algorithm is drover's choice: what the token says only picks one of two.
    let algorithm = Algorithm::of(&parts.header.alg)
        .ok_or_else(|| TokenFault::Algorithm(bounded(&parts.header.alg)))?;
    if parts.header.crit.is_some() {
        return Err(TokenFault::Shape("its header has `crit`, which drover does not know"));
    }
    let id = parts.header.kid.as_deref();
    keys.prove((algorithm, id), parts.signed.as_bytes(), &parts.signature).map_err(
        |why| match why {
            Unproven::NoKey => TokenFault::UnknownKey(bounded(id.unwrap_or_default())),
            Unproven::Wrong => TokenFault::Signature,
        },
    )?;
    let claims: Claims =
        decoded(parts.claims).ok_or(TokenFault::Shape("its claims cannot be read"))?;
    says(&claims, expected)?;
    Ok(claims)
}

fn parts(token: &str) -> Result<Parts<'_>, TokenFault> {
    if token.len() > BYTES_MAX {
        return Err(TokenFault::Shape("it is too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Shape("it has no parts"))?;
    let (header, claims) = signed
        .split_once('.')
        .filter(|(_, claims)| !claims.contains('.'))
        .ok_or(TokenFault::Shape("it has not three parts"))?;
    let header = decoded(header).ok_or(TokenFault::Shape("its header cannot be read"))?;
    let signature = URL_SAFE_NO_PAD.decode(signature);
    let signature = signature.map_err(|_| TokenFault::Shape("its signature cannot be read"))?;
    Ok(Parts { header, claims, signed, signature })
}

fn decoded<T: DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Whether claims are by this issuer, for this client and login, and in their time.
fn says(claims: &Claims, expected: Expected<'_>) -> Result<(), TokenFault> {
    let text = |name: &'static str| claims.get(name).and_then(Value::as_str);
    let issuer = text("iss").ok_or(TokenFault::Missing("iss"))?;
    if issuer != expected.issuer {
        return Err(TokenFault::Issuer(bounded(issuer)));
    }
    for_client(claims, expected.client)?;
    let expires = seconds(claims, "exp")?.ok_or(TokenFault::Missing("exp"))?;
    if expires.saturating_add(SKEW_SECS) <= expected.now {
        return Err(TokenFault::Expired(expected.now.abs_diff(expires)));
    }
    seconds(claims, "iat")?.ok_or(TokenFault::Missing("iat"))?;
    for name in ["iat", "nbf"] {
        let from = seconds(claims, name)?.unwrap_or(expected.now);
        if from > expected.now.saturating_add(SKEW_SECS) {
            return Err(TokenFault::Early(from.abs_diff(expected.now)));
        }
    }
    let nonce = text("nonce").unwrap_or_default();
    if !bool::from(nonce.as_bytes().ct_eq(expected.nonce.as_bytes())) {
        return Err(TokenFault::Nonce);
    }
    text("sub").filter(|sub| !sub.is_empty()).map(drop).ok_or(TokenFault::Missing("sub"))
}

fn for_client(claims: &Claims, client: &str) -> Result<(), TokenFault> {
    let missing = TokenFault::Missing("aud");
    let audience: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => {
            all.iter().map(Value::as_str).collect::<Option<_>>().ok_or(missing)?
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            return Err(missing);
        }
    };
    if !audience.contains(&client) {
        let quoted = audience.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
        return Err(TokenFault::Audience(bounded(&quoted)));
    }
    match claims.get("azp") {
        Some(Value::String(party)) if party == client => Ok(()),
        Some(Value::String(party)) => Err(TokenFault::Party(bounded(party))),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_),
        ) => Err(TokenFault::Missing("azp")),
        None if audience.len() > 1 => Err(TokenFault::NoParty),
        None => Ok(()),
    }
}

/// A time of the claims, in whole seconds.
fn seconds(claims: &Claims, name: &'static str) -> Result<Option<i64>, TokenFault> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    // Some providers write fractions.
    let whole = value.as_i64().or_else(|| {
        let number = value.as_f64().filter(|number| number.abs() < 1e15)?;
        format!("{number:.0}").parse().ok()
    });
    whole.map(Some).ok_or(TokenFault::Missing(name))
}
