//! The login of a GitHub App: a statement signed with its key, valid for minutes, is exchanged for
//! a token of its installation, valid for an hour.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rustls::SignatureScheme;
use rustls::sign::SigningKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::super::error::DemandError;

/// How long before its end a token is no longer used.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_mins(5);
/// How long a statement is valid: GitHub accepts ten minutes at most, and clocks differ.
const STATEMENT_VALIDITY: SignedDuration = SignedDuration::from_mins(8);
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// The settings of a GitHub App.
#[derive(Debug, Clone)]
pub struct AppSpec {
    /// The App's id or client id.
    pub id: String,
    /// The installation; none to look up the one of the scope.
    pub installation: Option<u64>,
    /// The private key in PEM.
    pub key: SecretString,
}

/// Reads an App's private key.
///
/// # Errors
/// What is wrong with the key, for people; never a part of it.
pub fn parse(pem: &SecretString) -> Result<Arc<dyn SigningKey>, String> {
    let der = PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes())
        .map_err(|_| "it is not a private key in PEM format".to_owned())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&der)
        .map_err(|_| "the private key cannot be read".to_owned())?;
    let rsa = key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]);
    rsa.map(|_| Arc::clone(&key)).ok_or_else(|| "it is not an RSA key".to_owned())
}

/// The statement that identifies the App (a JSON Web Token, RS256; RFC 7519).
pub(super) fn statement(spec: &AppSpec, now: Timestamp) -> Result<SecretString, DemandError> {
    let broken = |what: String| DemandError::Setup(format!("the App's key: {what}"));
    let key = parse(&spec.key).map_err(broken)?;
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "iat": (now - CLOCK_SKEW).as_second(), "exp": (now + STATEMENT_VALIDITY).as_second(), "iss": spec.id,
    });
    let text = format!("{}.{}", part(json!({"alg": "RS256", "typ": "JWT"})), part(claims));
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .ok_or_else(|| broken("it is not an RSA key".into()))?;
    let signature = signer.sign(text.as_bytes()).map_err(|error| broken(error.to_string()))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
}

/// A token of an installation.
#[derive(Deserialize)]
pub(super) struct InstallationToken {
    pub token: SecretString,
    expires_at: String,
}

impl InstallationToken {
    /// Whether the token is still valid for a call at this time.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at.parse::<Timestamp>().is_ok_and(|end| now + TOKEN_MARGIN < end)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: a token is replaced before GitHub ends it, and one without a readable date at
    // once.

    #[test]
    fn a_token_is_used_until_five_minutes_before_its_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let token = |end: &str| InstallationToken { token: "t".into(), expires_at: end.into() };
        assert!(token("2026-01-01T00:05:01Z").is_fresh(now));
        assert!(!token("2026-01-01T00:05:00Z").is_fresh(now));
        assert!(!token("soon").is_fresh(now));
    }

    // Invariant: only an RSA key can sign for an App.

    #[test]
    fn a_key_that_is_none_is_reported_without_being_shown() {
        let broken = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        for (pem, said) in [("hush-hush", "not a private key in PEM"), (broken, "cannot be read")] {
            let why = parse(&pem.to_owned().into()).unwrap_err();
            assert!(why.contains(said) && !why.contains("hush"), "{why}");
        }
    }
}
