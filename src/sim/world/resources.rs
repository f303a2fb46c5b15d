//! The cluster as a whole: the inventory with its two ages of values, status, free ids, options.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Cluster;
use super::ask::Ask;
use super::nodes::GUEST_LOAD;
use super::state::{Guest, Kind, State};
use crate::call::{Answer, ApiError, Outcome};

/// Ids that `nextid` looks among, the upper one not included.
const IDS: std::ops::Range<u32> = 100..1_000_000;

/// `GET /cluster/resources`.
pub fn list(ask: &Ask) -> Outcome {
    let kind = ask.text("type");
    let wants = |name: &str| kind.as_deref().is_none_or(|kind| kind == name);
    let mut state = ask.cluster.state();
    settle(&ask.cluster, &mut state);
    let guests = guest_entries(ask, &state);
    let mut entries = Vec::new();
    if kind.is_none() {
        entries.extend(pool_entries(ask, &state));
    }
    if wants("vm") {
        entries.extend(guests);
    }
    if wants("node") {
        let nodes = state.nodes.keys();
        entries.extend(nodes.map(|node| super::nodes::entry(ask, &state, node, true)));
    }
    if wants("storage") {
        entries.extend(storage_entries(ask, &state));
    }
    if wants("sdn") && ask.has("/sdn/zones/localnetwork", "SDN.Audit") {
        entries.extend(state.nodes.keys().map(|node| {
            let id = format!("sdn/{node}/localnetwork");
            json!({ "id": id, "node": node, "sdn": "localnetwork", "status": "ok", "type": "sdn" })
        }));
    }
    Ok(Answer::new(entries.into()))
}

/// Brings what is published of all guests up to their nodes' last cycles.
pub(super) fn settle(cluster: &Cluster, state: &mut State) {
    let now = state.clock.now();
    let running: Vec<u32> =
        state.guests.values().filter(|guest| guest.run.is_some()).map(|guest| guest.vmid).collect();
    for vmid in running {
        cluster.refresh(state, vmid);
    }
    let containers: Vec<u32> = state.containers.keys().copied().collect();
    for vmid in containers {
        cluster.look_at_container(state, vmid);
    }
    let cycles: BTreeMap<String, _> =
        state.nodes.iter().map(|(name, node)| (name.clone(), node.last_cycle(now))).collect();
    for guest in state.guests.values_mut().chain(state.containers.values_mut()) {
        guest.settle(cycles.get(&guest.node).copied().flatten());
    }
}

fn guest_entries(ask: &Ask, state: &State) -> Vec<Value> {
    let visible = |guest: &&Guest| ask.has(&format!("/vms/{}", guest.vmid), "VM.Audit");
    let guests = state.everyone().filter(visible);
    guests
        .map(|guest| {
            let mut entry = entry(state, guest);
            for key in ["tags", "lock"] {
                if let Some(value) = guest.config.get(key) {
                    entry.insert(key.into(), value.clone().into());
                }
            }
            let kind = if guest.kind == Kind::Vm { "vm" } else { "ct" };
            if let Some(wish) = state.ha.state(&format!("{kind}:{}", guest.vmid)) {
                entry.insert("hastate".into(), wish.into());
            }
            if let Some(pool) = ask.cluster.rights.pool_of(guest.vmid)
                && ask.has(&format!("/pool/{pool}"), "Pool.Audit")
            {
                entry.insert("pool".into(), pool.into());
            }
            entry.into()
        })
        .collect()
}

/// A guest's entry: where it is, fresh; how it is, as of the last cycle.
fn entry(state: &State, guest: &Guest) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("id".into(), format!("{}/{}", guest.kind.name(), guest.vmid).into());
    entry.insert("type".into(), guest.kind.name().into());
    entry.insert("vmid".into(), guest.vmid.into());
    entry.insert("node".into(), guest.node.clone().into());
    let Some((at, view)) = guest.sight.fresh(state.clock.now()) else {
        entry.insert("status".into(), "unknown".into());
        return entry;
    };
    let uptime = view.since.map_or(0, |since| at.saturating_sub(since).as_secs());
    let used = if view.since.is_some() { view.memory / 4 } else { 0 };
    let busy = if view.since.is_some() { GUEST_LOAD / view.cpus.max(1) as f64 } else { 0.0 };
    let values = json!({
        "status": view.status, "name": view.name, "template": u8::from(view.template),
        "uptime": uptime, "maxmem": view.memory, "mem": used, "maxcpu": view.cpus, "cpu": busy,
        "maxdisk": view.disk, "disk": 0, "diskread": 0, "diskwrite": 0,
        "netin": uptime * 70, "netout": uptime * 90,
    });
    if let Value::Object(values) = values {
        entry.extend(values);
    }
    entry
}

fn pool_entries(ask: &Ask, state: &State) -> Vec<Value> {
    let pools = ask.cluster.rights.pools();
    let visible = pools.iter().filter(|pool| ask.has(&format!("/pool/{pool}"), "Pool.Audit"));
    visible.map(|pool| pool_entry(ask, state, pool)).collect()
}

/// A pool's entry: running members are summed up, without any it has no figures.
fn pool_entry(ask: &Ask, state: &State, pool: &str) -> Value {
    let mut line = json!({ "id": format!("/pool/{pool}"), "type": "pool", "pool": pool });
    let now = state.clock.now();
    let (mut uptime, mut memory, mut cpus) = (0, 0, 0);
    for guest in state.everyone() {
        let Some((at, view)) = guest.sight.fresh(now) else { continue };
        let Some(since) = view.since else { continue };
        if ask.cluster.rights.pool_of(guest.vmid).as_deref() == Some(pool) {
            uptime = uptime.max(at.saturating_sub(since).as_secs());
            memory += view.memory;
            cpus += view.cpus;
        }
    }
    if cpus > 0 {
        line["uptime"] = uptime.into();
        line["maxmem"] = memory.into();
        line["mem"] = (memory / 4).into();
        line["maxcpu"] = cpus.into();
        line["cpu"] = 0.into();
    }
    line
}

fn storage_entries(ask: &Ask, state: &State) -> Vec<Value> {
    let mut entries = Vec::new();
    for (name, node) in &state.nodes {
        for (storage, found) in state.storages.iter().filter(|(_, found)| found.on(name)) {
            if found.spec.disabled {
                continue;
            }
            let path = format!("/storage/{storage}");
            if !ask.has(&path, "Datastore.Audit") && !ask.has(&path, "Datastore.AllocateSpace") {
                continue;
            }
            let well = node.up && found.reachable;
            let mut entry = json!({
                "id": format!("storage/{name}/{storage}"), "type": "storage", "node": name,
                "storage": storage, "plugintype": found.spec.kind,
                "content": found.spec.content.join(","), "shared": u8::from(found.spec.shared),
                "status": if well { "available" } else { "unknown" },
            });
            if well {
                entry["disk"] = found.used(name).into();
                entry["maxdisk"] = found.spec.size_bytes.into();
            }
            entries.push(entry);
        }
    }
    entries
}

/// Lines of `GET /pools/{pool}` for those of these guests that exist.
pub fn pool_members(cluster: &Cluster, vmids: &[u32]) -> Vec<Value> {
    let mut state = cluster.state();
    settle(cluster, &mut state);
    let guests = vmids.iter().filter_map(|vmid| state.holder(*vmid));
    guests.map(|guest| entry(&state, guest).into()).collect()
}

/// `GET /cluster/status`.
pub fn status(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let mut entries = Vec::new();
    if !ask.cluster.name.is_empty() {
        entries.push(json!({
            "id": "cluster", "type": "cluster", "name": ask.cluster.name, "version": 3,
            "nodes": state.nodes.len(), "quorate": u8::from(state.quorate(&ask.call.received_by)),
        }));
    }
    let at = &ask.call.received_by;
    // A node that is in no cluster has no number in one.
    let alone = ask.cluster.name.is_empty();
    for (name, node) in &state.nodes {
        let nodeid = if alone { 0 } else { node.id };
        entries.push(json!({
            "id": format!("node/{name}"), "type": "node", "name": name, "nodeid": nodeid,
            "ip": format!("192.0.2.{}", node.id), "local": u8::from(name == at),
            "online": u8::from(state.online(at, name)), "level": "",
        }));
    }
    Ok(Answer::new(entries.into()))
}

/// `GET /cluster/nextid`: reserves nothing.
pub fn next_id(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    if let Some(vmid) = ask.id("vmid") {
        if state.holder(vmid).is_some() {
            return Err(ApiError::parameter("vmid", format!("VM {vmid} already exists")));
        }
        return Ok(Answer::new(vmid.to_string().into()));
    }
    match IDS.into_iter().find(|vmid| state.holder(*vmid).is_none()) {
        Some(vmid) => Ok(Answer::new(vmid.to_string().into())),
        None => Err(ApiError::failed(format!(
            "unable to get any free VMID in range [{}, {}]",
            IDS.start, IDS.end
        ))),
    }
}

/// `GET /cluster/options`.
pub fn options(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guests = state.everyone();
    let visible = guests.filter(|g| ask.has(&format!("/vms/{}", g.vmid), "VM.Audit"));
    let tags: BTreeSet<&str> = visible
        .filter_map(|guest| guest.config.get("tags"))
        .flat_map(|tags| tags.split([';', ',', ' ']))
        .filter(|tag| !tag.is_empty())
        .collect();
    let mut options = json!({ "allowed-tags": tags });
    if ask.has("/", "Sys.Audit") {
        options["mac_prefix"] = "BC:24:11".into();
        options["description"] = "".into();
    }
    Ok(Answer::new(options))
}
