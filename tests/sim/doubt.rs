//! A cluster that takes no writes, a login that is refused, ways that are cut: what drover starts
//! while it does not know whether anything would come of it, and what it says meanwhile.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use pve_sim::world::{CallFault, Faults};

use super::world::World;
use super::world::setup::Setup;
use super::world::tap::Hit;
use drover_model::phase::{AgentPhase, CloudHealth};

const NODES: [&str; 3] = ["pve1", "pve2", "pve3"];
const SECOND: Duration = Duration::from_secs(1);

/// Takes the quorum from every node, or gives it back.
fn apart(world: &World, apart: bool) {
    NODES.iter().for_each(|node| world.side.set_partitioned(node, apart));
}

/// How many agents are in a state.
fn count(world: &World, state: AgentPhase) -> usize {
    world.view().agents().iter().filter(|agent| agent.phase == state).count()
}

/// The health of the first cloud and its detail.
fn health(world: &World) -> (CloudHealth, String) {
    let cloud = world.view().clouds().remove(0);
    (cloud.health, cloud.detail)
}

/// The cloud says within a time that it does not work, with a text that holds this.
async fn is_degraded_within(world: &World, limit: Duration, text: &str) {
    world.pass(limit).await;
    let (health, detail) = health(world);
    assert_eq!(health, CloudHealth::Degraded, "{detail}");
    assert!(detail.contains(text), "{detail}");
}

/// The cloud is known to work again within a time.
async fn is_well_within(world: &World, limit: Duration) {
    world.pass(limit).await;
    assert_eq!(health(world).0, CloudHealth::Well);
}

// Invariant: after a doubt nothing is started on that cluster until the doubt is resolved.

#[tokio::test(start_paused = true)]
async fn without_quorum_one_clone_comes_into_doubt_and_everything_else_waits() {
    let world = World::started(Setup::linux("instanceCap: 6")).await;
    world.pass(SECOND).await;
    apart(&world, true);
    let lease = world.lease("linux").await;
    is_degraded_within(&world, 2 * SECOND, "no quorum since").await;
    let others = [world.lease("linux").await, world.lease("linux").await];
    for _ in 0..15 {
        world.pass(10 * SECOND).await;
        assert_eq!((count(&world, AgentPhase::InDoubt), world.wire.clones()), (1, 1));
    }
    let doubt =
        world.view().agents().into_iter().find(|agent| agent.phase == AgentPhase::InDoubt).unwrap();
    assert!(doubt.detail.contains("cluster not ready - no quorum?"), "{}", doubt.detail);
    for one in others.iter().chain([&lease]) {
        let reported = world.view().lease(one).unwrap().detail;
        assert!(reported.contains("no quorum since"), "{reported}");
    }
    apart(&world, false);
    is_well_within(&world, 8 * SECOND).await;
    for one in others.iter().chain([&lease]) {
        world.ready(one).await;
        world.release(one).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_is_lost_after_the_clone_costs_no_agent_and_is_no_missing_privilege() {
    let world = World::started(Setup::linux("instanceCap: 6")).await;
    let lease = world.lease("linux").await;
    world.tap.watch(|knock| match knock.call {
        "configure" => Hit::Lose { done: false, after: SECOND },
        _ => Hit::Pass,
    });
    let agent = world.until_state(AgentPhase::Configuring).await.agent.clone();
    apart(&world, true);
    world.tap.release();
    world.pass(90 * SECOND).await;
    let reported = world.view().agent(&agent).unwrap();
    assert_eq!(reported.phase, AgentPhase::Configuring, "{reported:?}");
    assert!(reported.detail.contains("no quorum"), "{}", reported.detail);
    apart(&world, false);
    assert_eq!(world.ready(&lease).await.agent, agent);
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_gets_no_answer_is_followed_by_a_single_one_after_a_pause() {
    let world = World::started(Setup::linux("instanceCap: 6")).await;
    world.pass(SECOND).await;
    let lost = CallFault {
        method: Some("POST".into()),
        route: Some("/clone".into()),
        reset: true,
        ..CallFault::default()
    };
    world.faults(Faults { calls: vec![lost], ..Faults::default() });
    let first = world.lease("linux").await;
    world.until_state(AgentPhase::InDoubt).await;
    let others = [world.lease("linux").await, world.lease("linux").await];
    world.pass(2 * SECOND).await;
    assert!(world.wire.clones() <= 2, "{} clones at once", world.wire.clones());
    world.pass(60 * SECOND).await;
    let clones = world.wire.clones();
    assert!((2..=5).contains(&clones), "{clones} clones while each one was lost");
    world.faults(Faults::default());
    for one in others.iter().chain([&first]) {
        world.ready(one).await;
        world.release(one).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn clones_that_were_never_made_keep_nobody_waiting_for_their_places() {
    let setup = Setup::linux("instanceCap: 6").rack("operationsPerNode: 2, adaptLanes: false");
    let world = World::started(setup).await;
    world.pass(SECOND).await;
    let lost = CallFault {
        method: Some("POST".into()),
        route: Some("/clone".into()),
        reset: true,
        delay: 0.5,
        times: Some(2),
        ..CallFault::default()
    };
    world.faults(Faults { calls: vec![lost], ..Faults::default() });
    let leases = [world.lease("linux").await, world.lease("linux").await];
    world.pass(2 * SECOND).await;
    assert_eq!((count(&world, AgentPhase::InDoubt), world.wire.clones()), (2, 2));
    let started = world.elapsed();
    let (third, _) = world.leased("linux").await;
    let took = world.elapsed() - started;
    assert!(took < 60 * SECOND, "{took:?}, with {} in doubt", count(&world, AgentPhase::InDoubt));
    for one in leases.iter().chain([&third]) {
        world.ready(one).await;
        world.release(one).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_gets_lost_under_a_clone_keeps_no_other_node_from_cloning() {
    let setup = Setup::linux("instanceCap: 3").template("far", "templateVmId: 9001");
    let world = World::started(setup).await;
    world.pass(SECOND).await;
    let gone = CallFault {
        method: Some("POST".into()),
        route: Some("/clone".into()),
        node: Some("pve1".into()),
        status: Some(596),
        ..CallFault::default()
    };
    world.faults(Faults { calls: vec![gone], ..Faults::default() });
    let here = world.lease("linux").await;
    world.until_state(AgentPhase::InDoubt).await;
    assert_eq!(health(&world).0, CloudHealth::Well);
    let started = world.elapsed();
    let (far, _) = world.leased("far").await;
    let took = world.elapsed() - started;
    assert!(took < 60 * SECOND, "{took:?}");
    world.faults(Faults::default());
    world.ready(&here).await;
    world.release(&here).await;
    world.release(&far).await;
    world.end().await;
}

// Invariant: the first answer that shows it says what is wrong with a cloud, and the first that
// shows it again that it works.

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_cut_off_is_known_with_the_first_call_and_so_is_its_end() {
    let world = World::started(Setup::linux("instanceCap: 6")).await;
    // What can be cloned is not known any more: it is read again before anything is cloned.
    world.pass(30 * SECOND).await;
    world.ways.cut(0, true);
    let lease = world.lease("linux").await;
    is_degraded_within(&world, SECOND, "no route to host").await;
    let nodes = world.command(|reply| HerdCommand::Nodes { reply }).await;
    for reported in nodes.unread.iter().map(|(_, why)| why).chain(&world.resync().await) {
        assert!(
            reported.starts_with("cloud rack: ") && reported.contains("no route to host"),
            "{reported}"
        );
    }
    world.pass(60 * SECOND).await;
    assert_eq!(world.wire.clones(), 0);
    world.ways.cut(0, false);
    is_well_within(&world, 5 * SECOND).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_known_with_the_first_call_and_so_is_its_end() {
    let world = World::started(Setup::linux("instanceCap: 6")).await;
    // What can be cloned is read again before anything is cloned.
    world.pass(30 * SECOND).await;
    let message = "no such token 'drover' for user 'root@pam'".to_owned();
    let refused = CallFault { status: Some(401), message, ..CallFault::default() };
    world.faults(Faults { calls: vec![refused], ..Faults::default() });
    let lease = world.lease("linux").await;
    // The refusal itself comes 3 s late.
    is_degraded_within(&world, 4 * SECOND, "refused the login").await;
    world.pass(60 * SECOND).await;
    assert_eq!(world.wire.clones(), 0);
    world.faults(Faults::default());
    is_well_within(&world, 30 * SECOND).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_of_three_that_is_down_stops_nothing() {
    let setup = Setup::linux("instanceCap: 6, templateVmId: 9001");
    let world = World::started(setup).await;
    world.notes.allow_slack();
    world.side.node_down("pve1").await;
    let started = world.elapsed();
    let leases = [world.lease("linux").await, world.lease("linux").await];
    for one in &leases {
        world.ready(one).await;
    }
    let took = world.elapsed() - started;
    assert!(took < 60 * SECOND, "{took:?}");
    assert_eq!(health(&world).0, CloudHealth::Well);
    for one in &leases {
        world.release(one).await;
    }
    world.side.node_up("pve1");
    world.end().await;
}
