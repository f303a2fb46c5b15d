//! The current status of the VMs of one node: list and single VM.

use serde_json::{Value, json};

use super::conf::{self, numbered};
use super::context::CallContext;
use super::state::{Guest, State};
use crate::call::{Answer, ApiError, Outcome};

/// `GET /nodes/{node}/qemu`: the VMs that the caller may see.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    let here: Vec<u32> =
        state.vms.values().filter(|guest| guest.node == ctx.node).map(|g| g.vmid).collect();
    let mut entries = Vec::new();
    for vmid in here {
        if !ctx.has(&format!("/vms/{vmid}"), "VM.Audit") {
            continue;
        }
        ctx.cluster.refresh_vm(&mut state, vmid);
        let Some(guest) = state.vms.get(&vmid) else { continue };
        let mut entry = status_fields(&state, guest);
        if ctx.flag("full") {
            add_details(&mut entry, guest);
        }
        entries.push(entry);
    }
    Ok(Answer::new(entries.into()))
}

/// `GET …/status/current`.
pub(crate) fn current(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_vm(&mut state, ctx.vmid);
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    let mut entry = status_fields(&state, guest);
    add_details(&mut entry, guest);
    entry["ha"] = state.ha.status_fields(&format!("vm:{}", ctx.vmid));
    if conf::agent_enabled(&guest.config) {
        entry["agent"] = 1.into();
    }
    Ok(Answer::new(entry))
}

fn status_fields(state: &State, guest: &Guest) -> Value {
    let config = &guest.config;
    let now = state.clock.now();
    let status = guest.status();
    let mut entry = json!({
        "vmid": guest.vmid, "name": status.name, "cpus": status.cpus, "maxmem": status.memory_bytes,
        "maxdisk": status.disk_bytes, "disk": 0, "cpu": 0, "mem": 0, "uptime": 0, "netin": 0, "netout": 0,
        "status": if guest.process.is_some() { "running" } else { "stopped" },
    });
    if let Some(process) = &guest.process {
        let uptime = now.saturating_sub(process.started_at).as_secs();
        entry["pid"] = process.pid.into();
        entry["uptime"] = uptime.into();
        entry["mem"] = (status.memory_bytes / 4).into();
        entry["netin"] = (uptime * 70).into();
        entry["netout"] = (uptime * 90).into();
    }
    for key in ["tags", "lock"] {
        if let Some(value) = config.get(key) {
            entry[key] = value.clone().into();
        }
    }
    if guest.is_template() {
        entry["template"] = 1.into();
    }
    if config.keys().any(|key| numbered(key, "serial").is_some()) {
        entry["serial"] = 1.into();
    }
    entry
}

fn add_details(entry: &mut Value, guest: &Guest) {
    entry["qmpstatus"] = guest.status().run_state.into();
    if guest.process.is_none() {
        return;
    }
    let nic_numbers = guest.config.keys().filter_map(|key| numbered(key, "net"));
    let traffic = json!({ "netin": entry["netin"], "netout": entry["netout"] });
    let nics: serde_json::Map<String, Value> =
        nic_numbers.map(|n| (format!("tap{}i{n}", guest.vmid), traffic.clone())).collect();
    if !nics.is_empty() {
        entry["nics"] = nics.into();
    }
}
