//! Guests that look like an agent and are another's: two drovers on one cluster, copies and forgeries,
//! backups brought back, and ids that changed hands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::{AgentCommand, HerdCommand};
use drover_model::id::LeaseId;
use drover_model::machine::Machine;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use futures_util::future::join;
use pve_sim::spec::GuestSpec;

use super::world::World;
use super::world::setup::Setup;
use super::world::tap::Hit;

const MINUTE: Duration = Duration::from_secs(60);
const CLEANING: &str = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 30, orphanCleanupGracePeriodSeconds: 60";

type Config = BTreeMap<String, String>;

fn config(world: &World, vmid: u32) -> Config {
    world.side.config(vmid).unwrap().into_iter().collect()
}

/// Somebody else's guest, with this name and description.
fn plant(world: &World, vmid: u32, words: &[(&str, &str)]) -> Config {
    plant_as(world, vmid, words, false)
}

fn plant_as(world: &World, vmid: u32, words: &[(&str, &str)], running: bool) -> Config {
    let plain = [("memory", "512"), ("scsi0", "none"), ("name", "db")];
    let config = plain.iter().chain(words).map(|(key, value)| ((*key).into(), (*value).into()));
    let node = "pve1".to_owned();
    let config = config.collect();
    let spec = GuestSpec { vmid, node, template: false, running, pool: None, config };
    assert!(world.side.add_guest(&spec), "the id is free");
    world.notes.planted(vmid);
    self::config(world, vmid)
}

/// Takes leases one after another, and gives each back; the guests they were on.
async fn serve(world: &World, count: usize) -> BTreeSet<u32> {
    let mut vmids = BTreeSet::new();
    for _ in 0..count {
        let mut leases = Vec::new();
        for _ in 0..3 {
            leases.push(world.lease("linux").await);
        }
        for lease in leases {
            vmids.insert(world.ready(&lease).await.vmid.unwrap().0);
            world.release(&lease).await;
        }
    }
    vmids
}

/// Retires all that is idle and waits for its end.
async fn empty(world: &World) {
    world.reap(true).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
}

// Invariant: drovers that know nothing of each other leave each other's guests alone.

#[tokio::test(start_paused = true)]
async fn two_drovers_with_the_same_names_serve_side_by_side() {
    let setup = || Setup::linux("instanceCap: 3, maxTotalUses: 1").rack(CLEANING);
    let one = World::started(setup()).await;
    let mut other = one.beside(setup().seed(2));
    other.start().await;
    let (of_one, of_other) = join(serve(&one, 4), serve(&other, 4)).await;
    assert_eq!((of_one.len(), of_other.len()), (12, 12), "each lease had a guest of its own");
    let (held, _) = one.leased("linux").await;
    join(one.pass(30 * MINUTE), other.pass(30 * MINUTE)).await;
    one.ready(&held).await;
    let reported = other.resync().await.join("\n");
    assert!(reported.contains("guests of another installation"), "{reported}");
    one.release(&held).await;
    join(empty(&one), empty(&other)).await;
    for world in [one, other] {
        let gone = world.view().gone_agents();
        assert!(gone.iter().all(|gone| gone.reason != Reason::Orphaned), "{gone:?}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_prefix_that_begins_another_takes_nothing_of_it() {
    let setup = |prefix: &str| {
        Setup::linux(&format!("instanceCap: 3, namePrefix: {prefix}")).rack(CLEANING)
    };
    let one = World::started(setup("prod")).await;
    let mut other = one.beside(setup("prod-2").seed(2));
    other.start().await;
    let ((held, agent), (kept, twin)) = join(one.leased("linux"), other.leased("linux")).await;
    let name = |world: &World, vmid: u32| config(world, vmid)["name"].clone();
    assert!(name(&one, agent.vmid.unwrap().0).starts_with("prod-linux-"));
    assert!(name(&other, twin.vmid.unwrap().0).starts_with("prod-2-linux-"));
    join(one.pass(30 * MINUTE), other.pass(30 * MINUTE)).await;
    join(one.resync(), other.resync()).await;
    join(one.ready(&held), other.ready(&kept)).await;
    join(one.release(&held), other.release(&kept)).await;
    join(empty(&one), empty(&other)).await;
    one.end().await;
    other.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_copied_journal_is_noticed_by_the_marks_of_what_its_twin_made_since() {
    let setup = || Setup::linux("instanceCap: 3").rack(CLEANING);
    let one = World::started(setup()).await;
    let backup = one.backup();
    let (held, agent) = one.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let mut other = one.beside(setup().seed(2));
    other.restore(backup);
    other.start().await;
    join(one.pass(20 * MINUTE), other.pass(20 * MINUTE)).await;
    let reported = other.resync().await.join("\n");
    assert!(
        reported.contains("older than the world") && reported.contains(&vmid.to_string()),
        "{reported}"
    );
    assert_eq!(one.ready(&held).await.agent, agent.agent, "its twin has not touched it");
    one.release(&held).await;
    empty(&one).await;
    one.end().await;
    other.end().await;
}

// Invariant: a journal older than the world destroys nothing that it does not know.

#[tokio::test(start_paused = true)]
async fn a_restored_journal_leaves_what_was_made_after_the_backup() {
    let mut world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
    let backup = world.backup();
    let (_, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.crash();
    world.restore(backup);
    world.start().await;
    world.pass(60 * MINUTE).await;
    let reported = world.resync().await.join("\n");
    assert!(
        reported.contains("older than the world") && reported.contains(&vmid.to_string()),
        "{reported}"
    );
    world.restart(MINUTE).await;
    serve(&world, 20).await;
    assert!(world.journal_state().seq > 200, "the journal has caught up by far");
    world.pass(60 * MINUTE).await;
    assert!(world.guests.running_vmids().contains(&vmid), "only an operator knows");
    world.confirm_older_journal();
    world.until("the orphan goes", |_| !world.side.guests().contains(&vmid)).await;
    empty(&world).await;
    world.end().await;
}

// Invariant: what only looks like ours is never touched.

/// A stranger with these words of an agent's own stays as it is beside it.
async fn stays(words: impl Fn(&Config, u32) -> Vec<(String, String)>) {
    let mut world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
    let (lease, agent) = world.leased("linux").await;
    let ours = config(&world, agent.vmid.unwrap().0);
    let words = words(&ours, agent.vmid.unwrap().0);
    let words: Vec<_> = words.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let before = plant(&world, 700, &words);
    world.pass(60 * MINUTE - 10 * MINUTE).await;
    let reported = world.resync().await.join("\n");
    assert!(reported.contains("700"), "{reported}");
    world.ready(&lease).await;
    world.release(&lease).await;
    empty(&world).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(config(&world, 700), before);
    world.keep_ground();
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stranger_with_our_tag_stays() {
    stays(|ours, _| vec![("tags".into(), ours["tags"].clone())]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stranger_with_our_tag_and_an_agents_block_stays() {
    stays(|ours, _| ["tags", "description"].map(|key| (key.to_owned(), ours[key].clone())).into())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_made_by_hand_with_all_marks_stays() {
    stays(|ours, _| {
        ["tags", "description", "name"].map(|key| (key.to_owned(), ours[key].clone())).into()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_block_names_its_own_vmid_and_an_agent_that_lives_stays() {
    stays(|ours, vmid| {
        let block = ours["description"].replace(&format!("vmid {vmid}"), "vmid 700");
        vec![("name".into(), ours["name"].clone()), ("description".into(), block)]
    })
    .await;
}

// Invariant: an id that changed hands is the new owner's, whatever the agent was about.

/// An agent in this state, and the lease it was started for.
async fn met_in(world: &World, state: AgentPhase) -> (LeaseId, Arc<AgentStatus>) {
    if state == AgentPhase::InDoubt {
        world.tap.watch(|knock| match knock.call {
            "clone_vm" => Hit::Lose { done: true, after: MINUTE / 2 },
            _ => Hit::Pass,
        });
    }
    let lease = world.lease("linux").await;
    if [
        AgentPhase::Ready,
        AgentPhase::Leased,
        AgentPhase::Draining,
        AgentPhase::Retiring,
        AgentPhase::Stranded,
    ]
    .contains(&state)
    {
        let agent = world.ready(&lease).await;
        match state {
            AgentPhase::Draining => {
                world.address(&agent.agent).do_send(AgentCommand::Drain(Reason::Asked))
            }
            AgentPhase::Stranded => {
                let vmid = agent.vmid.unwrap().0;
                world.side.set_config(vmid, "description", Some("mine from here on"));
            }
            _ => {}
        }
    }
    if [AgentPhase::Ready, AgentPhase::Retiring, AgentPhase::Stranded].contains(&state) {
        world.release(&lease).await;
    }
    if [AgentPhase::Retiring, AgentPhase::Stranded].contains(&state) {
        world.reap(true).await;
    }
    let agent = world.until_state(state).await;
    if state == AgentPhase::InDoubt {
        let vmid = agent.vmid.unwrap().0;
        assert!(world.side.guests().contains(&vmid), "the clone was made");
    }
    world.tap.release();
    (lease, agent)
}

/// In this state the agent's guest is removed and somebody else takes its id.
async fn reused_in(state: AgentPhase) {
    let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
    let (lease, agent) = met_in(&world, state).await;
    let vmid = agent.vmid.unwrap().0;
    world.administer(vmid);
    let before = plant(&world, vmid, &[]);
    world.pass(20 * MINUTE).await;
    assert_eq!(config(&world, vmid), before, "{state}");
    if [AgentPhase::Leased, AgentPhase::Draining].contains(&state) {
        let detail = world.view().lease(&lease).unwrap().detail;
        assert!(detail.starts_with("lost: "), "{state}: {detail}");
        world.release(&lease).await;
    } else if ![AgentPhase::Ready, AgentPhase::Retiring, AgentPhase::Stranded].contains(&state) {
        let served = world.ready(&lease).await;
        assert_ne!(served.agent, agent.agent, "{state}");
        world.release(&lease).await;
    }
    world.reap(true).await;
    world.pass(20 * MINUTE).await;
    assert_eq!(config(&world, vmid), before, "{state}");
    for agent in world.view().agents() {
        assert_eq!((agent.phase, agent.vmid.unwrap().0), (AgentPhase::Stranded, vmid), "{state}");
        assert!(!world.view().alarms().is_empty());
    }
    world.side.remove_guest(vmid);
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reused_id_is_left_alone_in_every_state() {
    // Not while a clone runs: its task holds the id's lock to the end of the copy
    // (book: proxmox, section 6), so that nobody else can take the id on that node.
    let cloned = |state: &AgentPhase| {
        !matches!(state, AgentPhase::Queued | AgentPhase::Cloning | AgentPhase::Gone)
    };
    // Those that only some lives have are played elsewhere.
    let usual = |state: &AgentPhase| !matches!(state, AgentPhase::Resetting | AgentPhase::Held);
    for state in AgentPhase::ALL.into_iter().filter(cloned).filter(usual) {
        reused_in(state).await;
    }
}

// Invariant: a backup brought back onto its own id is the agent's guest by its marks: it is used up
// like one, and never left behind without a word.

/// Somebody has a backup of the agent's guest, and brings it back with other disks, running or not.
fn bring_back(world: &World, vmid: u32, backup: &Config, running: bool) -> Config {
    world.administer(vmid);
    world.shell.forget(vmid);
    let words =
        backup.iter().filter(|(key, _)| !["scsi0", "ide2", "digest"].contains(&key.as_str()));
    let words: Vec<_> = words.map(|(key, value)| (key.as_str(), value.as_str())).collect();
    plant_as(world, vmid, &words, running)
}

#[tokio::test(start_paused = true)]
async fn a_backup_brought_back_under_a_living_agent_ends_it_and_goes_with_it() {
    // Those that only some lives have are played elsewhere.
    let usual = |state: &AgentPhase| !matches!(state, AgentPhase::Resetting | AgentPhase::Held);
    let of_guests = |state: &AgentPhase| state.is_alive() || *state == AgentPhase::Retiring;
    for state in AgentPhase::ALL.into_iter().filter(of_guests).filter(usual) {
        let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
        let (lease, agent) = met_in(&world, state).await;
        let vmid = agent.vmid.unwrap().0;
        bring_back(&world, vmid, &config(&world, vmid), false);
        world.pass(20 * MINUTE).await;
        if [AgentPhase::Leased, AgentPhase::Draining].contains(&state) {
            let detail = world.view().lease(&lease).unwrap().detail;
            assert!(detail.starts_with("lost: "), "{state}: {detail}");
        } else if ![AgentPhase::Ready, AgentPhase::Retiring].contains(&state) {
            world.ready(&lease).await;
            world.release(&lease).await;
        }
        empty(&world).await;
        assert!(!world.side.guests().contains(&vmid), "{state}: it is ours, and stays");
        assert!(world.view().alarms().is_empty(), "{state}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_copy_brought_back_under_a_living_agent_goes_with_it() {
    for state in [
        AgentPhase::Booting,
        AgentPhase::Ready,
        AgentPhase::Leased,
        AgentPhase::Draining,
        AgentPhase::Retiring,
    ] {
        let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
        let (lease, agent) = met_in(&world, state).await;
        let vmid = agent.vmid.unwrap().0;
        bring_back(&world, vmid, &config(&world, vmid), true);
        world.pass(20 * MINUTE).await;
        if state == AgentPhase::Booting {
            world.ready(&lease).await;
        }
        world.release(&lease).await;
        empty(&world).await;
        assert!(!world.side.guests().contains(&vmid), "{state}: it is ours, and stays");
        assert!(world.view().alarms().is_empty(), "{state}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_with_the_marks_repairs_a_stranded_agent() {
    for running in [false, true] {
        let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
        let (lease, agent) = world.leased("linux").await;
        let vmid = agent.vmid.unwrap().0;
        let backup = config(&world, vmid);
        world.side.set_config(vmid, "description", Some("mine from here on"));
        world.release(&lease).await;
        world.reap(true).await;
        world.until_state(AgentPhase::Stranded).await;
        bring_back(&world, vmid, &backup, running);
        world.until("the agent is gone", |view| view.agents().is_empty()).await;
        assert!(world.view().alarms().is_empty());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_still_being_brought_back_is_waited_for() {
    for state in [AgentPhase::Ready, AgentPhase::Leased, AgentPhase::Retiring] {
        let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
        let (_, agent) = met_in(&world, state).await;
        let vmid = agent.vmid.unwrap().0;
        let mut backup = config(&world, vmid);
        backup.insert("lock".into(), "create".into());
        let locked = bring_back(&world, vmid, &backup, false);
        world.pass(20 * MINUTE).await;
        assert_eq!(config(&world, vmid), locked, "{state}: somebody is at it");
        // Anyone who wants it to go hears why it does not.
        let alarms = world.view().alarms();
        let reported = alarms.iter().any(|alarm| alarm.command.contains(&vmid.to_string()));
        assert_eq!(reported, state == AgentPhase::Retiring, "{state}: {alarms:?}");
        world.side.set_config(vmid, "lock", None);
        world.until("it goes by itself", |view| view.agent(&agent.agent).is_none()).await;
        world.end().await;
    }
}

/// A guest's backup is brought back after its agent is gone.
async fn brought_back_after_its_end(cleaning: &str) -> (World, u32, Config) {
    let world = World::started(Setup::linux("instanceCap: 3").rack(cleaning)).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let backup = config(&world, vmid);
    world.release(&lease).await;
    empty(&world).await;
    let before = bring_back(&world, vmid, &backup, false);
    (world, vmid, before)
}

#[tokio::test(start_paused = true)]
async fn a_backup_brought_back_after_its_agents_end_is_an_orphan() {
    let (world, vmid, _) = brought_back_after_its_end(CLEANING).await;
    // An orphan is one more than there may be.
    world.notes.allow_slack();
    // Ids that rest are not given out, so nobody meets it before it goes.
    serve(&world, 3).await;
    world.until("the orphan goes", |_| !world.side.guests().contains(&vmid)).await;
    empty(&world).await;
    let orphans = world.view().gone_agents().into_iter();
    assert_eq!(orphans.filter(|gone| gone.reason == Reason::Orphaned).count(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_brought_back_after_its_agents_end_stays_where_nobody_may_clean() {
    let keys = "cleanupOrphanedAgents: false, orphanCleanupPeriodSeconds: 30";
    let (mut world, vmid, before) = brought_back_after_its_end(keys).await;
    serve(&world, 3).await;
    world.pass(90 * MINUTE).await;
    let vmids = serve(&world, 3).await;
    assert!(!vmids.contains(&vmid), "its id is taken");
    let reported = world.resync().await.join("\n");
    assert!(reported.contains(&vmid.to_string()), "{reported}");
    empty(&world).await;
    assert_eq!(config(&world, vmid), before);
    world.keep_ground();
    world.end().await;
}

// Invariant: an id taken between its choice and the clone costs one agent and touches nobody.

#[tokio::test(start_paused = true)]
async fn an_id_taken_between_its_choice_and_the_clone_is_the_others() {
    for node in ["pve1", "pve2"] {
        let world = World::started(Setup::linux("instanceCap: 3").rack(CLEANING)).await;
        let lease = world.lease("linux").await;
        let agent = world.until_state(AgentPhase::Cloning).await;
        let vmid = agent.vmid.unwrap().0;
        let config = [("name", "db"), ("memory", "512"), ("scsi0", "none")];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let (template, running, node) = (false, false, node.to_owned());
        let spec = GuestSpec { vmid, node, template, running, pool: None, config };
        assert!(world.side.add_guest(&spec));
        let before = self::config(&world, vmid);
        assert_ne!(world.ready(&lease).await.agent, agent.agent);
        assert_eq!(self::config(&world, vmid), before);
        world.release(&lease).await;
        empty(&world).await;
        assert_eq!(self::config(&world, vmid), before);
        assert!(
            world.journal_state().burned.values().any(|ids| !ids.is_empty()),
            "the id is burned"
        );
        world.side.remove_guest(vmid);
        world.end().await;
    }
}

// Invariant: a journal that may be a copy destroys nothing that it knows from before.

/// The fields of two machines.
fn machine(id: &str) -> Option<Machine> {
    Some(Machine { id: Some(id.to_owned()), ..Machine::default() })
}

#[tokio::test(start_paused = true)]
async fn a_journal_on_another_machine_destroys_nothing_before_an_operator_has_said_that_it_moved() {
    let mut world = World::new(Setup::linux("instanceCap: 3, maxTotalUses: 1").rack(CLEANING));
    world.machine = machine("m1");
    world.start().await;
    let (lease, agent) = world.leased("linux").await;
    world.restart(MINUTE).await;
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.crash();
    world.machine = machine("m2");
    world.start().await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.pass(30 * MINUTE).await;
    let vmid = agent.vmid.unwrap().0;
    assert!(world.guests.running_vmids().contains(&vmid), "nobody has said that it moved");
    let reported = world.view().agent(&agent.agent).unwrap().detail.clone();
    assert!(reported.contains("drover resync --confirm-machine"), "{reported}");
    let (young, other) = world.leased("linux").await;
    world.release(&young).await;
    world.until("its own goes", |view| view.agent(&other.agent).is_none()).await;
    world.send(HerdCommand::ConfirmMachine);
    world.until("the old one goes", |view| view.agent(&agent.agent).is_none()).await;
    world.restart(MINUTE).await;
    world.end().await;
}
