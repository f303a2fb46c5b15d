//! Breakers of nodes, storages and clouds: each is opened by what it alone is charged with, keeps
//! agents from nothing but itself, and lets one trial through, also when drover is started again.

use std::time::Duration;

use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::status::AgentStatus;
use pve_sim::world::{CallFault, Faults, TaskFault};

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// All places whose breaker does not flow: the end of each name, and its state.
fn closed(world: &World) -> Vec<(String, BreakerPhase)> {
    let all = world.view().places().into_iter().filter(|one| one.breaker != BreakerPhase::Closed);
    all.map(|one| {
        let id = one.scope.to_string();
        let kind = id.split(':').next().unwrap().to_owned();
        let name = id.rsplit([':', '/']).next().unwrap().to_owned();
        (format!("{kind}:{name}"), one.breaker)
    })
    .collect()
}

fn only(world: &World, name: &str, state: BreakerPhase) {
    assert_eq!(closed(world), [(name.to_owned(), state)]);
}

fn node(agent: &AgentStatus) -> &str {
    agent.node.as_ref().unwrap().as_str()
}

fn template(world: &World, name: &str) -> BreakerPhase {
    let all = world.view().templates();
    let one = all.iter().find(|one| &*one.template.name == name);
    one.unwrap_or_else(|| panic!("no template {name}")).breaker
}

/// Calls that change something on a node and cannot be passed on to it by its neighbours.
fn silent(node: &str) -> Faults {
    let call = CallFault {
        method: Some("POST".into()),
        node: Some(node.into()),
        status: Some(595),
        message: "No route to host".into(),
        ..CallFault::default()
    };
    Faults { calls: vec![call], ..Faults::default() }
}

/// Clones that fail on a storage; `on` is the node of their tasks, if any.
fn offline(storage: &str, on: Option<&str>) -> Faults {
    let task = TaskFault {
        kind: Some("qmclone".into()),
        node: on.map(str::to_owned),
        error: Some(format!("storage '{storage}' is not online")),
        ..TaskFault::default()
    };
    Faults { tasks: vec![task], ..Faults::default() }
}

async fn end(world: World, leases: &[drover_model::id::LeaseId]) {
    for lease in leases {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: a place's breaker is opened by its own failures and closes nothing else.

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_595_opens_its_breaker_alone_and_another_is_used() {
    let keys = "templateName: debian-12, nodes: [pve2, pve3], instanceCap: 4, \
                breakerThreshold: 2, breakerCooldownSec: 600";
    let world = World::started(Setup::linux(keys).template("other", "")).await;
    world.notes.allow_slack();
    world.faults(silent("pve2"));
    let (first, agent) = world.leased("linux").await;
    assert_eq!(node(&agent), "pve3");
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    only(&world, "node:pve2", BreakerPhase::Open);
    assert_eq!(
        (template(&world, "linux"), template(&world, "other")),
        (BreakerPhase::Closed, BreakerPhase::Closed)
    );
    let intended = world.notes.intended();
    let (second, agent) = world.leased("linux").await;
    assert_eq!((node(&agent), world.notes.intended()), ("pve3", intended + 1), "at once");
    let (other, _) = world.leased("other").await;
    world.faults(Faults::default());
    world.pass(11 * MINUTE).await;
    let (third, agent) = world.leased("linux").await;
    assert_eq!(node(&agent), "pve2");
    assert_eq!(closed(&world), []);
    end(world, &[first, second, third, other]).await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_is_not_online_opens_its_breaker_alone_and_the_next_is_used() {
    let keys = "cloneStrategy: FULL, targetStorages: [shared, local-lvm], instanceCap: 4, \
                breakerThreshold: 2, breakerCooldownSec: 600";
    let world = World::started(Setup::linux(keys)).await;
    world.side.set_storage_reachable("shared", false);
    let (first, agent) = world.leased("linux").await;
    only(&world, "storage:shared", BreakerPhase::Open);
    assert_eq!(template(&world, "linux"), BreakerPhase::Closed);
    let storages = |world: &World, agent: &AgentStatus| {
        let spec = world.journal_state().agents[&agent.agent].spec.clone();
        spec.target_storage.clone().unwrap()
    };
    assert_eq!(storages(&world, &agent), "local-lvm");
    world.side.set_storage_reachable("shared", true);
    world.pass(11 * MINUTE).await;
    let (second, agent) = world.leased("linux").await;
    assert_eq!(storages(&world, &agent), "shared");
    assert_eq!(closed(&world), []);
    end(world, &[first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_whose_rights_are_gone_opens_its_breaker_alone_and_another_cloud_serves() {
    let mut setup = Setup::linux(
        "cloudIds: [rack], breakerThreshold: 2, breakerCooldownSec: 600, nodes: [pve1]",
    )
    .template("other", "cloudIds: [spare], templateVmId: 9001, nodes: [pve2]");
    setup.clouds.push(("spare", String::new()));
    let world = World::started(setup).await;
    let denied = CallFault {
        method: Some("POST".into()),
        route: Some("/clone".into()),
        node: Some("pve1".into()),
        status: Some(403),
        message: "Permission check failed".into(),
        ..CallFault::default()
    };
    world.faults(Faults { calls: vec![denied], ..Faults::default() });
    let lease = world.lease("linux").await;
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    only(&world, "cloud:rack", BreakerPhase::Open);
    assert_eq!(template(&world, "linux"), BreakerPhase::Closed);
    let intended = world.notes.intended();
    let (other, _) = world.leased("other").await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.notes.intended(), intended + 1, "the other cloud's alone");
    world.faults(Faults::default());
    world.ready(&lease).await;
    assert_eq!((closed(&world), world.notes.intended()), (vec![], intended + 2));
    end(world, &[lease, other]).await;
}

// Invariant: after the cool-down a single agent is started there, whichever template asks and whatever happens to
// drover meanwhile.

/// A herd of two templates on a storage whose breaker is tripped, and five leases that wait.
async fn tripped() -> (World, Vec<drover_model::id::LeaseId>) {
    let keys = "cloneStrategy: FULL, targetStorage: shared, instanceCap: 3, breakerThreshold: 2, \
                breakerCooldownSec: 600";
    let mut setup = Setup::linux(keys).template("other", keys);
    setup.latency.copy_bytes_per_second = pve_sim::world::Spread::of(36e6, 36e6);
    let world = World::started(setup).await;
    world.faults(offline("shared", None));
    let mut leases = Vec::new();
    for label in ["linux", "other", "linux", "other", "linux"] {
        leases.push(world.lease(label).await);
    }
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    world.until("the first lot is gone", |view| view.agents().is_empty()).await;
    only(&world, "storage:shared", BreakerPhase::Open);
    world.faults(Faults::default());
    (world, leases)
}

#[tokio::test(start_paused = true)]
async fn one_trial_is_started_on_a_storage_by_whichever_template_and_the_rest_wait_for_it() {
    let (world, leases) = tripped().await;
    let before = world.notes.intended();
    world.until("the trial runs", |view| view.agents().iter().any(|one| one.vmid.is_some())).await;
    world.pass(3 * MINUTE).await;
    only(&world, "storage:shared", BreakerPhase::HalfOpen);
    assert_eq!(world.notes.intended(), before + 1, "exactly one");
    for lease in &leases {
        world.ready(lease).await;
    }
    assert_eq!(closed(&world), []);
    end(world, &leases).await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_under_way_is_the_only_one_after_a_restart_too() {
    let (mut world, leases) = tripped().await;
    let before = world.notes.intended();
    world
        .until("the trial runs", |view| {
            view.agents().iter().any(|one| one.phase == AgentPhase::Cloning)
        })
        .await;
    world.restart(Duration::from_secs(20)).await;
    only(&world, "storage:shared", BreakerPhase::HalfOpen);
    world.pass(MINUTE).await;
    assert_eq!(world.notes.intended(), before + 1, "no second one beside it");
    only(&world, "storage:shared", BreakerPhase::HalfOpen);
    for lease in &leases {
        world.ready(lease).await;
    }
    assert_eq!(closed(&world), []);
    end(world, &leases).await;
}

// Invariant: an agent that was ready before is no trial: it will say nothing.

#[tokio::test(start_paused = true)]
async fn a_restart_takes_no_ready_agent_for_the_trial_of_its_template_or_its_storage() {
    let keys = "cloneStrategy: FULL, targetStorage: shared, instanceCap: 3, breakerThreshold: 2, \
                breakerCooldownSec: 120, idleTerminationMinutes: 0, readyCommand: check-it";
    let mut world = World::started(Setup::linux(keys)).await;
    let (first, kept) = world.leased("linux").await;
    world.faults(offline("shared", None));
    let waiting = world.lease("linux").await;
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    world.release(&waiting).await;
    world.faults(Faults::default());
    world.shell.fail(Some("check-it"));
    world.pass(3 * MINUTE).await;
    let waiting = world.lease("linux").await;
    world.until("it trips", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    world.release(&waiting).await;
    world.release(&first).await;
    world.until("nobody else lives", |view| view.agents().len() == 1).await;
    world.shell.fail(None);
    world.pass(5 * MINUTE).await;
    assert_eq!(template(&world, "linux"), BreakerPhase::Open);
    world.restart(MINUTE).await;
    assert_eq!(template(&world, "linux"), BreakerPhase::Open);
    let (again, one) = world.leased("linux").await;
    assert_eq!(one.agent, kept.agent);
    let (second, other) = world.leased("linux").await;
    assert_ne!(other.agent, kept.agent, "the trial is started");
    assert_eq!((closed(&world), template(&world, "linux")), (vec![], BreakerPhase::Closed));
    end(world, &[again, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_of_one_node_that_is_not_online_keeps_nobody_from_its_like_on_others() {
    let keys = "templateName: debian-12, nodes: [pve1, pve2], instanceCap: 6, breakerThreshold: 2, \
                breakerCooldownSec: 600";
    let world = World::started(Setup::linux(keys).template("other", "nodes: [pve1]")).await;
    world.notes.allow_slack();
    world.faults(offline("local-lvm", Some("pve2")));
    let mut leases = Vec::new();
    for _ in 0..4 {
        let (lease, agent) = world.leased("linux").await;
        assert_eq!(node(&agent), "pve1");
        leases.push(lease);
    }
    only(&world, "storage:local-lvm", BreakerPhase::Open);
    let id = world.view().places()[0].scope.to_string();
    assert!(id.ends_with("/pve2/local-lvm"), "{id}");
    let (other, agent) = world.leased("other").await;
    assert_eq!(node(&agent), "pve1");
    leases.push(other);
    end(world, &leases).await;
}
