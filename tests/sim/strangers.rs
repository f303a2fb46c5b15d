//! Guests that nobody recorded: orphans go when they may, everybody else's stay as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use pve_sim::spec::GuestSpec;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const CLEANING: &str = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 30, orphanCleanupGracePeriodSeconds: 300";
const REPORTING: &str = "cleanupOrphanedAgents: false, orphanCleanupPeriodSeconds: 30, orphanCleanupGracePeriodSeconds: 0";

/// A herd that forgot one of its guests: the world, and the guest's VMID and configuration.
async fn with_orphan(rack: &str) -> (World, u32, BTreeMap<String, String>) {
    let mut world = World::started(Setup::linux("").rack(rack)).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let config: BTreeMap<_, _> = world.side.config(vmid).unwrap().into_iter().collect();
    world.release(&lease).await;
    world.reap(true).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.keep_ground();
    (world, vmid, config)
}

/// Plants a guest made of an agent's configuration under some VMID.
fn plant(world: &World, vmid: u32, config: &BTreeMap<String, String>, like: u32) {
    let mut config: BTreeMap<String, String> = config.clone();
    for value in config.values_mut() {
        *value = value.replace(&format!("vm-{like}-"), &format!("vm-{vmid}-"));
    }
    let node = "pve1".to_owned();
    let spec = GuestSpec { vmid, node, template: false, running: false, pool: None, config };
    assert!(world.side.add_guest(&spec));
    world.notes.planted(vmid);
}

/// Lets the herd meet what was planted, and finds it untouched and reported by its VMID.
async fn stays(mut world: World, vmids: &[u32]) {
    world.keep_ground();
    world.pass(60 * MINUTE).await;
    let findings = world.resync().await.join("\n");
    for vmid in vmids {
        assert!(findings.contains(&vmid.to_string()), "{vmid}: {findings}");
    }
    let lease = world.lease("linux").await;
    let agent = world.ready(&lease).await;
    assert!(!vmids.contains(&agent.vmid.unwrap().0));
    world.release(&lease).await;
    world.end().await;
}

// Invariant: an orphan goes after its grace, where cleaning is on, and by the whole fenced way.

#[tokio::test(start_paused = true)]
async fn an_orphan_is_destroyed_after_the_grace() {
    let (world, vmid, config) = with_orphan(CLEANING).await;
    plant(&world, vmid, &config, vmid);
    world.wire.take();
    world.pass(4 * MINUTE).await;
    assert!(world.side.guests().contains(&vmid), "not before the grace");
    world.pass(5 * MINUTE).await;
    assert!(!world.side.guests().contains(&vmid), "{:?}", world.resync().await);
    let calls = world.wire.take();
    let place = |what: &str| calls.iter().position(|call| call == what).expect(what);
    assert!(place("PUT /nodes/pve1/qemu/N/config") < place("DELETE /nodes/pve1/qemu/N"));
    let gone = world.view().gone_agents();
    assert_eq!(gone.last().unwrap().reason, Reason::Orphaned);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_locked_storage_keeps_of_an_orphan_is_known_after_a_restart() {
    let (mut world, vmid, config) = with_orphan(CLEANING).await;
    plant(&world, vmid, &config, vmid);
    world.pass(4 * MINUTE).await;
    world.side.hold_storage("pve1", "local-lvm", 10 * MINUTE);
    let alarmed = |world: &World| world.view().alarms().iter().any(|it| it.text.contains("remain"));
    world.until("volumes of it remain", |_| alarmed(&world)).await;
    assert!(!world.side.guests().contains(&vmid));
    world.crash();
    world.start().await;
    world.pass(MINUTE).await;
    assert!(alarmed(&world), "{:?}", world.view().alarms());
    world.administer(vmid);
    world.until("the alarm is over", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_only_reported_where_cleaning_is_off() {
    let (world, vmid, config) = with_orphan(REPORTING).await;
    plant(&world, vmid, &config, vmid);
    stays(world, &[vmid]).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_newer_than_the_journal_stays() {
    let (world, vmid, mut config) = with_orphan(CLEANING).await;
    let born = config["description"].find("seq ").expect("marks have a sequence");
    let (before, rest) = config["description"].split_at(born);
    let after = rest.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == ' ');
    let text = format!("{before}seq 999999{after}");
    config.insert("description".into(), text);
    plant(&world, vmid, &config, vmid);
    stays(world, &[vmid]).await;
}

// Invariant: what is not exactly ours is reported and never touched.

#[tokio::test(start_paused = true)]
async fn a_guest_with_damaged_marks_stays() {
    let (world, vmid, mut config) = with_orphan(CLEANING).await;
    let text = config["description"].replace("drover-1", "drover-one");
    config.insert("description".into(), text);
    plant(&world, vmid, &config, vmid);
    stays(world, &[vmid]).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_under_another_vmid_stays() {
    let (world, vmid, config) = with_orphan(CLEANING).await;
    plant(&world, 555, &config, vmid);
    stays(world, &[555]).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_living_agent_stays_and_the_agent_lives() {
    let mut world = World::started(Setup::linux("").rack(CLEANING)).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let config: BTreeMap<_, _> = world.side.config(vmid).unwrap().into_iter().collect();
    plant(&world, 556, &config, vmid);
    world.pass(30 * MINUTE).await;
    assert!(world.side.guests().contains(&556));
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    world.reap(true).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.keep_ground();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_of_another_installation_stays_and_is_counted() {
    let (world, vmid, mut config) = with_orphan(CLEANING).await;
    let name = config["name"].clone();
    let ours = name.rsplit('-').nth(1).unwrap().to_owned();
    for value in config.values_mut() {
        *value = value.replace(&ours, "0123abcd");
    }
    plant(&world, 557, &config, vmid);
    plant(&world, vmid, &config, vmid);
    stays(world, &[557]).await;
}

#[tokio::test(start_paused = true)]
async fn strangers_in_our_range_are_gone_past() {
    let mut setup = Setup::linux("maxTotalUses: 1").rack(CLEANING);
    for vmid in [10000, 10001, 10003] {
        let config = [("name", "db"), ("memory", "512"), ("scsi0", "none")];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let node = "pve2".to_owned();
        let spec = GuestSpec { vmid, node, template: false, running: true, pool: None, config };
        setup.cluster.guests.push(spec);
    }
    let world = World::started(setup).await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let (lease, agent) = world.leased("linux").await;
        taken.push(agent.vmid.unwrap().0);
        world.release(&lease).await;
    }
    assert!(!taken.iter().any(|vmid| [10000, 10001, 10003].contains(vmid)), "{taken:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_marks_are_altered_under_it_is_left_to_an_administrator() {
    let world = World::started(Setup::linux("maxTotalUses: 1").rack(CLEANING)).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.set_config(vmid, "description", Some("mine from here on"));
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    world.pass(60 * MINUTE).await;
    assert!(world.guests.running_vmids().contains(&vmid), "not even stopped");
    assert_eq!(world.view().alarms().len(), 1);
    world.administer(vmid);
    world.until("it is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}
