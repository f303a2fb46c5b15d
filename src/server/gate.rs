//! The gate before each route: who calls, whether the route is theirs, and the body that comes along.
//!
//! In goes the [`Guard`] of a route and a request of which only the head is read; out goes the request
//! with its [`Caller`] and its whole body, or a refusal. Wrong tokens of a peer are counted, and after
//! too many it is not heard for some seconds.

use std::sync::Arc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, web};
use drover_api::Role;

use super::auth::{Auth, Caller, digest};
use super::intake::Sender;
use super::peer::{LocalPeer, Peer, peer_of};
use super::problem::Rejection;
use super::query;
use super::seat::Seat;
use super::share::Share;
use super::state::State;

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
}

/// Refuses a request by its head, or says whose body it has.
pub(super) type First = fn(&State, &ServiceRequest) -> Result<Sender, Rejection>;

impl Guard {
    /// Of what takes no body.
    pub(super) fn of(access: Access) -> Self {
        Self { access, first: None, body_limit: 0, takes_any_kind: true, takes_query: true }
    }
}

/// Lets a request through to its route, or refuses it with the reason, before any of its body is
/// read. What the caller needs is said by the route that the router matched.
pub(super) async fn pass(
    guard: Guard,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let Some(state) = request.app_data::<web::Data<State>>().cloned() else {
        return Ok(request.error_response(unauthorized("the service is not set up")));
    };
    match enter(guard, &state, &mut request).await {
        Ok(Entered { command, _body }) => {
            let response = next.call(request).await?;
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
    state: &State,
    request: &mut ServiceRequest,
) -> Result<Entered, Rejection> {
    let seat = request.conn_data::<Arc<Seat>>().cloned();
    let (mut command, mut sender) = (None, Sender::Anybody);
    if let Access::Least(role) = guard.access {
        let caller = identify(state, request)?;
        if caller.role < role {
            return Err(forbidden(format!(
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
        sender = first(state, request)?;
    }
    // What takes no body has its own answer for one: it is not read.
    let bodiless = matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE);
    if bodiless || guard.body_limit == 0 {
        return Ok(Entered { command, _body: None });
    }
    if let Some(kind) = other_kind(request).filter(|_| !guard.takes_any_kind) {
        return Err(Rejection::not_json(kind));
    }
    if let Some(coding) = coding(request) {
        return Err(Rejection::coded(coding));
    }
    let peer = peer_of(request);
    let body = state.intake.read(request, (peer, sender), guard.body_limit).await?;
    if let Some(seat) = seat {
        seat.has_body()?;
    }
    Ok(Entered { command, _body: Some(body) })
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

fn identify(state: &State, request: &ServiceRequest) -> Result<Caller, Rejection> {
    let auth = state.auth();
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let Some(token) = token else {
            return Err(unauthorized("the Authorization header must be `Bearer TOKEN`"));
        };
        return by_token(state, &auth, peer_of(request), token);
    }
    match request.conn_data::<LocalPeer>() {
        Some(peer) => auth.local(*peer).ok_or_else(|| {
            forbidden(format!(
                "user {} (group {}) is not the service's own user and is not listed; list it in \
                 the configuration with a role, or use a token",
                peer.uid, peer.gid
            ))
        }),
        None => Err(unauthorized("give a token as `Authorization: Bearer TOKEN`")),
    }
}

/// Who shows this token. After too many wrong ones from a peer no token of it is looked at for some
/// seconds, but those that were right from there before: others behind the same address go on.
fn by_token(state: &State, auth: &Auth, peer: Peer, token: &str) -> Result<Caller, Rejection> {
    let (now, shown) = (Instant::now(), digest(token));
    if !state.right_tokens.knows(peer, shown) {
        state.wrong_tokens.admits(peer, now).map_err(Rejection::too_many)?;
    }
    match auth.bearer(token) {
        Some(caller) => {
            state.right_tokens.note(peer, shown);
            Ok(caller)
        }
        None => {
            state.wrong_tokens.in_vain(peer, now);
            Err(unauthorized("no token of the configuration is the one given"))
        }
    }
}

fn forbidden(detail: String) -> Rejection {
    Rejection::new(StatusCode::FORBIDDEN, "forbidden", "the caller may not do this", detail)
}

fn unauthorized(detail: &str) -> Rejection {
    Rejection::new(StatusCode::UNAUTHORIZED, "unauthorized", "the caller is not known", detail)
}
