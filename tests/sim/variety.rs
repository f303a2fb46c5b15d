//! Other clusters, other templates, and the ways to stop.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::phase::AgentPhase;
use drover_model::stop::StopPolicy;
use pve_sim::spec::PveVersion;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// Four leases in turn, on agents of two uses.
async fn serve_four(setup: Setup) -> World {
    let world = World::started(setup).await;
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
        world.release(lease).await;
    }
    world
}

// Invariant: whichever Proxmox VE it is, and however it spells its answers, a herd lives on it.

#[tokio::test(start_paused = true)]
async fn both_versions_and_all_their_spellings_do() {
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        for odd in [false, true] {
            let mut setup = Setup::linux("instanceCap: 2, maxTotalUses: 2");
            setup.version = version;
            setup.cluster.loose_types = odd;
            setup.cluster.old_errors = odd;
            serve_four(setup).await.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_node_does() {
    let mut setup = Setup::linux("instanceCap: 2, maxTotalUses: 2");
    setup.cluster.name = String::new();
    setup.cluster.nodes.truncate(1);
    setup.cluster.guests.truncate(1);
    serve_four(setup).await.end().await;
}

// Invariant: what a template asks for is what its guests have.

#[tokio::test(start_paused = true)]
async fn a_full_clone_has_its_sizes_its_pool_its_tags_and_its_place() {
    let world = World::started(Setup::linux(
        "cloneStrategy: FULL, targetStorage: shared, targetPool: ci, cores: 6, memoryMb: 3072, \
         diskSizeGb: 25, tags: [team-a], namePrefix: ci, description: \"ask team a\", \
         nameserver: 10.0.0.53, searchdomain: example.com",
    ))
    .await;
    let (lease, agent) = world.leased("linux").await;
    let config = world.side.config(agent.vmid.unwrap().0).unwrap();
    let has = |key: &str, text: &str| {
        let value = config.get(key).cloned().unwrap_or_default();
        assert!(value.contains(text), "{key}: {value}");
    };
    has("cores", "6");
    has("memory", "3072");
    has("scsi0", "shared:");
    has("scsi0", "size=25G");
    has("tags", "team-a");
    has("name", "ci-linux-");
    has("description", "ask team a");
    has("nameserver", "10.0.0.53");
    has("searchdomain", "example.com");
    has("ciuser", "debian");
    has("sshkeys", "ssh-ed25519");
    world.release(&lease).await;
    world.end().await;
}

// Invariant: clouds that lead to the same cluster share its ids.

#[tokio::test(start_paused = true)]
async fn two_clouds_on_one_cluster_never_take_the_same_id() {
    let mut setup = Setup::linux("instanceCap: 3")
        .template("edge", "cloudIds: [spare], instanceCap: 3, templateVmId: 9001");
    setup.clouds.push(("spare", "cleanupOrphanedAgents: true".to_owned()));
    let world = World::started(setup).await;
    let mut leases = Vec::new();
    for label in ["linux", "edge"].repeat(3) {
        leases.push(world.lease(label).await);
    }
    let mut vmids = BTreeSet::new();
    for lease in &leases {
        vmids.insert(world.ready(lease).await.vmid.unwrap().0);
    }
    assert_eq!(vmids, (10000..10006).collect());
    world.pass(60 * MINUTE - Duration::from_secs(300)).await;
    assert_eq!(world.resync().await, Vec::<String>::new());
    assert_eq!(world.ours().len(), 6);
    for lease in &leases {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: a stop leaves what the policy says, and the next start takes it over.

/// A herd with one leased and one idle agent.
async fn one_leased_one_idle() -> (World, drover_model::id::LeaseId) {
    let world = World::started(Setup::linux("idleMin: 1, instanceCap: 2")).await;
    let (lease, _) = world.leased("linux").await;
    world.until_state(AgentPhase::Ready).await;
    (world, lease)
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_keeps_leaves_everything_to_the_next_start() {
    let (mut world, lease) = one_leased_one_idle().await;
    let before: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    world.stop(StopPolicy::Keep).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.ours().len(), 2);
    world.start().await;
    world.ready(&lease).await;
    world.until_state(AgentPhase::Ready).await;
    let after: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    assert_eq!(after, before);
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_key_of_a_lease_that_ends() {
    let (mut world, lease) = one_leased_one_idle().await;
    let before: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    let leased = world.view().lease(&lease).unwrap().agent.unwrap();
    let vmid = world.view().agent(&leased).unwrap().vmid.unwrap();
    // Asked for, and not waited for.
    assert!(futures_util::poll!(std::pin::pin!(world.release(&lease))).is_pending());
    world.stop(StopPolicy::Keep).await;
    assert!(world.shell.admitted(vmid.0).is_empty());
    world.start().await;
    world.until_state(AgentPhase::Ready).await;
    world.pass(MINUTE).await;
    let after: Vec<_> =
        world.view().agents().into_iter().map(|agent| agent.agent.clone()).collect();
    assert_eq!(after, before);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_retires_what_is_idle_leaves_leases_alone() {
    let (mut world, lease) = one_leased_one_idle().await;
    world.stop(StopPolicy::RetireIdle).await;
    assert_eq!(world.ours().len(), 1);
    world.start().await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}
