//! Answers that people read in a browser: HTML with its headers, refusals as pages, style and script.

use std::fmt;
use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use actix_web::{FromRequest, HttpRequest, HttpResponse, HttpResponseBuilder, ResponseError, web};
use drover_page::{FaultPage, Written};

use crate::problem::Rejection;
use crate::query::{Keys, Query};

/// What a page may load and do: what comes from this service, and nothing that is written in the page itself
/// (CSP level 3).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A page, or why it is refused.
pub(super) type Answer = Result<HttpResponse, Refused>;

/// A refusal that people read in a browser.
#[derive(Debug)]
pub(super) struct Refused(Rejection);

impl<T: Into<Rejection>> From<T> for Refused {
    fn from(why: T) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        self.0.status_code()
    }

    fn error_response(&self) -> HttpResponse {
        fault(&self.0)
    }
}

/// The query of a page.
pub(super) struct Asked<T>(pub T);

impl<T: Keys> FromRequest for Asked<T> {
    type Error = Refused;
    type Future = Ready<Result<Self, Refused>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let read = Query::<T>::from_request(request, payload).into_inner();
        ready(read.map(|Query(asked)| Self(asked)).map_err(Refused))
    }
}

/// A page as the answer 200.
pub(super) fn html(page: &impl Written) -> HttpResponse {
    page_of(StatusCode::OK, page.written())
}

/// A page with another status.
pub(super) fn page_of(status: StatusCode, text: String) -> HttpResponse {
    headed(status).content_type("text/html; charset=utf-8").body(text)
}

fn headed(status: StatusCode) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((X_FRAME_OPTIONS, "DENY"))
        .insert_header((REFERRER_POLICY, "same-origin"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        // It is what one caller may see.
        .insert_header((CACHE_CONTROL, "no-store"));
    answer
}

/// Leads elsewhere on this service.
pub(super) fn leads_to(place: &str) -> HttpResponse {
    let place = HeaderValue::from_str(place).unwrap_or_else(|_| HeaderValue::from_static("/"));
    headed(StatusCode::SEE_OTHER).insert_header((LOCATION, place)).finish()
}

/// What the gate answers in the place of a page: the way in for strangers, else why not.
pub(super) fn refusal(request: &HttpRequest, problem: &Rejection) -> HttpResponse {
    if problem.document.status != StatusCode::UNAUTHORIZED.as_u16() || request.path() == "/login" {
        return fault(problem);
    }
    let asked = request.uri().path_and_query().map_or("/", |place| place.as_str());
    let next: String = form_urlencoded::byte_serialize(asked.as_bytes()).collect();
    leads_to(&format!("/login?next={next}"))
}

/// A refusal for the caller: a page where a browser asks for one.
pub(super) fn for_whom(request: &HttpRequest, problem: &Rejection) -> HttpResponse {
    let accepts = request.headers().get(ACCEPT).and_then(|kinds| kinds.to_str().ok());
    // Browsers name this kind where a person goes to a place; scripts and programs do not.
    match accepts.is_some_and(|kinds| kinds.contains("text/html")) {
        true => fault(problem),
        false => problem.error_response(),
    }
}

fn fault(problem: &Rejection) -> HttpResponse {
    let text = FaultPage::new(problem.document.clone(), problem.retry_after).written();
    let mut answer = page_of(problem.status_code(), text);
    if let Some(seconds) = problem.retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// Style, script and icon. Their addresses change with what they have.
pub(super) async fn asset(name: web::Path<String>) -> Answer {
    let asset = drover_page::asset(&name)
        .ok_or_else(|| Rejection::not_found("the page has no such file"))?;
    let mut answer = headed(StatusCode::OK);
    answer.insert_header((CACHE_CONTROL, "public, max-age=31536000, immutable"));
    Ok(answer.content_type(asset.kind).body(asset.text))
}
