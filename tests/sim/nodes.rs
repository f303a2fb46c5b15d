//! Nodes that go down and come back, under clones, under leases, and under the endpoint itself.

use std::time::Duration;

use drover_model::phase::{AgentPhase, CloudHealth, LeasePhase};
use drover_model::record::Reason;
use pve_sim::world::Spread;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// The template is on pve2; the first endpoint is pve1.
fn on_pve2(keys: &str) -> Setup {
    Setup::linux(&format!("templateVmId: 9001, {keys}"))
        .rack("nodeGracePeriodSeconds: 120, orphanCleanupPeriodSeconds: 30")
}

// Invariant: a node that goes down takes its guests along and nothing else.

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_during_a_clone_delays_the_lease_until_it_is_back() {
    let mut setup = on_pve2("maxTotalUses: 1, instanceCap: 2");
    setup.latency.clone_linked = Spread::of(4.0, 5.0);
    let world = World::started(setup).await;
    world.notes.allow_slack();
    let lease = world.lease("linux").await;
    world.until_state(AgentPhase::Cloning).await;
    world.pass(Duration::from_secs(2)).await;
    world.side.node_down("pve2").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    world.side.node_up("pve2");
    world.ready(&lease).await;
    world.release(&lease).await;
    // The clone that died with the node is locked for good: an administrator's matter.
    world
        .until("what can go is gone", |view| {
            view.agents().iter().all(|agent| agent.phase == AgentPhase::Stranded)
        })
        .await;
    for agent in world.view().agents() {
        world.administer(agent.vmid.unwrap().0);
    }
    world.until("all are gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn agents_on_a_dead_node_leave_the_cap_and_go_when_it_is_back() {
    let setup = on_pve2("instanceMin: 1")
        .rack("nodeGracePeriodSeconds: 120, orphanCleanupPeriodSeconds: 30, instanceCap: 1");
    let mut setup = setup.template("other", "templateVmId: 9000");
    setup.templates[0].1 += ", instanceCap: 1";
    let world = World::started(setup).await;
    let ready = world.until_state(AgentPhase::Ready).await;
    world.notes.allow_slack();
    world.side.node_down("pve2").await;
    world.pass(5 * MINUTE).await;
    let (lease, other) = world.leased("other").await;
    assert_eq!(other.node.as_ref().unwrap().as_str(), "pve1");
    assert!(world.view().agent(&ready.agent).is_some(), "it is not forgotten");
    world.side.node_up("pve2");
    world.until("it goes", |view| view.agent(&ready.agent).is_none()).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_on_a_node_that_is_gone_is_lost_after_the_grace_and_its_machine_goes_later() {
    let world = World::started(on_pve2("")).await;
    world.notes.allow_slack();
    let (lease, agent) = world.leased("linux").await;
    world.side.node_down("pve2").await;
    world.pass(10 * MINUTE).await;
    let status = world.view().lease(&lease).unwrap();
    let why = "lost: node pve2 is offline, and its SSH does not answer";
    assert_eq!((status.state, status.detail.as_str()), (LeasePhase::Ended, why));
    assert!(world.view().agent(&agent.agent).is_some(), "nobody knows what runs there");
    world.side.node_up("pve2");
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_blip_shorter_than_the_grace_costs_the_guests_and_no_parking() {
    let world = World::started(on_pve2("instanceMin: 1, instanceCap: 1")).await;
    let ready = world.until_state(AgentPhase::Ready).await;
    world.side.node_down("pve2").await;
    world.pass(Duration::from_secs(45)).await;
    world.side.node_up("pve2");
    world.until("it goes", |view| view.agent(&ready.agent).is_none()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::PoweredOff);
    world.until_state(AgentPhase::Ready).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_daemon_that_hangs_makes_nobody_lose_anything() {
    let world = World::started(on_pve2("instanceMin: 2")).await;
    world
        .until("two are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 2
        })
        .await;
    let agents: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    world.side.set_stale("pve2", true);
    world.pass(30 * MINUTE).await;
    world.side.set_stale("pve2", false);
    world.pass(10 * MINUTE).await;
    let after: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    assert_eq!(after, agents);
    world.end().await;
}

// Invariant: since when a node is offline is known after a start, and its grace goes on.

/// For how long a node is seen offline, in seconds.
async fn offline_for(world: &World, node: &str) -> u64 {
    let reported = world.resync().await;
    let before = format!("node `{node}` is seen offline for ");
    let span = reported.iter().find_map(|text| text.strip_prefix(&before)?.strip_suffix(" s"));
    assert!(span.is_some(), "{reported:?}");
    span.unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_is_offline_since_before_the_restart() {
    let mut world = World::started(on_pve2("")).await;
    world.notes.allow_slack();
    let (lease, agent) = world.leased("linux").await;
    world.side.node_down("pve2").await;
    world.pass(Duration::from_secs(80)).await;
    let before = offline_for(&world, "pve2").await;
    world.kill();
    world.pass(Duration::from_secs(10)).await;
    world.start().await;
    let after = offline_for(&world, "pve2").await;
    assert!(after >= before + 10, "{after} s, and {before} s before the restart");
    // A grace that started again would not be over yet.
    world.pass(Duration::from_secs(115)).await;
    let status = world.view().lease(&lease).unwrap();
    let why = "lost: node pve2 is offline, and its SSH does not answer";
    assert_eq!((status.state, status.detail.as_str()), (LeasePhase::Ended, why));
    world.side.node_up("pve2");
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    assert!(world.journal_state().troubled.is_empty());
    world.end().await;
}

// Invariant: with several endpoints, one that is down is gone past.

#[tokio::test(start_paused = true)]
async fn the_first_endpoint_may_be_down() {
    let world = World::new(on_pve2("maxTotalUses: 1"));
    world.side.node_down("pve1").await;
    let mut world = world;
    world.start().await;
    let (lease, _) = world.leased("linux").await;
    world.side.node_up("pve1");
    world.pass(5 * MINUTE).await;
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_down_for_an_hour_costs_no_agent_its_record() {
    let world = World::started(Setup::linux("instanceMin: 1, instanceCap: 1")).await;
    world.notes.allow_slack();
    let ready = world.until_state(AgentPhase::Ready).await;
    for node in ["pve1", "pve2", "pve3"] {
        world.side.node_down(node).await;
    }
    world.pass(60 * MINUTE).await;
    assert_eq!(world.view().clouds()[0].health, CloudHealth::Degraded);
    assert_eq!(world.journal_state().agents.len(), 1);
    for node in ["pve1", "pve2", "pve3"] {
        world.side.node_up(node);
    }
    world.until("the cloud is well", |view| view.clouds()[0].health == CloudHealth::Well).await;
    world.until("the dead guest is found out", |view| view.agent(&ready.agent).is_none()).await;
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.end().await;
}
