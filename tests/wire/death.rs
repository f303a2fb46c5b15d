//! Machines that die under their holders, and who hears of it.

use std::process::Stdio;

use serde_json::json;

use crate::api::{ask, call, ready};
use crate::harness::{Events, Kept, Lines, Service, world};
use crate::parity::{agents, switch_off, yaml};

const CAUSE: &str = "lost: its guest was switched off";

// Invariant: a machine that is switched off ends its lease as lost, and all who hold it hear of it.

#[test]
fn a_machine_switched_off_under_a_lease_is_asked_to_long_polls_and_events_and_ends_the_command() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "instanceCap: 2")]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = ask(&site, "linux", "wire");
    let held = ready(&site, &lease);
    let script = "echo started; exec sleep 600";
    let mut command = site.command(["lease", "--template", "linux", "--", script]);
    let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (said, errors) = (command.stdout.take().unwrap(), command.stderr.take().unwrap());
    let (mut said, mut errors) = (Lines::of("command", said), Lines::of("errors", errors));
    said.until(|line| line == "started");

    let path = format!("/v1/leases/{lease}?until=ended&waitSeconds=50");
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| call(&site, "GET", &path, None).1);
        for agent in agents(&site, "linux") {
            switch_off(&sim, "pve1", agent["vmid"].as_u64().unwrap());
        }
        let reported = poll.join().unwrap();
        assert_eq!((&reported["state"], &reported["detail"]), (&json!("ended"), &json!(CAUSE)));
    });
    events.until("lease", |fact| fact["lease"]["id"] == *lease && fact["lease"]["detail"] == CAUSE);
    events.until("agentGone", |fact| fact["agent"]["id"] == held["agent"]);
    let code = command.wait().unwrap().code();
    let errors = errors.rest();
    assert_eq!(code, Some(75), "{errors}");
    assert!(errors.contains(CAUSE), "{errors}");
    // Others are served at once.
    let next = ask(&site, "linux", "wire");
    assert_ne!(ready(&site, &next)["agent"], held["agent"]);
}

// Invariant: a command whose machine is out of reach ends with 75 and what is known, also while its lease
// lasts.

#[test]
fn a_node_that_goes_down_under_a_lease_ends_its_command_with_75_and_is_named() {
    let (_dir, sim, site) = world();
    // The way in is another node than the machine's, whose lease outlives it for the node's grace.
    site.write_yaml(&yaml(&site, &sim, &[], &[("far", "node: pve2, templateVmId: 9001")]));
    let _service = Service::start(&site);
    let script = "echo started; exec sleep 600";
    let mut command = site.command(["lease", "--template", "far", "--", script]);
    let mut command = Kept(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let (said, errors) = (command.0.stdout.take().unwrap(), command.0.stderr.take().unwrap());
    let (mut said, mut errors) = (Lines::of("command", said), Lines::of("errors", errors));
    said.until(|line| line == "started");
    sim.order("node-down pve2");
    let code = command.wait();
    let errors = errors.rest();
    assert_eq!(code, Some(75), "{errors}");
    let cause = "its machine does not answer: node pve2 is offline";
    assert!(errors.contains(cause), "{errors}");
}
