//! Agents on trial: made because somebody wants to see one made, handed to nobody, gone by themselves.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;

use super::world::World;
use super::world::setup::Setup;

const SECOND: Duration = Duration::from_secs(1);

async fn started(world: &World) -> (AgentId, Option<String>) {
    let template = "linux".to_owned();
    let command = |reply| HerdCommand::Provision { template, count: 1, trial: true, reply };
    let done = world.command(command).await.unwrap();
    (done.agents[0].clone(), done.short)
}

fn reason(world: &World, agent: &AgentId) -> Reason {
    let gone = world.view().gone_agents();
    gone.into_iter().find(|gone| gone.agent == *agent).unwrap().reason
}

// Invariant: an agent on trial serves nobody, neither on its way nor when it is ready.

#[tokio::test(start_paused = true)]
async fn an_agent_on_trial_is_not_leased_and_does_not_stand_in_for_demand() {
    let world = World::started(Setup::linux("instanceCap: 4")).await;
    let (agent, _) = started(&world).await;
    // A lease that waits while it is on its way has another one started.
    let (lease, served) = world.leased("linux").await;
    assert_ne!(served.agent, agent);
    world.release(&lease).await;
    let (agent, _) = started(&world).await;
    let is_ready = |view: &drover_server::view::View| {
        view.agent(&agent).is_some_and(|one| one.phase == AgentPhase::Ready && one.on_trial)
    };
    world.until("it is ready", is_ready).await;
    let (lease, served) = world.leased("linux").await;
    assert_ne!(served.agent, agent);
    assert!(!served.on_trial);
    world.until("it goes", |view| view.agent(&agent).is_none()).await;
    assert_eq!(reason(&world, &agent), Reason::TrialOver);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: it counts for caps, and for nothing that is kept.

#[tokio::test(start_paused = true)]
async fn an_agent_on_trial_takes_a_place_and_is_no_part_of_what_is_kept() {
    let keys = "instanceCap: 3, idleMin: 1, instanceMin: 1";
    let world = World::started(Setup::linux(keys)).await;
    let kept = |view: &drover_server::view::View| {
        let ready =
            view.agents().into_iter().filter(|one| one.phase == AgentPhase::Ready && !one.on_trial);
        ready.count() == 1
    };
    world.until("what is kept is there", kept).await;
    let (first, short) = started(&world).await;
    assert_eq!(short, None);
    let (_second, short) = started(&world).await;
    assert_eq!(short, None);
    let template = "linux".to_owned();
    let command = |reply| HerdCommand::Provision { template, count: 1, trial: true, reply };
    let short = world.command(command).await.unwrap().short;
    assert_eq!(short.as_deref(), Some("rack/linux is full: 3 of 3"));
    // The idle one that is kept stays while they come and go.
    world.until("the first goes", |view| view.agent(&first).is_none()).await;
    assert!(kept(world.view()));
    world.until("only what is kept is left", |view| view.agents().len() == 1).await;
    assert!(kept(world.view()));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_is_kept_although_others_are_on_trial() {
    let world = World::started(Setup::linux("instanceCap: 2")).await;
    let (trial, _) = started(&world).await;
    world
        .until("it is ready", |view| {
            view.agent(&trial).is_some_and(|one| one.phase == AgentPhase::Ready)
        })
        .await;
    let mut world = world;
    world.setup.templates = vec![("linux", "instanceCap: 2, idleMin: 1".into())];
    world.reload();
    let kept = |view: &drover_server::view::View| {
        view.agents().iter().any(|one| one.phase == AgentPhase::Ready && !one.on_trial)
    };
    world.until("another one is kept", kept).await;
    world.end().await;
}

// Invariant: it goes a minute after it was ready, whatever became of anyone who wanted it, and also when
// the service was started again.

#[tokio::test(start_paused = true)]
async fn an_agent_on_trial_goes_a_minute_after_it_was_ready_and_after_a_restart() {
    let keys = "instanceCap: 2, idleTerminationMinutes: 60";
    let mut world = World::started(Setup::linux(keys)).await;
    let (agent, _) = started(&world).await;
    world
        .until("it is ready", |view| {
            view.agent(&agent).is_some_and(|one| one.phase == AgentPhase::Ready)
        })
        .await;
    world.pass(55 * SECOND).await;
    assert_eq!(world.view().agent(&agent).unwrap().phase, AgentPhase::Ready);
    world.until("it goes", |view| view.agent(&agent).is_none()).await;
    assert_eq!(reason(&world, &agent), Reason::TrialOver);

    let (agent, _) = started(&world).await;
    world
        .until("it is ready", |view| {
            view.agent(&agent).is_some_and(|one| one.phase == AgentPhase::Ready)
        })
        .await;
    world.restart(10 * SECOND).await;
    let back =
        |view: &drover_server::view::View| view.agent(&agent).is_some_and(|one| one.on_trial);
    world.until("it is taken over", back).await;
    // It is nobody's after the restart either.
    let (lease, served) = world.leased("linux").await;
    assert_ne!(served.agent, agent);
    world.until("it goes", |view| view.agent(&agent).is_none()).await;
    assert_eq!(reason(&world, &agent), Reason::TrialOver);
    world.release(&lease).await;
    world.end().await;
}
