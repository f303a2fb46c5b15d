//! What operators say of single agents and templates: begin some at once, other limits for one.

use std::time::Duration;

use drover_model::overrides::{Change, OverrideChange};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// Agents in a state.
fn count(world: &World, state: AgentPhase) -> usize {
    world.view().agents().iter().filter(|agent| agent.phase == state).count()
}

// Invariant: what an operator begins is there without demand, under the caps, until it was idle.

#[tokio::test(start_paused = true)]
async fn agents_are_started_at_once_up_to_the_cap_and_go_when_they_were_idle() {
    let keys = "instanceCap: 3, instanceMin: 1, idleTerminationMinutes: 5";
    let world = World::started(Setup::linux(keys)).await;
    let (agents, short) = world.provision("linux", 4).await;
    assert_eq!((agents.len(), short.as_deref()), (2, Some("rack/linux is full: 3 of 3")));
    world.until("all are ready", |_| count(&world, AgentPhase::Ready) == 3).await;
    world.pass(4 * MINUTE).await;
    assert_eq!(count(&world, AgentPhase::Ready), 3);
    world.pass(5 * MINUTE).await;
    assert_eq!(count(&world, AgentPhase::Ready), 1, "the warm minimum stays");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_started_ahead_serves_the_next_lease() {
    let world = World::started(Setup::linux("instanceCap: 3")).await;
    let (agents, short) = world.provision("rack/linux", 1).await;
    assert_eq!((agents.len(), short), (1, None));
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.agent, agents[0]);
    assert_eq!(world.notes.intended(), 1);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: where one use is all an agent has, nobody comes after anybody.

#[tokio::test(start_paused = true)]
async fn every_lease_of_a_single_use_template_gets_an_agent_of_its_own() {
    let keys = "instanceCap: 2, instanceMin: 1, singleUse: true, numExecutors: 2";
    let world = World::started(Setup::linux(keys)).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let (lease, agent) = world.leased("linux").await;
        assert_eq!(agent.uses, 1);
        assert!(seen.insert(agent.agent.clone()), "an agent was used twice");
        world.release(&lease).await;
    }
    world.end().await;
}

// Invariant: limits of one agent hold across restarts, for that agent alone.

#[tokio::test(start_paused = true)]
async fn one_agent_outlives_its_idle_time_across_a_restart_until_that_is_taken_back() {
    let keys = "instanceCap: 2, idleTerminationMinutes: 5";
    let mut world = World::started(Setup::linux(keys)).await;
    let (agents, _) = world.provision("linux", 2).await;
    world.until("both are ready", |_| count(&world, AgentPhase::Ready) == 2).await;
    let never = OverrideChange { idle_minutes: Change::Set(0), ..OverrideChange::default() };
    world.limit(&agents[0], never).await;
    world.restart(MINUTE).await;
    world.pass(60 * MINUTE).await;
    let alive = world.view().agents();
    assert_eq!(alive.len(), 1, "{alive:?}");
    assert_eq!((&alive[0].agent, alive[0].overrides.idle_minutes), (&agents[0], Some(0)));
    let back = OverrideChange { idle_minutes: Change::TakeBack, ..OverrideChange::default() };
    world.limit(&agents[0], back).await;
    world.until("it goes", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agents_own_uses_are_counted_across_a_restart_and_end_it_at_once() {
    let mut world = World::started(Setup::linux("instanceCap: 1")).await;
    let (first, agent) = world.leased("linux").await;
    let twice = OverrideChange { max_uses: Change::Set(2), ..OverrideChange::default() };
    world.limit(&agent.agent, twice).await;
    world.restart(MINUTE).await;
    world.release(&first).await;
    let (second, again) = world.leased("linux").await;
    assert_eq!((&again.agent, again.uses), (&agent.agent, 2));
    world.release(&second).await;
    world.until("it goes", |view| view.agent(&agent.agent).is_none()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::UsedUp);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_set_while_an_agent_waits_in_the_queue_is_not_lost() {
    let keys = "instanceCap: 2, maxTotalUses: 9";
    let mut world = World::started(Setup::linux(keys).rack("clonesPerStorage: 1")).await;
    let (agents, _) = world.provision("linux", 2).await;
    world.until_state(AgentPhase::Queued).await;
    let once = OverrideChange { max_uses: Change::Set(1), ..OverrideChange::default() };
    for agent in &agents {
        world.limit(agent, once).await;
    }
    world.until("both are ready", |_| count(&world, AgentPhase::Ready) == 2).await;
    world.restart(MINUTE).await;
    let limits = |view: &drover_server::view::View| {
        view.agents().iter().filter(|agent| agent.overrides.max_uses == Some(1)).count()
    };
    world.until("both are taken over", |view| limits(view) == 2).await;
    world.end().await;
}
