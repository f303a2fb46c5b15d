//! One call as its handler sees it: the cluster, the caller, the node and guest it is about.

use std::sync::Arc;

use super::Cluster;
use crate::call::{ApiError, Call, Params};

/// A call and the world it is made in.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The world.
    pub(crate) cluster: Arc<Cluster>,
    /// The call.
    pub call: Call,
    /// The node it is about; empty for calls on the cluster.
    pub node: String,
    /// The guest it is about; 0 for calls on none.
    pub vmid: u32,
}

impl Ask {
    /// A call in a world.
    pub(crate) fn new(cluster: Arc<Cluster>, call: Call) -> Self {
        let node = call.node.clone().or_else(|| call.params.text("node")).unwrap_or_default();
        let vmid = call.params.int("vmid").and_then(|vmid| u32::try_from(vmid).ok()).unwrap_or(0);
        Self { cluster, call, node, vmid }
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.call.params
    }

    /// A parameter as text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.call.params.text(name)
    }

    /// A boolean parameter.
    pub fn flag(&self, name: &str) -> bool {
        self.call.params.flag(name)
    }

    /// A whole number that is not negative.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.call.params.int(name).and_then(|value| u64::try_from(value).ok())
    }

    /// A VMID among the parameters.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.call.params.int(name).and_then(|value| u32::try_from(value).ok())
    }

    /// Whether the caller holds a privilege.
    pub fn has(&self, path: &str, privilege: &str) -> bool {
        self.cluster.rights.has(&self.call.caller, path, privilege)
    }

    /// Requires privileges.
    ///
    /// # Errors
    /// The 403 of Proxmox.
    pub fn check(&self, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        self.cluster.rights.check(&self.call.caller, path, privileges)
    }

    /// Requires one of several privileges.
    ///
    /// # Errors
    /// The 403 of Proxmox, all of them named with a bar between.
    pub fn check_any(&self, path: &str, privileges: &[&str]) -> Result<(), ApiError> {
        if privileges.iter().any(|privilege| self.has(path, privilege)) {
            return Ok(());
        }
        Err(ApiError::denied(&format!("{path}, {}", privileges.join("|"))))
    }

    /// The refusal of a parameter that Proxmox obeys and the simulator does not.
    pub fn unserved(&self, name: &str) -> ApiError {
        let Call { method, route, .. } = &self.call;
        ApiError::with_status(
            501,
            format!("drover sim does not serve '{name}' of {method} {route}"),
        )
    }

    /// Refuses parameters that only root may use, a token of root not being root.
    ///
    /// # Errors
    /// A 400 about the first of them.
    pub fn root_only(&self, names: &[&str]) -> Result<(), ApiError> {
        if self.call.caller.is_root() {
            return Ok(());
        }
        match names.iter().find(|name| self.call.params.0.contains_key(**name)) {
            Some(name) => Err(ApiError::parameter(name, "Only root may use this option.")),
            None => Ok(()),
        }
    }

    /// Refuses writes while the node that does them has no quorum.
    ///
    /// # Errors
    /// `cluster not ready - no quorum?`.
    pub fn quorate(&self) -> Result<(), ApiError> {
        let here = if self.node.is_empty() { &self.call.received_by } else { &self.node };
        if self.cluster.state().quorate(here) {
            Ok(())
        } else {
            Err(ApiError::failed("cluster not ready - no quorum?"))
        }
    }
}

/// A 500 with a text that is already made; for `map_err`.
pub fn failed(text: String) -> ApiError {
    ApiError::failed(text)
}
