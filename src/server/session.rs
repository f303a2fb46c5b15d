//! Sessions of the page: who logged in, in a signed cookie.
//!
//! The server keeps nothing of a session. The cookie says which token logged in and until when; a session
//! ends with its time, and with its token, once the configuration does not have that token any more. Of somebody
//! who logged in at the provider the cookie says the groups, and each request asks the configuration again what
//! they may do; such a session ends with its time, with the provider, or once no group of theirs comes in.
//! Members of a store sign with one key, so a session goes on after a change of leader.
//!
//! ```text
//! drover_session=BASE64URL(JSON of Session or Person).HEX(HMAC-SHA-256 of that JSON and of its kind)
//! drover_login=BASE64URL(JSON of Login).HEX(…)     while a person is at the provider
//! ```
//!
//! Browsers send cookies by themselves, also where another site made the request. Therefore a request with a
//! cookie that may change something counts only with [`CSRF_HEADER`], which another site cannot know
//! (OWASP, Cross-Site Request Forgery Prevention: HMAC-based token).

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_openid::Attempt;
use drover_vault::ClusterKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::auth::{Auth, Caller};
use super::hex::hex;
use super::openid::{LOGIN_AGE_MAX_MS, OpenId};

/// The cookie's name.
const COOKIE: &str = "drover_session";
/// The cookie of a login that is under way at the provider.
const LOGIN_COOKIE: &str = "drover_login";
/// The longest place of this service that a login leads to, in bytes.
const NEXT_BYTES_MAX: usize = 1024;
/// How far the clocks of two members may differ, in milliseconds.
const SKEW_MS: i64 = 60_000;
/// The header that a request of the page has which changes something.
pub(super) const CSRF_HEADER: &str = "x-csrf-token";
/// How long a session lasts, in milliseconds: a day.
const AGE_MAX_MS: i64 = 24 * 60 * 60 * 1000;
/// The longest cookie that is looked at, in bytes: browsers keep 4096 with its name and attributes (RFC 6265,
/// 6.1).
const BYTES_MAX: usize = 3800;
/// What is signed is of one kind alone.
const OF_TOKEN: &str = "session";
const OF_PERSON: &str = "session at the provider";
const OF_LOGIN: &str = "login at the provider";
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

/// What a cookie says of somebody who logged in at the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Person {
    name: String,
    /// Their groups then, those first that come in.
    groups: Vec<String>,
    /// A mark of the provider, which only this key makes.
    mark: String,
    /// Since when, in milliseconds since 1970.
    since: i64,
}

/// A login that is under way at the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) attempt: Attempt,
    /// Where it leads on this service.
    pub(super) next: String,
    /// A mark of the provider, which only this key makes.
    mark: String,
    /// Until when, in milliseconds since 1970.
    pub(super) until: i64,
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
        self.seal(OF_TOKEN, &Session { token: name.to_owned(), mark: self.mark(token), until })
    }

    /// The value of a cookie for who logged in at the provider, with as many of their groups as it has room
    /// for, those first that come in.
    pub(super) fn sealed_person(
        &self,
        openid: &OpenId,
        name: &str,
        groups: Vec<String>,
        now_ms: i64,
    ) -> String {
        let (name, groups) = (name.to_owned(), openid.sorted(groups));
        let mut person = Person { name, groups, mark: self.mark_of(openid), since: now_ms };
        loop {
            let sealed = self.seal(OF_PERSON, &person);
            if sealed.len() <= BYTES_MAX || person.groups.is_empty() {
                return sealed;
            }
            // Base64 has four letters for three bytes; one group at least goes.
            let mut over = (sealed.len() - BYTES_MAX) * 3 / 4;
            while let Some(group) = person.groups.pop() {
                over = over.saturating_sub(group.len() + 3);
                if over == 0 {
                    break;
                }
            }
        }
    }

    /// The value of a cookie for a login that is under way, which leads to `next`.
    pub(super) fn sealed_login(
        &self,
        openid: &OpenId,
        attempt: Attempt,
        next: &str,
        now_ms: i64,
    ) -> String {
        let next = if next.len() <= NEXT_BYTES_MAX { next } else { "/" }.to_owned();
        let until = now_ms.saturating_add(LOGIN_AGE_MAX_MS);
        self.seal(OF_LOGIN, &Login { attempt, next, mark: self.mark_of(openid), until })
    }

    /// The login that is under way in a browser.
    pub(super) fn login(&self, headers: &HeaderMap, openid: &OpenId, now_ms: i64) -> Option<Login> {
        let login: Login = self.open(OF_LOGIN, cookie(headers, LOGIN_COOKIE)?)?;
        let is_in_time = now_ms < login.until && login.until - now_ms <= LOGIN_AGE_MAX_MS + SKEW_MS;
        (is_in_time && login.mark == self.mark_of(openid)).then_some(login)
    }

    fn mark_of(&self, openid: &OpenId) -> String {
        hex(&self.digest("provider", openid.mark().as_bytes())[..16])
    }

    fn seal(&self, kind: &str, said: &impl Serialize) -> String {
        let said = serde_json::to_vec(said).unwrap_or_default();
        let mac = hex(&self.digest(kind, &said));
        format!("{}.{mac}", URL_SAFE_NO_PAD.encode(said))
    }

    /// What was sealed, where this key did it and it is of that kind.
    fn open<T: DeserializeOwned>(&self, kind: &str, sealed: &str) -> Option<T> {
        let (said, mac) = sealed.split_once('.')?;
        let said = URL_SAFE_NO_PAD.decode(said).ok()?;
        let wanted = hex(&self.digest(kind, &said));
        let is_ours = bool::from(mac.as_bytes().ct_eq(wanted.as_bytes()));
        is_ours.then(|| serde_json::from_slice(&said).ok())?
    }

    /// What a session of these headers sends along where it changes something; none without a cookie.
    pub(super) fn csrf(&self, headers: &HeaderMap) -> Option<String> {
        cookie(headers, COOKIE).map(|cookie| hex(&self.digest("csrf", cookie.as_bytes())[..16]))
    }

    /// Whether a request proves that the page made it.
    pub(super) fn is_of_page(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.csrf(headers) else { return false };
        let shown = headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        shown.ct_eq(wanted.as_bytes()).into()
    }

    /// Whether the session of these headers is of somebody who logged in at this provider.
    pub(super) fn is_of_provider(&self, headers: &HeaderMap, openid: &OpenId) -> bool {
        let person =
            cookie(headers, COOKIE).and_then(|sealed| self.open::<Person>(OF_PERSON, sealed));
        person.is_some_and(|person| person.mark == self.mark_of(openid))
    }

    /// Who logged in, where the cookie is one of ours and in its time, and its token is still there or its
    /// person still comes in.
    pub(super) fn caller(&self, headers: &HeaderMap, auth: &Auth, now_ms: i64) -> Option<Caller> {
        self.caller_of(sealed(headers)?, auth, now_ms)
    }

    /// The same of the cookie's value.
    pub(super) fn caller_of(&self, sealed: &str, auth: &Auth, now_ms: i64) -> Option<Caller> {
        if let Some(person) = self.open::<Person>(OF_PERSON, sealed) {
            let openid = auth.openid()?;
            let age = now_ms.saturating_sub(person.since);
            let is_in_time = (-SKEW_MS..openid.session_ms).contains(&age);
            let is_of = is_in_time && person.mark == self.mark_of(openid);
            return is_of.then(|| auth.person(&person.name, &person.groups))?;
        }
        let session: Session = self.open(OF_TOKEN, sealed)?;
        let is_in_time = now_ms < session.until && session.until - now_ms <= AGE_MAX_MS;
        let is_of = |token: &[u8; 32]| self.mark(token) == session.mark;
        auth.token(&session.token, is_of).filter(|_| is_in_time)
    }
}

/// The `Set-Cookie` of a session; a blank value ends it. `Lax`: a link from elsewhere, such as a chat, opens
/// the page of somebody who is logged in.
pub(super) fn set_cookie(value: &str, is_secure: bool) -> String {
    set_cookie_for(value, AGE_MAX_MS, is_secure)
}

/// The same for so many milliseconds.
pub(super) fn set_cookie_for(value: &str, age_ms: i64, is_secure: bool) -> String {
    spelled((COOKIE, value, "/"), age_ms, is_secure)
}

/// The `Set-Cookie` of a login that is under way at the provider; a blank value ends it. `Lax`, since the
/// provider sends the person back.
pub(super) fn set_login_cookie(value: &str, is_secure: bool) -> String {
    spelled((LOGIN_COOKIE, value, "/login/openid"), LOGIN_AGE_MAX_MS, is_secure)
}

fn spelled((name, value, path): (&str, &str, &str), age_ms: i64, is_secure: bool) -> String {
    let age = if value.is_empty() { 0 } else { age_ms / 1000 };
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={age}{secure}")
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

/// The value of the cookie of a session.
pub(super) fn sealed(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE)
}

fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim() == wanted)?;
    (value.len() <= BYTES_MAX).then_some(value.trim())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Duration;

    use actix_web::http::header::HeaderName;
    use drover_api::Role;
    use secrecy::SecretString;

    use super::*;
    use crate::auth::{TokenGrant, digest};
    use crate::openid::GroupGrant;

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

    // Invariant: a session of the provider lasts as long as the configuration says, and says what it allows.

    #[test]
    fn a_session_of_the_provider_ends_with_its_time_its_key_and_its_provider() {
        let openid = |issuer: &str, hours: u64| {
            let settings = drover_openid::testing::settings(issuer, "https://d");
            let grants = vec![GroupGrant { name: "ci".into(), role: Role::Operator, group: None }];
            OpenId::new("id".into(), settings, grants, Duration::from_secs(hours * 3600))
        };
        let with_openid = |issuer, hours| auth("s3cret").with_openid(Some(openid(issuer, hours)));
        let key = SessionKey::new([7; 32]);
        let ours = openid("https://id", 8);
        let sealed = key.sealed_person(&ours, "ann", vec!["x".into(), "ci".into()], NOW);
        let headers = with(&sealed);
        let known = with_openid("https://id", 8);
        let caller = key.caller(&headers, &known, NOW).unwrap();
        assert_eq!((caller.principal.as_str(), caller.role), ("openid:ann", Role::Operator));
        let later = NOW + 8 * 3_600_000;
        assert!(key.caller(&headers, &known, later - 1).is_some());
        assert_eq!(key.caller(&headers, &known, later), None);
        // The configuration says now that it is shorter.
        assert_eq!(key.caller(&headers, &with_openid("https://id", 1), later - 1), None);
        assert_eq!(key.caller(&headers, &known, NOW - SKEW_MS - 1), None);
        assert_eq!(key.caller(&headers, &with_openid("https://other", 8), NOW), None);
        assert_eq!(key.caller(&headers, &auth("s3cret"), NOW), None);
        assert_eq!(SessionKey::new([8; 32]).caller(&headers, &known, NOW), None);
        let none = key.sealed_person(&ours, "ann", vec!["x".into()], NOW);
        assert_eq!(key.caller(&with(&none), &known, NOW), None);
    }

    #[test]
    fn a_login_at_the_provider_is_over_after_ten_minutes() {
        let settings = drover_openid::testing::settings("https://id", "https://d");
        let openid = OpenId::new("id".into(), settings, Vec::new(), Duration::ZERO);
        let key = SessionKey::new([7; 32]);
        let attempt = Attempt::new().unwrap();
        let sealed = key.sealed_login(&openid, attempt.clone(), "/agents", NOW);
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("{LOGIN_COOKIE}={sealed}")).unwrap();
        headers.insert(header::COOKIE, value);
        let login = key.login(&headers, &openid, NOW + LOGIN_AGE_MAX_MS - 1).unwrap();
        assert_eq!((login.attempt, &*login.next), (attempt, "/agents"));
        assert_eq!(key.login(&headers, &openid, NOW + LOGIN_AGE_MAX_MS), None);
        assert_eq!(SessionKey::new([8; 32]).login(&headers, &openid, NOW), None);
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
