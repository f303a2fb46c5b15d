//! Who may do what: bearer tokens over TCP, peer credentials over the Unix socket, and groups of the provider
//! at which people log in (`openid.rs`).
//!
//! Three roles, each including the one before: a viewer reads, an operator also takes and ends
//! leases, retires agents and reconciles, an admin also reaps, reloads and sets the log's level.
//! Which role a route needs is said where the route is (`routes.rs`), and asked for at its gate
//! (`gate.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::{Peer, Role};
use drover_model::tenant::By;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::openid::OpenId;
use super::peer::LocalPeer;

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
    /// The provider at which people log in.
    openid: Option<Arc<OpenId>>,
}

impl Auth {
    /// Takes the configured tokens and peers; only digests of the tokens are kept.
    pub fn new(tokens: impl IntoIterator<Item = TokenGrant>, peers: Vec<PeerGrant>) -> Self {
        let tokens = tokens
            .into_iter()
            .map(|grant| (grant.name, grant.role, digest(grant.secret.expose_secret())))
            .collect();
        Self { tokens, peers, groups: BTreeMap::new(), openid: None }
    }

    /// With the groups whose leases principals share: of `token:NAME`, `uid:N` and `gid:N`.
    #[must_use]
    pub fn grouped(mut self, groups: BTreeMap<String, String>) -> Self {
        self.groups = groups;
        self
    }

    /// With a provider at which people log in.
    #[must_use]
    pub fn with_openid(mut self, openid: Option<OpenId>) -> Self {
        self.openid = openid.map(Arc::new);
        self
    }

    /// The provider at which people log in.
    pub(super) fn openid(&self) -> Option<&Arc<OpenId>> {
        self.openid.as_ref()
    }

    /// With what the provider of another one said lately, where it is the same provider.
    pub(super) fn after(mut self, former: &Self) -> Self {
        if let (Some(new), Some(old)) =
            (self.openid.as_mut().and_then(Arc::get_mut), &former.openid)
        {
            new.follow(old);
        }
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

    /// Who shows this token.
    pub(super) fn bearer(&self, token: &str) -> Option<Caller> {
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

    /// What the login of a principal stands on.
    pub(super) fn standing(&self, principal: &str) -> Standing {
        let name = principal.strip_prefix("token:");
        let token = self.tokens.iter().find(|(known, ..)| Some(&**known) == name);
        // Which groups a local user is in is known at the socket alone: any change of a group counts.
        let grants = self.peers.iter().filter(|grant| match grant.peer {
            Peer::Uid(uid) => principal == format!("uid:{uid}"),
            Peer::Gid(_) => principal.starts_with("uid:"),
        });
        Standing {
            token: token.map(|(_, role, digest)| (*role, *digest)),
            grants: grants.copied().collect(),
            group: self.groups.get(principal).cloned(),
        }
    }

    /// The token of that name, where its digest is the one that is meant.
    pub(super) fn token(&self, name: &str, is_it: impl Fn(&[u8; 32]) -> bool) -> Option<Caller> {
        let (name, role, _) =
            self.tokens.iter().find(|(known, _, digest)| known == name && is_it(digest))?;
        let principal = format!("token:{name}");
        let group = self.groups.get(&principal).cloned();
        Some(Caller { principal, role: *role, group })
    }

    /// Who somebody is who logged in at the provider: what their groups may do now.
    pub(super) fn person(&self, name: &str, groups: &[String]) -> Option<Caller> {
        let (role, group) = self.openid.as_ref()?.admitted(groups)?;
        Some(Caller { principal: format!("openid:{name}"), role, group })
    }

    /// Whether there is any token.
    pub(super) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// What a local user may do; none for one who may not come in.
    pub(super) fn local(&self, peer: LocalPeer) -> Option<Caller> {
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

/// What is kept of a token.
pub(super) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// What a login stands on: while this is the same, its owner may go on.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Standing {
    token: Option<(Role, [u8; 32])>,
    grants: Vec<PeerGrant>,
    group: Option<String>,
}

/// Who makes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `token:NAME`, `uid:N`, or `openid:NAME` of who logged in at the provider.
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
    fn a_login_stands_on_its_token_its_role_its_group_and_the_list_of_local_users() {
        let now = |principal: &str| auth().standing(principal);
        for principal in ["token:ci", "uid:7", "uid:0", "other:x"] {
            assert!(now(principal) == now(principal), "{principal}");
        }
        let none = Auth::default();
        assert!(now("token:ci") != none.standing("token:ci"));
        assert!(now("uid:7") != none.standing("uid:7"));
        assert!(now("token:gone") == none.standing("token:gone"));
        let regrouped = auth().grouped(BTreeMap::new());
        assert!(now("token:ci") != regrouped.standing("token:ci"));
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
