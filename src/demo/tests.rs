//! A run of the demo made of events, for tests.

use jiff::Timestamp;
use pve_sim::world::NodeLoad;
use serde_json::{Value, json};

use super::jobs::batch;
use super::state::{Change, DemoState, JobEnd, Tone};

/// The start of the demo.
const START: &str = "2026-11-21T08:11:00Z";

/// A moment of the demo, as events spell it.
pub fn at(ms: i64) -> String {
    let start: Timestamp = START.parse().unwrap_or_default();
    let moment = Timestamp::from_millisecond(start.as_millisecond() + ms);
    moment.unwrap_or_default().to_string()
}

pub fn state() -> DemoState {
    DemoState::new(START.parse().unwrap_or_default(), batch(8))
}

/// An event of an agent with these phases.
pub fn agent(ms: i64, vmid: u32, template: &str, phases: &[(&str, u64)]) -> Value {
    let state = phases.last().map_or("Queued", |(part, _)| part.split(':').next().unwrap_or(part));
    let phases: Vec<Value> =
        phases.iter().map(|(part, ms)| json!({ "state": part, "ms": ms })).collect();
    json!({ "at": at(ms), "kind": "agent", "agent": {
        "id": format!("agent{vmid}"), "template": format!("rack/{template}"), "state": state,
        "since": at(ms), "vmid": vmid, "node": "pve1", "ssh": null, "leases": [], "uses": 0,
        "detail": "", "phases": phases,
    }})
}

/// An event of the lease of a job on the agent with this VMID.
pub fn lease(ms: i64, owner: &str, state: &str, vmid: u32) -> Value {
    json!({ "at": at(ms), "kind": "lease", "lease": {
        "id": format!("lease-{owner}"), "state": state, "agent": format!("agent{vmid}"),
        "owner": owner, "principal": "local", "expiresAt": null, "detail": "", "ssh": null,
    }})
}

pub fn apply(state: &mut DemoState, events: &[Value]) -> Vec<Change> {
    events.iter().filter_map(|event| state.event(event)).collect()
}

/// A run in which most of the story has happened, 16 s after its start.
pub fn played() -> DemoState {
    let mut state = state();
    let load = |name: &str, running, stopped, gib: u64| NodeLoad {
        name: name.to_owned(),
        running,
        stopped,
        memory_used_bytes: gib << 30,
        memory_bytes: 64 << 30,
    };
    state.nodes = vec![load("pve1", 3, 0, 12), load("pve2", 2, 0, 33), load("pve3", 1, 1, 1)];
    let boot: [(&str, u64); 7] = [
        ("Queued", 300),
        ("Cloning", 900),
        ("Configuring", 500),
        ("Booting", 4000),
        ("Connecting", 300),
        ("Preparing: cloud-init", 200),
        ("Preparing: remoteFs", 100),
    ];
    let templates = ["linux", "linux", "linux", "linux-big", "linux-big", "linux-small"];
    for (vmid, template) in (10_000..).zip(templates) {
        let mut phases = boot.to_vec();
        phases.push(("Leased", 0));
        apply(&mut state, &[agent(6800, vmid, template, &phases)]);
    }
    let owners = ["hello", "compile", "count", "fails", "loses-vm", "package"];
    for (vmid, owner) in (10_000..).zip(owners) {
        apply(&mut state, &[lease(6800, owner, "ready", vmid)]);
    }
    let end = |exit, error: &str| JobEnd { exit: Some(exit), error: error.to_owned() };
    state.printed(0, "hello from linux-1");
    state.printed(1, "compiled 3 of 8\u{1b}[2J");
    state.printed(4, "started");
    state.log(1200, Tone::Plain, "the service is ready; 8 jobs ask for machines");
    state.log(2400, Tone::Story, "writing `instanceCap: three` into line 45 of drover.yaml");
    state.log(2600, Tone::Story, "refused edit: line 45: instanceCap: expected a number");
    state.marks.push((2600, "edit refused"));
    for (index, exit) in [(0, end(0, "")), (2, end(0, "")), (3, end(3, "assertion failed"))] {
        if let Some((tone, line)) = state.ended(index, &exit, 7500) {
            state.log(7500, tone, &line);
        }
    }
    state.outages.push((8000, Some(9100)));
    state.marks.push((8000, "kill -9"));
    state.log(
        9100,
        Tone::Good,
        "the service is ready again after 1.10 s; it adopted 6 of 6 agents",
    );
    state.agents.killed(10_004, 9600);
    state.marks.push((9600, "VM killed"));
    state.log(9600, Tone::Story, "killing VM 10004 while its job runs");
    let earlier = [("Earlier", 8600), ("Leased", 3000), ("Retiring", 400)];
    apply(&mut state, &[agent(12_500, 10_004, "linux-big", &earlier)]);
    let lost = end(75, "drover: the lease ended while the command ran: it was lost");
    if let Some((tone, line)) = state.ended(4, &lost, 13_000) {
        state.log(13_000, tone, &line);
    }
    state
}
