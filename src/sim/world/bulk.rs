//! Bulk actions on guests of the whole cluster (9.x): one task for all of them.

use super::context::CallContext;
use crate::call::{ApiError, Outcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkAction {
    Start,
    /// Shuts guests down; kills them after the timeout unless the call forbids it.
    Shutdown,
}

/// `POST /cluster/bulk-action/guest/{start,shutdown}`: skips guests that the caller may not start
/// or stop.
pub(crate) fn run(ctx: &CallContext, action: BulkAction) -> Outcome {
    let guests = selected_guests(ctx, action);
    let Some(node) = ctx.cluster.state().nodes.keys().next().cloned() else {
        return Err(ApiError::failed("no nodes"));
    };
    ctx.require_quorum()?;
    let cluster = ctx.cluster.clone();
    let timeout = ctx.number("timeout").or(Some(180));
    let force = !ctx.params().0.contains_key("force-stop") || ctx.flag("force-stop");
    let kind = match action {
        BulkAction::Start => "bulkstart",
        BulkAction::Shutdown => "bulkshutdown",
    };
    Ok(ctx.cluster.fork(&ctx.call.caller, &node, kind, "", |worker| async move {
        let mut failed = 0;
        for (node, vmid) in guests {
            let done = match action {
                BulkAction::Start => cluster.lock_and_start_vm(&worker, &node, vmid).await,
                BulkAction::Shutdown => {
                    cluster.lock_and_shut_down_vm(&worker, &node, vmid, timeout, force).await
                }
            };
            if let Err(error) = done {
                worker.warn(format!("VM {vmid}: {error}"));
                failed += 1;
            }
        }
        tracing::trace!(failed, "bulk action ended");
        Ok(())
    }))
}

/// The requested guests, or all guests that the action applies to.
fn selected_guests(ctx: &CallContext, action: BulkAction) -> Vec<(String, u32)> {
    let wanted: Option<Vec<u64>> = ctx
        .params()
        .0
        .get("vms")
        .and_then(|vms| vms.as_array())
        .map(|vms| vms.iter().filter_map(serde_json::Value::as_u64).collect());
    let state = ctx.cluster.state();
    let guests = state.vms.values().filter(|guest| {
        let asked = wanted.as_ref().is_none_or(|vms| vms.contains(&u64::from(guest.vmid)));
        asked
            && !guest.is_template()
            && (guest.process.is_some() == (action == BulkAction::Shutdown))
    });
    guests
        .filter(|guest| ctx.has(&format!("/vms/{}", guest.vmid), "VM.PowerMgmt"))
        .map(|guest| (guest.node.clone(), guest.vmid))
        .collect()
}
