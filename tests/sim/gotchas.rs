//! What users of API clients ran into on real clusters, and how drover gets through it.
//!
//! | what bites                                         | tests that show it does not bite drover |
//! | -------------------------------------------------- | --------------------------------------- |
//! | 1 parallel clones die on locks of the template     | here: a template whose configuration is held, many clones at once |
//! | 2 the storage lock times out under a few clones    | `lives::twenty_clones_on_one_storage_all_come_through_its_lock`, `faults::a_storage_that_somebody_holds_for_half_a_minute_delays_and_no_more` |
//! | 3 `nextid` reserves nothing                        | `twins::an_id_taken_between_its_choice_and_the_clone_is_the_others`, here: an id that a container has |
//! | 4 controllers collide on one cluster               | `twins::two_drovers_with_the_same_names_serve_side_by_side` |
//! | 5 an id is used again right after a destroy        | `strangers` and `twins::a_reused_id_is_left_alone_in_every_state` |
//! | 6 the agent is not up yet, or never has an address | `faults::a_guest_without_an_address_is_given_up`, `faults::a_guest_that_never_boots_is_given_up` |
//! | 7 the wrong address is picked                      | `faults::a_guest_that_claims_anothers_address_never_gets_its_lease`, and in `src/pve/guest` the choice by net0's MAC |
//! | 8 9.x wants other privileges for the agent         | here: the agent's privilege on both versions |
//! | 9 596 for a node name that is not the real one     | here: a node that the cluster does not have |
//! | 10 listings fail as one node or storage is down    | `nodes::the_first_endpoint_may_be_down`, `sources::a_node_that_is_down_is_passed_over`, here: a storage out of reach |
//! | 11 599 on calls through another node               | `faults::a_clone_call_that_fails_before_its_effect_is_made_good_by_another_agent` |
//! | 12 a new template is listed without its name       | here: a template that nobody has listed yet |
//! | 13 keys must be encoded twice                      | here: a key whose comment has blanks and plus signs |
//! | 14 a shutdown without an agent hangs under a lock  | `faults::a_guest_that_ignores_the_shutdown_is_stopped`, here: somebody's shutdown that hangs |
//! | 14 disks stay behind after a destroy               | `faults::a_volume_that_a_destroy_left_behind_is_removed_and_somebody_elses_is_not` |
//! | 15 rights of tokens, pools and networks            | here: rights on the pool alone, each one missing in turn |
//! | tags come back sorted and in lower case            | here: tags in capitals |
//! | one template name on two nodes                     | `sources::agents_are_spread_over_the_nodes_that_are_named` |
//! | the capacity of other nodes is counted wrongly    | `placement`: one reading of all nodes, with what is on its way |
//! | full clones outlast fixed time-outs                | here: a clone of twenty minutes |
//! | a container's clones lock their source             | `src/sim/world/tests/containers.rs`: drover clones no containers |

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::record::Reason;
use pve_sim::guests::Quirk;
use pve_sim::spec::{AclSpec, GuestSpec, PveVersion};
use pve_sim::world::Spread;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// What agents that are gone failed of.
fn failures(world: &World) -> Vec<String> {
    let gone = world.view().gone_agents();
    let texts = gone.iter().filter_map(|gone| match &gone.reason {
        Reason::Failed { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

// Invariant: gotcha 1, locks of the template cost time and nothing else.

#[tokio::test(start_paused = true)]
async fn a_template_whose_configuration_somebody_holds_is_cloned_after_that() {
    let world = World::started(Setup::linux("instanceCap: 6, breakerThreshold: 2")).await;
    world.side.hold_guest("pve1", 9000, Duration::from_secs(90));
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
    }
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    assert_eq!(world.ours().len(), 6);
    for lease in &leases {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: gotcha 3, an id belongs to the guest that has it, container or machine.

#[tokio::test(start_paused = true)]
async fn an_id_that_a_container_has_is_passed_over() {
    let mut world = World::started(Setup::linux("instanceCap: 2")).await;
    world.side.add_container(10_000, "pve2", "box");
    world.keep_planted(10_000);
    let (lease, agent) = world.leased("linux").await;
    assert_ne!(agent.vmid.unwrap().0, 10_000);
    assert!(world.side.has_container(10_000));
    world.release(&lease).await;
    world.end().await;
}

// Invariant: gotchas 8 and 15, a token with nothing but what is needed serves, and what is missing is
// named with its place.

/// The rights of a token: role, path, privileges.
fn rights(version: PveVersion) -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let agent = match version {
        PveVersion::V9_2 => "VM.GuestAgent.Audit",
        PveVersion::V7_4 | PveVersion::V8_4 => "VM.Monitor",
    };
    let pool = vec![
        "VM.Allocate",
        "VM.Audit",
        "VM.Clone",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.PowerMgmt",
        "Pool.Audit",
        agent,
    ];
    let storage = vec!["Datastore.AllocateSpace", "Datastore.Audit"];
    vec![
        ("Guests", "/pool/ci", pool),
        ("Disks", "/storage/local-lvm", storage),
        ("Networks", "/sdn/zones/localnetwork", vec!["SDN.Use"]),
        ("Sight", "/", vec!["Sys.Audit"]),
    ]
}

/// A herd whose token has rights on a pool, a storage and the bridges alone, but one.
fn narrow(version: PveVersion, missing: Option<&str>, keys: &str) -> Setup {
    let mut setup = Setup::linux(keys);
    setup.version = version;
    setup.cluster.root_tokens[0].privsep = true;
    setup.cluster.guests[0].pool = Some("ci".into());
    for (role, path, privileges) in rights(version) {
        let privileges = privileges.iter().filter(|name| Some(**name) != missing);
        let privileges = privileges.map(|name| (*name).to_owned()).collect();
        setup.cluster.roles.insert(role.into(), privileges);
        setup.cluster.acl.push(AclSpec {
            path: path.into(),
            who: "root@pam!drover".into(),
            role: role.into(),
            propagate: true,
        });
    }
    setup
}

#[tokio::test(start_paused = true)]
async fn rights_on_a_pool_its_storage_and_the_bridges_are_enough_on_both_versions() {
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        let world = World::started(narrow(version, None, "targetPool: ci")).await;
        let (lease, _) = world.leased("linux").await;
        world.release(&lease).await;
        world.until("it is gone", |view| view.agents().is_empty()).await;
        assert_eq!(failures(&world), Vec::<String>::new(), "{version:?}");
        world.end().await;
    }
}

/// Lets a herd fail for want of a right, and gives what it says of it.
async fn wanting(setup: Setup) -> String {
    let world = World::started(setup).await;
    let lease = world.lease("linux").await;
    world.pass(20 * MINUTE).await;
    let shown = &world.view().templates()[0];
    let reported =
        format!("{shown:?}\n{:?}\n{}", world.view().places(), failures(&world).join("\n"));
    assert_ne!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready, "{reported}");
    world.release(&lease).await;
    world.end().await;
    reported
}

#[tokio::test(start_paused = true)]
async fn the_privilege_that_the_agents_address_needs_is_named_for_each_version() {
    for (version, privilege) in
        [(PveVersion::V8_4, "VM.Monitor"), (PveVersion::V9_2, "VM.GuestAgent.Audit")]
    {
        let reported = wanting(narrow(version, Some(privilege), "targetPool: ci")).await;
        assert!(reported.contains(privilege), "{reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_on_the_bridges_that_is_missing_is_named_with_its_place() {
    let reported = wanting(narrow(PveVersion::V9_2, Some("SDN.Use"), "targetPool: ci")).await;
    assert!(
        reported.contains("SDN.Use") && reported.contains("/sdn/zones/localnetwork/vmbr0"),
        "{reported}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_right_on_the_pool_counts_only_where_the_pool_is_named() {
    let reported = wanting(narrow(PveVersion::V8_4, None, "")).await;
    assert!(reported.contains("VM.Allocate") && reported.contains("targetPool"), "{reported}");
}

// Invariant: gotcha 9, a node that is none of the cluster's is named, and nothing is sent there.

#[tokio::test(start_paused = true)]
async fn a_node_that_the_cluster_does_not_have_is_named() {
    let world = World::started(Setup::linux("nodes: [pve1.example.com]")).await;
    let lease = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    let shown = format!("{:?}", world.view().templates()[0]);
    assert!(shown.contains("pve1.example.com"), "{shown}");
    assert_eq!(world.notes.intended(), 0);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: gotcha 10, a storage that nobody can reach is nobody's matter who does not use it.

#[tokio::test(start_paused = true)]
async fn a_storage_out_of_reach_that_is_not_used_costs_nothing() {
    let world = World::started(Setup::linux("instanceCap: 2")).await;
    world.side.set_storage_reachable("shared", false);
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    assert_eq!(failures(&world), Vec::<String>::new());
    world.end().await;
}

// Invariant: gotcha 12, what is not listed yet with its name is found as soon as it is.

#[tokio::test(start_paused = true)]
async fn a_template_that_was_made_a_moment_ago_is_found_by_its_name() {
    let mut world = World::started(Setup::linux("templateName: fresh")).await;
    let lease = world.lease("linux").await;
    world.pass(2 * MINUTE).await;
    let like = world.setup.cluster.guests[0].clone();
    let mut config: BTreeMap<String, String> = like.config.clone();
    config.insert("name".into(), "fresh".into());
    config.insert("scsi0".into(), "local-lvm:base-9100-disk-0,size=10G".into());
    config.insert("ide2".into(), "local-lvm:vm-9100-cloudinit,media=cdrom".into());
    assert!(world.side.add_guest(&GuestSpec { vmid: 9100, config, ..like }));
    world.keep_ground();
    let agent = world.ready(&lease).await;
    assert_eq!(world.journal_state().agents[&agent.agent].spec.source.0, 9100);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: gotcha 14, a guest that somebody else asked to shut down, and that does not, is stopped
// past that and destroyed.

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_somebody_elses_that_hangs_delays_the_end_and_no_more() {
    let world =
        World::started(Setup::linux("maxTotalUses: 1, shutdownTimeoutSec: 0, instanceCap: 1"))
            .await;
    let (lease, agent) = world.leased("linux").await;
    let (vmid, node) = (agent.vmid.unwrap().0, agent.node.clone().unwrap());
    world.guests.set_quirk(vmid, Some(Quirk::IgnoresShutdown));
    // Its lock is held for as long as the shutdown waits.
    world.side.hold_guest(node.as_str(), vmid, Duration::from_secs(180));
    world.release(&lease).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    world.end().await;
}

// Invariant: tags are a set, in whatever order they come back; capitals, which would come back in
// lower case, are refused where they are configured.

#[tokio::test(start_paused = true)]
async fn tags_in_another_order_are_the_same_tags() {
    let mut world =
        World::started(Setup::linux("tags: [zeta, alpha], idleMin: 1, instanceCap: 1")).await;
    let agent = world.until_state(AgentPhase::Ready).await;
    let tags = world.side.config(agent.vmid.unwrap().0).unwrap()["tags"].clone();
    assert!(tags.starts_with("alpha;") && tags.ends_with(";zeta"), "{tags}");
    // Somebody opens the tags in the web interface, which writes them in another order.
    let mut parts: Vec<&str> = tags.split(';').collect();
    parts.reverse();
    world.side.set_config(agent.vmid.unwrap().0, "tags", Some(&parts.join(";")));
    assert_eq!(world.resync().await, Vec::<String>::new());
    world.restart(MINUTE).await;
    let same = world.until_state(AgentPhase::Ready).await;
    assert_eq!(same.agent, agent.agent);
    world.end().await;
}

// Invariant: a clone may take as long as its template says.

#[tokio::test(start_paused = true)]
async fn a_full_clone_of_twenty_minutes_is_waited_for() {
    let mut setup =
        Setup::linux("cloneStrategy: FULL, instanceCap: 1").rack("operationTimeoutSec: 1500");
    setup.latency.copy_bytes_per_second = Spread::of(9e6, 9e6);
    let world = World::started(setup).await;
    let started = tokio::time::Instant::now();
    let (lease, _) = world.leased("linux").await;
    assert!(started.elapsed() > 19 * MINUTE);
    assert_eq!((world.wire.clones(), failures(&world)), (1, vec![]));
    world.release(&lease).await;
    world.end().await;
}
