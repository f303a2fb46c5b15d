//! When something is served, as it is foreseen, beside when it then is.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::ambient::Dice;
use drover_model::demand::report::{Estimate, Subject};
use drover_model::id::{LeaseId, NodeName};
use drover_model::phase::{LeasePhase, NodeOrder};

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const ONCE: &str = "instanceCap: 1, maxTotalUses: 1";

/// What is foreseen of a lease that waits, and why it does.
async fn reported(world: &World, lease: &LeaseId) -> (Estimate, String) {
    let subject = Subject::Lease(lease.clone());
    let account = world.command(|reply| HerdCommand::Account { subject, reply }).await.unwrap();
    (account.kinds[0].estimate.clone(), account.kinds[0].why.clone())
}

async fn foreseen(world: &World, lease: &LeaseId) -> Estimate {
    reported(world, lease).await.0
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
async fn comes_as_foreseen(world: &World, lease: &LeaseId, reported: &Estimate, before: Duration) {
    let Estimate::In(reported, why) = reported else { panic!("{reported:?}") };
    let began = world.elapsed() - before;
    world.ready(lease).await;
    let took = world.elapsed() - began;
    let ratio = reported.as_secs_f64() / took.as_secs_f64();
    assert!((0.5..=2.0).contains(&ratio), "reported {reported:?} ({why}), took {took:?}");
}

// Invariant: what is foreseen comes within twice and half the time.

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_started_is_ready_about_when_it_was_said_to_be() {
    let world = seen(Setup::linux(ONCE), MINUTE).await;
    let lease = world.lease("linux").await;
    let reported = foreseen(&world, &lease).await;
    comes_as_foreseen(&world, &lease, &reported, Duration::ZERO).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_others_to_end_is_served_about_when_it_was_said() {
    let world = seen(Setup::linux(ONCE), 10 * MINUTE).await;
    let (first, _) = world.leased("linux").await;
    let second = world.lease("linux").await;
    world.pass(Duration::from_secs(1)).await;
    let reported = foreseen(&world, &second).await;
    world.pass(10 * MINUTE).await;
    world.release(&first).await;
    comes_as_foreseen(&world, &second, &reported, 10 * MINUTE).await;
    world.release(&second).await;
    world.end().await;
}

/// A lease that was asked for: when, what was foreseen of it then, and when it was ready.
struct Case {
    lease: LeaseId,
    asked: Duration,
    reported: Option<Duration>,
    ready: Option<Duration>,
    over: bool,
}

/// Leases asked for at random moments, each used for so long; gives what was foreseen and what came.
async fn played(world: &World, dice: &mut Dice, uses: Duration) -> Vec<(Duration, Duration)> {
    const STEP: Duration = Duration::from_secs(1);
    let (mut cases, mut next): (Vec<Case>, Duration) = (Vec::new(), world.elapsed());
    while cases.len() < 10 || cases.iter().any(|case| !case.over) {
        let now = world.elapsed();
        if now >= next && cases.len() < 10 {
            let lease = world.lease("linux").await;
            // An agent that starts at once is counted a moment later.
            world.pass(STEP).await;
            let waits =
                world.view().lease(&lease).is_some_and(|lease| lease.state == LeasePhase::Waiting);
            let reported = match waits {
                true => Some(foreseen(world, &lease).await),
                false => None,
            };
            let reported = reported.and_then(|reported| match reported {
                Estimate::In(span, _) => Some(span),
                Estimate::Never(_) | Estimate::Unknown(_) => None,
            });
            cases.push(Case { lease, asked: world.elapsed(), reported, ready: None, over: false });
            next = now + Duration::from_secs(dice.below(uses.as_secs() * 4 / 5));
        }
        for case in cases.iter_mut().filter(|case| !case.over) {
            let state = world.view().lease(&case.lease).map(|lease| lease.state);
            if case.ready.is_none() && state == Some(LeasePhase::Ready) {
                case.ready = Some(world.elapsed());
            }
            if case.ready.is_some_and(|ready| world.elapsed() >= ready + uses) {
                world.release(&case.lease).await;
                case.over = true;
            }
        }
        world.pass(STEP).await;
    }
    let timed = |case: &Case| Some((case.reported?, case.ready?.checked_sub(case.asked)?));
    cases.iter().filter_map(timed).collect()
}

#[tokio::test(start_paused = true)]
async fn of_many_who_ask_at_any_moment_each_is_served_about_when_it_was_said() {
    let mut seen_cases = 0;
    for seed in 0..20 {
        let mut dice = Dice::from_number(seed);
        let uses = Duration::from_secs(120 + dice.below(480));
        let (cap, once) = (1 + seed % 3, if seed % 2 == 0 { ", maxTotalUses: 1" } else { "" });
        let setup = Setup::linux(&format!("instanceCap: {cap}{once}")).seed(seed);
        let world = World::started(setup).await;
        // A first use says how long things take; its agent goes.
        let (lease, _) = world.leased("linux").await;
        world.pass(uses).await;
        world.release(&lease).await;
        for (reported, took) in played(&world, &mut dice, uses).await {
            // What is nearly there may be a few seconds away.
            let slack = Duration::from_secs(20);
            let is_right = reported <= took * 2 + slack && took <= reported * 2 + slack;
            assert!(is_right, "seed {seed}: reported {reported:?}, took {took:?}");
            seen_cases += 1;
        }
        world.end().await;
    }
    assert!(seen_cases > 150, "{seen_cases} of 200 were foreseen");
}

// Invariant: nothing is promised of what cannot come.

/// Nothing is promised for two hours, and what is reported names the cause.
async fn promises_nothing(world: &World, cause: &str) -> LeaseId {
    let lease = world.lease("linux").await;
    for _ in 0..12 {
        world.pass(10 * MINUTE).await;
        let (estimate, why) = reported(world, &lease).await;
        assert!(!matches!(estimate, Estimate::In(..)), "{estimate:?}");
        assert!(why.contains(cause), "{why}");
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
        let (node, cloud, order) = (NodeName::new(node), None, NodeOrder::Drain);
        let by = "token:ops".to_owned();
        let drain = |reply| HerdCommand::OrderNode { node, cloud, order, by, reply };
        world.command(drain).await.unwrap();
    }
    promises_nothing(&world, "drained").await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_out_of_reach_is_waited_for_and_nothing_is_promised() {
    let world = seen(Setup::linux(ONCE), MINUTE).await;
    // What can be cloned is not known any more: it is read again before anything is cloned.
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
