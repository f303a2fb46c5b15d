//! From nothing to gone: leases, what they cost, the warm pool, caps, many at once.

use std::time::Duration;

use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::Reason;
use drover_model::stop::StopPolicy;
use pve_sim::guests::StubOptions;
use pve_sim::world::{CallFault, Faults, Spread};

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// Agents in a state.
fn count(world: &World, state: AgentPhase) -> usize {
    world.view().agents().iter().filter(|agent| agent.phase == state).count()
}

// Invariant: a lease is served, and nothing is left of it.

#[tokio::test(start_paused = true)]
async fn one_lease_goes_from_nothing_to_gone() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(world.ours(), [agent.vmid.unwrap().0]);
    assert!(agent.address.is_some() && agent.host_keys.len() == 1, "{agent:?}");
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    let gone = world.view().gone_agents();
    assert_eq!(gone[0].reason, Reason::UsedUp);
    let states: Vec<&str> = gone[0].phases.iter().map(|(state, _)| state.as_str()).collect();
    let whole = [
        AgentPhase::Queued.name(),
        AgentPhase::Cloning.name(),
        AgentPhase::Configuring.name(),
        AgentPhase::Booting.name(),
        AgentPhase::Connecting.name(),
        "Preparing: cloud-init",
        "Preparing: remoteFs",
        AgentPhase::Ready.name(),
        AgentPhase::Leased.name(),
        AgentPhase::Retiring.name(),
    ];
    assert_eq!(states, whole);
    assert_eq!(world.view().lease(&lease).unwrap().detail, "released");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_takes_its_agent_along() {
    let world = World::started(Setup::linux("")).await;
    let lease = world.try_lease("linux", 5 * MINUTE).await.unwrap();
    let agent = world.ready(&lease).await;
    world
        .until("the lease ends", |view| view.lease(&lease).unwrap().state == LeasePhase::Ended)
        .await;
    assert_eq!(world.view().lease(&lease).unwrap().detail, "expired");
    world.until("its agent goes", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_used_again_without_the_key_of_the_lease_before() {
    let world = World::started(Setup::linux("")).await;
    let (first, agent) = world.leased("linux").await;
    world.release(&first).await;
    let (second, again) = world.leased("linux").await;
    assert_eq!(again.agent, agent.agent);
    let keys = world.shell.admitted(agent.vmid.unwrap().0);
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), [second.to_string()]);
    world.end().await;
}

// Invariant: a linked clone's provision and teardown cost Proxmox a fixed number of calls.

#[tokio::test(start_paused = true)]
async fn a_provision_takes_six_calls_and_a_teardown_four() {
    let mut setup = Setup::linux("maxTotalUses: 1");
    let at_once = Duration::ZERO..Duration::ZERO;
    setup.guests = StubOptions { boot: at_once.clone(), address_delay: at_once, ..setup.guests };
    let world = World::started(setup).await;
    world.resync().await;
    world.wire.take();
    let (lease, _) = world.leased("linux").await;
    let provision = [
        "POST /nodes/pve1/qemu/N/clone",
        "GET /nodes/pve1/qemu/N/config",
        "PUT /nodes/pve1/qemu/N/config",
        "POST /nodes/pve1/qemu/N/status/start",
        "GET /nodes/pve1/qemu/N/agent/network-get-interfaces",
        "GET /nodes/pve1/qemu/N/agent/file-read",
    ];
    assert_eq!(world.wire.take(), provision);
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    let teardown = [
        "GET /nodes/pve1/qemu/N/config",
        "PUT /nodes/pve1/qemu/N/config",
        "POST /nodes/pve1/qemu/N/status/shutdown",
        "DELETE /nodes/pve1/qemu/N",
    ];
    assert_eq!(world.wire.take(), teardown);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_herd_asks_for_nothing_but_lists() {
    let world = World::started(Setup::linux("instanceMin: 3")).await;
    world.until("three are ready", |_| count(&world, AgentPhase::Ready) == 3).await;
    world.wire.take();
    world.pass(30 * MINUTE).await;
    let calls = world.wire.take();
    assert!(calls.iter().all(|call| !call.contains("/qemu/")), "{calls:?}");
    world.end().await;
}

// Invariant: the warm minimum is kept, and nothing reaps below it.

#[tokio::test(start_paused = true)]
async fn the_warm_minimum_is_there_and_is_filled_up_behind_a_lease() {
    let world = World::started(Setup::linux("idleMin: 2, instanceCap: 4")).await;
    world.until("two are ready", |_| count(&world, AgentPhase::Ready) == 2).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.uses, 1);
    world.until("two are ready beside the lease", |_| count(&world, AgentPhase::Ready) == 2).await;
    world.release(&lease).await;
    world.check();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_use_is_one_of_the_minimum_until_it_goes() {
    let world = World::started(Setup::linux("instanceMin: 2, maxTotalUses: 1")).await;
    world.until("two are ready", |_| count(&world, AgentPhase::Ready) == 2).await;
    let (lease, _) = world.leased("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!((world.view().agents().len(), count(&world, AgentPhase::Ready)), (2, 1));
    world.release(&lease).await;
    world.until("two are ready again", |_| count(&world, AgentPhase::Ready) == 2).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_agents_go_down_to_the_minimum_and_no_further() {
    let keys = "idleMin: 2, instanceMin: 1, instanceCap: 5, idleTerminationMinutes: 3";
    let world = World::started(Setup::linux(keys)).await;
    let leases =
        [world.lease("linux").await, world.lease("linux").await, world.lease("linux").await];
    for lease in &leases {
        world.ready(lease).await;
    }
    world
        .until("two are ready beside three leases", |_| count(&world, AgentPhase::Ready) == 2)
        .await;
    for lease in &leases {
        world.release(lease).await;
    }
    assert_eq!(count(&world, AgentPhase::Ready), 5);
    world.pass(2 * MINUTE).await;
    assert_eq!(world.view().agents().len(), 5, "not idle for long enough");
    world.pass(10 * MINUTE).await;
    assert_eq!(count(&world, AgentPhase::Ready), 2);
    let stays: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    world.pass(60 * MINUTE).await;
    let stay: Vec<_> = world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    assert_eq!(stay, stays, "the minimum is kept, not renewed");
    assert_eq!(world.reap(false).await, 0);
    assert_eq!(world.view().gone_by_reason().into_iter().collect::<Vec<_>>(), [("idle", 3)]);
    world.end().await;
}

// Invariant: however many go at once, each frees its volumes.

#[tokio::test(start_paused = true)]
async fn eighty_agents_that_go_at_once_leave_no_volume_behind() {
    let mut setup = Setup::linux("instanceMin: 80, instanceCap: 80").rack("instanceCap: 80");
    for node in &mut setup.cluster.nodes {
        node.memory_bytes *= 64;
    }
    let world = World::started(setup).await;
    world.until("all are ready", |_| count(&world, AgentPhase::Ready) == 80).await;
    world.pass(MINUTE).await;
    let started = world.elapsed();
    let world = world.end().await;
    // 160 volumes are freed one after another, in 0.2 s on average.
    let took = world.elapsed() - started;
    assert!(took < Duration::from_secs(60), "{took:?}");
}

// Invariant: a reap of everything takes what is not idle yet as soon as it is.

#[tokio::test(start_paused = true)]
async fn a_reap_right_after_a_start_takes_what_is_still_being_adopted() {
    let mut world = World::started(Setup::linux("instanceCap: 3")).await;
    let leases =
        [world.lease("linux").await, world.lease("linux").await, world.lease("linux").await];
    for lease in &leases {
        world.ready(lease).await;
    }
    for lease in &leases {
        world.release(lease).await;
    }
    assert_eq!(count(&world, AgentPhase::Ready), 3);
    world.stop(StopPolicy::Keep).await;
    // Every look at a guest takes long.
    let slow = CallFault { route: Some("/config".into()), delay: 5.0, ..CallFault::default() };
    world.faults(Faults { calls: vec![slow], ..Faults::default() });
    world.start().await;
    assert_eq!(world.reap(true).await, 3);
    assert_eq!(world.reap(true).await, 0, "nobody hears it twice");
    world.until("all are gone", |view| view.agents().is_empty()).await;
    let gone = world.view().gone_agents();
    assert!(gone.iter().all(|gone| gone.reason == Reason::Reaped), "{gone:?}");
    world.end().await;
}

// Invariant: caps hold at every moment, whatever is asked for.

#[tokio::test(start_paused = true)]
async fn thirty_leases_are_served_in_turn_under_a_cap_of_five() {
    let world = World::started(Setup::linux("instanceCap: 5, maxTotalUses: 2")).await;
    let mut leases = Vec::new();
    for _ in 0..30 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
        world.release(lease).await;
    }
    assert_eq!(world.notes.most("linux"), 5, "the cap is used");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_templates_share_their_clouds_cap() {
    let setup = Setup::linux("instanceCap: 5").rack("instanceCap: 6").template(
        "big",
        "instanceCap: 4, cores: 4, templateVmId: 9001, node: pve2, maxTotalUses: 1",
    );
    let world = World::started(setup).await;
    let mut leases = Vec::new();
    for label in ["linux", "big"].repeat(8) {
        leases.push(world.lease(label).await);
    }
    world.until("the cap is reached", |view| view.agents().len() == 6).await;
    for lease in &leases {
        // A holder of one template must not starve the other: what is idle goes.
        world.ready(lease).await;
        world.release(lease).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn two_executors_take_two_leases_and_the_third_starts_another_agent() {
    let world = World::started(Setup::linux("numExecutors: 2, instanceCap: 2")).await;
    let (first, one) = world.leased("linux").await;
    let (second, same) = world.leased("linux").await;
    assert_eq!(one.agent, same.agent);
    let (third, other) = world.leased("linux").await;
    assert_ne!(one.agent, other.agent);
    world.release(&first).await;
    let keys = world.shell.admitted(one.vmid.unwrap().0);
    assert!(keys.contains(second.as_str()), "the other's key stays");
    for lease in [&second, &third] {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: trouble of the cluster's own making never reaches who waits for a lease.

#[tokio::test(start_paused = true)]
async fn twenty_clones_on_one_storage_all_come_through_its_lock() {
    let lanes = "clonesPerStorage: 20, operationsPerNode: 40, adaptLanes: false";
    let mut setup = Setup::linux("instanceCap: 20").rack(lanes);
    setup.latency.clone_linked = Spread::of(0.8, 1.6);
    let world = World::started(setup).await;
    let mut leases = Vec::new();
    for _ in 0..20 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
    }
    let gone = world.view().gone_agents();
    let contended = gone
        .iter()
        .filter(|gone| matches!(&gone.reason, Reason::Failed { kind, .. } if kind == "contention"));
    assert_ne!(contended.count(), 0, "the lock was never waited for too long");
    world.end().await;
}

// Invariant: chance is the seed's alone.

async fn log_of(seed: u64) -> Vec<String> {
    let setup = Setup::linux("instanceMin: 1, instanceCap: 4, maxTotalUses: 2").seed(seed);
    let mut world = World::started(setup).await;
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push(world.lease("linux").await);
    }
    world.pass(Duration::from_secs(7)).await;
    world.restart(MINUTE).await;
    for lease in &leases {
        world.ready(lease).await;
        world.release(lease).await;
    }
    world.reap(true).await;
    world.pass(10 * MINUTE).await;
    world.end().await.notes.log()
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_events_and_another_seed_others() {
    let one = log_of(7).await;
    let other = log_of(7).await;
    for (line, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!(one, other, "fact {line}");
    }
    assert_eq!(one.len(), other.len());
    assert_ne!(one, log_of(8).await);
}
