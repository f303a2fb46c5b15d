//! Holds for debugging over whole herds: crashes, caps, reloads, and what is left of them.

use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::phase::{AgentPhase, LeasePhase, LoginPhase};
use drover_model::record::Reason;
use drover_model::stop::StopPolicy;
use drover_model::tenant::By;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// An agent that is held for an hour, with an open login.
async fn held(world: &World) -> std::sync::Arc<drover_model::status::AgentStatus> {
    let (lease, agent) = world.leased("linux").await;
    world.hold(&agent.agent, HOUR).await;
    assert_eq!(world.view().agent(&agent.agent).unwrap().phase, AgentPhase::Leased);
    world.release(&lease).await;
    let key = |view: &drover_server::view::View| {
        view.agent(&agent.agent).is_some_and(|seen| {
            seen.detail == "the login is open" && seen.login == Some(LoginPhase::Open)
        })
    };
    world.until("the login is open", key).await;
    world.view().agent(&agent.agent).unwrap()
}

// Invariant: who holds an agent has it alone, under the cap, and for no longer than was said.

#[tokio::test(start_paused = true)]
async fn a_held_agent_counts_against_the_cap_and_is_destroyed_when_its_time_is_over() {
    let world = World::started(Setup::linux("instanceCap: 1")).await;
    let agent = held(&world).await;
    let vmid = agent.vmid.unwrap().0;
    let keys: Vec<String> = world.shell.admitted(vmid).into_iter().collect();
    assert_eq!(keys, ["hold"], "the lease's key is gone, the operator's is there");
    let lease = world.lease("linux").await;
    world.pass(30 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    assert_eq!(world.reap(true).await, 0);
    world.ready(&lease).await;
    let gone = world.view().gone_agents();
    assert_eq!((&gone[0].agent, &gone[0].reason), (&agent.agent, &Reason::HoldOver));
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_outlives_a_crash_and_ends_at_the_moment_it_was_reported() {
    let mut world = World::started(Setup::linux("instanceCap: 1")).await;
    let agent = held(&world).await;
    let until = agent.held_until.unwrap();
    world.crash();
    tokio::time::sleep(10 * MINUTE).await;
    world.start().await;
    let again = world.until_state(AgentPhase::Held).await;
    assert_eq!((again.agent.clone(), again.held_until), (agent.agent.clone(), Some(until)));
    world.until("it goes", |view| view.agent(&agent.agent).is_none()).await;
    let late = world.wall() - until;
    assert!(world.wall() >= until && late < 2 * MINUTE, "{late:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_released_ends_at_once() {
    let world = World::started(Setup::linux("instanceCap: 1")).await;
    let agent = held(&world).await;
    world.release_hold(&agent.agent).await;
    world.until("it goes", |view| view.agent(&agent.agent).is_none()).await;
    let command = |reply| HerdCommand::Hold {
        agent: agent.agent.clone(),
        hold: None,
        by: By::admin("test"),
        reply,
    };
    assert!(matches!(world.command(command).await, Err(Refusal::Unknown(_))));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_leaves_the_configuration_leaves_what_is_held() {
    let setup = Setup::linux("instanceCap: 1").template("other", "");
    let mut world = World::started(setup).await;
    let agent = held(&world).await;
    world.setup.templates.remove(0);
    world.reload();
    world.pass(20 * MINUTE).await;
    world.restart(MINUTE).await;
    world.pass(20 * MINUTE).await;
    assert_eq!(world.view().agent(&agent.agent).unwrap().phase, AgentPhase::Held);
    world.until("its time is over", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn anyone_who_holds_a_guest_may_stop_and_start_it() {
    let world = World::started(Setup::linux("instanceCap: 1")).await;
    let agent = held(&world).await;
    world.guests.power_off(agent.vmid.unwrap().0);
    world.pass(30 * MINUTE).await;
    world.resync().await;
    assert_eq!(world.view().agent(&agent.agent).unwrap().phase, AgentPhase::Held);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_retires_all_takes_what_is_held_along() {
    let mut world = World::started(Setup::linux("instanceCap: 1")).await;
    held(&world).await;
    world.stop(StopPolicy::RetireAll).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    world.start().await;
    world.end().await;
}

// Invariant: an agent that fails on its way is kept for anyone who asked, and its failure counts.

#[tokio::test(start_paused = true)]
async fn an_agent_on_its_way_that_is_to_be_held_is_held_when_it_fails() {
    let world = World::started(Setup::linux("instanceCap: 1, readyCommand: broken")).await;
    world.shell.fail(Some("broken"));
    let (agents, _) = world.provision("linux", 1).await;
    world.until_state(AgentPhase::Booting).await;
    world.hold(&agents[0], HOUR).await;
    let held = world.until_state(AgentPhase::Held).await;
    assert!(held.detail.contains("readyCommand"), "{}", held.detail);
    let failures: Vec<u32> =
        world.journal_state().breakers.values().map(|one| one.failures).collect();
    assert_eq!(failures, [1], "it counts once, and is no success");
    world.shell.fail(None);
    world.release_hold(&agents[0]).await;
    world.until("it goes", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: after `hold-next` the next failure of a template is held, once, whatever happens meanwhile.

/// For how many seconds the next failure of the template is held.
fn hold_next(world: &World) -> Option<u64> {
    world.view().template_asides(&world.view().templates()[0].template).hold_next
}

/// Agents that are held, with what is reported of them.
fn held_now(world: &World) -> Vec<std::sync::Arc<drover_model::status::AgentStatus>> {
    world.view().agents().into_iter().filter(|agent| agent.phase == AgentPhase::Held).collect()
}

#[tokio::test(start_paused = true)]
async fn the_next_failure_of_a_template_is_held_and_no_other() {
    let keys = "readyCommand: broken, instanceCap: 3, breakerThreshold: 9";
    let world = World::started(Setup::linux(keys)).await;
    world.shell.fail(Some("broken"));
    world.hold_next("linux", Some(HOUR)).await;
    assert_eq!(hold_next(&world), Some(3600));
    world.provision("linux", 3).await;
    world.until_state(AgentPhase::Held).await;
    world.until("the others are gone", |view| view.agents().len() == 1).await;
    let held = held_now(&world);
    assert_eq!(held.len(), 1);
    assert!(held[0].detail.contains("readyCommand"), "{}", held[0].detail);
    world.until("its login is open", |_| held_now(&world)[0].detail.contains("is open")).await;
    assert_eq!(hold_next(&world), None);
    assert!(world.journal_state().hold_next.is_empty());
    world.shell.fail(None);
    let lease = world.lease("linux").await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.until("its time is over", |view| view.agent(&held[0].agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_the_next_failure_outlives_a_crash_and_can_be_taken_back() {
    let keys = "readyCommand: broken, instanceCap: 3, breakerThreshold: 9";
    let mut world = World::started(Setup::linux(keys)).await;
    world.shell.fail(Some("broken"));
    world.hold_next("linux", Some(HOUR)).await;
    world.crash();
    world.start().await;
    assert_eq!(hold_next(&world), Some(3600));
    world.hold_next("linux", None).await;
    world.provision("linux", 1).await;
    world.until("it goes", |view| !view.gone_agents().is_empty()).await;
    world.hold_next("linux", Some(HOUR)).await;
    world.crash();
    world.start().await;
    world.provision("linux", 1).await;
    let held = world.until_state(AgentPhase::Held).await;
    world.crash();
    world.start().await;
    assert_eq!(world.until_state(AgentPhase::Held).await.agent, held.agent);
    world.until("its login is open", |_| held_now(&world)[0].detail.contains("is open")).await;
    let reported = held_now(&world)[0].detail.clone();
    assert!(
        reported.contains("readyCommand"),
        "why it failed is known after the crash: {reported}"
    );
    world.release_hold(&held.agent).await;
    world.until("it goes", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_gets_an_address_is_held_with_its_console() {
    let mut setup = Setup::linux("instanceCap: 1, breakerThreshold: 9");
    setup.guests.boot = 4 * HOUR..5 * HOUR;
    let world = World::started(setup).await;
    world.hold_next("linux", Some(HOUR)).await;
    world.provision("linux", 1).await;
    let held = world.until_state(AgentPhase::Held).await;
    let vmid = held.vmid.unwrap();
    assert!(held.detail.contains(&format!("qm terminal {vmid}")), "{}", held.detail);
    assert!(held.detail.contains("took too long"), "{}", held.detail);
    world.until("its time is over", |view| view.agents().is_empty()).await;
    world.end().await;
}
