//! Access control of the simulated cluster: who a request comes from, what it may do, and the
//! routes below `/access` and `/pools` (behaviour sections 3 and 4).

mod acl;
mod groups;
mod pools;
mod privileges;
mod realms;
pub mod roles;
mod state;
mod ticket;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use secrecy::ExposeSecret;

use crate::call::{ApiError, Call, Caller, Outcome};
use crate::clock::WallClock;
use crate::rights::{Rights, Routes};
use crate::spec::{ClusterSpec, PveVersion};
use state::State;
use ticket::Signer;

/// Users, tokens, roles, entries and pools, and the judgement over them.
pub struct Access {
    state: Mutex<State>,
    clock: WallClock,
    signer: Signer,
    cluster: String,
    storages: BTreeMap<String, Vec<String>>,
}

impl Access {
    /// Access control as the cluster's description says.
    pub fn new(spec: &ClusterSpec, version: PveVersion, clock: WallClock) -> Arc<Self> {
        let all: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
        let nodes_of =
            |nodes: &Vec<String>| if nodes.is_empty() { all.clone() } else { nodes.clone() };
        let storages = spec.storages.iter().map(|s| (s.name.clone(), nodes_of(&s.nodes))).collect();
        Arc::new(Self {
            state: Mutex::new(State::new(spec, version)),
            clock,
            signer: Signer::new(&format!("{}/{}", spec.name, spec.root_password)),
            cluster: spec.name.clone(),
            storages,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The caller behind an API token, when the token and its user are good.
    pub fn token_caller(&self, value: &str) -> Option<Caller> {
        let (full, secret) = value.split_once('=')?;
        let (userid, name) = full.split_once('!')?;
        let state = self.state();
        let now = self.clock.now();
        let token = state.users.get(userid)?.tokens.get(name)?;
        let alive = token.expire == 0 || token.expire > now;
        let good = alive
            && state.user_active(userid, now)
            && ticket::same(token.secret.expose_secret(), secret);
        good.then(|| Caller { userid: userid.to_owned(), token: Some(name.to_owned()) })
    }

    /// The caller behind a login ticket.
    pub fn ticket_caller(&self, ticket: &str) -> Option<Caller> {
        let now = self.clock.now();
        let userid = self.signer.verify(ticket, now)?;
        self.state().user_active(&userid, now).then_some(Caller { userid, token: None })
    }

    /// Whether the token against cross-site writes fits the user.
    pub fn csrf_is_good(&self, token: &str, userid: &str) -> bool {
        self.signer.verify_csrf(token, userid, self.clock.now())
    }

    /// Takes every login ticket for expired.
    pub fn expire_tickets(&self) {
        self.signer.rotate();
    }

    /// Whether a user exists.
    pub fn user_exists(&self, userid: &str) -> bool {
        self.state().users.contains_key(userid)
    }

    /// The groups a user is in.
    pub fn groups_of(&self, userid: &str) -> Vec<String> {
        let state = self.state();
        let member = state.groups.iter().filter(|(_, group)| group.users.contains(userid));
        member.map(|(name, _)| name.clone()).collect()
    }

    /// Requires all of the privileges on a path.
    ///
    /// # Errors
    /// A 403 that names the path and the first missing privilege.
    pub fn require(&self, caller: &Caller, path: &str, wanted: &[&str]) -> Result<(), ApiError> {
        let state = self.state();
        match wanted.iter().find(|name| !state.holds(caller, path, name)) {
            Some(missing) => Err(ApiError::denied(&format!("{path}, {missing}"))),
            None => Ok(()),
        }
    }

    /// Requires one of the privileges on a path.
    ///
    /// # Errors
    /// A 403 that names the path and all of the privileges.
    pub fn require_any(
        &self,
        caller: &Caller,
        path: &str,
        wanted: &[&str],
    ) -> Result<(), ApiError> {
        let state = self.state();
        if wanted.iter().any(|name| state.holds(caller, path, name)) {
            return Ok(());
        }
        Err(ApiError::denied(&format!("{path}, {}", wanted.join("|"))))
    }

    /// Requires the right to change access on a path.
    ///
    /// # Errors
    /// A 403 that names the path and the privileges that would do.
    pub fn require_modify(&self, caller: &Caller, path: &str) -> Result<(), ApiError> {
        let further = match path.split('/').nth(1) {
            _ if path.split('/').count() < 3 => None,
            Some("storage") => Some("Datastore.Allocate"),
            Some("vms") => Some("VM.Allocate"),
            Some("pool") => Some("Pool.Allocate"),
            Some("mapping") => Some("Mapping.Modify"),
            _ => None,
        };
        let wanted: Vec<&str> = ["Permissions.Modify"].into_iter().chain(further).collect();
        self.require_any(caller, path, &wanted)
    }

    /// Serves a call below `/access` or `/pools`.
    ///
    /// # Errors
    /// As Proxmox words them.
    pub fn serve(&self, call: &Call, world: &dyn Routes) -> Outcome {
        if call.route.starts_with("/pools") {
            return self.serve_pools(call, world);
        }
        match call.route {
            "/access/acl" | "/access/permissions" | "/access/roles" | "/access/roles/{roleid}" => {
                self.serve_acl(call)
            }
            "/access/domains" | "/access/domains/{realm}" => self.serve_realms(call),
            "/access/groups" | "/access/groups/{groupid}" => self.serve_groups(call),
            _ => self.serve_users(call),
        }
    }
}

impl Rights for Access {
    fn check(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        self.require(caller, path, privileges)
    }

    fn has(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        self.state().holds(caller, path, privilege)
    }

    fn pool_exists(&self, pool: &str) -> bool {
        self.state().pools.contains_key(pool)
    }

    fn pool_of(&self, vmid: u32) -> Option<String> {
        self.state().pool_of(vmid).cloned()
    }

    fn join_pool(&self, pool: &str, vmid: u32) {
        let mut state = self.state();
        if let Some(pool) = state.pools.get_mut(pool) {
            pool.vms.insert(vmid);
        }
    }

    fn forget_guest(&self, vmid: u32) {
        let mut state = self.state();
        for pool in state.pools.values_mut() {
            pool.vms.remove(&vmid);
        }
        state.acl.remove(&format!("/vms/{vmid}"));
    }

    fn pools(&self) -> Vec<String> {
        self.state().pools.keys().cloned().collect()
    }
}

/// A failure with the words before it that Proxmox puts there.
fn failed(what: &str, why: &str) -> ApiError {
    ApiError::failed(format!("{what} failed: {why}"))
}
