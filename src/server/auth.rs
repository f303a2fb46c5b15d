//! Who may do what: bearer tokens over TCP, peer credentials over the Unix socket.
//!
//! Three roles, each including the one before: a viewer reads, an operator also takes and ends
//! leases, retires agents and reconciles, an admin also reaps, reloads and sets the log's level.
//! Which role a route needs is said where the route is (`routes.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, web};
use drover_api::{Peer, Role};
use drover_model::tenant::By;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::crowd;
use super::intake::Sender;
use super::line::Line;
use super::problem::Rejection;
use super::routes::{Access, Guard};
use super::share::Share;
use super::state::State;

/// A bearer token and what it is good for.
pub struct TokenGrant {
    /// Shown as the principal `token:NAME`.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    pub secret: SecretString,
}

/// What a local user or group may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerGrant {
    pub peer: Peer,
    /// What they may do.
    pub role: Role,
}

/// Everybody who may come in; root and the service's own user are always admins on the socket.
#[derive(Default)]
pub struct Auth {
    tokens: Vec<(String, Role, [u8; 32])>,
    peers: Vec<PeerGrant>,
    /// Groups whose leases principals share: of `token:NAME`, `uid:N` and `gid:N`.
    groups: BTreeMap<String, String>,
}

impl Auth {
    /// Takes the configured tokens and peers; only digests of the tokens are kept.
    pub fn new(tokens: impl IntoIterator<Item = TokenGrant>, peers: Vec<PeerGrant>) -> Self {
        let tokens = tokens
            .into_iter()
            .map(|grant| (grant.name, grant.role, digest(grant.secret.expose_secret())))
            .collect();
        Self { tokens, peers, groups: BTreeMap::new() }
    }

    /// With the groups whose leases principals share: of `token:NAME`, `uid:N` and `gid:N`.
    #[must_use]
    pub fn grouped(mut self, groups: BTreeMap<String, String>) -> Self {
        self.groups = groups;
        self
    }

    /// Whether local users other than root and the service's own may come in.
    pub(super) fn admits_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Whether a local user is one of those who may come in.
    pub(super) fn knows(&self, peer: LocalPeer) -> bool {
        self.local(peer).is_some()
    }

    fn bearer(&self, token: &str) -> Option<Caller> {
        let presented = digest(token);
        let mut found = None;
        // No early end: the time taken must not reveal which token was nearest.
        for (name, role, known) in &self.tokens {
            if bool::from(presented.ct_eq(known)) {
                let principal = format!("token:{name}");
                let group = self.groups.get(&principal).cloned();
                found = Some(Caller { principal, role: *role, group });
            }
        }
        found
    }

    fn local(&self, peer: LocalPeer) -> Option<Caller> {
        let own = peer.uid == 0 || peer.uid == peer.service_uid;
        let granted = self.peers.iter().filter(|grant| match grant.peer {
            Peer::Uid(uid) => uid == peer.uid,
            Peer::Gid(gid) => gid == peer.gid,
        });
        let role = granted.map(|grant| grant.role).max();
        let role = if own { Some(Role::Admin) } else { role };
        // What is said of the user itself goes before what is said of its group.
        let principal = format!("uid:{}", peer.uid);
        let group = self.groups.get(&principal);
        let group = group.or_else(|| self.groups.get(&format!("gid:{}", peer.gid))).cloned();
        role.map(|role| Caller { principal, role, group })
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Who makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `token:NAME` or `uid:N`.
    pub principal: String,
    /// What they may do.
    pub role: Role,
    /// The group whose leases are theirs too.
    pub group: Option<String>,
}

impl Caller {
    /// Whose leases they may see and change: an admin everybody's.
    pub fn by(&self) -> By {
        let (principal, group) = (self.principal.clone(), self.group.clone());
        By { principal, group, all: self.role == Role::Admin }
    }
}

/// The process at the other end of the Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalPeer {
    pub uid: u32,
    pub gid: u32,
    pub service_uid: u32,
}

/// Lets a request through to its route, or refuses it with the reason, before any of its body is
/// read. What the caller needs is said by the route that the router matched.
pub(super) async fn gate(
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
    _body: Option<Share<crowd::Peer>>,
}

async fn enter(
    guard: Guard,
    state: &State,
    request: &mut ServiceRequest,
) -> Result<Entered, Rejection> {
    let line = request.conn_data::<Arc<Line>>().cloned();
    let (mut command, mut sender) = (None, Sender::Anybody);
    if let Access::Least(role) = guard.access {
        let caller = identify(state, request)?;
        if caller.role < role {
            return Err(forbidden(format!(
                "`{}` has the role {}, and this needs {role}; use a token of that role",
                caller.principal, caller.role
            )));
        }
        if let Some(line) = &line {
            line.know();
        }
        sender = Sender::Known;
        command = (role > Role::Viewer).then(|| caller.principal.clone());
        request.extensions_mut().insert(caller);
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
    let peer = peer_of(request);
    let body = state.intake.read(request, (peer, sender), guard.body_limit).await?;
    if let Some(line) = line {
        line.has_body()?;
    }
    Ok(Entered { command, _body: Some(body) })
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

/// Who counts for a request's tries and bodies.
pub(super) fn peer_of(request: &ServiceRequest) -> crowd::Peer {
    let known = request.conn_data::<crowd::Peer>().copied();
    known.unwrap_or_else(|| crowd::Peer::at(std::net::Ipv4Addr::UNSPECIFIED.into()))
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
fn by_token(
    state: &State,
    auth: &Auth,
    peer: crowd::Peer,
    token: &str,
) -> Result<Caller, Rejection> {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn auth() -> Auth {
        let token = TokenGrant {
            name: "ci".into(),
            role: Role::Operator,
            secret: SecretString::from("s3cret"),
        };
        let peers = vec![
            PeerGrant { peer: Peer::Uid(7), role: Role::Viewer },
            PeerGrant { peer: Peer::Gid(70), role: Role::Operator },
        ];
        let groups = [("token:ci", "build"), ("gid:70", "lab"), ("uid:9", "own"), ("gid:9", "not")];
        let groups = groups.map(|(whose, group)| (whose.to_owned(), group.to_owned()));
        Auth::new([token], peers).grouped(groups.into())
    }

    fn peer(uid: u32, gid: u32) -> LocalPeer {
        LocalPeer { uid, gid, service_uid: 500 }
    }

    // Invariant: nobody comes in who is not listed.

    #[test]
    fn only_the_whole_token_is_taken() {
        let caller = auth().bearer("s3cret").unwrap();
        assert_eq!((&*caller.principal, caller.group.as_deref()), ("token:ci", Some("build")));
        for wrong in ["", "s3cre", "s3cret ", "S3cret"] {
            assert_eq!(auth().bearer(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn root_and_the_services_user_are_admins_and_others_what_the_list_says() {
        let role = |uid, gid| auth().local(peer(uid, gid)).map(|caller| caller.role);
        assert_eq!(role(0, 0), Some(Role::Admin));
        assert_eq!(role(500, 9), Some(Role::Admin));
        assert_eq!(role(7, 9), Some(Role::Viewer));
        assert_eq!(role(7, 70), Some(Role::Operator));
        assert_eq!(role(8, 70), Some(Role::Operator));
        assert_eq!(role(8, 9), None);
        let group = |uid, gid| auth().local(peer(uid, gid)).and_then(|caller| caller.group);
        assert_eq!((group(7, 8), group(7, 70).as_deref()), (None, Some("lab")));
        assert_eq!(group(0, 70).as_deref(), Some("lab"));
    }
}
