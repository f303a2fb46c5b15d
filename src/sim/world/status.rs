//! A node's guests live: the list of one node, and one guest's present state.

use serde_json::{Value, json};

use super::ask::Ask;
use super::conf::{self, numbered};
use super::state::{Guest, State};
use crate::call::{Answer, ApiError, Outcome};

/// `GET /nodes/{node}/qemu`: guests the caller may look at.
pub fn list(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    let here: Vec<u32> =
        state.guests.values().filter(|guest| guest.node == ask.node).map(|g| g.vmid).collect();
    let mut entries = Vec::new();
    for vmid in here {
        if !ask.has(&format!("/vms/{vmid}"), "VM.Audit") {
            continue;
        }
        ask.cluster.refresh(&mut state, vmid);
        let Some(guest) = state.guests.get(&vmid) else { continue };
        let mut entry = fields(&state, guest);
        if ask.flag("full") {
            detail(&mut entry, guest);
        }
        entries.push(entry);
    }
    Ok(Answer::new(entries.into()))
}

/// `GET …/status/current`.
pub fn current(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.refresh(&mut state, ask.vmid);
    let guest = state.guest(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    let mut entry = fields(&state, guest);
    detail(&mut entry, guest);
    entry["ha"] = state.ha.of(&format!("vm:{}", ask.vmid));
    if conf::agent_enabled(&guest.config) {
        entry["agent"] = 1.into();
    }
    Ok(Answer::new(entry))
}

fn fields(state: &State, guest: &Guest) -> Value {
    let config = &guest.config;
    let now = state.clock.now();
    let view = guest.view();
    let mut entry = json!({
        "vmid": guest.vmid, "name": view.name, "cpus": view.cpus, "maxmem": view.memory,
        "maxdisk": view.disk, "disk": 0, "cpu": 0, "mem": 0, "uptime": 0, "netin": 0, "netout": 0,
        "status": if guest.run.is_some() { "running" } else { "stopped" },
    });
    if let Some(run) = &guest.run {
        let uptime = now.saturating_sub(run.since).as_secs();
        entry["pid"] = run.pid.into();
        entry["uptime"] = uptime.into();
        entry["mem"] = (view.memory / 4).into();
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

fn detail(entry: &mut Value, guest: &Guest) {
    entry["qmpstatus"] = guest.view().status.into();
    if guest.run.is_none() {
        return;
    }
    let cards = guest.config.keys().filter_map(|key| numbered(key, "net"));
    let traffic = json!({ "netin": entry["netin"], "netout": entry["netout"] });
    let nics: serde_json::Map<String, Value> =
        cards.map(|n| (format!("tap{}i{n}", guest.vmid), traffic.clone())).collect();
    if !nics.is_empty() {
        entry["nics"] = nics.into();
    }
}
