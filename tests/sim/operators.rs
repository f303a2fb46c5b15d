//! What operators say of single agents and templates: begin some at once.

use std::time::Duration;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// Agents in a state.
fn count(world: &World, state: &str) -> usize {
    world.view().agents().iter().filter(|agent| agent.state == state).count()
}

// Invariant: what an operator begins is there without demand, under the caps, until it was idle.

#[tokio::test(start_paused = true)]
async fn agents_are_begun_at_once_up_to_the_cap_and_go_when_they_were_idle() {
    let keys = "instanceCap: 3, instanceMin: 1, idleTerminationMinutes: 5";
    let world = World::started(Setup::linux(keys)).await;
    let (agents, short) = world.provision("linux", 4).await;
    assert_eq!((agents.len(), short.as_deref()), (2, Some("rack/linux is full: 3 of 3")));
    world.until("all are ready", |_| count(&world, "Ready") == 3).await;
    world.pass(4 * MINUTE).await;
    assert_eq!(count(&world, "Ready"), 3);
    world.pass(5 * MINUTE).await;
    assert_eq!(count(&world, "Ready"), 1, "the warm minimum stays");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_begun_ahead_serves_the_next_lease() {
    let world = World::started(Setup::linux("instanceCap: 3")).await;
    let (agents, short) = world.provision("rack/linux", 1).await;
    assert_eq!((agents.len(), short), (1, None));
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.agent, agents[0]);
    assert_eq!(world.notes.intended(), 1);
    world.release(&lease).await;
    world.end().await;
}
