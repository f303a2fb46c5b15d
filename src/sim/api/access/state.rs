//! The data of access control: users, tokens, groups, roles, ACL, pools, realms.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;

use super::realms::{self, Realm};
use super::roles;
use crate::api::permission::normalize_path;
use crate::spec::{ClusterSpec, PveVersion, TokenSpec};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub users: BTreeMap<String, User>,
    pub groups: BTreeMap<String, Group>,
    /// All roles by name, with their privileges.
    pub roles: BTreeMap<String, BTreeSet<String>>,
    pub built_in_roles: BTreeSet<String>,
    /// By path, then by subject (`user@realm`, `user@realm!token`, `@group`): each role, and
    /// whether it propagates.
    pub acl: BTreeMap<String, BTreeMap<String, BTreeMap<String, bool>>>,
    pub pools: BTreeMap<String, Pool>,
    pub realms: BTreeMap<String, Realm>,
}

#[derive(Debug, Default)]
pub(crate) struct User {
    pub password: Option<SecretString>,
    pub enable: bool,
    /// Whether a password alone is the first of two steps.
    pub second_factor: bool,
    pub expire: u64,
    /// `comment`, `email`, `firstname`, `lastname`, `keys`, as they were set.
    pub texts: BTreeMap<String, String>,
    pub tokens: BTreeMap<String, Token>,
}

#[derive(Debug)]
pub(crate) struct Token {
    pub secret: SecretString,
    pub privsep: bool,
    pub expire: u64,
    pub comment: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub comment: Option<String>,
    pub users: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
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
    pub(crate) fn new(spec: &ClusterSpec, version: PveVersion) -> Self {
        let realms = realms::built_in();
        let mut state = Self { roles: roles::built_in(version), realms, ..Self::default() };
        state.built_in_roles = state.roles.keys().cloned().collect();
        // The parser of user.cfg drops a privilege that the version lacks.
        let known = roles::all(version);
        for (role, privileges) in &spec.roles {
            let privileges = privileges.iter().filter(|name| known.contains(*name)).cloned();
            state.roles.insert(role.clone(), privileges.collect());
        }
        let root = User {
            password: Some(spec.root_password.clone().into()),
            enable: true,
            tokens: tokens(&spec.root_tokens),
            texts: BTreeMap::from([("email".into(), "root@example.test".into())]),
            ..User::default()
        };
        state.users.insert("root@pam".into(), root);
        for user in &spec.users {
            let entry = User {
                password: user.password.clone().map(Into::into),
                enable: user.enabled,
                second_factor: user.second_factor,
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

    pub(crate) fn grant(&mut self, path: &str, subject: &str, role: &str, propagate: bool) {
        let subjects = self.acl.entry(normalize_path(path)).or_default();
        subjects.entry(subject.to_owned()).or_default().insert(role.to_owned(), propagate);
    }

    /// Removes an entry, and subjects and paths that become empty.
    pub(crate) fn revoke(&mut self, path: &str, subject: &str, role: &str) {
        let path = normalize_path(path);
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

    /// Removes all entries of matching subjects.
    pub(crate) fn remove_acl_subjects(&mut self, gone: impl Fn(&str) -> bool) {
        self.acl.retain(|_, subjects| {
            subjects.retain(|subject, _| !gone(subject));
            !subjects.is_empty()
        });
    }

    /// Whether a user exists, is enabled and has not expired; `now` in Unix seconds.
    pub(crate) fn is_user_active(&self, userid: &str, now: u64) -> bool {
        self.users
            .get(userid)
            .is_some_and(|user| user.enable && (user.expire == 0 || user.expire > now))
    }

    /// The type of a user's realm; none for an unknown realm.
    pub(crate) fn realm_type(&self, userid: &str) -> Option<&str> {
        let (_, realm) = userid.rsplit_once('@')?;
        self.realms.get(realm)?.get("type").map(String::as_str)
    }

    /// The pool of a guest.
    pub(crate) fn pool_of(&self, vmid: u32) -> Option<&String> {
        self.pools.iter().find(|(_, pool)| pool.vms.contains(&vmid)).map(|(name, _)| name)
    }
}

fn tokens(specs: &[TokenSpec]) -> BTreeMap<String, Token> {
    specs.iter().map(|spec| (spec.name.clone(), Token::from(spec))).collect()
}
