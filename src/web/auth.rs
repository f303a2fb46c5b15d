//! Who may do what: bearer tokens over TCP, peer credentials over the Unix socket.
//!
//! Three roles, each including the one before: a viewer reads, an operator also takes and ends
//! leases, retires agents and reconciles, an admin also reaps, reloads and sets the log's level.
//! What is not listed here needs an admin.

use std::any::Any;
use std::fmt;

use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, web};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Problem, State};

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Takes and ends leases, retires agents, reconciles.
    Operator,
    /// Everything.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// A bearer token and what it is good for.
pub struct TokenGrant {
    /// Shown as the principal `token:NAME`.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The token.
    pub secret: SecretString,
}

/// A local user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A user by number.
    Uid(u32),
    /// A group by number: the process's effective group, not its supplementary ones.
    Gid(u32),
}

/// What a local user or group may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerGrant {
    /// Who.
    pub peer: Peer,
    /// What they may do.
    pub role: Role,
}

/// Everybody who may come in; root and the service's own user are always admins on the socket.
#[derive(Default)]
pub struct Auth {
    tokens: Vec<(String, Role, [u8; 32])>,
    peers: Vec<PeerGrant>,
}

impl Auth {
    /// Takes the configured tokens and peers; only digests of the tokens are kept.
    pub fn new(tokens: impl IntoIterator<Item = TokenGrant>, peers: Vec<PeerGrant>) -> Self {
        let tokens = tokens
            .into_iter()
            .map(|grant| (grant.name, grant.role, digest(grant.secret.expose_secret())))
            .collect();
        Self { tokens, peers }
    }

    /// Whether local users other than root and the service's own may come in.
    pub(super) fn admits_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    fn bearer(&self, token: &str) -> Option<Caller> {
        let presented = digest(token);
        let mut found = None;
        // No early end: the time taken must not tell which token was nearest.
        for (name, role, known) in &self.tokens {
            if bool::from(presented.ct_eq(known)) {
                found = Some(Caller { principal: format!("token:{name}"), role: *role });
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
        role.map(|role| Caller { principal: format!("uid:{}", peer.uid), role })
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
}

/// The process at the other end of the Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalPeer {
    pub uid: u32,
    pub gid: u32,
    pub service_uid: u32,
}

/// Notes who is at the other end of a new connection of the Unix socket.
pub(super) fn note_peer(service_uid: u32, stream: &dyn Any, data: &mut Extensions) {
    let Some(stream) = stream.downcast_ref::<tokio::net::UnixStream>() else { return };
    match stream.peer_cred() {
        Ok(peer) => {
            data.insert(LocalPeer { uid: peer.uid(), gid: peer.gid(), service_uid });
        }
        Err(error) => tracing::warn!(%error, "peer of the socket is unknown"),
    }
}

/// The least role for a request; none when it is open to all.
fn needed(method: &Method, path: &str) -> Option<Role> {
    let under = |prefix: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    match (method.as_str(), path) {
        ("GET", "/healthz" | "/readyz" | "/openapi.json") => None,
        // Guests show a token of their own.
        ("POST", "/v1/call-in") => None,
        // CI systems sign what they send.
        ("POST", _) if path.starts_with("/v1/hooks/") => None,
        // It asks the clusters, as a reconciliation does.
        ("GET" | "POST", "/v1/resync") => Some(Role::Operator),
        ("GET", "/v1/nodes" | "/v1/why") => Some(Role::Operator),
        ("GET", _) if under("/v1/templates") && path.ends_with("/why") => Some(Role::Operator),
        ("GET" | "HEAD", _) => Some(Role::Viewer),
        ("POST" | "DELETE", _) if under("/v1/leases") => Some(Role::Operator),
        ("POST", _) if under("/v1/agents") && path.ends_with("/retire") => Some(Role::Operator),
        ("POST" | "DELETE", _) if under("/v1/agents") && path.ends_with("/hold") => {
            Some(Role::Operator)
        }
        ("PATCH", _) if under("/v1/agents") => Some(Role::Operator),
        ("POST", _) if under("/v1/templates") && path.ends_with("/provision") => {
            Some(Role::Operator)
        }
        _ => Some(Role::Admin),
    }
}

/// Lets a request in, or refuses it with the reason.
pub(super) async fn gate(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let Some(role) = needed(request.method(), request.path()) else {
        return next.call(request).await;
    };
    let caller = identify(&request)?;
    if caller.role < role {
        let detail = format!(
            "`{}` has the role {}, and this needs {role}; use a token of that role",
            caller.principal, caller.role
        );
        return Err(forbidden(detail).into());
    }
    let wish = (role > Role::Viewer).then(|| caller.principal.clone());
    request.extensions_mut().insert(caller);
    let response = next.call(request).await?;
    if let Some(principal) = wish {
        let (request, status) = (response.request(), response.status().as_u16());
        let (method, path) = (request.method(), request.path());
        tracing::info!(principal, %method, ?path, status, "wish answered");
    }
    Ok(response)
}

fn identify(request: &ServiceRequest) -> Result<Caller, Problem> {
    let Some(state) = request.app_data::<web::Data<State>>() else {
        return Err(unauthorized("the service is not set up"));
    };
    let auth = state.auth();
    if let Some(value) = request.headers().get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let Some(token) = token else {
            return Err(unauthorized("the Authorization header must be `Bearer TOKEN`"));
        };
        return auth
            .bearer(token)
            .ok_or_else(|| unauthorized("no token of the configuration is the one given"));
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

fn forbidden(detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", "the caller may not do this", detail)
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "the caller is not known", detail)
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
        Auth::new([token], peers)
    }

    fn peer(uid: u32, gid: u32) -> LocalPeer {
        LocalPeer { uid, gid, service_uid: 500 }
    }

    // Invariant: nobody comes in who is not listed.

    #[test]
    fn only_the_whole_token_is_taken() {
        assert_eq!(auth().bearer("s3cret").unwrap().principal, "token:ci");
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
    }

    #[test]
    fn an_unknown_route_that_writes_needs_an_admin() {
        assert_eq!(needed(&Method::POST, "/v1/%72esync"), Some(Role::Admin));
        assert_eq!(needed(&Method::POST, "/v1/leasesx"), Some(Role::Admin));
        assert_eq!(needed(&Method::PATCH, "/v1/leases/a"), Some(Role::Admin));
        assert_eq!(needed(&Method::POST, "/v1/agents/a/power"), Some(Role::Admin));
    }
}
