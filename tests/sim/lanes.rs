//! How many clones, starts and destroys run at once: on storages with Proxmox's lock, which is
//! waited for 10 s, none fails, and next to nothing is lost against the best setting there is.

use drover_server::view::View;
use pve_sim::world::{Latency, Spread};

use super::world::World;
use super::world::setup::Setup;
use drover_model::phase::AgentPhase;

const AGENTS: usize = 60;
/// The settings that somebody could have chosen.
const FIXED: &[u32] = &[1, 2, 4, 8, 16];
/// Those that are near the best for full copies.
const WIDE: &[u32] = &[8, 16];

/// A storage that holds its lock for so many seconds per volume.
fn locked(seconds: f64) -> Latency {
    let held = Spread::of(seconds * 0.8, seconds * 1.2);
    Latency { allocate: held, clone_linked: held, free: held, ..Latency::default() }
}

/// What came of bringing many agents up and taking them down again.
#[derive(Debug)]
struct Churn {
    failed: usize,
    /// Seconds until all were ready, of the rounds that count together.
    up: u64,
    /// Seconds until all were gone, likewise.
    down: u64,
}

/// Agents that were not just reaped.
fn failures(view: &View) -> usize {
    view.gone_agents().iter().filter(|gone| gone.reason.label() == "failed").count()
}

/// Brings them up and takes them down so many times; all count but the first of several, in which a
/// storage is got to know.
async fn churn(latency: &Latency, template: &str, lanes: &str, rounds: u32) -> Churn {
    let keys = format!(
        "startupWaitSeconds: 600, queueTimeoutSec: 100000, retireTimeoutSec: 100000, \
         idleTerminationMinutes: 0, {template}"
    );
    let mut setup = Setup::linux(&keys).rack(lanes);
    setup.latency = latency.clone();
    setup.cluster.nodes.iter_mut().for_each(|node| node.memory_bytes = 1 << 40);
    let world = World::started(setup).await;
    // Two come first, as on any day: what is compared is not how a storage is got to know.
    world.provision("linux", 2).await;
    world.until("two are ready", |view| ready(view) == 2).await;
    let (mut up, mut down) = (0, 0);
    for round in 0..rounds {
        let count = if round == 0 { AGENTS } else { AGENTS + 2 };
        let started = world.elapsed();
        world.provision("linux", count as u32).await;
        // One that fails is not started again: nobody asks for it.
        let over = |view: &View| ready(view) == AGENTS + 2 || failures(view) > 0;
        world.until("all are ready, or one failed", over).await;
        if round > 0 || rounds == 1 {
            up += (world.elapsed() - started).as_secs();
        }
        let started = world.elapsed();
        world.reap(true).await;
        world.until("all are gone", |view| view.agents().is_empty()).await;
        if round > 0 || rounds == 1 {
            down += (world.elapsed() - started).as_secs();
        }
    }
    let failed = failures(world.view());
    world.end().await;
    Churn { failed, up, down }
}

fn ready(view: &View) -> usize {
    view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count()
}

/// The adapted run, and the shortest of the fixed ones in which nothing failed.
async fn beside_fixed(
    latency: &Latency,
    template: &str,
    widths: &[u32],
    rounds: u32,
) -> (Churn, u64, u64) {
    let adapted = churn(latency, template, "", rounds).await;
    let (mut up, mut down) = (u64::MAX, u64::MAX);
    for width in widths {
        let lanes = format!(
            "adaptLanes: false, clonesPerStorage: {width}, operationsPerNode: {}",
            (*width).max(4)
        );
        let fixed = churn(latency, template, &lanes, rounds).await;
        if fixed.failed == 0 {
            (up, down) = (up.min(fixed.up), down.min(fixed.down));
        }
    }
    (adapted, up, down)
}

// Invariant: no provision fails for a lock, and the width is within a tenth of the best fixed one.

async fn holds(seconds: f64) {
    let (adapted, up, down) = beside_fixed(&locked(seconds), "", FIXED, 1).await;
    assert_eq!(adapted.failed, 0, "{seconds}: {adapted:?}");
    assert!(adapted.up * 100 <= up * 110, "{seconds}: {adapted:?} beside {up}");
    assert!(adapted.down * 100 <= down * 115, "{seconds}: {adapted:?} beside {down}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_for_a_moment_is_shared_by_many() {
    holds(0.3).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_for_a_second_is_kept_busy_and_never_waited_for_in_vain() {
    holds(1.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_for_four_seconds_is_kept_busy_and_never_waited_for_in_vain() {
    holds(4.0).await;
}

#[tokio::test(start_paused = true)]
async fn full_copies_run_side_by_side_once_the_storage_is_known_to_bear_it() {
    let latency = Latency { copy_bytes_per_second: Spread::of(150e6, 450e6), ..Latency::default() };
    // How long the last copies take is luck: rounds of one width part by a seventh.
    let (adapted, up, _) = beside_fixed(&latency, "cloneStrategy: FULL", WIDE, 4).await;
    assert_eq!(adapted.failed, 0, "{adapted:?}");
    assert!(adapted.up * 100 <= up * 110, "{adapted:?} beside {up}");
}
