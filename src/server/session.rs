//! Sessions of the page: who logged in, in a signed cookie.
//!
//! The server keeps nothing of a session. The cookie says which token logged in and until when; a session
//! ends with its time, and with its token, once the configuration does not have that token any more. Members of
//! a store sign with one key, so a session goes on after a change of leader.
//!
//! ```text
//! drover_session=BASE64URL(JSON of Session).HEX(HMAC-SHA-256 of that JSON)
//! ```
//!
//! Browsers send cookies by themselves, also where another site made the request. Therefore a request with a
//! cookie that may change something counts only with [`CSRF_HEADER`], which another site cannot know
//! (OWASP, Cross-Site Request Forgery Prevention: HMAC-based token).

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_vault::ClusterKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::auth::{Auth, Caller};
use super::hex::hex;

/// The cookie's name.
const COOKIE: &str = "drover_session";
/// The header that a request of the page has which changes something.
pub(super) const CSRF_HEADER: &str = "x-csrf-token";
/// How long a session lasts, in milliseconds: a day.
const AGE_MAX_MS: i64 = 24 * 60 * 60 * 1000;
/// The longest cookie that is looked at, in bytes.
const BYTES_MAX: usize = 2048;
/// What the digest of the members' key is for.
const PURPOSE: &str = "drover page sessions 1";

/// The key that sessions are signed with.
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey")
    }
}

/// What a cookie says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// The name of the token that logged in.
    token: String,
    /// A mark of the token itself, which only this key makes.
    mark: String,
    /// Until when, in milliseconds since 1970.
    until: i64,
}

impl SessionKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The key that all members of a store have.
    pub fn of_members(key: &ClusterKey) -> Self {
        Self(key.digest(PURPOSE, b""))
    }

    fn digest(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        // HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return [0; 32] };
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    fn mark(&self, token: &[u8; 32]) -> String {
        hex(&self.digest("token", token)[..16])
    }

    /// The value of a cookie for the bearer of this token.
    pub(super) fn sealed(&self, name: &str, token: &[u8; 32], now_ms: i64) -> String {
        let until = now_ms.saturating_add(AGE_MAX_MS);
        let session = Session { token: name.to_owned(), mark: self.mark(token), until };
        let said = serde_json::to_vec(&session).unwrap_or_default();
        let mac = hex(&self.digest("session", &said));
        format!("{}.{mac}", URL_SAFE_NO_PAD.encode(said))
    }

    /// What a session of these headers sends along where it changes something; none without a cookie.
    pub(super) fn csrf(&self, headers: &HeaderMap) -> Option<String> {
        cookie(headers).map(|cookie| hex(&self.digest("csrf", cookie.as_bytes())[..16]))
    }

    /// Whether a request proves that the page made it.
    pub(super) fn is_of_page(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.csrf(headers) else { return false };
        let shown = headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        shown.ct_eq(wanted.as_bytes()).into()
    }

    /// Who logged in, where the cookie is one of ours, in its time, and of a token that is still there.
    pub(super) fn caller(&self, headers: &HeaderMap, auth: &Auth, now_ms: i64) -> Option<Caller> {
        let (said, mac) = cookie(headers)?.split_once('.')?;
        let said = URL_SAFE_NO_PAD.decode(said).ok()?;
        let wanted = hex(&self.digest("session", &said));
        if !bool::from(mac.as_bytes().ct_eq(wanted.as_bytes())) {
            return None;
        }
        let session: Session = serde_json::from_slice(&said).ok()?;
        let is_in_time = now_ms < session.until && session.until - now_ms <= AGE_MAX_MS;
        let is_of = |token: &[u8; 32]| self.mark(token) == session.mark;
        auth.token(&session.token, is_of).filter(|_| is_in_time)
    }
}

/// The `Set-Cookie` of a session; a blank value ends it. `Lax`: a link from elsewhere, such as a chat, opens
/// the page of somebody who is logged in.
pub(super) fn set_cookie(value: &str, is_secure: bool) -> String {
    let age = if value.is_empty() { 0 } else { AGE_MAX_MS / 1000 };
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}")
}

/// Whether a request comes from this service's page or from no page, as far as the browser says (Fetch
/// Metadata; the origin, RFC 6454). Programs say nothing.
pub(super) fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return ["same-origin", "none"].contains(&site);
    }
    match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host))
        }
        (Some(_), None) => false,
        (None, _) => true,
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim() == COOKIE)?;
    (value.len() <= BYTES_MAX).then_some(value.trim())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use actix_web::http::header::HeaderName;
    use drover_api::Role;
    use secrecy::SecretString;

    use super::*;
    use crate::auth::{TokenGrant, digest};

    const NOW: i64 = 1_795_000_000_000;

    fn auth(secret: &str) -> Auth {
        let secret = SecretString::from(secret);
        Auth::new([TokenGrant { name: "ops".into(), role: Role::Operator, secret }], Vec::new())
    }

    fn with(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("a=b; {COOKIE}={cookie}")).unwrap();
        headers.insert(header::COOKIE, value);
        headers
    }

    // Invariant: a session is who logged in, for a day, while the token is in the configuration.

    #[test]
    fn a_session_ends_with_its_time_its_token_and_its_key() {
        let key = SessionKey::new([7; 32]);
        let cookie = key.sealed("ops", &digest("s3cret"), NOW);
        let headers = with(&cookie);
        let caller = key.caller(&headers, &auth("s3cret"), NOW).unwrap();
        assert_eq!((caller.principal.as_str(), caller.role), ("token:ops", Role::Operator));
        let later = NOW + AGE_MAX_MS;
        assert!(key.caller(&headers, &auth("s3cret"), later - 1).is_some());
        assert_eq!(key.caller(&headers, &auth("s3cret"), later), None);
        // From before the clock was set back by more than a day.
        assert_eq!(key.caller(&headers, &auth("s3cret"), NOW - 1), None);
        assert_eq!(key.caller(&headers, &auth("another"), NOW), None);
        assert_eq!(SessionKey::new([8; 32]).caller(&headers, &auth("s3cret"), NOW), None);
    }

    #[test]
    fn a_cookie_that_was_changed_is_nobodys() {
        let key = SessionKey::new([7; 32]);
        let cookie = key.sealed("ops", &digest("s3cret"), NOW);
        let (said, mac) = cookie.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(
            String::from_utf8(URL_SAFE_NO_PAD.decode(said).unwrap()).unwrap().replace("ops", "adm"),
        );
        for wrong in [format!("{other}.{mac}"), said.to_owned(), format!("{said}."), ".".to_owned()]
        {
            assert_eq!(key.caller(&with(&wrong), &auth("s3cret"), NOW), None, "{wrong}");
        }
        let long = format!("{cookie}{}", "0".repeat(BYTES_MAX));
        assert_eq!(key.caller(&with(&long), &auth("s3cret"), NOW), None);
    }

    // Invariant: no other site can change anything in somebody's name.

    #[test]
    fn only_who_read_the_page_can_send_what_a_change_needs() {
        let key = SessionKey::new([7; 32]);
        let mut headers = with(&key.sealed("ops", &digest("s3cret"), NOW));
        assert!(!key.is_of_page(&headers));
        let csrf = key.csrf(&headers).unwrap();
        let mut put = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            headers.insert(HeaderName::from_static(CSRF_HEADER), value);
            key.is_of_page(&headers)
        };
        assert!(put(&csrf));
        assert!(!put("") && !put(&csrf[1..]) && !put(&csrf.to_uppercase().replace('0', "1")));
        assert!(!key.is_of_page(&HeaderMap::new()));
    }

    #[test]
    fn what_another_site_made_a_browser_send_is_recognized() {
        let with = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                let name = HeaderName::from_static(name);
                headers.insert(name, HeaderValue::from_static(value));
            }
            is_own(&headers)
        };
        assert!(with(&[]));
        assert!(with(&[("sec-fetch-site", "same-origin"), ("origin", "https://proxy")]));
        assert!(!with(&[("sec-fetch-site", "cross-site")]));
        assert!(!with(&[("sec-fetch-site", "same-site")]));
        assert!(with(&[("origin", "http://ci:8080"), ("host", "ci:8080")]));
        assert!(!with(&[("origin", "http://evil"), ("host", "ci:8080")]));
        assert!(!with(&[("origin", "null"), ("host", "ci:8080")]));
    }
}
