//! The snapshot of a guest from before its first use: taken once, gone back to after each use. Nothing
//! is written to a guest whose marks are not exactly the agent's.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::ports::{Snapped, SnapshotCall, TaskEnd, VmRef};
use proxmox_client::types::VmConfig;

use crate::client::{Client, Failure, task};
use crate::configure::{unlocked, verify};

/// Its name; no other is ever taken or gone back to.
const CLEAN: &str = "drover-clean";

/// A guest's configuration, when it is the agent's and Proxmox does nothing with it.
async fn own_config(client: &Client, call: &SnapshotCall) -> Result<VmConfig, Failure> {
    let config = client.config(call.vm.node.as_str(), call.vm.vmid.0).await?;
    verify(&config, &call.marks, call.vm.vmid)?;
    unlocked(&config, call.vm.vmid)?;
    Ok(config)
}

/// Whether the guest stands on the snapshot: a clone brings none along, so it is this guest's.
fn is_there(config: &VmConfig) -> bool {
    config.get("parent") == Some(CLEAN)
}

/// Begins to take the snapshot; none where it is there already.
pub async fn take(client: &Client, call: &SnapshotCall) -> Result<Option<Upid>, Failure> {
    if is_there(&own_config(client, call).await?) {
        return Ok(None);
    }
    let VmRef { node, vmid, .. } = &call.vm;
    let upid = client.take_snapshot(node.as_str(), vmid.0, CLEAN, call.memory).await?;
    Ok(Some(task(upid)))
}

/// Begins to go back to the snapshot.
pub async fn go_back(client: &Client, call: &SnapshotCall) -> Result<Upid, Failure> {
    if !is_there(&own_config(client, call).await?) {
        let text = format!("guest `{}` has no snapshot `{CLEAN}` to go back to", call.vm.vmid);
        return Err(Fault::new(FaultKind::Broken, Culprit::Guest, text).into());
    }
    Ok(task(client.go_back(call.vm.node.as_str(), call.vm.vmid.0, CLEAN).await?))
}

/// What a failure to take it means: one that stays says that there can be none.
pub fn taken(fault: Fault) -> Result<Snapped, Fault> {
    match &fault.kind {
        FaultKind::Denied { .. } | FaultKind::Broken | FaultKind::Capacity => {
            Ok(Snapped::Impossible(fault.text))
        }
        FaultKind::Contention
        | FaultKind::Locked { .. }
        | FaultKind::Unreachable
        | FaultKind::UnknownOutcome
        | FaultKind::Gone
        | FaultKind::IdTaken
        | FaultKind::Foreign
        | FaultKind::KeyRejected
        | FaultKind::Impostor => Err(fault),
    }
}

/// How a task ended, as an outcome.
pub fn ended(end: TaskEnd) -> Result<(), Fault> {
    match end {
        TaskEnd::Done { .. } => Ok(()),
        TaskEnd::Failed(fault) => Err(fault),
        TaskEnd::Unknown(text) => Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text)),
    }
}

#[cfg(test)]
mod tests;
