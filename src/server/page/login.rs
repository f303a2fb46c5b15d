//! The way in: a token for a session. `openid.rs` has the way by the provider, `logout.rs` the way out.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use drover_page::{LoginPage, Written};
use serde::Deserialize;

use crate::answers::{Answer, Asked, leads_to, page_of};
use crate::audited;
use crate::auth::{Auth, digest};
use crate::forwarded::Voucher;
use crate::gate;
use crate::house::{House, now};
use crate::peer::peer_of;
use crate::problem::Rejection;
use crate::query::Keys;
use crate::session::{is_own, set_cookie};

/// Where a login leads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Next {
    #[serde(default)]
    pub(super) next: String,
}

impl Keys for Next {
    const TAKEN: &'static str = "`next` is taken";
}

/// Shows the form for a token.
pub(super) async fn form(
    house: web::Data<House>,
    Asked(Next { next }): Asked<Next>,
) -> HttpResponse {
    shown(&house.auth(), &within(&next), StatusCode::OK, None)
}

/// Takes the form: who has a token gets a session.
pub(super) async fn enter(
    request: HttpRequest,
    house: web::Data<House>,
    body: web::Bytes,
) -> Answer {
    // A member that forwarded it has looked: only that one knows by which name the browser came.
    let is_forwarded = request.extensions().get::<Voucher>().is_some();
    if !is_forwarded && !is_own(request.headers()) {
        return Err(Rejection::forbidden("another site sent this form; log in at /login").into());
    }
    let (mut token, mut next) = (String::new(), String::new());
    for (name, value) in form_urlencoded::parse(&body) {
        match &*name {
            "token" => token = value.trim().to_owned(),
            "next" => next = value.into_owned(),
            _ => {}
        }
    }
    let next = within(&next);
    let auth = house.auth();
    match gate::by_token(&house, &auth, peer_of(&request), &token) {
        Ok(caller) => {
            audited::note_asker(&request, &caller.principal, Some(caller.role));
            let name = caller.principal.strip_prefix("token:").unwrap_or_default();
            let sealed = house.sessions.sealed(name, &digest(&token), now().0);
            tracing::info!(principal = caller.principal, "logged in at the page");
            let mut answer = leads_to(&next);
            put(&mut answer, &set_cookie(&sealed, is_secure(request.headers())));
            Ok(answer)
        }
        Err(problem) if problem.document.status == StatusCode::UNAUTHORIZED.as_u16() => {
            let fault = Some("No token of the configuration is this one.".to_owned());
            Ok(shown(&auth, &next, StatusCode::UNAUTHORIZED, fault))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// The form, with why the last try failed.
pub(super) fn shown(
    auth: &Auth,
    next: &str,
    status: StatusCode,
    fault: Option<String>,
) -> HttpResponse {
    let provider = auth.openid().map(|openid| &*openid.name);
    let takes_tokens = provider.is_none() || auth.has_tokens();
    page_of(status, LoginPage::new(next, provider, takes_tokens, fault).written())
}

pub(super) fn put(answer: &mut HttpResponse, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// A place of this service; the herd where it is none. Browsers take `//host` and `/\host` for other sites.
pub(super) fn within(next: &str) -> String {
    let is_path = next.starts_with('/') && !next[1..].starts_with(['/', '\\']);
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path && is_plain { next.to_owned() } else { "/".to_owned() }
}

/// Whether the browser came by TLS, as the proxy before drover says.
pub(super) fn is_secure(headers: &HeaderMap) -> bool {
    let said = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    // Of several proxies the first one met the browser.
    let first = said.and_then(|said| said.split(',').next()).map(str::trim);
    first.is_some_and(|first| first.eq_ignore_ascii_case("https"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a login leads nowhere but here, and no other site logs anybody in.

    #[test]
    fn a_login_leads_to_a_place_of_this_service() {
        for (next, wanted) in [
            ("/agents?q=ready", "/agents?q=ready"),
            ("//evil.org", "/"),
            ("/\\evil.org", "/"),
            ("https://evil.org", "/"),
            ("/a\r\nset-cookie: x", "/"),
            ("", "/"),
        ] {
            assert_eq!(within(next), wanted, "{next}");
        }
    }
}
