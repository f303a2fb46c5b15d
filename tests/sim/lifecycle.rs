//! From nothing to gone: leases, the warm pool, caps.

use std::time::Duration;

use super::setup::Setup;
use super::world::World;

// Invariant: a lease is served, and nothing is left of it.

#[tokio::test(start_paused = true)]
async fn one_lease_goes_from_nothing_to_gone() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let before = world.wire.take();
    let (lease, agent) = world.leased("linux").await;
    println!("{before:#?} {:#?}", world.wire.take());
    assert_eq!(world.ours(), [agent.vmid.unwrap().0]);
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    println!("{:#?}", world.wire.take());
    println!("{:#?}", world.view().gone_agents());
    assert_eq!(world.view().lease(&lease).unwrap().detail, "released");
    world.pass(Duration::from_secs(60)).await;
    world.end().await;
}
