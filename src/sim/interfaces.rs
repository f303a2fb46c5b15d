//! The interfaces between the simulator's parts: what the world asks of access control, and what
//! the API asks of the world.

use futures_util::future::BoxFuture;

use crate::call::{ApiError, Call, Caller, Outcome};

/// Access control and pool membership, for the checks that Proxmox makes in code and not by the
/// schema.
pub trait AccessControl: Send + Sync + 'static {
    /// Requires all of these privileges on a path.
    ///
    /// # Errors
    /// Proxmox's 403: `Permission check failed (PATH, PRIV)`.
    fn check(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), ApiError>;

    /// Whether the caller holds one privilege on a path; lists are filtered by it.
    fn has(&self, caller: &Caller, path: &str, privilege: &str) -> bool;

    /// Whether a pool of this name exists.
    fn pool_exists(&self, pool: &str) -> bool;

    /// The pool a guest is in.
    fn pool_of(&self, vmid: u32) -> Option<String>;

    /// Puts a guest into a pool.
    fn join_pool(&self, pool: &str, vmid: u32);

    /// Removes a destroyed guest's pool membership and ACL entries.
    fn forget_guest(&self, vmid: u32);

    /// Names of all pools, for the `pool` lines of `GET /cluster/resources`.
    fn pools(&self) -> Vec<String> {
        Vec::new()
    }
}

/// When a planned fault breaks the connection of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionReset {
    /// The call does not arrive.
    BeforeCall,
    /// The call takes effect, and its answer is lost.
    AfterCall,
}

/// The world as the API calls it.
pub trait Backend: Send + Sync + 'static {
    /// Serves one call. The API has checked its parameters and the permissions of the schema.
    fn call(&self, call: Call) -> BoxFuture<'static, Outcome>;

    /// Names of the nodes, and whether each is reachable. A call to an unreachable node gives 595
    /// after a delay; see [`Backend::hop`].
    fn nodes(&self) -> Vec<(String, bool)>;

    /// The way from the node that took a request to another node: waits for its delay, and fails
    /// where the node cannot be reached. The API awaits it before it forwards a `proxyto` call.
    ///
    /// # Errors
    /// A status from 595 to 599.
    fn hop(&self, node: &str) -> BoxFuture<'static, Result<(), ApiError>>;

    /// Whether a planned fault breaks the connection of this call. The API asks once a call.
    fn reset(&self, _method: &str, _route: &str, _node: Option<&str>) -> Option<ConnectionReset> {
        None
    }

    /// The member objects of `GET /pools/{pool}` for those of `vmids` that exist.
    fn pool_members(&self, vmids: &[u32]) -> Vec<serde_json::Value>;

    /// Whether a guest exists anywhere.
    fn guest_exists(&self, vmid: u32) -> bool;
}
