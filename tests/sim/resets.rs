//! Resets over whole herds: what they cost, whom a reset agent serves, what stops them.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Reason};
use drover_model::status::ResetStatus;
use pve_sim::guests::StubOptions;
use pve_sim::world::{CallFault, Faults, TaskFault};

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// What is known of the resets of `linux`.
fn resets(world: &World) -> ResetStatus {
    let reported = world.notes.facts(|what| match what {
        What::Resets { resets, .. } => Some(resets.clone()),
        _ => None,
    });
    reported.last().cloned().unwrap_or_default()
}

/// Guests that are up at once.
fn prompt(keys: &str) -> Setup {
    let mut setup = Setup::linux(keys);
    let at_once = Duration::ZERO..Duration::ZERO;
    setup.guests = StubOptions { boot: at_once.clone(), address_delay: at_once, ..setup.guests };
    setup
}

// Invariant: the same owner gets the same machine, clean: nothing of a lease outlives it.

#[tokio::test(start_paused = true)]
async fn an_owner_gets_the_same_machine_again_without_anything_of_before() {
    for kind in ["DISK", "MEMORY"] {
        let world = World::started(Setup::linux(&format!("reset: {kind}"))).await;
        let (first, agent) = world.leased("linux").await;
        world.release(&first).await;
        world.until_state(AgentPhase::Resetting).await;
        let (second, again) = world.leased("linux").await;
        let gone = world.view().gone_agents();
        assert_eq!(again.agent, agent.agent, "{kind}: {gone:?}");
        let keys = world.shell.admitted(agent.vmid.unwrap().0);
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [second.to_string()]);
        assert_eq!(again.host_keys, agent.host_keys);
        world.release(&second).await;
        world.until("it is clean again", |_| resets(&world).count == 2).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_owner_gets_another_machine() {
    let world = World::started(Setup::linux("reset: DISK")).await;
    let first = world.lease_for("linux", "ann").await;
    let agent = world.ready(&first).await;
    world.release(&first).await;
    let second = world.lease_for("linux", "ben").await;
    let other = world.ready(&second).await;
    assert_ne!(other.agent, agent.agent);
    let third = world.lease_for("linux", "ann").await;
    assert_eq!(world.ready(&third).await.agent, agent.agent);
    world.release(&second).await;
    world.release(&third).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_of_one_owner_makes_room_where_the_pool_is_full() {
    let world = World::started(Setup::linux("reset: DISK, instanceCap: 1")).await;
    let first = world.lease_for("linux", "ann").await;
    let agent = world.ready(&first).await;
    let second = world.lease_for("linux", "ben").await;
    world.release(&first).await;
    let other = world.ready(&second).await;
    assert_ne!(other.agent, agent.agent);
    let gone = world.view().gone_agents();
    assert_eq!((&gone[0].agent, &gone[0].reason), (&agent.agent, &Reason::MadeRoom));
    world.release(&second).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_known_after_a_crash() {
    let mut world = World::started(Setup::linux("reset: DISK")).await;
    let first = world.lease_for("linux", "ann").await;
    let agent = world.ready(&first).await;
    world.release(&first).await;
    world.until("it is clean again", |_| resets(&world).count == 1).await;
    world.crash();
    world.start().await;
    let second = world.lease_for("linux", "ben").await;
    assert_ne!(world.ready(&second).await.agent, agent.agent);
    let third = world.lease_for("linux", "ann").await;
    assert_eq!(world.ready(&third).await.agent, agent.agent);
    world.release(&second).await;
    world.release(&third).await;
    world.end().await;
}

// Invariant: a cycle by reset costs Proxmox three calls, one by destroying and cloning ten.

#[tokio::test(start_paused = true)]
async fn a_reset_takes_three_calls() {
    let world = World::started(prompt("reset: DISK")).await;
    let (first, _) = world.leased("linux").await;
    let snapshot = ["GET /nodes/pve1/qemu/N/config", "POST /nodes/pve1/qemu/N/snapshot"];
    assert!(world.wire.take().ends_with(&snapshot.map(str::to_owned)), "taken last of all");
    world.release(&first).await;
    world.until("it is clean again", |_| resets(&world).count == 1).await;
    let cycle = [
        "GET /nodes/pve1/qemu/N/config",
        "POST /nodes/pve1/qemu/N/snapshot/drover-clean/rollback",
        "GET /nodes/pve1/qemu/N/agent/network-get-interfaces",
    ];
    assert_eq!(world.wire.take(), cycle);
    world.end().await;
}

// Invariant: the limits of an agent hold for one that is reset.

#[tokio::test(start_paused = true)]
async fn an_agent_is_reset_no_more_often_than_it_may_be_used() {
    let world = World::started(Setup::linux("reset: DISK, maxTotalUses: 2")).await;
    for _ in 0..2 {
        let (lease, _) = world.leased("linux").await;
        world.release(&lease).await;
    }
    world.until("it goes", |view| !view.gone_agents().is_empty()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::UsedUp);
    assert_eq!(resets(&world).count, 1);
    world.end().await;
}

// Invariant: where there can be no snapshot agents are destroyed, and that is said once.

#[tokio::test(start_paused = true)]
async fn a_storage_without_snapshots_lets_agents_be_destroyed_after_a_lease() {
    let mut setup = Setup::linux("reset: DISK");
    let refused = TaskFault {
        kind: Some("qmsnapshot".into()),
        error: Some("snapshot feature is not available".into()),
        after: 0.05,
        ..TaskFault::default()
    };
    setup.faults = Faults { tasks: vec![refused], ..Faults::default() };
    let world = World::started(setup).await;
    for _ in 0..2 {
        let (lease, agent) = world.leased("linux").await;
        assert!(agent.uses == 1, "{agent:?}");
        world.release(&lease).await;
        world.until("it goes", |view| view.agents().is_empty()).await;
    }
    let reported = resets(&world);
    assert_eq!(reported.count, 0);
    assert!(reported.detail.contains("snapshot feature is not available"), "{reported:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_fails_destroys_the_agent_and_the_next_lease_gets_another() {
    let mut setup = Setup::linux("reset: DISK");
    let broken = TaskFault {
        kind: Some("qmrollback".into()),
        times: Some(1),
        error: Some("got timeout".into()),
        after: 0.05,
        ..TaskFault::default()
    };
    setup.faults = Faults { tasks: vec![broken], ..Faults::default() };
    let world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    world.release(&lease).await;
    let (next, other) = world.leased("linux").await;
    assert_ne!(other.agent, agent.agent);
    world.release(&next).await;
    world.until("the first is gone", |view| view.agent(&agent.agent).is_none()).await;
    assert_eq!(world.view().gone_agents()[0].reason.label(), "failed");
    assert!(
        world.journal_state().breakers.is_empty(),
        "it was ready: that is no fault of the template"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn resets_that_take_longer_than_new_agents_are_given_up() {
    let mut setup = Setup::linux("reset: DISK");
    let route = Some("/rollback".into());
    let slow = CallFault { route, delay: 50.0, ..CallFault::default() };
    setup.faults = Faults { calls: vec![slow], ..Faults::default() };
    let world = World::started(setup).await;
    for _ in 0..4 {
        let (lease, _) = world.leased("linux").await;
        world.release(&lease).await;
        world
            .until("it is over", |view| view.agents().iter().all(|one| one.leases.is_empty()))
            .await;
        world.pass(5 * MINUTE).await;
    }
    let reported = resets(&world);
    assert_eq!(
        (reported.count, reported.detail.contains("longer than new ones")),
        (3, true),
        "{reported:?}"
    );
    world.end().await;
}

// Invariant: no guest is put back before the intent to is durable.

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_intent_is_durable_puts_nothing_back() {
    let mut world = World::started(Setup::linux("reset: DISK")).await;
    let (lease, agent) = world.leased("linux").await;
    world.notes.hold(|body| matches!(body, Body::ResetIntended { .. }));
    drop(world.begin_release(&lease));
    world.until_sprung().await;
    world.pass(MINUTE).await;
    assert_eq!(world.guests.rollback_count(agent.vmid.unwrap().0), 0);
    world.crash();
    world.start().await;
    world.until("it is looked at and goes", |view| view.agents().is_empty()).await;
    assert_eq!(world.guests.rollback_count(agent.vmid.unwrap().0), 0);
    world.end().await;
}

// Invariant: a lock that a crash of the node left behind costs one agent, and is reported.

#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_node_died_under_it_costs_its_agent_alone_and_an_alarm() {
    let mut setup = Setup::linux("reset: DISK, instanceCap: 2, retireTimeoutSec: 600");
    let killed = TaskFault {
        kind: Some("qmsnapshot".into()),
        after: 0.05,
        times: Some(1),
        ..TaskFault::default()
    };
    setup.faults = Faults { tasks: vec![killed], ..Faults::default() };
    let world = World::started(setup).await;
    world.notes.allow_slack();
    let (lease, agent) = world.leased("linux").await;
    let locked = world
        .ours()
        .into_iter()
        .find(|vmid| world.side.config(*vmid).is_some_and(|config| config.contains_key("lock")));
    let locked = locked.expect("the crash left a lock behind");
    assert_ne!(agent.vmid.unwrap().0, locked, "the lease is served by another");
    world.pass(15 * MINUTE).await;
    let reported = &world.view().alarms()[0];
    assert!(reported.text.contains("is locked by Proxmox (`snapshot`)"), "{reported:?}");
    assert!(reported.command.contains(&format!("qm unlock {locked}")), "{reported:?}");
    world.release(&lease).await;
    world.side.set_config(locked, "lock", None);
    world.until("it goes by itself", |_| !world.ours().contains(&locked)).await;
    world.end().await;
}
