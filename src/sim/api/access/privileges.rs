//! The privileges of a user or token on a path: inheritance, groups, pools, and the intersection of
//! a token with its user (book: proxmox, section 4).

use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use crate::call::Caller;

/// Privileges, and whether each applies below the path too.
pub(crate) type Privileges = BTreeMap<String, bool>;

impl State {
    /// Whether a caller holds a privilege on a path.
    pub(crate) fn holds(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        let holds = |subject: &str| {
            let roles = self.effective_roles(subject, path).into_keys();
            roles.filter_map(|role| self.roles.get(&role)).any(|role| role.contains(privilege))
        };
        holds(&caller.userid) && (!self.is_separate(caller) || holds(&caller.full_id()))
    }

    /// Whether the caller is a token with privilege separation.
    fn is_separate(&self, caller: &Caller) -> bool {
        let Some(token) = &caller.token else { return false };
        let token = self.users.get(&caller.userid).and_then(|user| user.tokens.get(token));
        token.is_none_or(|token| token.privsep)
    }

    /// The privileges of a caller on a path.
    pub(crate) fn privileges(&self, caller: &Caller, path: &str) -> Privileges {
        let own = self.subject_privileges(&caller.userid, path);
        if !self.is_separate(caller) {
            return own;
        }
        self.subject_privileges(&caller.full_id(), path)
            .into_iter()
            .filter_map(|(name, propagate)| {
                let user = own.get(&name)?;
                Some((name, propagate && *user))
            })
            .collect()
    }

    /// The roles of a subject on a path, including those from pools.
    fn effective_roles(&self, subject: &str, path: &str) -> BTreeMap<String, bool> {
        let mut roles = self.roles_on(subject, path);
        if !roles.contains_key("NoAccess") {
            let pooled = self.pool_roles(subject, path);
            if pooled.contains("NoAccess") {
                roles = BTreeMap::from([("NoAccess".to_owned(), false)]);
            } else {
                // A role from a pool does not apply below the member.
                for role in pooled {
                    roles.entry(role).or_insert(false);
                }
            }
        }
        roles
    }

    /// The privileges of a user, or of a token without those of its user.
    fn subject_privileges(&self, subject: &str, path: &str) -> Privileges {
        let mut privileges = Privileges::new();
        for (role, propagate) in &self.effective_roles(subject, path) {
            for name in self.roles.get(role).into_iter().flatten() {
                *privileges.entry(name.clone()).or_insert(false) |= *propagate;
            }
        }
        privileges
    }

    /// The roles of a subject from the entries on a path and above it. The nearest entry wins.
    fn roles_on(&self, subject: &str, path: &str) -> BTreeMap<String, bool> {
        if subject == "root@pam" {
            return BTreeMap::from([("Administrator".to_owned(), true)]);
        }
        let mut roles = BTreeMap::new();
        for level in levels(path) {
            let Some(subjects) = self.acl.get(level) else { continue };
            let counting = |entries: &BTreeMap<String, bool>| -> BTreeMap<String, bool> {
                let here = |propagate: &bool| level == path || *propagate;
                entries
                    .iter()
                    .filter(|(_, propagate)| here(propagate))
                    .map(|(role, propagate)| (role.clone(), *propagate))
                    .collect()
            };
            let own = subjects.get(subject).map(counting).unwrap_or_default();
            if !own.is_empty() {
                roles = own;
                continue;
            }
            let mut grouped = BTreeMap::new();
            for (name, group) in &self.groups {
                if group.users.contains(subject)
                    && let Some(entries) = subjects.get(&format!("@{name}"))
                {
                    grouped.extend(counting(entries));
                }
            }
            if !grouped.is_empty() {
                roles = grouped;
            }
        }
        if let Some(propagate) = roles.get("NoAccess") {
            return BTreeMap::from([("NoAccess".to_owned(), *propagate)]);
        }
        roles
    }

    /// The roles on a guest or storage from its pools.
    fn pool_roles(&self, subject: &str, path: &str) -> BTreeSet<String> {
        let member = |pool: &super::state::Pool| {
            if let Some(vmid) = path.strip_prefix("/vms/") {
                vmid.parse().is_ok_and(|vmid| pool.vms.contains(&vmid))
            } else {
                path.strip_prefix("/storage/").is_some_and(|name| pool.storages.contains(name))
            }
        };
        self.pools
            .iter()
            .filter(|(_, pool)| member(pool))
            .flat_map(|(name, _)| self.roles_on(subject, &format!("/pool/{name}")).into_keys())
            .collect()
    }

    /// All paths on which the caller has privileges: the well-known ones, those with entries, and
    /// members of pools.
    pub(crate) fn effective(&self, caller: &Caller) -> BTreeMap<String, Privileges> {
        let known =
            ["/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"];
        let mut paths: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
        paths.extend(self.acl.keys().cloned());
        for pool in self.pools.values() {
            paths.extend(pool.vms.iter().map(|vmid| format!("/vms/{vmid}")));
            paths.extend(pool.storages.iter().map(|name| format!("/storage/{name}")));
        }
        paths
            .into_iter()
            .map(|path| {
                let privileges = self.privileges(caller, &path);
                (path, privileges)
            })
            .filter(|(_, privileges)| !privileges.is_empty())
            .collect()
    }
}

/// A path and those above it: `/`, `/vms`, `/vms/100` for `/vms/100`.
fn levels(path: &str) -> Vec<&str> {
    let mut levels = vec!["/"];
    if path != "/" {
        let cuts = path.char_indices().skip(1).filter(|(_, letter)| *letter == '/');
        levels.extend(cuts.map(|(place, _)| &path[..place]));
        levels.push(path);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ClusterSpec, PoolSpec, PveVersion, TokenSpec, UserSpec};

    fn state() -> State {
        let token = |name: &str, privsep| TokenSpec {
            name: name.into(),
            secret: "s".into(),
            privsep,
            expire: 0,
        };
        let user = UserSpec {
            userid: "ci@pve".into(),
            password: None,
            enabled: true,
            second_factor: false,
            tokens: vec![token("apart", true), token("same", false)],
        };
        let pool = PoolSpec { name: "ci".into(), comment: None, storages: vec!["store".into()] };
        let spec = ClusterSpec { users: vec![user], pools: vec![pool], ..ClusterSpec::default() };
        let mut state = State::new(&spec, PveVersion::V8_4);
        state.pools.entry("ci".into()).or_default().vms.insert(100);
        state
    }

    fn caller(token: Option<&str>) -> Caller {
        Caller { userid: "ci@pve".into(), token: token.map(str::to_owned) }
    }

    #[test]
    fn the_nearest_entry_replaces_those_above_it() {
        let mut state = state();
        state.grant("/", "ci@pve", "PVEAdmin", true);
        state.grant("/vms/102", "ci@pve", "PVEAuditor", true);
        assert!(state.privileges(&caller(None), "/vms/101").contains_key("VM.Allocate"));
        assert!(!state.privileges(&caller(None), "/vms/102").contains_key("VM.Allocate"));
    }

    #[test]
    fn an_entry_that_does_not_propagate_counts_on_its_own_path_only() {
        let mut state = state();
        state.grant("/vms", "ci@pve", "PVEVMUser", false);
        assert!(state.privileges(&caller(None), "/vms").contains_key("VM.Audit"));
        assert!(state.privileges(&caller(None), "/vms/100").is_empty());
    }

    #[test]
    fn roles_on_a_pool_apply_to_its_members_without_propagation() {
        let mut state = state();
        state.grant("/pool/ci", "ci@pve", "PVEVMUser", true);
        assert_eq!(state.privileges(&caller(None), "/vms/100").get("VM.Audit"), Some(&false));
        assert!(state.privileges(&caller(None), "/storage/store").contains_key("VM.Audit"));
        assert!(state.privileges(&caller(None), "/vms/101").is_empty());
    }

    #[test]
    fn no_access_wins_over_other_roles_and_over_pools() {
        let mut state = state();
        state.grant("/pool/ci", "ci@pve", "PVEVMUser", true);
        state.grant("/vms/100", "ci@pve", "PVEAdmin", true);
        state.grant("/vms/100", "ci@pve", "NoAccess", true);
        assert!(state.privileges(&caller(None), "/vms/100").is_empty());
    }

    #[test]
    fn a_separated_token_holds_only_what_both_it_and_its_user_hold() {
        let mut state = state();
        state.grant("/vms/100", "ci@pve!apart", "PVEVMUser", true);
        assert!(state.privileges(&caller(Some("apart")), "/vms/100").is_empty());
        state.grant("/vms/100", "ci@pve", "PVEAuditor", true);
        let both = state.privileges(&caller(Some("apart")), "/vms/100");
        assert_eq!(both.keys().collect::<Vec<_>>(), ["VM.Audit"]);
        let same = state.privileges(&caller(Some("same")), "/vms/100");
        assert!(same.contains_key("Sys.Audit"));
    }

    #[test]
    fn groups_count_where_the_user_has_no_entry_of_its_own() {
        let mut state = state();
        state.groups.entry("g".into()).or_default().users.insert("ci@pve".into());
        state.grant("/", "@g", "PVEAuditor", true);
        assert!(state.privileges(&caller(None), "/nodes/a").contains_key("Sys.Audit"));
    }
}
