//! The warm pool: when it is topped up, how far, and what never goes below it.

use crate::api::{Board, ask, ready, release};
use crate::harness::{Events, Service, Site, world};
use crate::parity::{agents, listed, switch_off, take_away, yaml};

/// How many agents of a template are ready, once that is so many.
fn until_ready(board: &mut Board, site: &Site, template: &str, count: usize) {
    let id = format!("lab/{template}");
    board.until(site, "the pool is full", |board| {
        let of = board.agents.values().filter(|one| one["template"] == *id);
        of.filter(|one| one["state"] == "Ready").count() == count
    });
}

// Invariant: a template keeps its minimum, from the start on, from an edit on, after every recycle and
// after every loss found; never more than its cap, and nobody idle is reaped below it.

#[test]
fn the_warm_pool_is_topped_up_on_every_occasion_and_never_above_the_cap() {
    let (_dir, sim, site) = world();
    let text = |keys: &str| yaml(&site, &sim, &[], &[("warm", keys)]);
    site.write_yaml(&text("instanceCap: 2, instanceMin: 1, maxTotalUses: 1"));
    let mut service = Service::start(&site);
    let mut board = Board::open(&site);
    // At the start, without demand.
    until_ready(&mut board, &site, "warm", 1);
    assert_eq!(agents(&site, "warm").len(), 1);

    // When a greater one is saved.
    site.write_yaml(&text("instanceCap: 2, instanceMin: 2, maxTotalUses: 1"));
    until_ready(&mut board, &site, "warm", 2);

    // After an agent has had its uses, at once, and within the cap all the time.
    let lease = ask(&site, "warm", "wire");
    let used = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let mut most = 0;
    release(&site, &lease);
    let mut gone = false;
    while !gone || board.in_state("Ready") < 2 {
        let event = board.next(&site);
        gone |= event["kind"] == "agentGone" && event["agent"]["id"] == *used;
        most = most.max(board.agents.len());
    }
    assert_eq!(most, 2, "the cap holds while it is topped up");

    // After a loss that a reconciliation finds.
    let lost = agents(&site, "warm")[0].clone();
    let vmid = lost["vmid"].as_u64().unwrap();
    switch_off(&sim, "pve1", vmid);
    listed(&sim, vmid, "status", "stopped");
    assert!(site.cli(&["resync"]).status.success());
    board.until(&site, "the dead one is gone", |board| {
        !board.agents.contains_key(lost["id"].as_str().unwrap())
    });
    until_ready(&mut board, &site, "warm", 2);

    // What an operator reaps is not below it.
    let out = site.cli(&["reap"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "no agents asked to go\n");

    // And again at the next start.
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let before = sim.guests();
    for vmid in &before {
        take_away(&sim, "pve1", *vmid);
    }
    let _again = Service::start(&site);
    let mut board = Board::open(&site);
    board.until(&site, "both are replaced", |board| {
        let ready = board.agents.values().filter(|one| one["state"] == "Ready");
        ready.filter(|one| !before.contains(&one["vmid"].as_u64().unwrap())).count() == 2
    });
}

// Invariant: lowering a minimum takes no agent away that may stay.

#[test]
fn a_lowered_minimum_leaves_its_agents_to_idle_termination() {
    let (_dir, sim, site) = world();
    let text = |keys: &str| yaml(&site, &sim, &[], &[("warm", keys)]);
    site.write_yaml(&text("instanceMin: 2, idleTerminationMinutes: 0"));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    until_ready(&mut board, &site, "warm", 2);
    site.write_yaml(&text("instanceMin: 0, idleTerminationMinutes: 0"));
    let mut events = Events::follow(&site);
    assert!(site.cli(&["reload"]).status.success());
    assert!(site.cli(&["resync"]).status.success());
    events.until("reconciled", |_| true);
    assert_eq!(agents(&site, "warm").len(), 2, "0 is never, and nothing else takes them");
    assert!(agents(&site, "warm").iter().all(|agent| agent["state"] == "Ready"));
}
