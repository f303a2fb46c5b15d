//! A cluster whose root CA was made again: agents there are out of reach until an operator says that
//! it is the same cluster, and the guests' marks prove it.

use std::time::Duration;

use drover_actors::message::{ClusterConfirmed, HerdCommand, Refusal};
use drover_model::id::CloudId;
use drover_model::phase::CloudHealth;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// The cluster's root CA is made again.
async fn new_authority(world: &World) {
    let before = world.side.certificates();
    // The same pairs, the first of them last.
    let (first, rest) = before.ca_fingerprint.split_at(2);
    let ca_fingerprint = format!("{}:{first}", rest.trim_start_matches(':'));
    world.side.set_certificates(pve_sim::world::Certificates { ca_fingerprint, ..before });
    world
        .until("the cloud says what to do", |view| {
            view.clouds()[0].detail.contains("drover cluster confirm rack")
        })
        .await;
}

async fn confirm(world: &World, no_guests: bool) -> Result<ClusterConfirmed, Refusal> {
    let cloud = CloudId::new("rack");
    world.command(|reply| HerdCommand::ConfirmCluster { cloud, no_guests, reply }).await
}

fn refused(answer: Result<ClusterConfirmed, Refusal>) -> String {
    answer.unwrap_err().to_string()
}

/// The cluster in the marks of a guest.
fn marked(world: &World, vmid: u32) -> String {
    let description = world.side.config(vmid).unwrap()["description"].clone();
    let line =
        description.lines().find_map(|line| line.strip_prefix("cluster ").map(str::to_owned));
    line.unwrap()
}

// Invariant: guests that carry the marks of the former cluster prove that it is the same.

#[tokio::test(start_paused = true)]
async fn agents_are_reached_again_once_an_operator_has_said_that_it_is_the_same_cluster() {
    let mut world = World::started(Setup::linux("instanceCap: 3, maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let before = marked(&world, agent.vmid.unwrap().0);
    new_authority(&world).await;
    assert!(refused(confirm(&world, true).await).contains("leave `--no-guests` out"));
    let done = confirm(&world, false).await.unwrap();
    assert_eq!((done.cluster.as_str(), done.guests), (before.as_str(), 1));
    assert_ne!(done.now, done.cluster);
    let (other, young) = world.leased("linux").await;
    assert_eq!(marked(&world, young.vmid.unwrap().0), before, "marks keep the id");
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    assert!(refused(confirm(&world, false).await).contains("nothing to confirm"));
    world.restart(MINUTE).await;
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    world.until("the old one goes", |view| view.agent(&agent.agent).is_none()).await;
    new_authority(&world).await;
    confirm(&world, false).await.unwrap();
    // A new connection, as with a new CA bundle, is proven by its fingerprint alone.
    world.setup.clouds = vec![("rack", "apiUrls: [\"https://pve2\", \"https://pve3\"]".into())];
    world.reload();
    world.release(&other).await;
    world.until("all are gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_not_taken_for_the_same_one() {
    let mut setup = Setup::linux("instanceCap: 3");
    setup.beyond = vec![Setup::three_nodes()];
    let mut world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    world.setup.clouds = vec![("rack", "apiUrls: [\"https://pve1.c2\"]".into())];
    world.reload();
    world
        .until("the cloud leads elsewhere", |view| {
            view.clouds()[0].detail.contains("drover cluster confirm rack")
        })
        .await;
    let reported = refused(confirm(&world, false).await);
    assert!(reported.contains("this does not show that it is the same cluster"), "{reported}");
    assert!(refused(confirm(&world, true).await).contains("leave `--no-guests` out"));
    world.pass(MINUTE).await;
    assert_eq!(world.view().clouds()[0].health, CloudHealth::Degraded);
    world.setup.clouds = vec![("rack", String::new())];
    world.reload();
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_guests_an_operator_must_say_that_nothing_can_prove_it() {
    let world = World::started(Setup::linux("instanceCap: 3")).await;
    assert!(refused(confirm(&world, true).await).contains("nothing to confirm"));
    new_authority(&world).await;
    let reported = refused(confirm(&world, false).await);
    assert!(reported.contains("drover cluster confirm rack --no-guests"), "{reported}");
    assert_eq!(confirm(&world, true).await.unwrap().guests, 0);
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.end().await;
}
