//! New versions of a template, which one agent proves before others are made of them.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::id::VmId;
use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::status::CanaryStatus;
use drover_server::view::View;
use pve_sim::guests::Quirk;
use pve_sim::spec::GuestSpec;

use super::images::{built, finish, ours, started};
use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
/// The VMIDs of the versions, in the order of their builds.
const FIRST: VmId = VmId(9003);
const SECOND: VmId = VmId(9004);
const THIRD: VmId = VmId(9005);

const KEYS: &str = "image: debian, canary: true, cloneStrategy: LINKED, singleUse: true, \
                    instanceCap: 6, startupWaitSeconds: 60";

/// A world where the first version is proven and the second one is built.
async fn with_two_versions(images: &str) -> World {
    let mut world = started(images).await;
    built(&world, &[("word", "one")]).await;
    world.setup.templates = vec![("linux", KEYS.into())];
    world.reload();
    assert_eq!(used(&world, 1).await, [FIRST]);
    built(&world, &[("word", "two")]).await;
    world
}

/// What the agents of so many leases that are asked for at once were cloned from; all are given back.
async fn used(world: &World, count: usize) -> Vec<VmId> {
    made(world, count).await.into_iter().map(|(source, _)| source).collect()
}

/// The same with the cores that the configuration gave them.
async fn made(world: &World, count: usize) -> Vec<(VmId, Option<u32>)> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(world.lease("linux").await);
    }
    let mut all = Vec::new();
    for lease in &leases {
        let agent = world.ready(lease).await;
        let spec = world.journal_state().agents[&agent.agent].spec.clone();
        all.push((spec.source, spec.cores));
    }
    for lease in &leases {
        world.release(lease).await;
    }
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    all.sort();
    all
}

fn canary(view: &View) -> CanaryStatus {
    view.templates().remove(0).canary.unwrap_or_default()
}

/// Has all agents that try the newest version fail, while a lease waits.
async fn fail_all(world: &World) {
    let lease = world.lease("linux").await;
    (0..3).for_each(|_| world.guests.quirk_next_boot(Quirk::NeverBoots));
    let is_given_up = |view: &View| !canary(view).given_up.is_empty();
    world.until("the version is given up", is_given_up).await;
    let agent = world.ready(&lease).await;
    let source = world.journal_state().agents[&agent.agent].spec.source;
    assert_eq!(source, FIRST);
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
}

// Invariant: one agent proves a new version before others are cloned from it.

#[tokio::test(start_paused = true)]
async fn the_pool_moves_to_a_new_version_once_one_agent_of_it_is_ready() {
    let world = with_two_versions("").await;
    assert_eq!(used(&world, 4).await, [FIRST, FIRST, FIRST, SECOND]);
    assert!(canary(world.view()).trial.is_none());
    assert_eq!(used(&world, 3).await, [SECOND; 3]);
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn without_a_proven_version_all_agents_are_cloned_from_the_newest() {
    let mut world = started("").await;
    built(&world, &[("word", "one")]).await;
    built(&world, &[("word", "two")]).await;
    world.setup.templates = vec![("linux", KEYS.into())];
    world.reload();
    assert_eq!(used(&world, 3).await, [SECOND; 3]);
    finish(world);
}

// Invariant: a version whose agents fail is given up, people hear why, and the last good one goes on.

#[tokio::test(start_paused = true)]
async fn a_version_that_fails_is_given_up_and_the_last_good_one_goes_on() {
    let mut world = with_two_versions("").await;
    fail_all(&world).await;
    let reported = world.view().templates().remove(0);
    assert_eq!((reported.breaker, reported.paused), (BreakerPhase::Closed, None));
    let failed = canary(world.view()).given_up.remove(0);
    assert_eq!(failed.failures, 3);
    assert!(!failed.cause.is_empty());
    let why = |reply| HerdCommand::Why { template: "linux".into(), reply };
    let verdict = world.command(why).await.unwrap().verdict.unwrap();
    assert!(verdict.contains("(VMID 9004) is not used, 3 of its agents failed"), "{verdict}");
    assert!(verdict.contains("`drover breakers reset rack/linux`"), "{verdict}");
    assert_eq!(used(&world, 2).await, [FIRST; 2]);
    // Nothing is forgotten with the service.
    world.restart(MINUTE).await;
    assert_eq!(used(&world, 2).await, [FIRST; 2]);
    assert_eq!(canary(world.view()).given_up, [failed]);
    // A repaired version is another one, and is tried.
    built(&world, &[("word", "three")]).await;
    assert_eq!(used(&world, 2).await, [FIRST, THIRD]);
    assert_eq!(used(&world, 2).await, [THIRD; 2]);
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn an_operator_has_a_version_that_was_given_up_tried_again() {
    let world = with_two_versions("").await;
    fail_all(&world).await;
    let name = "linux".to_owned();
    world.command(|reply| HerdCommand::ResetBreaker { name, reply }).await.unwrap();
    assert_eq!(used(&world, 2).await, [FIRST, SECOND]);
    assert_eq!(used(&world, 2).await, [SECOND; 2]);
    assert!(canary(world.view()).given_up.is_empty());
    finish(world);
}

// Invariant: a restart goes on with the trial, and starts no second one beside it.

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_the_agent_that_tries_a_version() {
    let mut world = with_two_versions("").await;
    let lease = world.lease("linux").await;
    world.until_state(AgentPhase::Booting).await;
    world.restart(Duration::from_secs(1)).await;
    let others: Vec<_> = [world.lease("linux").await, world.lease("linux").await].into();
    let mut sources = Vec::new();
    for lease in others.iter().chain([&lease]) {
        let agent = world.ready(lease).await;
        sources.push(world.journal_state().agents[&agent.agent].spec.source);
    }
    sources.sort();
    assert_eq!(sources, [FIRST, FIRST, SECOND]);
    finish(world);
}

// Invariant: the last version that is proven is not pruned.

#[tokio::test(start_paused = true)]
async fn the_last_good_version_stays_until_a_newer_one_is_proven() {
    let world = with_two_versions("keep: 0").await;
    world.pass(2 * MINUTE).await;
    assert_eq!(ours(&world), [FIRST.0, SECOND.0]);
    let plan = |reply| HerdCommand::PruneImages { unconfigured: false, dry_run: true, reply };
    let kept = world.command(plan).await.versions.remove(0).kept.unwrap();
    assert_eq!(kept, "no newer version is proven for template `rack/linux` (canary)");
    assert_eq!(used(&world, 2).await, [FIRST, SECOND]);
    world
        .command(|reply| HerdCommand::PruneImages { unconfigured: false, dry_run: false, reply })
        .await;
    world.pass(2 * MINUTE).await;
    assert_eq!(ours(&world), [SECOND.0]);
    finish(world);
}

// Invariant: a new configuration of the template is a version like a new image.

const TAGGED: &str = "templateTag: golden, canary: true, singleUse: true, instanceCap: 6, \
                      startupWaitSeconds: 60";

/// Another template image, newer than those that are there.
fn add_golden(world: &mut World, vmid: u32) {
    let own = |value: String| value.replace("-9000-", &format!("-{vmid}-"));
    let config = world.side.config(9000).unwrap().into_iter();
    let mut config: BTreeMap<String, String> =
        config.map(|(key, value)| (key, own(value))).collect();
    config.insert("tags".into(), "golden".into());
    config.insert("meta".into(), format!("creation-qemu=9.0.2,ctime={}", 1_900_000_000 + vmid));
    let node = "pve1".to_owned();
    let spec = GuestSpec { vmid, node, template: true, running: false, pool: None, config };
    assert!(world.side.add_guest(&spec));
    world.keep_planted(vmid);
}

/// A template that is found by a tag, with one guest of it that is proven.
async fn tagged() -> World {
    let setup = Setup::linux("").template("other", "templateVmId: 9001");
    let mut world = World::started(setup).await;
    add_golden(&mut world, 9100);
    configure(&mut world, "");
    assert_eq!(made(&world, 1).await, [(VmId(9100), None)]);
    world
}

fn configure(world: &mut World, more: &str) {
    world.setup.templates[0] = ("linux", format!("{TAGGED}{more}"));
    world.reload();
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_is_tried_by_one_agent_while_the_old_one_stands_in() {
    let mut world = tagged().await;
    configure(&mut world, ", cores: 4");
    let (old, new) = ((VmId(9100), None), (VmId(9100), Some(4)));
    assert_eq!(made(&world, 3).await, [old, old, new]);
    assert_eq!(made(&world, 2).await, [new; 2]);
    // Both are proven: nothing is tried on the way back and forth.
    configure(&mut world, "");
    assert_eq!(made(&world, 2).await, [old; 2]);
    configure(&mut world, ", cores: 4");
    assert_eq!(made(&world, 2).await, [new; 2]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_whose_agents_fail_is_given_up_and_the_old_one_goes_on() {
    let mut world = tagged().await;
    configure(&mut world, ", cores: 4");
    let old = (VmId(9100), None);
    let lease = world.lease("linux").await;
    (0..3).for_each(|_| world.guests.quirk_next_boot(Quirk::NeverBoots));
    world.until("it is given up", |view| !canary(view).given_up.is_empty()).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(made(&world, 2).await, [old; 2]);
    world.restart(MINUTE).await;
    assert_eq!(made(&world, 2).await, [old; 2]);
    assert_eq!(canary(world.view()).given_up.len(), 1);
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    // What was given up is no matter of the old configuration.
    configure(&mut world, "");
    assert_eq!(made(&world, 2).await, [old; 2]);
    assert_eq!(canary(world.view()).given_up, []);
    // A repaired one is tried.
    configure(&mut world, ", cores: 2");
    assert_eq!(made(&world, 2).await, [old, (VmId(9100), Some(2))]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_finds_no_template_image_does_not_stop_the_old_one() {
    let mut world = tagged().await;
    let wrong = TAGGED.replace("golden", "gloden");
    world.setup.templates[0] = ("linux", wrong);
    world.reload();
    world.pass(MINUTE).await;
    assert_eq!(made(&world, 2).await, [(VmId(9100), None); 2]);
    world.end().await;
}

// Invariant: a template image that is found by a tag is a version as well, and a new configuration and a
// new template image at once make one new version.

#[tokio::test(start_paused = true)]
async fn a_newer_template_image_with_the_tag_is_tried_by_one_agent() {
    let mut world = tagged().await;
    add_golden(&mut world, 9101);
    let [first, second] = [9100, 9101].map(|vmid| (VmId(vmid), None));
    world.pass(MINUTE).await;
    assert_eq!(made(&world, 3).await, [first, first, second]);
    add_golden(&mut world, 9102);
    // Agents of the old version stay, so that all three are there at once.
    configure(&mut world, ", cores: 4, rolloutMaxUnavailable: 0");
    world.pass(MINUTE).await;
    assert_eq!(made(&world, 3).await, [second, second, (VmId(9102), Some(4))]);
    assert_eq!(made(&world, 2).await, [(VmId(9102), Some(4)); 2]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_proven_template_image_that_somebody_removes_leaves_the_newer_one() {
    let mut world = tagged().await;
    add_golden(&mut world, 9101);
    world.side.remove_guest(9100);
    world.drop_planted(9100);
    world.pass(MINUTE).await;
    assert_eq!(made(&world, 2).await, [(VmId(9101), None); 2]);
    world.end().await;
}
