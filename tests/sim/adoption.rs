//! Many agents at a start of the service: what that asks of the cluster.

use std::time::Duration;

use pve_sim::world::{CallFault, Faults, Latency, Spread};

use super::world::World;
use super::world::setup::Setup;
use drover_model::phase::AgentPhase;

const AGENTS: usize = if cfg!(debug_assertions) { 200 } else { 600 };
const AWAY: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);

/// A herd of ready agents on one node, where calls take their usual time and all else none.
async fn herd() -> World {
    let keys = "startupWaitSeconds: 900, queueTimeoutSec: 100000, idleTerminationMinutes: 0";
    let lanes = "clonesPerStorage: 64, operationsPerNode: 64, adaptLanes: false";
    let mut setup = Setup::linux(keys).rack(lanes);
    setup.latency = Latency { api_call: Spread::of(0.01, 0.04), ..Latency::none() };
    setup.cluster.nodes.iter_mut().for_each(|node| node.memory_bytes = 1 << 42);
    setup.cluster.storages.iter_mut().for_each(|storage| storage.size_bytes = 1 << 50);
    let world = World::started(setup).await;
    world.provision("linux", AGENTS as u32).await;
    world.until("all are ready", |view| ready(view) == AGENTS).await;
    world
}

fn ready(view: &drover_server::view::View) -> usize {
    view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count()
}

// Invariant: however many agents there are, no more calls run at once than a node handles.

#[tokio::test(start_paused = true)]
async fn provisioning_many_at_once_never_floods_a_node() {
    let world = herd().await;
    let peaks = world.wire.take_peaks();
    assert!(peaks["pve1"] <= 15, "{peaks:?}");
    assert!(peaks.values().sum::<u32>() <= 60, "{peaks:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_herd_is_taken_up_by_one_list() {
    let mut world = herd().await;
    world.wire.take();
    world.wire.take_peaks();
    world.kill();
    world.pass(AWAY).await;
    world.start().await;
    world.pass(MINUTE).await;
    assert_eq!(ready(world.view()), AGENTS);
    assert_eq!(world.wire.count("/qemu/N/"), 0, "{:?}", world.wire.take());
    assert_eq!(world.wire.count("/cluster/nextid"), 0);
    assert!(world.wire.count("/cluster/resources") <= 10);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_herd_that_no_list_shows_is_looked_at_few_at_a_time() {
    let mut world = herd().await;
    let silent = CallFault {
        route: Some("/cluster/resources".into()),
        status: Some(500),
        message: "unable to read".into(),
        ..CallFault::default()
    };
    world.sides.at(0).set_faults(Faults { calls: vec![silent], ..Faults::default() });
    world.wire.take();
    world.wire.take_peaks();
    world.kill();
    world.pass(AWAY).await;
    world.start().await;
    world.pass(MINUTE).await;
    let peaks = world.wire.take_peaks();
    assert_eq!(ready(world.view()), AGENTS);
    assert!(world.wire.count("/qemu/N/config") >= AGENTS);
    assert!(peaks["pve1"] <= 15, "{peaks:?}");
    assert!(peaks.values().sum::<u32>() <= 60, "{peaks:?}");
    world.end().await;
}
