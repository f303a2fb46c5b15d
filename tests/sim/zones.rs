//! Zones and regions of clouds: labels that demand can ask for.

use std::time::Duration;

use drover_model::id::CloudId;
use pve_sim::world::NodeOverrides;

use super::placement::{end, spread};
use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;

// Invariant: a zone is a label of every template on its clouds, and of no other.

#[tokio::test(start_paused = true)]
async fn a_lease_for_a_zone_is_served_by_a_cloud_of_that_zone() {
    let mut setup = Setup::linux("cloudIds: [rack, attic]");
    setup.clouds = vec![
        ("rack", "region: eu, zone: dc1".into()),
        ("attic", "region: eu, zone: dc2, startVmId: 20000".into()),
    ];
    let world = World::started(setup).await;
    let (first, one) = world.leased("zone:dc2").await;
    let (second, other) = world.leased("zone:dc1").await;
    assert_eq!(one.template.cloud, CloudId::new("attic"));
    assert_eq!(other.template.cloud, CloudId::new("rack"));
    let (third, _) = world.leased("region:eu").await;
    assert!(world.try_lease("zone:dc3", MINUTE).await.is_err());
    end(world, &[first, second, third]).await;
}

#[tokio::test(start_paused = true)]
async fn demand_that_several_serve_goes_where_more_fits() {
    let setup = Setup::linux("node: pve1").rack("region: eu");
    let setup = setup.template("other", "node: pve2, templateVmId: 9001");
    let world = World::started(setup).await;
    world.side.set_overrides(
        "pve1",
        NodeOverrides { memory_bytes: 54 * GIB, ..NodeOverrides::default() },
    );
    world.pass(MINUTE).await;
    let mut leases = Vec::new();
    for template in ["linux", "other"] {
        leases.push(world.leased(template).await.0);
    }
    for _ in 0..20 {
        leases.push(world.lease("region:eu").await);
    }
    for lease in &leases {
        world.ready(lease).await;
    }
    let all = spread(&world);
    assert!(all["pve1"] <= 4 && all["pve1"] + all["pve2"] == 22, "{all:?}");
    let gone = world.view().gone_agents();
    assert!(gone.is_empty(), "none was started in vain: {gone:?}");
    end(world, &leases).await;
}
