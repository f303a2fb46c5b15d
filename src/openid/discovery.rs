//! What a provider says of itself (OpenID Connect Discovery 1.0).

use reqwest::Url;
use serde::Deserialize;

use crate::fault::Fault;

/// Where the document is, behind the issuer.
const PLACE: &str = "/.well-known/openid-configuration";

/// The document as it is written, of which drover needs this.
#[derive(Debug, Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    id_token_signing_alg_values_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// A provider's endpoints and ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Discovery {
    /// As its tokens say it.
    pub(crate) issuer: String,
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) keys: Url,
    pub(crate) userinfo: Option<Url>,
    /// Where people log out (OpenID Connect RP-Initiated Logout 1.0).
    pub(crate) end_session: Option<Url>,
    /// Whether the client's secret goes into the body, and not into the header.
    pub(crate) secret_in_body: bool,
    /// The algorithms it may sign tokens by, as it says; empty where it says nothing.
    pub(crate) algorithms: Vec<String>,
    /// Whether it says that it takes no proof key of SHA-256.
    pub(crate) lacks_proof_key: bool,
    /// Whether it says in each answer whose it is (RFC 9207).
    pub(crate) names_issuer: bool,
}

/// Where the document of an issuer is.
pub(crate) fn place(issuer: &str) -> Result<Url, Fault> {
    let text = format!("{}{PLACE}", issuer.trim_end_matches('/'));
    Url::parse(&text).map_err(|why| Fault::Setup(format!("`{issuer}` is no URL: {why}")))
}

impl Discovery {
    /// Reads the document of the provider that the configuration calls `wanted`.
    pub(crate) fn read(body: &[u8], wanted: &str) -> Result<Self, Fault> {
        let wrong = |what: String| Fault::Discovery { what };
        let said: Document = serde_json::from_slice(body)
            .map_err(|error| wrong(format!("not what it needs: {error}")))?;
        // People leave the last slash out; tokens have it as the provider writes it.
        if said.issuer.trim_end_matches('/') != wanted.trim_end_matches('/') {
            return Err(Fault::Issuer { said: bounded(&said.issuer), wanted: wanted.to_owned() });
        }
        let is_plain = wanted.starts_with("http://");
        let endpoint = |name: &str, text: &str| {
            let url = Url::parse(text).ok().filter(|url| {
                url.host_str().is_some()
                    && (url.scheme() == "https" || is_plain && url.scheme() == "http")
            });
            url.ok_or_else(|| wrong(format!("no https address as `{name}`: `{}`", bounded(text))))
        };
        let methods = said.token_endpoint_auth_methods_supported.unwrap_or_default();
        let has = |name: &str| methods.iter().any(|method| method == name);
        Ok(Self {
            authorization: endpoint("authorization_endpoint", &said.authorization_endpoint)?,
            token: endpoint("token_endpoint", &said.token_endpoint)?,
            keys: endpoint("jwks_uri", &said.jwks_uri)?,
            userinfo: match said.userinfo_endpoint {
                Some(text) => Some(endpoint("userinfo_endpoint", &text)?),
                None => None,
            },
            end_session: match said.end_session_endpoint {
                Some(text) => Some(endpoint("end_session_endpoint", &text)?),
                None => None,
            },
            secret_in_body: has("client_secret_post") && !has("client_secret_basic"),
            algorithms: said.id_token_signing_alg_values_supported.unwrap_or_default(),
            lacks_proof_key: said
                .code_challenge_methods_supported
                .is_some_and(|methods| !methods.iter().any(|method| method == "S256")),
            names_issuer: said.authorization_response_iss_parameter_supported,
            issuer: said.issuer,
        })
    }
}

/// A foreign text as messages quote it: short, and without what no line shows.
pub(crate) fn bounded(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let plain = |letter: char| if is_odd(letter) { ' ' } else { letter };
    let mut short: String = text.trim().chars().take(CHARS_MAX).map(plain).collect();
    if text.trim().chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

/// Whether a letter is invisible, or turns the direction of a line.
pub(crate) fn is_odd(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://id.example.com/realms/ci";

    fn document() -> Value {
        json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example.com/auth?kind=x",
            "token_endpoint": "https://id.example.com/token",
            "jwks_uri": "https://keys.example.com/",
        })
    }

    fn read(document: &Value, wanted: &str) -> Result<Discovery, Fault> {
        Discovery::read(document.to_string().as_bytes(), wanted)
    }

    // Invariant: only the provider that the configuration names says where logins go, and all of it is https.

    #[test]
    fn the_document_is_beneath_the_issuer() {
        let wanted = "https://id.example.com/realms/ci/.well-known/openid-configuration";
        for issuer in [ISSUER, "https://id.example.com/realms/ci/"] {
            assert_eq!(place(issuer).unwrap().as_str(), wanted);
        }
    }

    #[test]
    fn a_document_is_of_the_provider_that_is_configured_alone() {
        assert_eq!(read(&document(), ISSUER).unwrap().issuer, ISSUER);
        let slashed = format!("{ISSUER}/");
        assert_eq!(read(&document(), &slashed).unwrap().issuer, ISSUER, "as the provider says it");
        let text = read(&document(), "https://id.example.com").unwrap_err().to_string();
        assert!(text.contains("calls itself `https://id.example.com/realms/ci`"), "{text}");
    }

    #[test]
    fn endpoints_without_tls_or_missing_ones_are_refused() {
        for (name, value) in [
            ("authorization_endpoint", json!("http://id.example.com/auth")),
            ("token_endpoint", json!("javascript:alert(1)")),
            ("jwks_uri", json!("/keys")),
            ("userinfo_endpoint", json!("http://id.example.com/me")),
            ("end_session_endpoint", json!("javascript:alert(1)")),
        ] {
            let mut document = document();
            document[name] = value;
            let text = read(&document, ISSUER).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
        let mut less = document();
        less.as_object_mut().unwrap().remove("jwks_uri");
        assert!(read(&less, ISSUER).unwrap_err().to_string().contains("jwks_uri"));
        assert!(Discovery::read(b"<html>", ISSUER).is_err());
        // A provider on this machine may be plain.
        let plain = document().to_string().replace("https://", "http://");
        assert!(Discovery::read(plain.as_bytes(), &ISSUER.replace("https", "http")).is_ok());
    }

    #[test]
    fn the_secret_goes_into_the_body_only_where_the_header_is_not_taken() {
        for (methods, in_body) in [
            (json!(null), false),
            (json!(["client_secret_basic", "client_secret_post"]), false),
            (json!(["client_secret_post"]), true),
            (json!(["private_key_jwt"]), false),
        ] {
            let mut document = document();
            document["token_endpoint_auth_methods_supported"] = methods.clone();
            assert_eq!(read(&document, ISSUER).unwrap().secret_in_body, in_body, "{methods}");
        }
    }

    #[test]
    fn foreign_texts_are_short_and_plain_in_messages() {
        assert_eq!(bounded(" a\r\nb\u{202e}c "), "a  b c");
        let long = bounded(&"x".repeat(1000));
        assert_eq!(long.chars().count(), 201);
    }
}
