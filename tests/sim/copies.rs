//! Copies of machines over whole herds: what is cloned, for whom, under which limits, and power cuts at
//! every point of a copy's way.

use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::{Copied, CopyAsk, HerdCommand, Refusal, Target};
use drover_model::id::{AgentId, LeaseId};
use drover_model::order::Work;
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase, OrderPhase};
use drover_model::record::{Body, Reason};
use drover_model::size::Size;
use drover_model::status::AgentStatus;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn ask(target: Target, by: By, reply: Reply<Result<Copied, Refusal>>) -> HerdCommand {
    let hold = Box::new(World::a_hold(HOUR));
    HerdCommand::Copy(CopyAsk { target, hold, by, reply })
}

async fn copy(world: &World, of: &AgentId) -> Result<Copied, Refusal> {
    let target = Target::Agent(of.clone());
    world.command(|reply| ask(target, By::admin("test"), reply)).await
}

/// Why no copy of an agent's machine was started.
async fn refused(world: &World, of: &AgentId) -> String {
    match copy(world, of).await {
        Err(Refusal::Conflict(text) | Refusal::TooMany(text) | Refusal::Forbidden(text)) => text,
        other => panic!("{other:?}"),
    }
}

async fn held(world: &World, agent: &AgentId) -> Arc<AgentStatus> {
    let open = |status: Arc<AgentStatus>| {
        status.phase == AgentPhase::Held && status.detail == "the login is open"
    };
    world.until("it is held", |view| view.agent(agent).is_some_and(open)).await;
    world.view().agent(agent).unwrap()
}

async fn gone(world: &World, agent: &AgentId) -> Reason {
    world.until("it is gone", |view| view.agent(agent).is_none()).await;
    let gone = world.view().gone_agents();
    gone.iter().find(|gone| gone.agent == *agent).unwrap().reason.clone()
}

/// A world with a leased machine that was worked on.
async fn leased(keys: &str) -> (World, LeaseId, Arc<AgentStatus>) {
    let world = World::started(Setup::linux(keys)).await;
    let (lease, agent) = world.leased("linux").await;
    (world, lease, agent)
}

async fn order(world: &World, agent: &AgentId, work: Work) {
    let (target, by) = (Target::Agent(agent.clone()), By::admin("test"));
    let command = |reply| HerdCommand::Order { target, work, key: None, by, reply };
    let id = world.command(command).await.unwrap().status.order.id;
    let over = |status: Arc<AgentStatus>| {
        status.machine.past.iter().any(|one| one.order.id == id && one.phase == OrderPhase::Done)
    };
    world.until("the order is done", |view| view.agent(agent).is_some_and(over)).await;
}

fn value(world: &World, vmid: u32, key: &str) -> String {
    let config = world.side.config(vmid).unwrap();
    config.iter().find(|(name, _)| name.as_str() == key).map(|(_, value)| value.clone()).unwrap()
}

// Invariant: a copy is another agent of the same template and the machine's sizes, with marks, VMID,
// MAC and disks of its own, held for who asked.

#[tokio::test(start_paused = true)]
async fn a_copy_is_an_agent_of_its_own_and_is_held_for_who_asked() {
    let (world, lease, source) = leased("instanceCap: 2, prepare: [{run: 'true'}]").await;
    let from = source.vmid.unwrap().0;
    let sizes = Size { cores: Some(3), memory_mb: None, disk_gb: Some(40) };
    order(&world, &source.agent, Work::Resize(sizes)).await;
    let copied = copy(&world, &source.agent).await.unwrap();
    assert_eq!((&copied.of, copied.template.to_string()), (&source.agent, "rack/linux".into()));
    let made = held(&world, &copied.agent).await;
    let to = made.vmid.unwrap().0;
    let born = world.journal_state().agents[&copied.agent].spec.clone();
    assert_eq!((born.source.0, born.steps.len()), (from, 0));
    assert!(to != from && value(&world, to, "name") != value(&world, from, "name"));
    assert!(value(&world, to, "description").contains(copied.agent.as_str()));
    assert_ne!(value(&world, to, "net0"), value(&world, from, "net0"));
    assert!(value(&world, to, "scsi0").contains(&format!("vm-{to}-disk-0")), "a full clone");
    assert!(value(&world, to, "scsi0").contains("size=40G"));
    assert_eq!(value(&world, to, "cores"), "3");
    let keys: Vec<String> = world.shell.admitted(to).into_iter().collect();
    assert!(keys.contains(&"hold".to_owned()), "{keys:?}");
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready, "the source goes on");
    // It counts against the cap, and serves nobody.
    let waits = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&waits).unwrap().state, LeasePhase::Waiting);
    assert_eq!(gone(&world, &copied.agent).await, Reason::HoldOver);
    world.ready(&waits).await;
    world.release(&waits).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_a_disc_of_its_own_in_the_drive_of_its_sources() {
    let user_data = r##"userData: "#cloud-config\nhostname: ${hostname}\n""##;
    let (world, lease, source) = leased(&format!("instanceCap: 2, {user_data}")).await;
    let of_source = value(&world, source.vmid.unwrap().0, "ide2");
    let copied = copy(&world, &source.agent).await.unwrap().agent;
    let made = held(&world, &copied).await;
    let config = world.side.config(made.vmid.unwrap().0).unwrap();
    let discs = config.values().filter(|value| value.contains(":iso/drover-"));
    let discs: Vec<String> = discs.cloned().collect();
    assert!(discs.len() == 1 && discs[0].contains(copied.as_str()), "{discs:?}");
    world.release_hold(&copied).await;
    gone(&world, &copied).await;
    assert_eq!(value(&world, source.vmid.unwrap().0, "ide2"), of_source);
    assert!(
        world
            .side
            .volumes(&source.node.clone().unwrap().to_string(), "local")
            .iter()
            .any(|volume| of_source.starts_with(volume.as_str())),
        "the disc of the source is there"
    );
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_outlives_its_source_and_can_be_copied_itself() {
    let (world, lease, source) = leased("instanceCap: 3").await;
    let first = copy(&world, &source.agent).await.unwrap().agent;
    held(&world, &first).await;
    world.release(&lease).await;
    assert!(world.reap(true).await > 0);
    world.until("the source is gone", |view| view.agent(&source.agent).is_none()).await;
    let second = copy(&world, &first).await.unwrap().agent;
    held(&world, &second).await;
    for agent in [first, second] {
        world.release_hold(&agent).await;
        assert_eq!(gone(&world, &agent).await, Reason::HoldOver);
    }
    world.end().await;
}

// Invariant: nothing is cloned that is somebody else's, has no room, or would run twice.

#[tokio::test(start_paused = true)]
async fn a_copy_is_refused_with_what_stands_against_it() {
    let (world, lease, source) = leased("instanceCap: 2").await;
    let stranger = By { principal: "token:other".into(), group: None, all: false };
    for target in [Target::Agent(source.agent.clone()), Target::Lease(lease.clone())] {
        let answer = world.command(|reply| ask(target, stranger.clone(), reply)).await;
        assert!(matches!(answer, Err(Refusal::Forbidden(_))), "{answer:?}");
    }
    order(&world, &source.agent, Work::Suspend).await;
    let text = refused(&world, &source.agent).await;
    assert!(text.contains(&format!("`drover machine resume {}` first", source.agent)), "{text}");
    order(&world, &source.agent, Work::Resume).await;
    let first = copy(&world, &source.agent).await.unwrap();
    let text = refused(&world, &source.agent).await;
    assert!(text.contains("wait until its clone is done"), "{text}");
    held(&world, &first.agent).await;
    let text = refused(&world, &source.agent).await;
    assert!(text.contains("rack/linux is full: 2 of 2"), "{text}");
    world.release_hold(&first.agent).await;
    gone(&world, &first.agent).await;
    world.release(&lease).await;
    let idle = world.until_state(AgentPhase::Ready).await;
    let text = refused(&world, &idle.agent).await;
    assert!(text.contains(&format!("`drover hold {}` holds it", idle.agent)), "{text}");
    assert_eq!(world.wire.clones(), 2);
    world.end().await;
}

// Invariant: what becomes of a copy says nothing of its template.

#[tokio::test(start_paused = true)]
async fn copies_that_fail_leave_their_template_alone() {
    let keys = "instanceCap: 2, breakerThreshold: 1";
    let (world, lease, source) = leased(keys).await;
    let from = source.vmid.unwrap().0;
    world.side.set_config(from, "lock", Some("backup"));
    let copied = copy(&world, &source.agent).await.unwrap();
    let reason = gone(&world, &copied.agent).await;
    assert!(reason.to_string().contains("is locked by Proxmox (`backup`)"), "{reason}");
    world.side.set_config(from, "lock", None);
    let template = &world.view().templates()[0];
    assert_eq!((template.breaker, template.paused.clone()), (BreakerPhase::Closed, None));
    let other = world.lease("linux").await;
    world.ready(&other).await;
    for lease in [lease, other] {
        world.release(&lease).await;
    }
    world.end().await;
}

// Invariant: after a power cut anywhere on its way a copy is there and held, or was never made; the
// source's lease goes on, and nothing is left in the end.

/// Cuts the power when the trap springs; gives the agent that is the copy, where it is there afterwards.
async fn cut(arm: impl FnOnce(&World)) -> Option<Arc<AgentStatus>> {
    let (mut world, lease, source) = leased("instanceCap: 2, idleTerminationMinutes: 1").await;
    arm(&world);
    let (reply, _answer) = Reply::channel();
    world.send(ask(Target::Lease(lease.clone()), By::admin("test"), reply));
    world.until_sprung().await;
    world.restart(30 * Duration::from_secs(1)).await;
    world.pass(15 * MINUTE).await;
    let of = &source.agent;
    let all = world.view().agents();
    let found = all.into_iter().find(|status| status.agent != *of);
    let reasons: Vec<_> =
        world.view().gone_agents().iter().map(|gone| gone.reason.clone()).collect();
    let kept = world.view().lease(&lease).unwrap().clone();
    assert_eq!(kept.state, LeasePhase::Ready, "{kept:?} {reasons:?}");
    assert_eq!(world.ours().len(), 1 + usize::from(found.is_some()), "no more than these");
    if let Some(copy) = &found {
        assert_eq!(copy.phase, AgentPhase::Held, "{copy:?}");
        gone(&world, &copy.agent).await;
    }
    world.release(&lease).await;
    world.until("all are gone", |view| view.agents().is_empty()).await;
    world.end().await;
    found
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_not_started_when_the_power_went_is_none() {
    let none = cut(|world| world.notes.hold(|body| matches!(body, Body::HoldSet { .. }))).await;
    assert!(none.is_none(), "{none:?}");
    let intent = |body: &Body| matches!(body, Body::CloneIntended { .. });
    let none = cut(move |world| world.notes.hold(intent)).await;
    assert!(none.is_none(), "{none:?}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_started_when_the_power_went_is_held_all_the_same() {
    for (method, end, hold) in [
        ("POST", "/clone", Hold::Answer),
        ("POST", "/status/start", Hold::Answer),
        ("GET", "/agent/network-get-interfaces", Hold::Call),
    ] {
        let copy = cut(|world| world.wire.hold(method, end, hold)).await;
        assert!(copy.is_some(), "{method} {end}");
    }
    let notes: [fn(&Body) -> bool; 5] = [
        |body| matches!(body, Body::TaskAccepted { .. }),
        |body| matches!(body, Body::CloneSettled { .. }),
        |body| matches!(body, Body::VolumesKnown { .. }),
        |body| matches!(body, Body::Phase { state, .. } if *state == AgentPhase::Preparing),
        |body| matches!(body, Body::HoldSet { until: Some(_), .. }),
    ];
    for (at, note) in notes.into_iter().enumerate() {
        let copy = cut(move |world| world.notes.hold(note)).await;
        assert!(copy.is_some(), "record {at}");
    }
}
