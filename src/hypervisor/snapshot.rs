//! The snapshot of a guest before its first use: taken once, and rolled back to after each use.
//! Nothing is written to a guest whose marks are not exactly the agent's.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::order::SNAPSHOT_NAME;
use drover_model::ports::{Snapped, SnapshotCall, TaskEnd};
use proxmox_client::types::VmConfig;

use crate::client::{Client, Failure, guest_id, task};
use crate::configure::{unlocked, verify};

/// The configuration of a guest, if it is the agent's and not locked.
async fn own_config(client: &Client, call: &SnapshotCall) -> Result<VmConfig, Failure> {
    let config = client.config(call.vm.node.as_str(), guest_id(&call.vm)).await?;
    verify(&config, &call.marks, call.vm.vmid)?;
    unlocked(&config, call.vm.vmid)?;
    Ok(config)
}

/// Whether the guest's state is based on the snapshot. A clone has no snapshots of its template, so
/// it is this guest's own.
fn has_snapshot(config: &VmConfig) -> bool {
    config.get("parent") == Some(SNAPSHOT_NAME)
}

/// Starts to take the snapshot; none when it exists.
pub(crate) async fn start(client: &Client, call: &SnapshotCall) -> Result<Option<Upid>, Failure> {
    if has_snapshot(&own_config(client, call).await?) {
        return Ok(None);
    }
    let (node, id) = (call.vm.node.as_str(), guest_id(&call.vm));
    let upid = client.take_snapshot(node, id, SNAPSHOT_NAME, call.memory).await?;
    Ok(Some(task(upid)))
}

/// Starts to roll back to the snapshot.
pub(crate) async fn roll_back(client: &Client, call: &SnapshotCall) -> Result<Upid, Failure> {
    if !has_snapshot(&own_config(client, call).await?) {
        let text =
            format!("guest `{}` has no snapshot `{SNAPSHOT_NAME}` to roll back to", call.vm.vmid);
        return Err(Fault::new(FaultKind::Broken, Culprit::Guest, text).into());
    }
    let (node, id) = (call.vm.node.as_str(), guest_id(&call.vm));
    Ok(task(client.rollback(node, id, SNAPSHOT_NAME).await?))
}

/// Turns a failure that would repeat itself into "impossible".
pub(crate) fn or_impossible(fault: Fault) -> Result<Snapped, Fault> {
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

/// The end of a task as a result.
pub(crate) fn into_result(end: TaskEnd) -> Result<(), Fault> {
    match end {
        TaskEnd::Done { .. } => Ok(()),
        TaskEnd::Failed(fault) => Err(fault),
        TaskEnd::Unknown(text) => Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text)),
    }
}

#[cfg(test)]
mod tests;
