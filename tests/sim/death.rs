//! Machines that die under their holders, and how soon that is known.

use std::time::Duration;

use drover_model::id::{AgentId, LeaseId};
use drover_model::phase::{AgentPhase, LeasePhase};

use super::world::World;
use super::world::setup::Setup;

const SECOND: Duration = Duration::from_secs(1);

/// How far the simulated cluster's lists are behind its guests.
const CYCLE: Duration = Duration::from_secs(10);
/// From when the cluster shows it: one list, and the look that follows.
const KNOWN: Duration = Duration::from_secs(12);

/// How long it takes until this holds, to the second.
async fn seconds_until(world: &World, what: &str, holds: impl Fn(&World) -> bool) -> Duration {
    let mut passed = Duration::ZERO;
    while !holds(world) {
        assert!(passed < Duration::from_secs(1200), "{what} never came");
        world.pass(SECOND).await;
        passed += SECOND;
    }
    passed
}

fn is_lost(world: &World, lease: &LeaseId) -> bool {
    let status = world.view().lease(lease);
    status.is_some_and(|seen| seen.state == LeasePhase::Ended && seen.detail.starts_with("lost"))
}

/// What anyone who holds a lease is shown of it.
fn shown(world: &World, lease: &LeaseId) -> String {
    let seen = world.view().lease(lease).unwrap();
    format!("{}: {}", seen.state, seen.detail)
}

fn is_going(world: &World, agent: &AgentId) -> bool {
    world.view().agent(agent).is_none_or(|seen| seen.phase == AgentPhase::Retiring)
}

// Invariant: a machine that stops is known within ten seconds of the cluster showing it.

#[tokio::test(start_paused = true)]
async fn a_machine_switched_off_under_a_lease_is_known_in_seconds_and_the_lease_is_lost() {
    let world = World::started(Setup::linux("instanceCap: 2")).await;
    let (lease, agent) = world.leased("linux").await;
    world.pass(60 * SECOND).await;
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    let passed = seconds_until(&world, "the loss", |world| is_lost(world, &lease)).await;
    assert!(passed <= CYCLE + KNOWN, "{passed:?}");
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    let (next, _) = world.leased("linux").await;
    world.release(&next).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_machine_that_is_switched_off_goes_in_seconds() {
    let world = World::started(Setup::linux("instanceMin: 1, instanceCap: 2")).await;
    let agent = world.until_state(AgentPhase::Ready).await;
    world.pass(60 * SECOND).await;
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    let passed = seconds_until(&world, "its end", |world| is_going(world, &agent.agent)).await;
    assert!(passed <= CYCLE + KNOWN, "{passed:?}");
    world.until_state(AgentPhase::Ready).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_removes_under_a_lease_is_known_in_seconds() {
    let world = World::started(Setup::linux("instanceCap: 2")).await;
    world.notes.allow_slack();
    let (lease, agent) = world.leased("linux").await;
    world.pass(60 * SECOND).await;
    world.side.remove_guest(agent.vmid.unwrap().0);
    let passed = seconds_until(&world, "the loss", |world| is_lost(world, &lease)).await;
    assert!(passed <= KNOWN, "{passed:?}");
    world.end().await;
}

// Invariant: silent SSH is known within thirty seconds, and alone takes a machine from nobody.

/// From the death of SSH: a probe's pause, and three probes.
const SILENCE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_guest_whose_ssh_hangs_under_a_lease_is_shown_in_30_seconds_and_kept() {
    let world = World::started(Setup::linux("instanceCap: 2")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    for _ in 0..3 {
        world.pass(61 * SECOND).await;
        world.shell.mute(vmid, true);
        let silent = |world: &World| shown(world, &lease) == "ready: its SSH does not answer";
        let passed = seconds_until(&world, "the silence", silent).await;
        assert!(passed <= SILENCE, "{passed:?}");
        world.pass(600 * SECOND).await;
        assert_eq!(shown(&world, &lease), "ready: its SSH does not answer");
        world.shell.mute(vmid, false);
        seconds_until(&world, "its answer", |world| shown(world, &lease) == "ready: ").await;
    }
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_machine_whose_ssh_hangs_serves_nobody_and_is_replaced() {
    let world = World::started(Setup::linux("instanceMin: 1, instanceCap: 3")).await;
    let agent = world.until_state(AgentPhase::Ready).await;
    world.pass(60 * SECOND).await;
    world.shell.mute(agent.vmid.unwrap().0, true);
    world.pass(SILENCE).await;
    assert!(!is_going(&world, &agent.agent), "a short silence costs no machine");
    let (lease, other) = world.leased("linux").await;
    assert_ne!(other.agent, agent.agent);
    let passed = seconds_until(&world, "its end", |world| is_going(world, &agent.agent)).await;
    assert!(passed <= 180 * SECOND, "{passed:?}");
    world.release(&lease).await;
    world.end().await;
}

// Invariant: no machine is handed out that was dead for longer than fifteen seconds.

#[tokio::test(start_paused = true)]
async fn an_idle_machine_that_is_dead_is_handed_out_to_nobody_fifteen_seconds_later() {
    for dead in [0, 4, 8, 12, 16, 20, 24] {
        let world = World::started(Setup::linux("instanceMin: 2, instanceCap: 3")).await;
        let two = |view: &drover_server::view::View| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 2
        };
        world.until("two are ready", two).await;
        world.pass(60 * SECOND).await;
        // Lists hang, so that they show no end either.
        world.side.set_stale("pve1", true);
        let agent = world.view().agents()[0].clone();
        world.side.kill_guest(agent.vmid.unwrap().0).await;
        world.pass(dead * SECOND).await;
        let mut leases = Vec::new();
        for _ in 0..2 {
            let lease = world.lease("linux").await;
            world.pass(SECOND).await;
            let seen = world.view().lease(&lease).unwrap();
            let handed_out = seen.agent.as_ref() == Some(&agent.agent);
            assert!(dead <= 15 || !handed_out, "dead for {dead} s");
            leases.push(lease);
        }
        world.side.set_stale("pve1", false);
        for lease in leases {
            world.release(&lease).await;
        }
        world.end().await;
    }
}

// Invariant: what a node's power cut ends is known at once, and over after the node's grace.

#[tokio::test(start_paused = true)]
async fn a_nodes_power_cut_is_shown_at_once_and_its_leases_are_lost_after_the_grace() {
    let setup = Setup::linux("templateVmId: 9001").template("other", "templateVmId: 9000");
    let world = World::started(setup).await;
    world.notes.allow_slack();
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.node.clone().unwrap().as_str(), "pve2");
    world.pass(60 * SECOND).await;
    world.side.node_down("pve2").await;
    let offline = |world: &World| shown(world, &lease) == "ready: node pve2 is offline";
    let passed = seconds_until(&world, "the node's end", offline).await;
    assert!(passed <= CYCLE + KNOWN, "{passed:?}");
    let passed = seconds_until(&world, "the loss", |world| is_lost(world, &lease)).await;
    let grace = 300 * SECOND;
    assert!(passed >= grace - KNOWN && passed <= grace + KNOWN, "{passed:?}");
    assert_eq!(
        shown(&world, &lease),
        "ended: lost: node pve2 is offline, and its SSH does not answer"
    );
    let (next, _) = world.leased("other").await;
    world.release(&next).await;
    world.side.node_up("pve2");
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_blip_of_a_node_shorter_than_the_grace_costs_no_lease_whose_machine_runs() {
    let world = World::started(Setup::linux("templateVmId: 9001")).await;
    let (lease, _) = world.leased("linux").await;
    world.side.set_partitioned("pve2", true);
    world.pass(300 * SECOND).await;
    assert!(!is_lost(&world, &lease), "{}", shown(&world, &lease));
    world.side.set_partitioned("pve2", false);
    world.pass(60 * SECOND).await;
    world.release(&lease).await;
    world.end().await;
}

// Invariant: a cluster is listed at most once in ten seconds while agents live, and not for its
// agents' sake where none lives.

#[tokio::test(start_paused = true)]
async fn a_cluster_is_listed_once_in_ten_seconds_while_agents_live() {
    let world = World::started(Setup::linux("instanceMin: 3, instanceCap: 6")).await;
    let three = |view: &drover_server::view::View| {
        view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 3
    };
    world.until("three are ready", three).await;
    world.wire.take_lists();
    let mut leases = Vec::new();
    for _ in 0..30 {
        world.pass(5 * SECOND).await;
        leases.push(world.leased("linux").await.0);
        if leases.len() > 3 {
            world.release(&leases.remove(0)).await;
        }
    }
    let lists = world.wire.take_lists();
    let apart = lists.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart >= 10 * SECOND, "{apart:?} between two of {} lists", lists.len());
    assert!(lists.len() >= 15, "{} lists", lists.len());
    for lease in leases {
        world.release(&lease).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_agents_is_listed_by_its_reconciliation_alone() {
    let world = World::started(Setup::linux("").rack("orphanCleanupPeriodSeconds: 600")).await;
    world.pass(60 * SECOND).await;
    world.wire.take_lists();
    world.pass(3600 * SECOND).await;
    let lists = world.wire.take_lists().len();
    assert!((5..=7).contains(&lists), "{lists} lists in an hour");
    world.end().await;
}
