//! A template that does not work is left alone for a while, then tried by exactly one agent.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::phase::{BreakerPhase, LeasePhase};

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const KEYS: &str =
    "instanceCap: 1, breakerThreshold: 3, breakerCooldownSec: 300, readyCommand: check-it";

/// Where the breaker stands, as shown.
fn breaker(world: &World) -> BreakerPhase {
    world.view().templates()[0].breaker
}

/// A herd whose template has just been tripped, and a lease that waits for it.
async fn tripped() -> (World, drover_model::id::LeaseId) {
    let world = World::started(Setup::linux(KEYS)).await;
    world.shell.fail(Some("check-it"));
    let lease = world.lease("linux").await;
    world.until("it trips", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    assert_eq!(world.notes.intended(), 3);
    (world, lease)
}

// Invariant: three failures trip it, one trial follows the cool-down, a success closes it.

#[tokio::test(start_paused = true)]
async fn three_failures_trip_it_and_nothing_is_tried_before_the_cool_down_ends() {
    let (world, lease) = tripped().await;
    world.pass(4 * MINUTE).await;
    assert_eq!(world.notes.intended(), 3);
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    let cause = world.view().templates()[0].tripped.clone().unwrap();
    assert!(cause.1.contains("check-it") || cause.1.contains("readyCommand"), "{cause:?}");
    world.shell.fail(None);
    world.ready(&lease).await;
    assert_eq!((breaker(&world), world.notes.intended()), (BreakerPhase::Closed, 4));
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_fails_doubles_the_cool_down_and_is_alone() {
    let setup = Setup::linux(
        "instanceCap: 5, breakerThreshold: 3, breakerCooldownSec: 300, readyCommand: check-it",
    );
    let world = World::started(setup).await;
    world.shell.fail(Some("check-it"));
    for _ in 0..5 {
        world.lease("linux").await;
    }
    world.until("it trips", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    world.until("the first lot is gone", |view| view.agents().is_empty()).await;
    let before = world.notes.intended();
    world.until("the trial runs", |view| view.agents().len() == 1).await;
    world.until("it trips again", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    assert_eq!(world.notes.intended(), before + 1, "exactly one");
    world.pass(9 * MINUTE).await;
    assert_eq!(world.notes.intended(), before + 1, "twice as long");
    world.shell.fail(None);
    world
        .until("all five are served", |view| {
            view.leases().iter().all(|lease| lease.state == LeasePhase::Ready)
        })
        .await;
    world.end().await;
}

// Invariant: a crash neither opens nor closes it.

#[tokio::test(start_paused = true)]
async fn it_stays_tripped_across_a_restart_for_the_rest_of_its_time() {
    let (mut world, lease) = tripped().await;
    // The position is written in groups: the next durable record carries it along.
    let other = world.lease("linux").await;
    world.restart(MINUTE).await;
    assert_eq!(breaker(&world), BreakerPhase::Open);
    world.pass(2 * MINUTE).await;
    assert_eq!(world.notes.intended(), 3);
    world.shell.fail(None);
    world.ready(&lease).await;
    assert_eq!((breaker(&world), world.notes.intended()), (BreakerPhase::Closed, 4));
    world.release(&lease).await;
    world.ready(&other).await;
    world.release(&other).await;
    world.end().await;
}

// Invariant: what is not the template's fault is not charged to it.

#[tokio::test(start_paused = true)]
async fn contention_never_trips_it() {
    let world = World::started(Setup::linux(KEYS)).await;
    world.side.hold_storage("pve1", "local-lvm", 10 * MINUTE);
    let lease = world.lease("linux").await;
    world.ready(&lease).await;
    let moves = world.notes.facts(|what| match what {
        What::Template(status) => Some(status.breaker),
        _ => None,
    });
    assert!(moves.iter().all(|one| *one == BreakerPhase::Closed), "{moves:?}");
    assert!(world.view().gone_agents().len() > 3, "it was tried more than three times");
    world.release(&lease).await;
    world.end().await;
}

// Invariant: a breaker judges one version of its template, also over a restart.

#[tokio::test(start_paused = true)]
async fn a_template_changed_while_the_service_was_down_is_tried_at_once() {
    let (mut world, lease) = tripped().await;
    world.crash();
    world.setup.templates[0].1 = format!("{KEYS}, cores: 4");
    world.shell.fail(None);
    world.start().await;
    world.pass(2 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn more_room_for_a_template_while_the_service_was_down_leaves_its_breaker_tripped() {
    let (mut world, lease) = tripped().await;
    world.crash();
    world.setup.templates[0].1 = KEYS.replace("instanceCap: 1", "instanceCap: 2");
    world.start().await;
    world.pass(2 * MINUTE).await;
    assert_eq!((breaker(&world), world.notes.intended()), (BreakerPhase::Open, 3));
    world.shell.fail(None);
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}
