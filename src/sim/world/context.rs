//! One API call as its handler sees it: the cluster, the caller, the node and the guest.
//!
//! Every handler takes a `CallContext`. It reads parameters (`text`, `flag`, `number`, `id`) and
//! checks privileges and quorum with Proxmox's error texts.

use std::sync::Arc;

use super::Cluster;
use crate::call::{ApiError, Call, Params};

/// A call and the cluster that serves it.
#[derive(Debug, Clone)]
pub(crate) struct CallContext {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) call: Call,
    /// The node in the path; empty for calls on the cluster.
    pub(crate) node: String,
    /// The VMID in the path; 0 for calls without one.
    pub(crate) vmid: u32,
}

impl CallContext {
    pub(crate) fn new(cluster: Arc<Cluster>, call: Call) -> Self {
        let node = call.node.clone().or_else(|| call.params.text("node")).unwrap_or_default();
        let vmid = call.params.int("vmid").and_then(|vmid| u32::try_from(vmid).ok()).unwrap_or(0);
        Self { cluster, call, node, vmid }
    }

    pub(crate) fn params(&self) -> &Params {
        &self.call.params
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.call.params.text(name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.call.params.flag(name)
    }

    /// A parameter that is a whole number of at least 0.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.call.params.int(name).and_then(|value| u64::try_from(value).ok())
    }

    /// A parameter that is a VMID.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.call.params.int(name).and_then(|value| u32::try_from(value).ok())
    }

    /// Whether the caller has a privilege on a path.
    pub(crate) fn has(&self, path: &str, privilege: &str) -> bool {
        self.cluster.rights.has(&self.call.caller, path, privilege)
    }

    /// Checks that the caller has these privileges on a path.
    ///
    /// # Errors
    /// Proxmox's 403.
    pub(crate) fn check(&self, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        self.cluster.rights.check(&self.call.caller, path, privileges)
    }

    /// Checks that the caller has one of these privileges on a path.
    ///
    /// # Errors
    /// Proxmox's 403; it names all of them, separated by bars.
    pub(crate) fn check_any(&self, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        if privileges.iter().any(|privilege| self.has(path, privilege)) {
            return Ok(());
        }
        Err(ApiError::denied(&format!("{path}, {}", privileges.join("|"))))
    }

    /// The error for a parameter that Proxmox supports and the simulator does not.
    pub(crate) fn unsupported_parameter(&self, name: &str) -> ApiError {
        let Call { method, route, .. } = &self.call;
        ApiError::with_status(
            501,
            format!("drover sim does not serve '{name}' of {method} {route}"),
        )
    }

    /// Refuses parameters that only root may use; a token of root is not root.
    ///
    /// # Errors
    /// A 400 for the first of them.
    pub(crate) fn check_root_only(&self, names: &[&str]) -> Result<(), ApiError> {
        if self.call.caller.is_root() {
            return Ok(());
        }
        match names.iter().find(|name| self.call.params.0.contains_key(**name)) {
            Some(name) => Err(ApiError::parameter(name, "Only root may use this option.")),
            None => Ok(()),
        }
    }

    /// Refuses a write if the node has no quorum.
    ///
    /// # Errors
    /// `cluster not ready - no quorum?`.
    pub(crate) fn require_quorum(&self) -> Result<(), ApiError> {
        let here = if self.node.is_empty() { &self.call.received_by } else { &self.node };
        if self.cluster.state().has_quorum(here) {
            Ok(())
        } else {
            Err(ApiError::failed("cluster not ready - no quorum?"))
        }
    }
}

/// A 500 with this text; for `map_err`.
pub(crate) fn failed(text: String) -> ApiError {
    ApiError::failed(text)
}
