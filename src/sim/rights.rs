//! The seams between the simulator's parts: what the world asks of access control, and what the
//! door asks of the world.

use futures_util::future::BoxFuture;

use crate::call::{ApiError, Call, Caller, Outcome};

/// Access control and pool membership, as the world needs them for checks made in code.
pub trait Rights: Send + Sync + 'static {
    /// Requires all of these privileges on a path.
    ///
    /// # Errors
    /// The 403 of Proxmox: `Permission check failed (PATH, PRIV)`.
    fn check(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError>;

    /// Whether the caller holds one privilege on a path (for filtering of lists).
    fn has(&self, caller: &Caller, path: &str, privilege: &str) -> bool;

    /// Whether a pool of this name exists.
    fn pool_exists(&self, pool: &str) -> bool;

    /// The pool a guest is in.
    fn pool_of(&self, vmid: u32) -> Option<String>;

    /// Puts a guest into a pool.
    fn join_pool(&self, pool: &str, vmid: u32);

    /// Drops a destroyed guest's pool membership and access entries.
    fn forget_guest(&self, vmid: u32);

    /// Names of all pools, for the `pool` lines of `GET /cluster/resources`.
    fn pools(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A connection that breaks under a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The call never arrives.
    Before,
    /// The call has its effect, and no answer comes.
    After,
}

/// What the door asks of the world.
pub trait Routes: Send + Sync + 'static {
    /// Serves one call whose parameters and schema permissions were checked.
    fn call(&self, call: Call) -> BoxFuture<'static, Outcome>;

    /// Names of the nodes, and whether each is reachable (a call to an unreachable one gives 595
    /// after its delay, which the door asks for through [`Routes::hop`]).
    fn nodes(&self) -> Vec<(String, bool)>;

    /// The delay and the error of the inner hop to a node right now; none when it is well.
    /// The door awaits it before it forwards a `proxyto` call to a node other than the one that
    /// took the request.
    fn hop(&self, node: &str) -> BoxFuture<'static, Result<(), ApiError>>;

    /// What befalls the connection of a call; asked once for each.
    fn reset(&self, _method: &str, _route: &str, _node: Option<&str>) -> Option<Reset> {
        None
    }

    /// One line of `GET /pools/{pool}` for each guest among `vmids` that exists.
    fn pool_members(&self, vmids: &[u32]) -> Vec<serde_json::Value>;

    /// Whether a guest exists anywhere.
    fn guest_exists(&self, vmid: u32) -> bool;
}
