//! When something is served, as it is foreseen, beside when it then is.

use std::time::Duration;

use drover_actors::demand::report::{Estimate, Subject};
use drover_actors::id::{LeaseId, NodeName};
use drover_actors::message::HerdCommand;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const ONCE: &str = "instanceCap: 1, maxTotalUses: 1";

/// What is foreseen of a lease that waits.
async fn foreseen(world: &World, lease: &LeaseId) -> Estimate {
    let subject = Subject::Lease(lease.clone());
    let account = world.wish(|reply| HerdCommand::Account { subject, reply }).await.unwrap();
    account.kinds[0].estimate.clone()
}

/// A world in which agents got ready, each was used once, and uses lasted so long.
async fn seen(setup: Setup, uses: Duration) -> World {
    let world = World::started(setup).await;
    let (lease, _) = world.leased("linux").await;
    world.pass(uses).await;
    world.release(&lease).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    world
}

/// Waits until a lease is ready and compares that with what was foreseen.
async fn comes_as_foreseen(world: &World, lease: &LeaseId, told: &Estimate, before: Duration) {
    let Estimate::In(told, why) = told else { panic!("{told:?}") };
    let began = world.elapsed() - before;
    world.ready(lease).await;
    let took = world.elapsed() - began;
    let ratio = told.as_secs_f64() / took.as_secs_f64();
    assert!((0.5..=2.0).contains(&ratio), "told {told:?} ({why}), took {took:?}");
}

// Invariant: what is foreseen comes within twice and half the time.

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_begun_is_ready_about_when_it_was_said_to_be() {
    let world = seen(Setup::linux(ONCE), MINUTE).await;
    let lease = world.lease("linux").await;
    let told = foreseen(&world, &lease).await;
    comes_as_foreseen(&world, &lease, &told, Duration::ZERO).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_others_to_end_is_served_about_when_it_was_said() {
    let world = seen(Setup::linux(ONCE), 10 * MINUTE).await;
    let (first, _) = world.leased("linux").await;
    let second = world.lease("linux").await;
    world.pass(Duration::from_secs(1)).await;
    let told = foreseen(&world, &second).await;
    world.pass(10 * MINUTE).await;
    world.release(&first).await;
    comes_as_foreseen(&world, &second, &told, 10 * MINUTE).await;
    world.release(&second).await;
    world.end().await;
}

// Invariant: nothing is promised of what cannot come.

/// Nothing is promised for two hours, and what is told names the cause.
async fn promises_nothing(world: &World, cause: &str) -> LeaseId {
    let lease = world.lease("linux").await;
    for _ in 0..12 {
        world.pass(10 * MINUTE).await;
        let told = foreseen(world, &lease).await;
        let (Estimate::Never(text) | Estimate::Unknown(text)) = &told else { panic!("{told:?}") };
        assert!(text.contains(cause), "{told:?}");
    }
    lease
}

#[tokio::test(start_paused = true)]
async fn memory_that_no_node_has_is_never_there_in_a_moment() {
    let mut world = seen(Setup::linux(ONCE), MINUTE).await;
    world.setup.templates[0].1 = format!("{ONCE}, memoryMb: 4000000");
    world.reload();
    promises_nothing(&world, "memory").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_promised_while_all_nodes_are_drained() {
    let world = seen(Setup::linux(ONCE), MINUTE).await;
    for node in ["pve1", "pve2", "pve3"] {
        let (node, cloud, drained) = (NodeName::new(node), None, true);
        let drain = |reply| HerdCommand::DrainNode { node, cloud, drained, reply };
        world.wish(drain).await.unwrap();
    }
    promises_nothing(&world, "drained").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_out_of_reach_is_waited_for_and_nothing_is_promised() {
    let world = seen(Setup::linux(ONCE), MINUTE).await;
    // What can be cloned is not known any more: it is read anew before anything is cloned.
    world.pass(MINUTE / 2).await;
    world.ways.cut(0, true);
    let lease = promises_nothing(&world, "no route to host").await;
    world.ways.cut(0, false);
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_missing_is_named_and_nothing_is_promised() {
    let mut world = seen(Setup::linux(ONCE), MINUTE).await;
    world.setup.templates[0].1 = format!("{ONCE}, templateVmId: 9999");
    world.reload();
    promises_nothing(&world, "9999").await;
    world.end().await;
}
