//! What agents are cloned from: the newest of several templates, on one of several nodes, past what
//! does not work, and back as soon as it does.

use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::status::AgentStatus;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const TAG: &str = "templateTag: golden";

/// Three templates of these ages that carry the tag, in the order of their nodes.
fn golden(keys: &str, ages: [u64; 3]) -> Setup {
    let mut setup = Setup::linux(keys);
    for (guest, age) in setup.cluster.guests.iter_mut().zip(ages) {
        if age > 0 {
            guest.config.insert("tags".into(), "golden".into());
            guest.config.insert("meta".into(), format!("creation-qemu=9.0.2,ctime={age}"));
        }
    }
    setup
}

/// The template's disks are on storage that all nodes share.
fn shared(setup: &mut Setup, vmid: u32) {
    let guest = setup.cluster.guests.iter_mut().find(|guest| guest.vmid == vmid).unwrap();
    guest.config.insert("scsi0".into(), format!("shared:{vmid}/base-{vmid}-disk-0.qcow2,size=10G"));
    guest
        .config
        .insert("ide2".into(), format!("shared:{vmid}/vm-{vmid}-cloudinit.qcow2,media=cdrom"));
}

/// The template an agent was cloned from.
fn source(world: &World, agent: &AgentStatus) -> u32 {
    world.journal_state().agents[&agent.agent].spec.source.0
}

fn node(agent: &AgentStatus) -> &str {
    agent.node.as_ref().unwrap().as_str()
}

/// The state of a place's breaker; none when it was never charged.
fn place(world: &World, name: &str) -> Option<BreakerPhase> {
    let all = world.view().places();
    let one = all.iter().find(|one| {
        let id = one.scope.to_string();
        id.starts_with(name.split(':').next().unwrap())
            && id.ends_with(name.split(':').nth(1).unwrap())
    });
    one.map(|one| one.breaker)
}

async fn end(world: World, leases: &[LeaseId]) {
    for lease in leases {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: the newest template wins, and a newer one is taken without a restart.

#[tokio::test(start_paused = true)]
async fn the_newest_of_three_is_cloned_and_shown_with_why() {
    let world = World::started(golden(TAG, [100, 300, 200])).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!((source(&world, &agent), node(&agent)), (9001, "pve2"));
    let shown = world.view().templates()[0].source.clone().unwrap();
    assert!(shown.contains("VMID 9001") && shown.contains("the newest of 3"), "{shown}");
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_golden_image_is_picked_up_and_running_agents_keep_theirs() {
    let mut world = World::started(golden(TAG, [100, 0, 0])).await;
    let (first, old) = world.leased("linux").await;
    world.side.set_config(9002, "tags", Some("golden"));
    world.side.set_config(9002, "meta", Some("creation-qemu=9.0.2,ctime=500"));
    world.keep_planted(9002);
    world.pass(MINUTE).await;
    let (second, new) = world.leased("linux").await;
    assert_eq!((source(&world, &old), source(&world, &new)), (9000, 9002));
    assert_eq!(world.view().agent(&old.agent).unwrap().phase, AgentPhase::Leased);
    end(world, &[first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn of_equally_old_ones_the_highest_vmid_is_taken() {
    let world = World::started(golden("templateNamePattern: 'debian-.*'", [7, 7, 7])).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(source(&world, &agent), 9002);
    let shown = world.view().templates()[0].source.clone().unwrap();
    assert!(shown.contains("9001, 9000 are as old: the highest VMID wins"), "{shown}");
    end(world, &[lease]).await;
}

// Invariant: where there is nothing to clone nothing is started, it is said, and it ends by itself.

#[tokio::test(start_paused = true)]
async fn without_a_template_it_pauses_and_goes_on_when_there_is_one() {
    let mut world = World::started(golden(TAG, [0, 0, 0])).await;
    let lease = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    let shown = world.view().templates()[0].clone();
    assert_eq!(
        shown.paused.as_deref(),
        Some("no template carries the tag `golden` on cloud `rack`")
    );
    assert_eq!((shown.breaker, world.notes.intended()), (BreakerPhase::Closed, 0));
    let why = world.view().lease(&lease).unwrap().detail;
    assert_eq!(
        why,
        "rack/linux starts nothing as long as this lasts: no template carries the tag `golden` on cloud `rack`"
    );
    world.side.set_config(9001, "tags", Some("golden"));
    world.keep_planted(9001);
    let agent = world.ready(&lease).await;
    assert_eq!(source(&world, &agent), 9001);
    assert_eq!(world.view().templates()[0].paused, None);
    end(world, &[lease]).await;
}

// Invariant: each node takes its own template of the name, or one on storage it shares.

#[tokio::test(start_paused = true)]
async fn agents_are_spread_over_the_nodes_that_are_named() {
    let keys = "templateName: debian-12, nodes: [pve3, pve1]";
    let world = World::started(Setup::linux(keys)).await;
    let (first, one) = world.leased("linux").await;
    let (second, other) = world.leased("linux").await;
    assert_eq!(
        [(node(&one), source(&world, &one)), (node(&other), source(&world, &other))],
        [("pve3", 9002), ("pve1", 9000)]
    );
    end(world, &[first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_on_shared_storage_is_cloned_to_another_node() {
    let mut setup = Setup::linux("templateVmId: 9000, nodes: [pve2]");
    shared(&mut setup, 9000);
    let world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!((source(&world, &agent), node(&agent)), (9000, "pve2"));
    end(world, &[lease]).await;
}

// Invariant: what does not work is passed over, and charged to nothing but itself.

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_is_passed_over() {
    let keys = "templateName: debian-12, nodes: [pve2, pve3], instanceCap: 3";
    let world = World::started(Setup::linux(keys)).await;
    world.side.node_down("pve2").await;
    world.pass(2 * MINUTE).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(node(&agent), "pve3");
    let shown = world.view().templates()[0].source.clone().unwrap();
    assert!(shown.contains("passed over: node `pve2`: it is offline"), "{shown}");
    world.side.node_up("pve2");
    world.pass(2 * MINUTE).await;
    let (second, other) = world.leased("linux").await;
    assert_eq!(node(&other), "pve2");
    end(world, &[lease, second]).await;
}

/// A herd whose `linux` writes to a storage that does not work; `other` does not.
fn broken_storage() -> Setup {
    Setup::linux(
        "cloneStrategy: FULL, targetStorage: shared, breakerCooldownSec: 300, instanceCap: 5",
    )
    .template("other", "")
}

#[tokio::test(start_paused = true)]
async fn a_broken_storage_opens_its_own_breaker_and_one_trial_closes_it() {
    let mut world = World::started(broken_storage()).await;
    world.side.set_storage_reachable("shared", false);
    let lease = world.lease("linux").await;
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    assert_eq!(place(&world, "storage:shared"), Some(BreakerPhase::Open));
    assert_eq!(world.view().places().len(), 1, "nobody else is charged");
    let intended = world.notes.intended();
    assert_eq!((intended, world.view().templates()[0].breaker), (3, BreakerPhase::Closed));
    let (other, _) = world.leased("other").await;
    world.restart(MINUTE).await;
    assert_eq!(place(&world, "storage:shared"), Some(BreakerPhase::Open));
    world.pass(2 * MINUTE).await;
    assert_eq!(world.notes.intended(), intended + 1, "nothing but the other template's");
    let why = world.view().lease(&lease).unwrap().detail;
    assert!(
        why.contains("storage `shared`: ") && why.contains("; its breaker is open until "),
        "{why}"
    );
    world.pass(4 * MINUTE).await;
    assert_eq!(world.notes.intended(), intended + 2, "one trial");
    assert_eq!(place(&world, "storage:shared"), Some(BreakerPhase::Open));
    world.side.set_storage_reachable("shared", true);
    world.ready(&lease).await;
    assert_eq!(place(&world, "storage:shared"), Some(BreakerPhase::Closed));
    assert_eq!(world.notes.intended(), intended + 3);
    end(world, &[lease, other]).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_resets_a_breaker() {
    let world = World::started(broken_storage()).await;
    world.side.set_storage_reachable("shared", false);
    let lease = world.lease("linux").await;
    world
        .until("it trips", |view| view.places().iter().any(|one| one.breaker == BreakerPhase::Open))
        .await;
    world.side.set_storage_reachable("shared", true);
    let reset = async |name: &str| {
        let name = name.to_owned();
        world.command(|reply| HerdCommand::ResetBreaker { name, reply }).await
    };
    assert!(reset("storage:shared").await.unwrap().ends_with("/shared"));
    assert!(matches!(reset("storage:other").await, Err(Refusal::Unknown(_))));
    let before = tokio::time::Instant::now();
    world.ready(&lease).await;
    assert!(before.elapsed() < 3 * MINUTE, "it did not wait for the cool-down");
    assert_eq!(reset("linux").await.unwrap(), "rack/linux");
    // What flows is known by its name where the configuration or an agent names it.
    assert!(reset("storage:shared").await.unwrap().ends_with("/shared"));
    assert!(reset("node:pve1").await.unwrap().ends_with("/pve1"));
    assert_eq!(reset("cloud:rack").await.unwrap(), "cloud:rack");
    for unknown in ["node:pve9", "storage:other", "cloud:attic", "other/linux", "pve1", ""] {
        assert!(matches!(reset(unknown).await, Err(Refusal::Unknown(_))), "{unknown}");
    }
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_never_charged_is_known_by_its_name_all_the_same() {
    let world = World::started(broken_storage()).await;
    for name in ["storage:shared", "cloud:rack", "linux"] {
        let command = |reply| HerdCommand::ResetBreaker { name: name.to_owned(), reply };
        assert!(world.command(command).await.is_ok(), "{name}");
    }
    assert_eq!(world.view().places(), []);
    world.end().await;
}

// Invariant: what is repaired is another version, and is tried at once; who stands in helps until then.

#[tokio::test(start_paused = true)]
async fn a_repaired_template_flows_before_its_cool_down_is_over() {
    let keys = "instanceCap: 1, breakerCooldownSec: 1800, readyCommand: check-it";
    let mut world = World::started(Setup::linux(keys)).await;
    world.shell.fail(Some("check-it"));
    let lease = world.lease("linux").await;
    world.until("it trips", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    world.pass(2 * MINUTE).await;
    world.restart(MINUTE).await;
    world.pass(2 * MINUTE).await;
    assert_eq!(
        (world.view().templates()[0].breaker, world.notes.intended()),
        (BreakerPhase::Open, 3)
    );
    world.shell.fail(None);
    world.side.set_config(9000, "cores", Some("4"));
    world.keep_planted(9000);
    let before = tokio::time::Instant::now();
    world.ready(&lease).await;
    assert!(before.elapsed() < 5 * MINUTE);
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn another_template_stands_in_for_one_that_is_tripped_and_for_that_alone() {
    let keys =
        "instanceCap: 1, maxTotalUses: 1, readyCommand: check-it, fallbackTemplates: [spare]";
    let world = World::started(Setup::linux(keys).template("spare", "templateVmId: 9001")).await;
    let (first, _) = world.leased("linux").await;
    let second = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    assert_eq!(
        world.view().lease(&second).unwrap().state,
        LeasePhase::Waiting,
        "full is no failure"
    );
    world.shell.fail(Some("check-it"));
    world.release(&first).await;
    let agent = world.ready(&second).await;
    assert_eq!(&*agent.template.name, "spare");
    end(world, &[second]).await;
}
