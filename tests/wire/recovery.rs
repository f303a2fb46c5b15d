//! Killed at any moment, the service finds everything again.

use serde_json::Value;

use crate::harness::{Events, Service, world};

// Invariant: after kill -9 and a start, agents and leases are adopted and nothing is left over.

#[test]
fn a_lease_survives_kill_9_of_the_service() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let lease = site.json(&["lease", "--labels", "linux", "--ttl", "10m"]);
    let id = lease["id"].as_str().unwrap().to_owned();
    service.child.signal("KILL");
    service.child.wait();
    let _again = Service::start(&site);
    let leases = site.json(&["status"])["leases"].clone();
    let kept = leases.as_array().unwrap().iter().find(|other| other["id"] == id.as_str());
    let kept = kept.unwrap_or_else(|| panic!("{leases}"));
    assert_eq!(kept["agent"], lease["agent"]);
    let mut events = Events::follow(&site);
    assert!(site.cli(&["release", &id]).status.success());
    assert!(site.cli(&["reap", "--all"]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == lease["agent"]);
    assert!(sim.guests().is_empty());
}

#[test]
fn agents_caught_in_every_phase_are_finished_or_undone() {
    let (_dir, sim, site) = world();
    for state in ["Cloning", "Configuring", "Booting", "Connecting", "Preparing"] {
        let mut service = Service::start(&site);
        let mut events = Events::follow(&site);
        let mut asked = site.command(["lease", "--labels", "linux", "--", "true"]).spawn().unwrap();
        events.until("agent", |fact| fact["agent"]["state"] == state);
        service.child.signal("KILL");
        service.child.wait();
        let _ = asked.kill();
        let _ = asked.wait();
        let mut service = Service::start(&site);
        assert!(
            site.cli(&["lease", "--labels", "linux", "--", "true"]).status.success(),
            "{state}"
        );
        let mut events = Events::follow(&site);
        for lease in site.json(&["status"])["leases"].as_array().unwrap() {
            let id = lease["id"].as_str().unwrap();
            assert!(site.cli(&["release", id]).status.success());
        }
        let agents = site.json(&["agents"])["agents"].clone();
        assert!(site.cli(&["reap", "--all"]).status.success());
        // A clone that was perhaps never sent is in doubt until every wait of Proxmox is over; it
        // has no guest.
        let mut left: Vec<Value> = agents.as_array().unwrap().clone();
        left.retain(|agent| agent["state"] != "InDoubt");
        while !left.is_empty() {
            let gone = events.until("agentGone", |_| true);
            left.retain(|agent| agent["id"] != gone["agent"]["id"]);
        }
        assert!(sim.guests().is_empty(), "after {state}");
        service.child.signal("TERM");
        service.child.wait();
    }
}

#[test]
fn what_happened_before_kill_9_can_be_asked_about_after_it() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = site.json(&["lease", "--labels", "linux", "--ttl", "10m"]);
    let (id, agent) = (lease["id"].as_str().unwrap(), lease["agent"].as_str().unwrap());
    assert!(site.cli(&["release", id]).status.success());
    assert!(site.cli(&["retire", agent]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == agent);
    // An order is answered once the journal has it, and all before it.
    assert!(site.cli(&["cordon", "pve1"]).status.success());
    let asked: [&[&str]; 4] =
        [&["agents", "--gone"], &["why", agent], &["show", "agent", agent], &["show", "lease", id]];
    let before = asked.map(|command| site.json(command));
    service.child.signal("KILL");
    service.child.wait();
    let mut service = Service::start(&site);
    assert_eq!(asked.map(|command| site.json(command)), before);
    let mut past = Events::follow_with(&site, &["--since", "1h"]);
    let facts = past.up_to(|fact| fact["kind"] == "configApplied" && fact["generation"] == 1);
    let facts = [facts, past.up_to(|fact| fact["kind"] == "configApplied")].concat();
    let of_lease = facts.iter().filter(|fact| fact["lease"]["id"] == id);
    let ends = of_lease.filter(|fact| fact["lease"]["state"] == "ended");
    assert_eq!(ends.count(), 1, "{facts:#?}");
    service.child.signal("TERM");
    service.child.wait();
}

#[test]
fn a_guest_killed_under_its_lease_is_noticed_and_replaced() {
    let (_dir, sim, site) = world();
    let yaml =
        site.yaml(&sim, "").replace("startVmId", "orphanCleanupPeriodSeconds: 30\n    startVmId");
    site.write_yaml(&yaml);
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = site.json(&["lease", "--labels", "linux"]);
    let agent = site.json(&["agents"])["agents"][0].clone();
    let path =
        format!("/nodes/{}/qemu/{}/status/stop", agent["node"].as_str().unwrap(), agent["vmid"]);
    sim.call("POST", &path);
    events.until("agentGone", |fact| fact["agent"]["id"] == lease["agent"]);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    assert!(out.status.success());
}
