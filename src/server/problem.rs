//! Errors as RFC 9457 problem documents: what is wrong, where, and what to do.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, ResponseError};
use drover_actors::message::Refusal;
use drover_api::Problem;
use drover_model::outside::steers;

/// What the body of a refusal is.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";
/// When it is worth asking again for what is refused because too much is there, in seconds.
const AGAIN_SECONDS: u64 = 10;

/// A refusal on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{document}")]
pub struct Rejection {
    /// What the body says.
    pub document: Problem,
    /// The header `Retry-After`: seconds after which the same request is taken.
    pub retry_after: Option<u64>,
}

impl From<Problem> for Rejection {
    fn from(document: Problem) -> Self {
        Self { document, retry_after: None }
    }
}

impl Rejection {
    /// Builds a refusal; `name` ends the kind of its problem.
    pub fn new(status: StatusCode, name: &str, title: &str, detail: impl Into<String>) -> Self {
        Problem::new(status.as_u16(), name, title, detail).into()
    }

    /// The request cannot be understood or breaks a rule.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-request", "the request is not valid", detail)
    }

    /// The configuration has faults.
    pub fn of_configuration(faults: String) -> Self {
        Problem::of_configuration(StatusCode::UNPROCESSABLE_ENTITY.as_u16(), faults).into()
    }

    /// Git could not be read.
    pub fn of_git(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "git", "git could not be read", detail)
    }

    /// Nobody knows the caller.
    pub fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the caller is not known", detail)
    }

    /// The caller's role is too low, or the caller has none.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "the caller may not do this", detail)
    }

    /// No member takes the call now: nothing was done.
    pub fn no_leader(detail: impl Into<String>) -> Self {
        let (name, title) = ("no-leader", "no leader takes the call now");
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, name, title, detail);
        Self { retry_after: Some(1), ..problem }
    }

    /// The leader got a call and did not answer it.
    pub fn lost_leader(detail: impl Into<String>) -> Self {
        let (name, title) = ("unknown-outcome", "the outcome is unknown");
        Self::new(StatusCode::BAD_GATEWAY, name, title, detail)
    }

    /// Nothing of that name.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "there is no such thing", detail)
    }

    /// The herd did not answer in time: the command may have been taken.
    pub fn unknown_outcome() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unknown-outcome",
            "the outcome is unknown",
            "the herd did not answer in time and may still carry this out; repeat the request \
             (a lease with the same idempotencyKey, which answers the same lease)",
        )
    }

    /// Too many commands wait for the herd.
    pub fn busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many commands wait",
            "the herd has more to do than it can; nothing was started, repeat the request later",
        )
    }

    /// Anyone who calls is heard again after a while.
    pub fn too_many(again: Duration) -> Self {
        let seconds = again.as_millis().div_ceil(1000).max(1);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        let problem = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too-many-calls",
            "too many calls",
            format!("wait {seconds} s before the next call"),
        );
        Self { retry_after: Some(seconds), ..problem }
    }

    /// The service has no room for this now.
    pub fn crowded() -> Self {
        let problem = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many requests are under way",
            "nothing was done; repeat the request after some seconds",
        );
        Self { retry_after: Some(5), ..problem }
    }

    /// No record of the call could be written, and the configuration wants one.
    pub fn unaudited() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not-audited",
            "the audit log cannot be written",
            "nothing was done: `service.audit.onFailure` is `refuse`. Make room for the folder `audit` of \
             the state directory, or set it to `goOn`",
        )
    }

    /// The body is larger than the route takes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "the body is too large",
            format!("the body must be at most {limit} bytes"),
        )
    }

    /// The body says that it is something else than JSON.
    pub fn not_json(kind: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "the body is not JSON",
            format!(
                "the body is `{}`; send JSON, with `Content-Type: application/json`",
                printable(kind)
            ),
        )
    }

    /// The body is compressed, or coded otherwise.
    pub fn coded(coding: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "coded-body",
            "the body is coded",
            format!("`Content-Encoding` is `{}`; send the body without it", printable(coding)),
        )
    }

    /// The body does not come.
    pub fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "body-too-slow",
            "the body came too slowly",
            "nothing was done; send the whole body at once: its first bytes within 5 s, from then on \
             16 KiB each second, and all of it within 30 s",
        )
    }

    /// What the herd refused.
    pub fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unknown(text) => Self::not_found(text),
            Refusal::Conflict(text) => {
                Self::new(StatusCode::CONFLICT, "conflict", "it contradicts what stands", text)
            }
            Refusal::TooMany(text) => {
                let (name, title) = ("too-many-leases", "as many as may be are there already");
                let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, name, title, text);
                Self { retry_after: Some(AGAIN_SECONDS), ..problem }
            }
            Refusal::Forbidden(text) => {
                Self::new(StatusCode::FORBIDDEN, "forbidden", "the caller may not do this", text)
            }
            Refusal::Unavailable(text) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "the service takes no work",
                text,
            ),
        }
    }
}

impl ResponseError for Rejection {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        if self.document.status == StatusCode::UNAUTHORIZED.as_u16() {
            response.insert_header(("WWW-Authenticate", "Bearer realm=\"drover\""));
        }
        if let Some(seconds) = self.retry_after {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        let text = serde_json::to_string(&self.document).unwrap_or_default();
        response.content_type(CONTENT_TYPE).body(text)
    }
}

/// Answers what no route is for.
pub(super) async fn no_such_route(request: HttpRequest) -> Rejection {
    Rejection::not_found(format!(
        "no route `{}`; /openapi.json lists all of them",
        printable(request.path())
    ))
}

/// Answers a method that a route does not take.
pub(super) fn method_not_allowed(request: &HttpRequest, allow: &str) -> HttpResponse {
    let rejection = Rejection::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "the route does not take this method",
        format!(
            "`{}` takes {allow}, and does not take {}",
            printable(request.path()),
            printable(request.method().as_str())
        ),
    );
    let mut response = rejection.error_response();
    if let Ok(allow) = HeaderValue::from_str(allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
}

/// Cuts text from outside to what may be repeated in an answer.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|letter| !steers(*letter)).take(120).collect()
}

impl actix_web::Responder for Rejection {
    type Body = actix_web::body::BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        self.error_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: who calls too often hears when to call again, in whole seconds that are enough.

    #[test]
    fn the_time_until_the_next_call_is_rounded_up() {
        for (millis, seconds) in [(6_001, "7"), (6_000, "6"), (1, "1"), (0, "1")] {
            let rejection = Rejection::too_many(Duration::from_millis(millis));
            let answer = rejection.error_response();
            let reported = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            assert_eq!(reported, Some(seconds));
            assert_eq!(rejection.document.detail, format!("wait {seconds} s before the next call"));
        }
    }
}
