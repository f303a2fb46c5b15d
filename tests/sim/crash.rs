//! Power cuts at every point of an agent's life: the service starts again and comes to the same
//! end. The journal loses what was not durable, the cluster goes on meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::{Body, LeaseAsk, Reason};
use drover_model::status::AgentStatus;
use drover_server::view::View;
use pve_sim::world::{CallFault, Faults};
use tokio::sync::oneshot::error::TryRecvError;

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;
use super::world::tap::{Hit, Knock};

const AWAY: Duration = Duration::from_secs(30);

/// A lease is asked for, the power goes when the trap springs, and the lease is served all the
/// same; nothing is left in the end.
async fn cut_while_serving(arm: impl FnOnce(&World)) -> World {
    let mut world =
        World::started(Setup::linux("instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1"))
            .await;
    arm(&world);
    let lease = world.lease("linux").await;
    world.until_sprung().await;
    world.restart(AWAY).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    world
}

/// A lease is held; the power goes, and comes back.
async fn cut_while_leased(away: Duration) -> (World, LeaseId, Arc<AgentStatus>) {
    let mut world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.restart(away).await;
    (world, lease, agent)
}

/// Reasons of agents that came to nothing.
fn failed(world: &World) -> Vec<Reason> {
    let gone = world.view().gone_agents().into_iter().map(|gone| gone.reason);
    gone.filter(|reason| !matches!(reason, Reason::UsedUp | Reason::Idle)).collect()
}

// Invariant: a lease that was taken is honoured after any crash, by at most one guest an agent.

#[tokio::test(start_paused = true)]
async fn cut_when_the_lease_was_just_asked_for() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    world.notes.hold(|body| matches!(body, Body::LeaseAsked(_)));
    let asked = world.ask("linux");
    world.until_sprung().await;
    drop(asked);
    world.restart(AWAY).await;
    let lease = world.view().leases()[0].lease.clone();
    world.ready(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn user_data_that_was_asked_for_before_a_crash_comes_with_the_machine_after_it() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let ask = LeaseAsk { user_data: true, public_key: None, ..*world.an_ask("linux", AWAY * 60) };
    let command = |reply| HerdCommand::Lease { ask: Box::new(ask), reply };
    let lease = world.command(command).await.unwrap();
    world.restart(AWAY).await;
    assert_eq!(world.shell.brought(), Vec::<String>::new(), "no machine yet");
    world.ready(&lease).await;
    assert_eq!(world.shell.brought(), [lease.to_string()], "there before the lease is ready");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_between_the_intent_and_the_clone_call() {
    let world = cut_while_serving(|world| {
        world.notes.hold(|body| matches!(body, Body::CloneIntended { .. }))
    })
    .await;
    assert_eq!(world.notes.intended(), 2, "the first was never made");
    assert_eq!(world.wire.clones(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_clone_call_never_left() {
    let world = cut_while_serving(|world| world.wire.hold("POST", "/clone", Hold::Call)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_clone_calls_answer_is_lost() {
    let world = cut_while_serving(|world| world.wire.hold("POST", "/clone", Hold::Answer)).await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_clone_is_made_and_not_written_down() {
    let world = cut_while_serving(|world| {
        world.notes.hold(|body| matches!(body, Body::CloneSettled { .. }))
    })
    .await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_guest_is_configured() {
    let world = cut_while_serving(|world| world.wire.hold("PUT", "/config", Hold::Call)).await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_guest_is_configured_and_nobody_knows() {
    let world = cut_while_serving(|world| world.wire.hold("PUT", "/config", Hold::Answer)).await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_start_was_asked_for() {
    let world =
        cut_while_serving(|world| world.wire.hold("POST", "/status/start", Hold::Answer)).await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_while_the_guest_boots() {
    let world = cut_while_serving(|world| {
        world.wire.hold("GET", "/agent/network-get-interfaces", Hold::Call)
    })
    .await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_while_it_is_connected_to() {
    let world = cut_while_serving(|world| {
        world.notes.hold(
            |body| matches!(body, Body::Phase { state, .. } if *state == AgentPhase::Connecting),
        )
    })
    .await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_it_is_ready() {
    let world = cut_while_serving(|world| {
        world
            .notes
            .hold(|body| matches!(body, Body::Phase { state, .. } if *state == AgentPhase::Ready))
    })
    .await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_grant_is_written_down() {
    let world = cut_while_serving(|world| {
        world.notes.hold(|body| matches!(body, Body::LeaseGranted { .. }))
    })
    .await;
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

// Invariant: a lease outlives the service, and loses none of its time to a stop.

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_across_a_crash_on_the_same_agent() {
    let (world, lease, agent) = cut_while_leased(AWAY).await;
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    let (_, again) = world.leased("linux").await;
    assert_eq!(again.agent, agent.agent, "it is used again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_does_not_run_out_while_the_service_is_down() {
    let two_hours = Duration::from_secs(7200);
    let (world, lease, _) = cut_while_leased(two_hours).await;
    world.ready(&lease).await;
    world.pass(Duration::from_secs(3500)).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.pass(Duration::from_secs(200)).await;
    assert_eq!(world.view().lease(&lease).unwrap().detail, "expired");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_is_durable_stays_ended_and_its_agent_serves_on() {
    let mut world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.notes.hold(|body| matches!(body, Body::LeaseEnded { .. }));
    let asked = world.begin_release(&lease);
    world.until_sprung().await;
    drop(asked);
    world.restart(AWAY).await;
    serves_with_keys_of(&world, &agent, &[]).await;
    assert!(world.journal_state().ended.contains_key(&lease));
    assert_eq!(world.view().lease(&lease).unwrap().detail, "released");
    assert_eq!(world.leased("linux").await.1.agent, agent.agent);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_died_while_the_service_was_down_ends_its_lease_as_lost() {
    let mut world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.crash();
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    world.start().await;
    let lost = |view: &View| view.lease(&lease).unwrap().detail.starts_with("lost: its guest was ");
    world.until("the lease is lost", lost).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::PoweredOff);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_removed_while_the_service_was_down_is_let_go() {
    let mut world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.crash();
    world.side.remove_guest(agent.vmid.unwrap().0);
    world.start().await;
    let lost = |view: &View| view.lease(&lease).unwrap().detail.starts_with("lost: its guest was ");
    world.until("the lease is lost", lost).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::Vanished);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_is_answered_when_its_end_is_durable() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, _) = world.leased("linux").await;
    world.tap.watch(|knock| match knock.call {
        "append" => Hit::Hold,
        _ => Hit::Pass,
    });
    let mut asked = world.begin_release(&lease);
    world.until_sprung().await;
    world.pass(AWAY).await;
    assert_eq!(asked.try_recv(), Err(TryRecvError::Empty), "a crash would bring the lease back");
    // Its journal hangs for good.
    world.crash();
}

// Invariant: who comes next does not share a guest with the key of who was there before.

/// Only these leases' keys stay in the agent's guest, and it serves on.
async fn serves_with_keys_of(world: &World, agent: &AgentStatus, leases: &[LeaseId]) {
    let vmid = agent.vmid.unwrap().0;
    let due: BTreeSet<String> = leases.iter().map(|lease| lease.as_str().to_owned()).collect();
    world
        .until("the keys are in order", |view| {
            let on = view.agent(&agent.agent).expect("it lives").leases.clone();
            on == leases && world.shell.admitted(vmid) == due
        })
        .await;
    let (next, on) = world.leased("linux").await;
    assert_eq!(on.agent, agent.agent, "it serves on");
    world.release(&next).await;
}

fn at(knock: &Knock, call: &str, hit: Hit) -> Hit {
    if knock.call == call { hit } else { Hit::Pass }
}

/// The power goes at a moment of a lease's end.
async fn cut_at_the_removal(
    world: &mut World,
    lease: &LeaseId,
    moment: impl Fn(&Knock) -> Hit + Send + 'static,
) {
    world.tap.watch(moment);
    let asked = world.begin_release(lease);
    world.until_sprung().await;
    drop(asked);
    world.restart(AWAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_outlives_two_crashes_is_removed_after_them() {
    let mut world = World::started(Setup::linux("")).await;
    // The grant is durable, and that the agent is in use was not reported yet.
    world.notes.hold(|body| matches!(body, Body::LeaseGranted { .. }));
    let lease = world.lease("linux").await;
    world.until_sprung().await;
    world.crash();
    world.tap.watch(|knock| match knock.call {
        "look" => Hit::Hold,
        _ => Hit::Pass,
    });
    world.start().await;
    let agent = world.view().agents().remove(0);
    let asked = world.begin_release(&lease);
    world.pass(AWAY).await;
    drop(asked);
    assert!(world.journal_state().ended.contains_key(&lease));
    world.restart(AWAY).await;
    serves_with_keys_of(&world, &agent, &[]).await;
    world.end().await;
}

/// A lease ends, beside another one or not, and the power goes at this moment; after it the key is
/// removed, perhaps once more, and the agent serves on.
async fn cut_at_an_end(beside: bool, moment: impl Fn(&Knock) -> Hit + Send + 'static) {
    let executors = if beside { "numExecutors: 3" } else { "numExecutors: 1" };
    let mut world = World::started(Setup::linux(executors)).await;
    let (first, agent) = world.leased("linux").await;
    let mut others = Vec::new();
    if beside {
        let (second, same) = world.leased("linux").await;
        assert_eq!(agent.agent, same.agent);
        others.push(second);
    }
    cut_at_the_removal(&mut world, &first, moment).await;
    serves_with_keys_of(&world, &agent, &others).await;
    for second in others {
        world.ready(&second).await;
        world.release(&second).await;
    }
    assert_eq!(world.notes.intended(), 1, "no other agent was needed");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_outlives_a_crash_is_removed_before_anybody_else_comes() {
    for beside in [false, true] {
        cut_at_an_end(beside, |knock| at(knock, "expel", Hit::Hold)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_removal_nobody_heard_of_is_removed_once_more() {
    for beside in [false, true] {
        cut_at_an_end(beside, |knock| at(knock, "expel", Hit::HoldAnswer)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_removal_was_not_journalled_is_removed_once_more() {
    for beside in [false, true] {
        cut_at_an_end(beside, move |knock| {
            let record = knock.records.iter().any(|body| match body {
                Body::KeyRemoved { .. } => beside,
                Body::Phase { state, .. } => !beside && *state == AgentPhase::Ready,
                _ => false,
            });
            if record { Hit::Hold } else { Hit::Pass }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_removed_after_a_crash_goes_with_its_guest() {
    let mut world = World::started(Setup::linux("numExecutors: 2")).await;
    let (first, agent) = world.leased("linux").await;
    let (second, same) = world.leased("linux").await;
    assert_eq!(agent.agent, same.agent);
    cut_at_the_removal(&mut world, &first, |knock| at(knock, "expel", Hit::Hold)).await;
    world.tap.watch(|knock| {
        let fault = Fault::new(FaultKind::Unreachable, Culprit::Guest, "nobody answers");
        at(knock, "expel", Hit::Fail(fault))
    });
    world.ready(&second).await;
    let (third, other) = world.leased("linux").await;
    assert_ne!(other.agent, agent.agent, "the first one's key is there");
    world.tap.release();
    world.release(&second).await;
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.release(&third).await;
    world.end().await;
}

// Invariant: a retirement that was started comes to its end.

async fn cut_while_retiring(method: &'static str, end: &'static str, hold: Hold) {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, _) = world.leased("linux").await;
    world.wire.hold(method, end, hold);
    world.release(&lease).await;
    world.until_sprung().await;
    world.restart(AWAY).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    assert_eq!(failed(&world), Vec::<Reason>::new(), "what was cloned is found again");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_guest_is_fenced() {
    cut_while_retiring("PUT", "/config", Hold::Call).await;
}

#[tokio::test(start_paused = true)]
async fn cut_while_the_guest_shuts_down() {
    cut_while_retiring("POST", "/status/shutdown", Hold::Answer).await;
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_guest_is_destroyed() {
    cut_while_retiring("DELETE", "", Hold::Call).await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_guest_is_destroyed_and_nobody_knows() {
    cut_while_retiring("DELETE", "", Hold::Answer).await;
}

// Invariant: what waits for an administrator still says so after a restart.

#[tokio::test(start_paused = true)]
async fn an_alarm_stands_after_a_restart() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.set_config(vmid, "description", Some("mine from here on"));
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    let reported = world.view().alarms()[0].command.clone();
    // What is durable carries along what was written before it.
    let other = world.lease("linux").await;
    world.restart(AWAY).await;
    world.release(&other).await;
    let again = world.until_state(AgentPhase::Stranded).await;
    assert!(again.detail.contains("leaves it alone"), "{again:?}");
    assert_eq!(world.view().alarms()[0].command, reported);
    world.administer(vmid);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_that_stay_are_reported_again_when_others_find_the_guest_gone() {
    let rack = "orphanCleanupPeriodSeconds: 30";
    let mut world = World::started(Setup::linux("maxTotalUses: 1").rack(rack)).await;
    let (lease, agent) = world.leased("linux").await;
    let (vmid, node) = (agent.vmid.unwrap().0, agent.node.clone().unwrap().to_string());
    world.side.block_volume_removal(&node, &format!("local-lvm:vm-{vmid}-cloudinit"), "it is busy");
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    // What was reported is not durable yet, and the agent's own look at the id fails.
    let rule = CallFault {
        route: Some("/nextid".into()),
        times: Some(1),
        status: Some(596),
        ..CallFault::default()
    };
    world.faults(Faults { calls: vec![rule], ..Faults::default() });
    world.restart(AWAY).await;
    world
        .until("it is over", |view| {
            view.agents().iter().all(|agent| agent.phase == AgentPhase::Stranded)
        })
        .await;
    assert_eq!(world.view().alarms().len(), 1, "a volume stays and nobody hears of it");
    world.administer(vmid);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: one crash after another changes nothing.

#[tokio::test(start_paused = true)]
async fn a_crash_every_few_seconds_lets_every_lease_through_in_the_end() {
    for seed in 0..4 {
        let setup = Setup::linux("instanceMin: 1, instanceCap: 4, maxTotalUses: 1").seed(seed);
        let mut world = World::started(setup).await;
        let mut leases = Vec::new();
        for _ in 0..6 {
            leases.push(world.lease("linux").await);
        }
        for turn in 1..12 {
            world.pass(Duration::from_millis(1300 * turn + 170 * seed)).await;
            world.restart(Duration::from_secs(turn)).await;
        }
        for lease in &leases {
            world.ready(lease).await;
            world.release(lease).await;
        }
        world.end().await;
    }
}
