//! Addresses of pools over whole herds: churn, crashes, reloads, and guests that have no agent.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::id::AgentId;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::{Body, Reason};
use drover_model::status::{AddressPoolStatus, AgentStatus};
use drover_runtime::reply::Reply;
use drover_server::view::{GoneAgent, View};
use pve_sim::guest::GuestHost;
use pve_sim::guests::Quirk;
use pve_sim::world::{AgentFault, AgentHealth, Faults};

use super::world::setup::Setup;
use super::world::{World, call_in_key};

const MINUTE: Duration = Duration::from_secs(60);

/// Two addresses that rest for two minutes.
const LAB: &str = "lab: {ranges: [10.20.0.50-10.20.0.51], prefix: 24, gateway: 10.20.0.1, \
                   nameserver: 10.20.0.2, cooldownSeconds: 120}";

fn lab(keys: &str) -> Setup {
    Setup::linux(&format!("addressPool: lab, {keys}")).pools(LAB)
}

/// Used, resting and free addresses of the only pool, as they are shown.
fn counts(world: &World) -> (u64, u64, u64) {
    let pools = world.view().address_pools();
    let [AddressPoolStatus { used, resting, free, .. }] = pools.as_slice() else {
        panic!("{pools:?}")
    };
    (*used, *resting, *free)
}

/// What the running guests of drover got from cloud-init.
fn reported(world: &World) -> Vec<String> {
    let ours = world.ours().into_iter().filter_map(|vmid| world.side.config(vmid));
    ours.filter_map(|config| config.get("ipconfig0").cloned()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Requests to guest agents for addresses.
fn questions(world: &World) -> usize {
    world.wire.take().iter().filter(|call| call.contains("network-get-interfaces")).count()
}

// Invariant: an agent has the address it was given, and nobody is asked for it.

#[tokio::test(start_paused = true)]
async fn an_agent_is_given_its_address_and_reached_there_without_a_question() {
    let world = World::started(lab("")).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.address.as_deref(), Some("10.20.0.50"));
    assert_eq!(reported(&world), ["ip=10.20.0.50/24,gw=10.20.0.1"]);
    let config = world.side.config(agent.vmid.unwrap().0).unwrap();
    assert_eq!(config.get("nameserver").map(String::as_str), Some("10.20.0.2"));
    assert_eq!(questions(&world), 0);
    assert_eq!(agent.host_keys.len(), 1, "the guest agent gave its key after the greeting");
    let assigned = &world.journal_state().agents[&agent.agent].addresses;
    assert_eq!(assigned[0].address, ip("10.20.0.50"));
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_without_a_guest_agent_works_with_an_address_of_its_own() {
    for setup in [lab(""), Setup::linux("ipConfig: 'ip=10.20.0.50/24,gw=10.20.0.1'")] {
        let world = World::started(setup).await;
        world.guests.quirk_next_boot(Quirk::NoAgent);
        let (lease, agent) = world.leased("linux").await;
        assert_eq!(agent.address.as_deref(), Some("10.20.0.50"));
        assert_eq!(agent.host_keys.len(), 1, "taken at first contact");
        world.release(&lease).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_has_an_address_of_each_family() {
    let six = "six: {ranges: [\"fd00::9\"], prefix: 64, gateway: \"fd00::1\"}";
    let setup = lab("addressPool6: six").pools(&format!("{LAB}, {six}"));
    let world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.address.as_deref(), Some("10.20.0.50"));
    assert_eq!(reported(&world), ["ip=10.20.0.50/24,gw=10.20.0.1,ip6=fd00::9/64,gw6=fd00::1"]);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: an address is one agent's at once, rests after it, and then is the next one's at once;
// a pool that is used up begins nothing and counts for no breaker.

#[tokio::test(start_paused = true)]
async fn demand_beyond_the_pool_is_served_as_addresses_have_rested() {
    let world = World::started(lab("instanceCap: 5, maxTotalUses: 1")).await;
    let mut leases = Vec::new();
    for _ in 0..7 {
        leases.push(world.lease("linux").await);
    }
    world.ready(&leases[1]).await;
    world.pass(Duration::from_secs(5)).await;
    let waits = world.view().lease(&leases[2]).unwrap().detail;
    assert_eq!(waits, "rack/linux: address pool `lab` is used up: 2 in use");
    let lack = world.view().templates()[0].lack.clone().unwrap();
    assert!(waits.ends_with(&lack), "{lack}");
    let mut seen = BTreeSet::new();
    for lease in &leases {
        let agent = world.ready(lease).await;
        seen.insert(agent.address.clone().unwrap());
        assert!(reported(&world).len() <= 2, "{:?}", reported(&world));
        world.release(lease).await;
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["10.20.0.50", "10.20.0.51"]);
    assert!(world.elapsed() > 6 * MINUTE, "three rests of two minutes: {:?}", world.elapsed());
    assert!(world.elapsed() < 14 * MINUTE, "nobody slept on: {:?}", world.elapsed());
    assert_eq!(world.journal_state().breakers.len(), 0);
    assert_eq!(world.notes.intended(), 7, "none was started in vain");
    world.until("all have rested", |_| counts(&world) == (0, 0, 2)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_hears_why_no_more_agents_are_started() {
    let world = World::started(lab("")).await;
    let (agents, short) = world.provision("linux", 4).await;
    let short = short.unwrap();
    assert_eq!(agents.len(), 2);
    assert_eq!(short, "rack/linux: address pool `lab` is used up: 2 in use");
    world.until("they are shown", |_| counts(&world) == (2, 0, 0)).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn templates_of_several_clouds_share_one_pool() {
    let mut setup = lab("cloudIds: [rack, edge]");
    setup.clouds = vec![("rack", String::new()), ("edge", "startVmId: 20000".to_owned())];
    let setup = setup.template("other", "addressPool: lab, cloudIds: [edge]");
    let world = World::started(setup).await;
    let first = world.leased("linux").await;
    let second = world.leased("other").await;
    assert_ne!(first.1.address, second.1.address);
    let third = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.view().lease(&third).unwrap().state, LeasePhase::Waiting);
    world.release(&first.0).await;
    world.reap(true).await;
    let agent = world.ready(&third).await;
    assert_eq!(agent.address, first.1.address);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_one_address_of_a_template_is_one_agents_at_once() {
    let world = World::started(Setup::linux("ipConfig: 'ip=10.20.0.9/24', maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let waits = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    let detail = world.view().lease(&waits).unwrap().detail;
    assert_eq!(detail, format!("rack/linux: its address 10.20.0.9 is agent {}'s", agent.agent));
    world.release(&lease).await;
    let next = world.ready(&waits).await;
    assert_eq!(next.address.as_deref(), Some("10.20.0.9"));
    assert_eq!((reported(&world), questions(&world)), (vec!["ip=10.20.0.9/24".to_owned()], 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_never_reported_its_address_leaves_it_fresh() {
    let world = World::started(lab("")).await;
    let lease = world.lease("linux").await;
    world.until_state(AgentPhase::Cloning).await;
    let agent = world.view().agents()[0].agent.clone();
    world.until("it is kept back", |_| counts(&world) == (1, 0, 1)).await;
    world.address(&agent).do_send(drover_actors::message::AgentCommand::ForceRetire(
        drover_model::record::Reason::Asked,
    ));
    world.release(&lease).await;
    world.until("it goes", |view| view.agents().is_empty()).await;
    world.until("it is free", |_| counts(&world) == (0, 0, 2)).await;
    world.end().await;
}

// Invariant: over a crash at any moment an address stays whose it was, and a rest goes on.

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_keeps_addresses_and_rests() {
    let mut world = World::started(lab("maxTotalUses: 1")).await;
    let (kept, agent) = world.leased("linux").await;
    let (over, other) = world.leased("linux").await;
    world.release(&over).await;
    world.until("it goes", |view| view.agent(&other.agent).is_none()).await;
    world.restart(Duration::from_secs(30)).await;
    let waits = world.lease("linux").await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(
        world.view().lease(&waits).unwrap().state,
        LeasePhase::Waiting,
        "one is used, one rests"
    );
    let next = world.ready(&waits).await;
    assert_eq!(next.address, other.address);
    let still = world.view().agent(&agent.agent).unwrap();
    assert_eq!(still.address, agent.address);
    world.release(&kept).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_record_of_an_address_and_the_guests_configuration_keeps_it() {
    for durable in [true, false] {
        let mut world = World::started(lab("")).await;
        let lease = world.lease("linux").await;
        let assigned = |body: &Body| matches!(body, Body::AddressAssigned { .. });
        let settled = |body: &Body| matches!(body, Body::CloneSettled { .. });
        if durable {
            world.notes.hold(assigned)
        } else {
            world.notes.hold(settled)
        }
        world.until_sprung().await;
        assert_eq!(reported(&world).iter().filter(|text| text.contains("10.20")).count(), 0);
        let recorded = world.journal_state().agents.values().next().unwrap().addresses.len();
        assert_eq!(recorded, usize::from(durable));
        world.restart(Duration::from_secs(5)).await;
        let others = [world.lease("linux").await, world.lease("linux").await];
        let agent = world.ready(&lease).await;
        assert_eq!(agent.address.as_deref(), Some("10.20.0.50"));
        let mine = world.notes.intended();
        assert_eq!(mine, 2, "one for the others, none in the first one's place");
        for lease in others.iter().chain([&lease]) {
            world.release(lease).await;
        }
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rests_are_in_a_snapshot_of_the_journal_too() {
    let mut world = World::started(lab("maxTotalUses: 1")).await;
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("it goes", |view| view.agents().is_empty()).await;
    let text = serde_json::to_string(&world.journal_state()).unwrap();
    let read: drover_model::journal_state::JournalState = serde_json::from_str(&text).unwrap();
    assert_eq!(read, world.journal_state());
    assert_eq!(read.resting_addresses.keys().copied().collect::<Vec<_>>(), [ip("10.20.0.50")]);
    world.restart(MINUTE).await;
    assert_eq!(counts(&world), (0, 1, 1));
    world.pass(2 * MINUTE).await;
    assert_eq!(counts(&world), (0, 0, 2));
    world.end().await;
}

// Invariant: an edit of a pool touches no living agent, and gives nothing that it takes away.

#[tokio::test(start_paused = true)]
async fn a_pool_that_shrinks_keeps_the_living_and_one_that_grows_wakes_who_waits() {
    let mut world = World::started(lab("maxTotalUses: 1")).await;
    let (first, agent) = world.leased("linux").await;
    world.setup = lab("maxTotalUses: 1").pools(&LAB.replace("50-10.20.0.51", "51"));
    world.reload();
    let (second, other) = world.leased("linux").await;
    assert_eq!(other.address.as_deref(), Some("10.20.0.51"));
    assert_eq!(world.view().agent(&agent.agent).unwrap().phase, AgentPhase::Leased);
    world.release(&first).await;
    let waits = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(
        world.view().lease(&waits).unwrap().state,
        LeasePhase::Waiting,
        "its address is not given"
    );
    world.setup = lab("maxTotalUses: 1").pools(&LAB.replace("50-10.20.0.51", "51-10.20.0.52"));
    world.reload();
    assert_eq!(world.ready(&waits).await.address.as_deref(), Some("10.20.0.52"));
    world.release(&second).await;
    world.end().await;
}

// Invariant: a guest without a guest agent says once where it is, by a secret that only it has.

/// A template whose guests call.
fn calling() -> Setup {
    let mut setup = Setup::linux("addressFrom: call, startupWaitSeconds: 300, instanceCap: 1");
    setup.sections = "service: {listen: \"127.0.0.1:8080\"}\n".to_owned();
    setup
}

/// Whose token a guest has as its serial number, as the guest reads it.
fn holder(world: &World, vmid: u32) -> AgentId {
    let config = world.side.config(vmid).unwrap();
    let smbios = config.get("smbios1").unwrap();
    assert!(smbios.contains("uuid="), "what the clone had stays: {smbios}");
    let serial = smbios.split(',').find_map(|part| part.strip_prefix("serial=")).unwrap();
    call_in_key().agent(serial).unwrap()
}

async fn call(world: &World, agent: &AgentId, peer: IpAddr) -> Result<IpAddr, Refusal> {
    let agent = agent.clone();
    let command = |reply| HerdCommand::CallIn { agent, peer: Some(peer), said: Vec::new(), reply };
    world.command(command).await
}

/// An agent that waits for its guest's call, and where that guest is.
async fn waiting(world: &World) -> (Arc<AgentStatus>, IpAddr) {
    let waits = |view: &drover_server::view::View| {
        view.agents().iter().any(|agent| agent.detail == "waits for the guest's call")
    };
    world.until("it waits", waits).await;
    let agent = world.view().agents().remove(0);
    let place = world.guests.address(agent.vmid.unwrap().0).unwrap().ip;
    assert_eq!(holder(world, agent.vmid.unwrap().0), agent.agent);
    (agent, place)
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_agent_calls_once_and_is_reached_there() {
    let world = World::started(calling()).await;
    world.guests.quirk_next_boot(Quirk::NoAgent);
    let lease = world.lease("linux").await;
    let (agent, place) = waiting(&world).await;
    assert_eq!(call(&world, &agent.agent, place).await, Ok(place));
    assert_eq!(call(&world, &agent.agent, place).await, Ok(place), "its answer was lost");
    let other = call(&world, &agent.agent, ip("10.66.0.1")).await;
    assert!(matches!(other, Err(Refusal::Conflict(_))), "{other:?}");
    let ready = world.ready(&lease).await;
    assert_eq!(ready.address, Some(place.to_string()));
    assert_eq!(questions(&world), 0);
    let nobody = call(&world, &AgentId::new("0000000000000000"), place).await;
    assert!(matches!(nobody, Err(Refusal::Unknown(_))), "{nobody:?}");
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_waited_for_and_kept_over_a_crash() {
    let mut world = World::started(calling()).await;
    let lease = world.lease("linux").await;
    waiting(&world).await;
    world.restart(Duration::from_secs(5)).await;
    let (agent, place) = waiting(&world).await;
    world.notes.hold(|body| matches!(body, Body::GuestCalled { .. }));
    let (reply, _lost) = Reply::channel();
    let id = agent.agent.clone();
    world.send(HerdCommand::CallIn { agent: id, peer: Some(place), said: Vec::new(), reply });
    world.until_sprung().await;
    world.restart(Duration::from_secs(5)).await;
    let ready = world.ready(&lease).await;
    assert_eq!(
        (ready.agent.clone(), ready.address.clone()),
        (agent.agent.clone(), Some(place.to_string()))
    );
    assert_eq!(call(&world, &ready.agent, place).await, Ok(place), "its answer was lost");
    let late = call(&world, &ready.agent, ip("10.66.0.1")).await;
    assert!(matches!(late, Err(Refusal::Conflict(_))), "it is good for nothing any more: {late:?}");
    let still = world.view().agent(&ready.agent).unwrap();
    assert_eq!(still.address, Some(place.to_string()));
    world.release(&lease).await;
    world.end().await;
}

// Invariant: nobody is logged in to at an address that is another agent's.

#[tokio::test(start_paused = true)]
async fn a_guest_that_says_another_agents_address_is_not_connected_to_there() {
    let keys = "instanceCap: 2, startupWaitSeconds: 60, maxTotalUses: 1, shutdownTimeoutSec: 5";
    let world = World::started(Setup::linux(keys)).await;
    let (first, victim) = world.leased("linux").await;
    let poses = AgentFault {
        health: AgentHealth::Posing,
        vmid: None,
        chance: 1.0,
        skip: 0,
        times: Some(1),
    };
    world.faults(Faults { agents: vec![poses], ..Faults::default() });
    let second = world.lease("linux").await;
    let reported = format!("which is agent {}'s", victim.agent);
    let poser = |view: &View| view.agents().into_iter().find(|one| one.detail.contains(&reported));
    world.until("the guest's word is not taken", |view| poser(view).is_some()).await;
    let poser = poser(world.view()).unwrap();
    assert_eq!(poser.phase, AgentPhase::Booting, "{poser:?}");
    world.ready(&second).await;
    let keys = world.shell.admitted(victim.vmid.unwrap().0);
    assert_eq!(keys.into_iter().collect::<Vec<_>>(), [first.as_str()]);
    assert_eq!(world.view().lease(&first).unwrap().state, LeasePhase::Ready);
    let gone = world.view().gone_agents();
    let why = gone.iter().find(|gone| gone.agent == poser.agent).unwrap();
    // The report of why nobody could reach it outlives it.
    let reported = why.reason.to_string();
    assert!(reported.contains("Booting took too long (startupWaitSeconds): "), "{reported}");
    world.release(&second).await;
    world.release(&first).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_names_a_machines_address_before_anybody_else_gets_nothing_of_it() {
    let keys = "instanceCap: 2, startupWaitSeconds: 60, maxTotalUses: 1, shutdownTimeoutSec: 5";
    let world = World::started(Setup::linux(keys)).await;
    let sick = |health, skip| AgentFault { health, vmid: None, chance: 1.0, skip, times: Some(1) };
    // The first one runs and nobody ever says where; the second one says that it is there.
    let agents = vec![sick(AgentHealth::Dead, 0)];
    world.faults(Faults { agents, ..Faults::default() });
    let first = world.lease("linux").await;
    world
        .until("it runs", |view| view.agents().iter().any(|one| one.phase == AgentPhase::Booting))
        .await;
    world.pass(Duration::from_secs(20)).await;
    let silent = world.view().agents().remove(0);
    let agents = vec![sick(AgentHealth::Posing, 0)];
    world.faults(Faults { agents, ..Faults::default() });
    let second = world.lease("linux").await;
    let poser = |gone: &GoneAgent| match &gone.reason {
        Reason::Failed { text, .. } => text.contains("another machine answers at"),
        _ => false,
    };
    world.until("it is found out", |view| view.gone_agents().iter().any(&poser)).await;
    assert!(world.shell.admitted(silent.vmid.unwrap().0).is_empty());
    assert!(world.shell.ran().is_empty(), "nothing was run there either");
    for lease in [&first, &second] {
        world.ready(lease).await;
        world.release(lease).await;
    }
    world.end().await;
}
