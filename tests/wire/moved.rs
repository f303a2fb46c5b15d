//! A state directory that comes to another machine.

use std::process::Stdio;

use crate::api::{ask, ready, release};
use crate::harness::{Events, Service, Site, world};

/// A service on a machine with this id.
fn on_machine(id: &str, site: &Site) -> Service {
    let file = site.dir.path().join(format!("machine-{id}"));
    std::fs::write(&file, id.repeat(32)).unwrap();
    let file = file.to_str().unwrap();
    let root = ["bwrap", "--die-with-parent", "--dev-bind", "/", "/"];
    let wrapper = [&root[..], &["--ro-bind", file, "/etc/machine-id", "--"]].concat();
    let mut service = Service::spawn_under(&wrapper, site, Stdio::inherit());
    service.hear("READY=1");
    service
}

fn agents(site: &Site) -> Vec<serde_json::Value> {
    site.json(&["agents"])["agents"].as_array().unwrap().clone()
}

// Invariant: a service whose journal is of another machine may have a twin there: it serves its leases, and
// destroys what it knows from before only once an operator has said that it moved.

#[test]
fn a_state_directory_on_another_machine_destroys_nothing_until_an_operator_says_that_it_moved() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "    maxTotalUses: 1\n"));
    let mut home = on_machine("a", &site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    home.child.signal("TERM");
    home.child.wait();

    let mut away = on_machine("b", &site);
    let mut events = Events::follow(&site);
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    let kept = sim.guests();
    release(&site, &held);
    let advice = "drover resync --confirm-machine";
    events.until("agent", |fact| fact.to_string().contains(advice));
    // One of its own comes and goes as ever meanwhile.
    let young = ask(&site, "linux", "young");
    let other = ready(&site, &young)["agent"].clone();
    assert_ne!(other, before["agent"]);
    release(&site, &young);
    events.until("agentGone", |fact| fact["agent"]["id"] == other);
    assert!(kept.iter().all(|vmid| sim.guests().contains(vmid)), "{kept:?} {:?}", sim.guests());

    assert!(site.cli(&["resync", "--confirm-machine"]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == before["agent"]);
    // From here on this machine is its home.
    away.child.signal("TERM");
    away.child.wait();
    let _again = on_machine("b", &site);
    assert!(agents(&site).iter().all(|agent| !agent.to_string().contains(advice)));
}
