//! What access control knows: users, tokens, groups, roles, entries, pools. Plain data.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;

use super::realms::{self, Realm};
use super::roles;
use crate::door::permission::normal_path;
use crate::spec::{ClusterSpec, PveVersion, TokenSpec};

/// The whole of access control's data.
#[derive(Debug, Default)]
pub struct State {
    pub users: BTreeMap<String, User>,
    pub groups: BTreeMap<String, Group>,
    /// Roles, built-in ones too, by name.
    pub roles: BTreeMap<String, BTreeSet<String>>,
    /// Names of the built-in roles.
    pub special: BTreeSet<String>,
    /// Path, then subject (`user@realm`, `user@realm!token`, `@group`), then role and whether it
    /// propagates.
    pub acl: BTreeMap<String, BTreeMap<String, BTreeMap<String, bool>>>,
    pub pools: BTreeMap<String, Pool>,
    pub realms: BTreeMap<String, Realm>,
}

/// A user.
#[derive(Debug, Default)]
pub struct User {
    pub password: Option<SecretString>,
    pub enable: bool,
    pub expire: u64,
    /// `comment`, `email`, `firstname`, `lastname`, `keys`: shown as they were given.
    pub notes: BTreeMap<String, String>,
    pub tokens: BTreeMap<String, Token>,
}

/// An API token.
#[derive(Debug)]
pub struct Token {
    pub secret: SecretString,
    pub privsep: bool,
    pub expire: u64,
    pub comment: Option<String>,
}

/// A group.
#[derive(Debug, Default)]
pub struct Group {
    pub comment: Option<String>,
    pub users: BTreeSet<String>,
}

/// A pool.
#[derive(Debug, Default)]
pub struct Pool {
    pub comment: Option<String>,
    pub vms: BTreeSet<u32>,
    pub storages: BTreeSet<String>,
}

impl From<&TokenSpec> for Token {
    fn from(spec: &TokenSpec) -> Self {
        Self {
            secret: spec.secret.clone().into(),
            privsep: spec.privsep,
            expire: spec.expire,
            comment: None,
        }
    }
}

impl State {
    /// The state at the start of a simulated cluster.
    pub fn new(spec: &ClusterSpec, version: PveVersion) -> Self {
        let realms = realms::built_in();
        let mut state = Self { roles: roles::built_in(version), realms, ..Self::default() };
        state.special = state.roles.keys().cloned().collect();
        // A privilege that this version lacks is left out, as the parser of user.cfg does.
        let known = roles::all(version);
        for (role, privileges) in &spec.roles {
            let privileges = privileges.iter().filter(|name| known.contains(*name)).cloned();
            state.roles.insert(role.clone(), privileges.collect());
        }
        let root = User {
            password: Some(spec.root_password.clone().into()),
            enable: true,
            tokens: tokens(&spec.root_tokens),
            notes: BTreeMap::from([("email".into(), "root@example.test".into())]),
            ..User::default()
        };
        state.users.insert("root@pam".into(), root);
        for user in &spec.users {
            let entry = User {
                password: user.password.clone().map(Into::into),
                enable: user.enabled,
                tokens: tokens(&user.tokens),
                ..User::default()
            };
            state.users.insert(user.userid.clone(), entry);
        }
        for entry in &spec.acl {
            state.grant(&entry.path, &entry.who, &entry.role, entry.propagate);
        }
        for pool in &spec.pools {
            let entry = Pool {
                comment: pool.comment.clone(),
                vms: BTreeSet::new(),
                storages: pool.storages.iter().cloned().collect(),
            };
            state.pools.insert(pool.name.clone(), entry);
        }
        for guest in &spec.guests {
            if let Some(pool) = &guest.pool {
                state.pools.entry(pool.clone()).or_default().vms.insert(guest.vmid);
            }
        }
        state
    }

    /// Adds an entry.
    pub fn grant(&mut self, path: &str, subject: &str, role: &str, propagate: bool) {
        let subjects = self.acl.entry(normal_path(path)).or_default();
        subjects.entry(subject.to_owned()).or_default().insert(role.to_owned(), propagate);
    }

    /// Removes an entry, and what it leaves empty.
    pub fn revoke(&mut self, path: &str, subject: &str, role: &str) {
        let path = normal_path(path);
        let Some(subjects) = self.acl.get_mut(&path) else { return };
        if let Some(entries) = subjects.get_mut(subject) {
            entries.remove(role);
            if entries.is_empty() {
                subjects.remove(subject);
            }
        }
        if subjects.is_empty() {
            self.acl.remove(&path);
        }
    }

    /// Removes all entries of subjects that match.
    pub fn forget_subjects(&mut self, gone: impl Fn(&str) -> bool) {
        self.acl.retain(|_, subjects| {
            subjects.retain(|subject, _| !gone(subject));
            !subjects.is_empty()
        });
    }

    /// Whether a user exists, is enabled and has not expired.
    pub fn user_active(&self, userid: &str, now: u64) -> bool {
        self.users
            .get(userid)
            .is_some_and(|user| user.enable && (user.expire == 0 || user.expire > now))
    }

    /// The type of the realm that a user is of; none where there is no such realm.
    pub fn realm_type(&self, userid: &str) -> Option<&str> {
        let (_, realm) = userid.rsplit_once('@')?;
        self.realms.get(realm)?.get("type").map(String::as_str)
    }

    /// The pool a guest is in.
    pub fn pool_of(&self, vmid: u32) -> Option<&String> {
        self.pools.iter().find(|(_, pool)| pool.vms.contains(&vmid)).map(|(name, _)| name)
    }
}

fn tokens(specs: &[TokenSpec]) -> BTreeMap<String, Token> {
    specs.iter().map(|spec| (spec.name.clone(), Token::from(spec))).collect()
}
