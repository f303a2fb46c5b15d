//! The gate before each route: who calls, whether the route is theirs, and the body that comes along.
//!
//! In goes the [`Guard`] of a route and a request of which only the head is read; out goes the request
//! with its [`Caller`] and its whole body, or a refusal. Wrong tokens of a peer are counted, and after
//! too many it is not heard for some seconds.

use std::sync::Arc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, web};
use drover_api::Role;

use super::answers;
use super::audited;
use super::auth::{Auth, Caller, digest};
use super::forwarded::{Forged, Voucher, digest_of};
use super::house::{House, now};
use super::intake::Sender;
use super::peer::{LocalPeer, Peer, peer_of};
use super::problem::Rejection;
use super::query;
use super::seat::Seat;
use super::session::{CSRF_HEADER, is_own};
use super::share::Share;

/// What the caller of a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: the route is open, or proves its callers by other means.
    Open,
    /// At least this role.
    Least(Role),
}

/// What is asked of a request before its body is read.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    pub access: Access,
    /// The route's own question where it is open: who proves nothing by the head alone is refused.
    pub first: Option<First>,
    /// The most bytes of a body.
    pub body_limit: usize,
    /// Whether the handler decides what kind of body it takes, and not the head.
    pub takes_any_kind: bool,
    /// Whether the handler reads a query.
    pub takes_query: bool,
    /// Whether people read the answers in a browser, those that refuse them too.
    pub is_page: bool,
    /// Whether what is done is part of something that the audit log has as a whole.
    pub is_part: bool,
}

/// Refuses a request by its head, or says whose body it has.
pub(super) type First = fn(&House, &ServiceRequest) -> Result<Sender, Rejection>;

impl Guard {
    /// Of what takes no body.
    pub(super) fn of(access: Access) -> Self {
        Self {
            access,
            first: None,
            body_limit: 0,
            takes_any_kind: true,
            takes_query: true,
            is_page: false,
            is_part: false,
        }
    }
}

/// Lets a request through to its route, or refuses it with the reason, before any of its body is
/// read. What the caller needs is said by the route that the router matched.
pub(super) async fn pass(
    guard: Guard,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let Some(house) = request.app_data::<web::Data<House>>().cloned() else {
        return Ok(request.error_response(Rejection::unauthorized("the service is not set up")));
    };
    audited::note_route(&request);
    let entered = match enter(guard, &house, &mut request).await {
        Ok(_) if !request.method().is_safe() && !audited::may_go_on(&house.audit).await => {
            Err(Rejection::unaudited())
        }
        entered => entered,
    };
    match entered {
        Ok(Entered { command, _body }) => {
            let response = next.call(request).await?;
            if guard.is_part && response.status().is_success() {
                audited::note_recorded(response.request());
                return Ok(response);
            }
            if let Some(principal) = command {
                let (request, status) = (response.request(), response.status().as_u16());
                let (method, path) = (request.method(), request.path());
                if method.is_safe() {
                    tracing::debug!(principal, %method, ?path, status, "request answered");
                } else {
                    tracing::info!(principal, %method, ?path, status, "request answered");
                }
            }
            Ok(response)
        }
        Err(problem) if guard.is_page => {
            let answer = answers::refusal(request.request(), &problem);
            Ok(request.into_response(answer))
        }
        Err(problem) => Ok(request.error_response(problem)),
    }
}

/// A request that may go on to its handler.
struct Entered {
    /// Who made it, where it may change something.
    command: Option<String>,
    /// Its body counts until it is answered.
    _body: Option<Share<Peer>>,
}

async fn enter(
    guard: Guard,
    house: &House,
    request: &mut ServiceRequest,
) -> Result<Entered, Rejection> {
    let seat = request.conn_data::<Arc<Seat>>().cloned();
    let (mut command, mut sender) = (None, Sender::Anybody);
    if let Access::Least(role) = guard.access {
        let caller = identify(house, request)?;
        audited::note_asker(request, &caller.principal, Some(caller.role));
        if caller.role < role {
            return Err(Rejection::forbidden(format!(
                "`{}` has the role {}, and this needs {role}; use a token of that role",
                caller.principal, caller.role
            )));
        }
        if let Some(seat) = &seat {
            seat.know();
        }
        sender = Sender::Known;
        command = (role > Role::Viewer).then(|| caller.principal.clone());
        request.extensions_mut().insert(caller);
        // What probes and CI systems add to the address of an open route is their own.
        if !guard.takes_query {
            query::unasked(request.query_string())?;
        }
    } else if let Some(first) = guard.first {
        sender = first(house, request)?;
    }
    // What takes no body has its own answer for one: it is not read.
    if is_bodiless(request.method()) || guard.body_limit == 0 {
        return Ok(Entered { command, _body: None });
    }
    if let Some(kind) = other_kind(request).filter(|_| !guard.takes_any_kind) {
        return Err(Rejection::not_json(kind));
    }
    if let Some(coding) = coding(request) {
        return Err(Rejection::coded(coding));
    }
    let peer = peer_of(request.request());
    let (body, bytes) = house.intake.read(request, (peer, sender), guard.body_limit).await?;
    let word = request.extensions().get::<Voucher>().map(|voucher| voucher.body.clone());
    if word.is_some_and(|digest| digest != digest_of(&bytes)) {
        return Err(Rejection::unauthorized(&Forged::OtherCall.to_string()));
    }
    if let Some(seat) = seat {
        seat.has_body()?;
    }
    Ok(Entered { command, _body: Some(body) })
}

/// Whether a method takes no body anywhere.
pub(super) fn is_bodiless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::DELETE)
}

/// The coding of a body that does not come as it is, such as `gzip`.
fn coding(request: &ServiceRequest) -> Option<&str> {
    let named = request.headers().get(header::CONTENT_ENCODING)?;
    let coding = named.to_str().unwrap_or("unreadable").trim();
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then_some(coding)
}

/// The kind of a body that says that it is no JSON. What clients send who say nothing of their body
/// counts as JSON: `application/x-www-form-urlencoded` of `curl -d`, `text/plain` of a browser's
/// `fetch`.
fn other_kind(request: &ServiceRequest) -> Option<&str> {
    let headers = request.headers();
    let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    if is_empty && !headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    let whole = headers.get(header::CONTENT_TYPE)?.to_str().unwrap_or("unreadable");
    let kind = whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = matches!(
        kind.as_str(),
        "" | "application/json"
            | "text/json"
            | "application/x-www-form-urlencoded"
            | "text/plain"
            | "application/octet-stream"
    );
    (!is_json && !kind.ends_with("+json")).then_some(whole)
}

/// Who makes a request: whose token it shows; else whom another member vouches for, where one
/// forwards it; else the user at the other end of the Unix socket; else who logged in at the page.
fn identify(house: &House, request: &ServiceRequest) -> Result<Caller, Rejection> {
    let auth = house.auth();
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let Some(token) = bearer(value) else {
            return Err(Rejection::unauthorized("the Authorization header must be `Bearer TOKEN`"));
        };
        return by_token(house, &auth, peer_of(request.request()), token);
    }
    let voucher = request.extensions().get::<Voucher>().cloned();
    let caller = match (voucher, request.conn_data::<LocalPeer>()) {
        (Some(voucher), _) => voucher.caller,
        (None, Some(peer)) => {
            of_own_site(request)?;
            Some(local(&auth, *peer)?)
        }
        (None, None) => None,
    };
    if let Some(caller) = caller {
        return Ok(caller);
    }
    let session = house.sessions.caller(request.headers(), &auth, now().0);
    let detail = "give a token as `Authorization: Bearer TOKEN`";
    let caller = session.ok_or_else(|| Rejection::unauthorized(detail))?;
    // A browser sends the cookie no matter who made the request.
    if !request.method().is_safe() && !house.sessions.is_of_page(request.headers()) {
        return Err(Rejection::forbidden(format!(
            "a session changes something only with the header `{CSRF_HEADER}` that the page sends; load \
             the page again"
        )));
    }
    Ok(caller)
}

/// Refuses what another site made a browser send: it may reach the socket by a forward or a proxy.
///
/// # Errors
/// 403.
pub(super) fn of_own_site(request: &ServiceRequest) -> Result<(), Rejection> {
    if request.method().is_safe() || is_own(request.headers()) {
        return Ok(());
    }
    Err(Rejection::forbidden("another site made the browser send this"))
}

/// The token of an `Authorization` header.
pub(super) fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Who a user of the Unix socket is, where they may come in.
pub(super) fn local(auth: &Auth, peer: LocalPeer) -> Result<Caller, Rejection> {
    auth.local(peer).ok_or_else(|| {
        Rejection::forbidden(format!(
            "user {} (group {}) is not the service's own user and is not listed; list it in \
             the configuration with a role, or use a token",
            peer.uid, peer.gid
        ))
    })
}

/// Who shows this token. After too many wrong ones from a peer no token of it is looked at for some
/// seconds, but those that were right from there before: others behind the same address go on.
pub(super) fn by_token(
    house: &House,
    auth: &Auth,
    peer: Peer,
    token: &str,
) -> Result<Caller, Rejection> {
    let (now, shown) = (Instant::now(), digest(token));
    if !house.right_tokens.knows(peer, shown) {
        house.wrong_tokens.admits(peer, now).map_err(Rejection::too_many)?;
    }
    match auth.bearer(token) {
        Some(caller) => {
            house.right_tokens.note(peer, shown);
            Ok(caller)
        }
        None => {
            house.wrong_tokens.in_vain(peer, now);
            Err(Rejection::unauthorized("no token of the configuration is the one given"))
        }
    }
}
