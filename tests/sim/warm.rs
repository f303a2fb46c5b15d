//! What is kept warm by the calendar. The world begins on a Saturday, 2026-11-21, at 08:33:20 UTC.

use std::time::Duration;

use super::world::World;
use super::world::setup::Setup;
use drover_model::phase::AgentPhase;

const MINUTE: Duration = Duration::from_secs(60);

/// From 09:00 to 10:00 UTC.
const MORNING: &str =
    "{cron: \"0 10 * * *\", durationMinutes: 60, timeZone: Europe/Berlin, idleMin: 3}";

fn scheduled(windows: &str) -> Setup {
    Setup::linux(&format!("idleTerminationMinutes: 0, instanceCap: 5, schedule: [{windows}]"))
}

fn ready(world: &World) -> usize {
    world.view().agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count()
}

fn reasons(world: &World) -> Vec<(&'static str, u64)> {
    world.view().gone_by_reason().into_iter().collect()
}

// Invariant: a window is filled when it opens, and drained when it closes; a lease is never cut.

#[tokio::test(start_paused = true)]
async fn a_window_fills_the_pool_and_drains_it_and_leaves_a_lease_alone() {
    let world = World::started(scheduled(MORNING)).await;
    world.pass(26 * MINUTE).await;
    assert!(world.view().agents().is_empty());
    world.pass(5 * MINUTE).await;
    assert_eq!(ready(&world), 3);
    assert_eq!(world.view().templates()[0].idle_minimum, 3);
    let (lease, agent) = world.leased("linux").await;
    world.pass(5 * MINUTE).await;
    assert_eq!(ready(&world), 3, "filled up behind the lease");
    world.pass(55 * MINUTE).await;
    let left: Vec<_> = world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    assert_eq!(left, std::slice::from_ref(&agent.agent), "{:?}", reasons(&world));
    assert_eq!(reasons(&world), [("window-closed", 3)]);
    world.release(&lease).await;
    world.until("it goes after its lease", |view| view.agents().is_empty()).await;
    world.pass(23 * 60 * MINUTE).await;
    assert_eq!(ready(&world), 3, "the next morning");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_window_that_closed_while_the_service_was_down_is_drained_at_the_next_start() {
    let mut world = World::started(scheduled(MORNING)).await;
    world.pass(31 * MINUTE).await;
    assert_eq!(ready(&world), 3);
    world.crash();
    world.pass(90 * MINUTE).await;
    world.start().await;
    world.until("they are gone", |view| view.agents().is_empty()).await;
    assert_eq!(reasons(&world), [("window-closed", 3)]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_comes_with_a_reload_is_in_force_at_once() {
    let mut world = World::started(Setup::linux("instanceCap: 5")).await;
    world.pass(30 * MINUTE).await;
    world.setup.templates[0].1 = format!("instanceCap: 5, schedule: [{MORNING}]");
    world.reload();
    world.until("the pool is filled", |_| ready(&world) == 3).await;
    world.end().await;
}

// Invariant: a pool that was started together is renewed before it is too old, and stays whole.

#[tokio::test(start_paused = true)]
async fn a_pool_is_renewed_agent_by_agent_and_stays_whole() {
    let world = World::started(Setup::linux("idleMin: 4, maxLifetimeMinutes: 100")).await;
    world.until("the pool is there", |_| ready(&world) == 4).await;
    let first: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    for _ in 0..95 * 6 {
        world.pass(MINUTE / 6).await;
        assert!(ready(&world) >= 4, "{:?}", world.view().agents());
        assert!(world.view().agents().len() <= 6, "{:?}", world.view().agents());
    }
    assert!(first.iter().all(|agent| world.view().agent(agent).is_none()));
    assert_eq!(reasons(&world), [("old", 4)]);
    world.end().await;
}
