//! Real machines in trouble: what tags make of machines of QEMU.

use crate::world::{Machines, until};

const NEVER_BOOTS: u64 = 500;
const NO_AGENT: u64 = 501;
const IGNORES_SHUTDOWN: u64 = 502;

/// Starts a linked clone of the template with a trouble by its tag.
fn start(machines: &Machines, vmid: u64, trouble: &str) {
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    let id = vmid.to_string();
    machines.task("POST", template, "/clone", &[("newid", &id), ("full", "0")]);
    let config = format!("/nodes/{}/qemu/{vmid}/config", machines.sim.fact("node"));
    machines.sim.send("PUT", &config, &[("tags", &format!("guest-{trouble}"))]);
    machines.task("POST", vmid, "/status/start", &[]);
}

// Invariant: a trouble by a tag is that of a real machine, and ends with the order for it.

#[test]
fn machines_never_boot_have_no_agent_or_ignore_shutdown_by_their_tags() {
    let machines = Machines::of("tiny");
    start(&machines, NEVER_BOOTS, "never-boots");
    start(&machines, NO_AGENT, "no-agent");
    start(&machines, IGNORES_SHUTDOWN, "ignores-shutdown");
    let first = machines.says(IGNORES_SHUTDOWN, "cat /proc/sys/kernel/random/boot_id");
    let asked = [("timeout", "2")];
    for vmid in [IGNORES_SHUTDOWN, NEVER_BOOTS] {
        let end = machines.ended("POST", vmid, "/status/shutdown", &asked);
        assert!(end.as_str().is_some_and(|end| end.contains("timeout")), "{vmid}: {end}");
        assert_eq!(machines.status(vmid), "running");
    }
    let same = machines.says(IGNORES_SHUTDOWN, "cat /proc/sys/kernel/random/boot_id");
    assert_eq!(same, first, "it runs on");

    // Its own agent is there: only the trouble keeps it silent.
    assert_eq!(machines.try_says(NO_AGENT, "true"), None);
    assert_eq!(machines.try_says(NEVER_BOOTS, "true"), None);
    machines.sim.order(&format!("trouble {NO_AGENT} none"));
    assert_eq!(machines.says(NO_AGENT, "echo here"), "here");
    machines.sim.order(&format!("trouble {IGNORES_SHUTDOWN} none"));
    for vmid in [NO_AGENT, IGNORES_SHUTDOWN] {
        machines.task("POST", vmid, "/status/shutdown", &[]);
    }
    machines.task("POST", NEVER_BOOTS, "/status/stop", &[]);
    for vmid in [NEVER_BOOTS, NO_AGENT, IGNORES_SHUTDOWN] {
        until("the machine's end", || (machines.status(vmid) == "stopped").then_some(()));
        machines.task("DELETE", vmid, "", &[]);
    }
    machines.until_nothing_is_left();
}
