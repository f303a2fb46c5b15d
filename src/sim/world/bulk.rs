//! Bulk actions on guests of the whole cluster (9.x): one task for many.

use super::ask::Ask;
use crate::call::{ApiError, Outcome};

/// Which way the guests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They start.
    Up,
    /// They shut down, by force in the end unless that is forbidden.
    Down,
}

/// `POST /cluster/bulk-action/guest/{start,shutdown}`: guests the caller may not switch are left
/// out.
pub fn run(ask: &Ask, way: Way) -> Outcome {
    let guests = chosen(ask, way);
    let Some(node) = ask.cluster.state().nodes.keys().next().cloned() else {
        return Err(ApiError::failed("no nodes"));
    };
    ask.quorate()?;
    let cluster = ask.cluster.clone();
    let timeout = ask.number("timeout").or(Some(180));
    let force = !ask.params().0.contains_key("force-stop") || ask.flag("force-stop");
    let kind = match way {
        Way::Up => "bulkstart",
        Way::Down => "bulkshutdown",
    };
    Ok(ask.cluster.fork(&ask.call.caller, &node, kind, "", |worker| async move {
        let mut failed = 0;
        for (node, vmid) in guests {
            let done = match way {
                Way::Up => cluster.start_one(&worker, &node, vmid).await,
                Way::Down => cluster.shut_one(&worker, &node, vmid, timeout, force).await,
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

/// The guests asked for, or all that can go this way.
fn chosen(ask: &Ask, way: Way) -> Vec<(String, u32)> {
    let wanted: Option<Vec<u64>> = ask
        .params()
        .0
        .get("vms")
        .and_then(|vms| vms.as_array())
        .map(|vms| vms.iter().filter_map(serde_json::Value::as_u64).collect());
    let state = ask.cluster.state();
    let guests = state.guests.values().filter(|guest| {
        let asked = wanted.as_ref().is_none_or(|vms| vms.contains(&u64::from(guest.vmid)));
        asked && !guest.is_template() && (guest.run.is_some() == (way == Way::Down))
    });
    guests
        .filter(|guest| ask.has(&format!("/vms/{}", guest.vmid), "VM.PowerMgmt"))
        .map(|guest| (guest.node.clone(), guest.vmid))
        .collect()
}
