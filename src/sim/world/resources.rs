//! Calls on the whole cluster: inventory, status, the next free VMID, and options.
//!
//! In the inventory, placement, tags, lock and pool of a guest are current; its status is as of the
//! last cycle of the status daemon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Cluster;
use super::context::CallContext;
use super::nodes::GUEST_CPU_LOAD;
use super::state::{Guest, GuestType, State};
use crate::call::{Answer, ApiError, Outcome};

/// The VMIDs that `nextid` offers.
const VMID_RANGE: std::ops::Range<u32> = 100..1_000_000;

/// `GET /cluster/resources`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let kind = ctx.text("type");
    let wants = |name: &str| kind.as_deref().is_none_or(|kind| kind == name);
    let mut state = ctx.cluster.state();
    broadcast_all(&ctx.cluster, &mut state);
    let guests = guest_entries(ctx, &state);
    let mut entries = Vec::new();
    if kind.is_none() {
        entries.extend(pool_entries(ctx, &state));
    }
    if wants("vm") {
        entries.extend(guests);
    }
    if wants("node") {
        let nodes = state.nodes.keys();
        entries.extend(nodes.map(|node| super::nodes::entry(ctx, &state, node, true)));
    }
    if wants("storage") {
        entries.extend(storage_entries(ctx, &state));
    }
    if wants("sdn") && ctx.has("/sdn/zones/localnetwork", "SDN.Audit") {
        entries.extend(state.nodes.keys().map(|node| {
            let id = format!("sdn/{node}/localnetwork");
            json!({ "id": id, "node": node, "sdn": "localnetwork", "status": "ok", "type": "sdn" })
        }));
    }
    Ok(Answer::new(entries.into()))
}

/// Broadcasts the status of all guests as of the last cycle of their nodes.
pub(super) fn broadcast_all(cluster: &Cluster, state: &mut State) {
    let now = state.clock.now();
    let running: Vec<u32> = state
        .vms
        .values()
        .filter(|guest| guest.process.is_some())
        .map(|guest| guest.vmid)
        .collect();
    for vmid in running {
        cluster.refresh_vm(state, vmid);
    }
    let containers: Vec<u32> = state.containers.keys().copied().collect();
    for vmid in containers {
        cluster.refresh_container(state, vmid);
    }
    let cycles: BTreeMap<String, _> =
        state.nodes.iter().map(|(name, node)| (name.clone(), node.last_cycle(now))).collect();
    for guest in state.vms.values_mut().chain(state.containers.values_mut()) {
        guest.broadcast_status(cycles.get(&guest.node).copied().flatten());
    }
}

fn guest_entries(ctx: &CallContext, state: &State) -> Vec<Value> {
    let visible = |guest: &&Guest| ctx.has(&format!("/vms/{}", guest.vmid), "VM.Audit");
    let guests = state.all_guests().filter(visible);
    guests
        .map(|guest| {
            let mut entry = entry(state, guest);
            for key in ["tags", "lock"] {
                if let Some(value) = guest.config.get(key) {
                    entry.insert(key.into(), value.clone().into());
                }
            }
            let kind = if guest.kind == GuestType::Vm { "vm" } else { "ct" };
            if let Some(requested) = state.ha.requested_state(&format!("{kind}:{}", guest.vmid)) {
                entry.insert("hastate".into(), requested.into());
            }
            if let Some(pool) = ctx.cluster.rights.pool_of(guest.vmid)
                && ctx.has(&format!("/pool/{pool}"), "Pool.Audit")
            {
                entry.insert("pool".into(), pool.into());
            }
            entry.into()
        })
        .collect()
}

/// The entry of a guest: its node is current, its status is as of the last cycle.
fn entry(state: &State, guest: &Guest) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("id".into(), format!("{}/{}", guest.kind.api_name(), guest.vmid).into());
    entry.insert("type".into(), guest.kind.api_name().into());
    entry.insert("vmid".into(), guest.vmid.into());
    entry.insert("node".into(), guest.node.clone().into());
    let Some((at, status)) = guest.broadcast.unexpired(state.clock.now()) else {
        entry.insert("status".into(), "unknown".into());
        return entry;
    };
    let uptime = status.started_at.map_or(0, |since| at.saturating_sub(since).as_secs());
    let used = if status.started_at.is_some() { status.memory_bytes / 4 } else { 0 };
    let busy =
        if status.started_at.is_some() { GUEST_CPU_LOAD / status.cpus.max(1) as f64 } else { 0.0 };
    let values = json!({
        "status": status.run_state, "name": status.name, "template": u8::from(status.template),
        "uptime": uptime, "maxmem": status.memory_bytes, "mem": used, "maxcpu": status.cpus, "cpu": busy,
        "maxdisk": status.disk_bytes, "disk": 0, "diskread": 0, "diskwrite": 0,
        "netin": uptime * 70, "netout": uptime * 90,
    });
    if let Value::Object(values) = values {
        entry.extend(values);
    }
    entry
}

fn pool_entries(ctx: &CallContext, state: &State) -> Vec<Value> {
    let pools = ctx.cluster.rights.pools();
    let visible = pools.iter().filter(|pool| ctx.has(&format!("/pool/{pool}"), "Pool.Audit"));
    visible.map(|pool| pool_entry(ctx, state, pool)).collect()
}

/// The entry of a pool: the sums of its running members; without any, it has no figures.
fn pool_entry(ctx: &CallContext, state: &State, pool: &str) -> Value {
    let mut line = json!({ "id": format!("/pool/{pool}"), "type": "pool", "pool": pool });
    let now = state.clock.now();
    let (mut uptime, mut memory, mut cpus) = (0, 0, 0);
    for guest in state.all_guests() {
        let Some((at, status)) = guest.broadcast.unexpired(now) else { continue };
        let Some(since) = status.started_at else { continue };
        if ctx.cluster.rights.pool_of(guest.vmid).as_deref() == Some(pool) {
            uptime = uptime.max(at.saturating_sub(since).as_secs());
            memory += status.memory_bytes;
            cpus += status.cpus;
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

fn storage_entries(ctx: &CallContext, state: &State) -> Vec<Value> {
    let mut entries = Vec::new();
    for (name, node) in &state.nodes {
        for (storage, found) in state.storages.iter().filter(|(_, found)| found.available_on(name))
        {
            if found.spec.disabled {
                continue;
            }
            let path = format!("/storage/{storage}");
            if !ctx.has(&path, "Datastore.Audit") && !ctx.has(&path, "Datastore.AllocateSpace") {
                continue;
            }
            let available = node.up && found.reachable;
            let mut entry = json!({
                "id": format!("storage/{name}/{storage}"), "type": "storage", "node": name,
                "storage": storage, "plugintype": found.spec.kind,
                "content": found.spec.content.join(","), "shared": u8::from(found.spec.shared),
                "status": if available { "available" } else { "unknown" },
            });
            if available {
                entry["disk"] = found.used(name).into();
                entry["maxdisk"] = found.spec.size_bytes.into();
            }
            entries.push(entry);
        }
    }
    entries
}

/// The entries of `GET /pools/{pool}` for the guests that exist.
pub(crate) fn pool_members(cluster: &Cluster, vmids: &[u32]) -> Vec<Value> {
    let mut state = cluster.state();
    broadcast_all(cluster, &mut state);
    let guests = vmids.iter().filter_map(|vmid| state.guest_by_id(*vmid));
    guests.map(|guest| entry(&state, guest).into()).collect()
}

/// `GET /cluster/status`.
pub(crate) fn status(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let mut entries = Vec::new();
    if !ctx.cluster.name.is_empty() {
        entries.push(json!({
            "id": "cluster", "type": "cluster", "name": ctx.cluster.name, "version": 3,
            "nodes": state.nodes.len(), "quorate": u8::from(state.has_quorum(&ctx.call.received_by)),
        }));
    }
    let at = &ctx.call.received_by;
    // A standalone node has no number.
    let standalone = ctx.cluster.name.is_empty();
    for (name, node) in &state.nodes {
        let nodeid = if standalone { 0 } else { node.id };
        entries.push(json!({
            "id": format!("node/{name}"), "type": "node", "name": name, "nodeid": nodeid,
            "ip": format!("192.0.2.{}", node.id), "local": u8::from(name == at),
            "online": u8::from(state.online(at, name)), "level": "",
        }));
    }
    Ok(Answer::new(entries.into()))
}

/// `GET /cluster/nextid`: reserves nothing.
pub(crate) fn next_id(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    if let Some(vmid) = ctx.id("vmid") {
        if state.guest_by_id(vmid).is_some() {
            return Err(ApiError::parameter("vmid", format!("VM {vmid} already exists")));
        }
        return Ok(Answer::new(vmid.to_string().into()));
    }
    match VMID_RANGE.into_iter().find(|vmid| state.guest_by_id(*vmid).is_none()) {
        Some(vmid) => Ok(Answer::new(vmid.to_string().into())),
        None => Err(ApiError::failed(format!(
            "unable to get any free VMID in range [{}, {}]",
            VMID_RANGE.start, VMID_RANGE.end
        ))),
    }
}

/// `GET /cluster/options`.
pub(crate) fn options(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guests = state.all_guests();
    let visible = guests.filter(|g| ctx.has(&format!("/vms/{}", g.vmid), "VM.Audit"));
    let tags: BTreeSet<&str> = visible
        .filter_map(|guest| guest.config.get("tags"))
        .flat_map(|tags| tags.split([';', ',', ' ']))
        .filter(|tag| !tag.is_empty())
        .collect();
    let mut options = json!({ "allowed-tags": tags });
    if ctx.has("/", "Sys.Audit") {
        options["mac_prefix"] = "BC:24:11".into();
        options["description"] = "".into();
    }
    Ok(Answer::new(options))
}
