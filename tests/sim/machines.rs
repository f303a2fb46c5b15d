//! Orders to machines over whole herds: power, snapshots and sizes on the simulated cluster, crashes in
//! the middle, and the end of leases from every ordered state.

use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::{HerdCommand, MachineSeen, Ordered, Refusal, Target};
use drover_model::id::{AgentId, LeaseId};
use drover_model::order::{OrderStatus, Work};
use drover_model::phase::{AgentPhase, LeasePhase, OrderPhase, Power};
use drover_model::record::Reason;
use drover_model::size::Size;
use drover_model::status::AgentStatus;
use drover_model::tenant::By;
use drover_server::view::View;
use pve_sim::guests::Quirk;
use pve_sim::world::{CallFault, Faults};

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;

const MINUTE: Duration = Duration::from_secs(60);

const POWER: [Work; 7] = [
    Work::Suspend,
    Work::Resume,
    Work::Reset,
    Work::Reboot,
    Work::Shutdown,
    Work::Start,
    Work::Stop,
];

async fn try_order(world: &World, target: Target, work: Work) -> Result<Ordered, Refusal> {
    let by = By::admin("test");
    world.command(|reply| HerdCommand::Order { target, work, key: None, by, reply }).await
}

/// Gives an order with an idempotency key.
async fn keyed(world: &World, agent: &AgentId, work: Work) -> Result<Ordered, Refusal> {
    let (target, by) = (Target::Agent(agent.clone()), By::admin("test"));
    let key = Some("k1".to_owned());
    world.command(|reply| HerdCommand::Order { target, work, key, by, reply }).await
}

/// Gives an order, and waits for its end.
async fn order(world: &World, agent: &AgentId, work: Work) -> OrderStatus {
    let ordered = try_order(world, Target::Agent(agent.clone()), work).await.unwrap();
    over(world, &ordered).await
}

async fn over(world: &World, ordered: &Ordered) -> OrderStatus {
    let id = ordered.status.order.id.clone();
    let find = |view: &View| {
        let all = view.agent(&ordered.agent)?.machine.all();
        all.into_iter().find(|one| one.order.id == id && one.phase != OrderPhase::Running)
    };
    world.until("the order is over", |view| find(view).is_some()).await;
    find(world.view()).unwrap()
}

async fn done(world: &World, agent: &AgentId, work: Work) -> OrderStatus {
    let status = order(world, agent, work).await;
    assert_eq!(status.phase, OrderPhase::Done, "{status:?}");
    status
}

async fn look(world: &World, agent: &AgentId) -> MachineSeen {
    let (target, by) = (Target::Agent(agent.clone()), By::admin("test"));
    world.command(|reply| HerdCommand::Machine { target, by, reply }).await.unwrap()
}

fn snapshot(name: &str, memory: bool) -> Work {
    Work::Snapshot { name: name.into(), description: "two words".into(), memory }
}

fn revert(name: &str) -> Work {
    Work::Revert { name: name.into() }
}

fn sizes(cores: Option<u32>, memory_mb: Option<u32>, disk_gb: Option<u32>) -> Work {
    Work::Resize(Size { cores, memory_mb, disk_gb })
}

async fn leased(keys: &str) -> (World, LeaseId, Arc<AgentStatus>) {
    let world = World::started(Setup::linux(keys)).await;
    let (lease, agent) = world.leased("linux").await;
    (world, lease, agent)
}

async fn gone(world: &World, agent: &AgentId) -> Reason {
    world.until("it is gone", |view| view.agent(agent).is_none()).await;
    let gone = world.view().gone_agents();
    gone.iter().find(|gone| gone.agent == *agent).unwrap().reason.clone()
}

// Invariant: a machine does what was ordered, and its lease lasts through all of it.

#[tokio::test(start_paused = true)]
async fn a_leased_machine_is_switched_by_orders_and_its_lease_goes_on() {
    let (world, lease, agent) = leased("instanceCap: 1").await;
    for work in POWER {
        let wanted = work.leaves(Power::Running);
        done(&world, &agent.agent, work.clone()).await;
        let seen = look(&world, &agent.agent).await;
        assert_eq!(seen.view.power, wanted, "{work}");
        world.pass(5 * MINUTE).await;
        world.resync().await;
        assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready, "{work}");
    }
    let seen = look(&world, &agent.agent).await.view;
    assert_eq!((seen.power, seen.addresses.len()), (Power::Stopped, 0));
    assert_eq!(seen.no_address.as_deref(), Some("it does not run"));
    done(&world, &agent.agent, Work::Start).await;
    let seen = look(&world, &agent.agent).await.view;
    assert!(!seen.addresses.is_empty(), "{seen:?}");
    assert!(seen.console_url.contains("console=kvm&novnc=1&vmid="), "{}", seen.console_url);
    assert_eq!(world.shell.admitted(agent.vmid.unwrap().0).len(), 1, "its key is there");
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_cleanly_from_every_ordered_state() {
    let way = |before: Option<Work>, work: Work| (before, work);
    for (before, work) in [
        way(None, Work::Stop),
        way(None, Work::Suspend),
        way(None, snapshot("ram", true)),
        way(Some(snapshot("ram", true)), Work::Suspend),
        way(Some(snapshot("disk", false)), revert("disk")),
        way(None, sizes(Some(2), None, None)),
    ] {
        for keys in ["", "reset: DISK", "singleUse: true"] {
            let (world, lease, agent) = leased(keys).await;
            for work in before.iter().cloned().chain([work.clone()]) {
                done(&world, &agent.agent, work).await;
            }
            world.release(&lease).await;
            let reason = gone(&world, &agent.agent).await;
            assert!(matches!(reason, Reason::Altered | Reason::UsedUp), "{work} {keys} {reason}");
            world.end().await;
        }
    }
}

// Invariant: one machine has one order, from the one who has the machine, and nobody else.

#[tokio::test(start_paused = true)]
async fn an_order_needs_a_lease_or_a_hold_and_comes_alone() {
    let world = World::started(Setup::linux("instanceMin: 1, instanceCap: 2")).await;
    let idle = world.until_state(AgentPhase::Ready).await;
    let refusal = try_order(&world, Target::Agent(idle.agent.clone()), Work::Stop).await;
    let Err(Refusal::Conflict(text)) = refusal else { panic!("{refusal:?}") };
    assert!(text.contains(&format!("`drover hold {}` holds it", idle.agent)), "{text}");
    world.hold(&idle.agent, 10 * MINUTE).await;
    world.until_state(AgentPhase::Held).await;
    done(&world, &idle.agent, Work::Suspend).await;

    let (lease, agent) = world.leased("linux").await;
    let first = try_order(&world, Target::Lease(lease.clone()), Work::Shutdown).await.unwrap();
    assert_eq!(first.agent, agent.agent);
    let second = try_order(&world, Target::Agent(agent.agent.clone()), Work::Start).await;
    let Err(Refusal::Conflict(text)) = second else { panic!("{second:?}") };
    assert!(
        text.contains(first.status.order.id.as_str()) && text.contains("is not over"),
        "{text}"
    );
    over(&world, &first).await;
    let stranger = By { principal: "token:other".into(), group: None, all: false };
    for target in [Target::Lease(lease.clone()), Target::Agent(agent.agent.clone())] {
        let (by, work) = (stranger.clone(), Work::Start);
        let command = |reply| HerdCommand::Order { target, work, key: None, by, reply };
        let refused = world.command(command).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(_))), "{refused:?}");
    }
    let mine = |target, by| world.command(|reply| HerdCommand::MachineOf { target, by, reply });
    for target in [Target::Lease(lease.clone()), Target::Agent(agent.agent.clone())] {
        let refused = mine(target.clone(), stranger.clone()).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(_))), "{refused:?}");
        assert_eq!(mine(target, By::admin("test")).await.unwrap(), agent.agent);
    }
    let (target, by) = (Target::Agent(agent.agent.clone()), stranger);
    let refused = world.command(|reply| HerdCommand::Machine { target, by, reply }).await;
    assert!(matches!(refused, Err(Refusal::Forbidden(_))), "{refused:?}");
    world.release(&lease).await;
    let late = try_order(&world, Target::Lease(lease), Work::Start).await;
    assert!(matches!(late, Err(Refusal::Conflict(_))), "{late:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_key_answers_the_same_order_also_after_a_restart() {
    let (mut world, lease, agent) = leased("").await;
    let first = keyed(&world, &agent.agent, Work::Stop).await.unwrap();
    let again = keyed(&world, &agent.agent, Work::Stop).await.unwrap();
    assert_eq!(first.status.order.id, again.status.order.id);
    over(&world, &first).await;
    world.restart(MINUTE).await;
    world.until("it is there", |view| view.agent(&agent.agent).is_some()).await;
    let again = keyed(&world, &agent.agent, Work::Stop).await.unwrap();
    assert_eq!(
        (first.status.order.id, again.status.phase),
        (again.status.order.id, OrderPhase::Done)
    );
    let other = keyed(&world, &agent.agent, Work::Start).await;
    assert!(matches!(other, Err(Refusal::Conflict(_))), "{other:?}");
    world.release(&lease).await;
    world.end().await;
}

// Invariant: a crash in the middle of an order loses neither the machine nor the order.

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_an_order_is_adopted() {
    let orders = POWER.into_iter().chain([
        snapshot("ram", true),
        snapshot("disk", false),
        sizes(Some(2), Some(4096), None),
    ]);
    for work in orders {
        for late in [0, 1, 3000] {
            let (mut world, lease, agent) = leased("").await;
            let target = Target::Agent(agent.agent.clone());
            let ordered = try_order(&world, target, work.clone()).await.unwrap();
            world.pass(Duration::from_millis(late)).await;
            world.crash();
            tokio::time::sleep(MINUTE).await;
            world.start().await;
            let end = over(&world, &ordered).await;
            let unclear = !work.is_repeatable();
            assert!(end.phase == OrderPhase::Done || unclear, "{work} {late}: {end:?}");
            world.pass(10 * MINUTE).await;
            let state = world.view().lease(&lease).unwrap().state;
            assert_eq!(state, LeasePhase::Ready, "{work} {late}");
            let power = world.view().agent(&agent.agent).unwrap().machine.power;
            if power != Power::Unknown {
                assert_eq!(look(&world, &agent.agent).await.view.power, power, "{work} {late}");
            }
            world.release(&lease).await;
            gone(&world, &agent.agent).await;
            world.end().await;
        }
    }
}

// Invariant: a lock of Proxmox is waited for, and what fails says why.

#[tokio::test(start_paused = true)]
async fn an_order_waits_for_a_lock_and_fails_with_the_words_of_proxmox() {
    let (world, lease, agent) = leased("").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.set_config(vmid, "lock", Some("backup"));
    let target = Target::Agent(agent.agent.clone());
    let ordered = try_order(&world, target, Work::Suspend).await.unwrap();
    world.pass(MINUTE).await;
    let detail = world.view().agent(&agent.agent).unwrap().detail.clone();
    assert!(detail.contains("is locked by Proxmox (`backup`)"), "{detail}");
    world.side.set_config(vmid, "lock", None);
    assert_eq!(over(&world, &ordered).await.phase, OrderPhase::Done);
    done(&world, &agent.agent, Work::Resume).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.view().lease(&lease).unwrap().detail, "", "its lease says nothing more of it");
    done(&world, &agent.agent, Work::Suspend).await;
    let end = order(&world, &agent.agent, Work::Shutdown).await;
    assert_eq!(end.phase, OrderPhase::Failed);
    assert!(end.text.contains("resume it first"), "{}", end.text);
    done(&world, &agent.agent, Work::Resume).await;
    let route = Some("/status/reset".into());
    let message = "no reset today".into();
    let fault = CallFault { route, status: Some(500), message, ..CallFault::default() };
    world.faults(Faults { calls: vec![fault], ..Faults::default() });
    let end = order(&world, &agent.agent, Work::Reset).await;
    assert!(end.phase == OrderPhase::Failed && end.text.contains("no reset today"), "{end:?}");
    world.faults(Faults::default());
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: snapshots have names, texts and parents; drover's own is none of anybody's.

#[tokio::test(start_paused = true)]
async fn snapshots_are_taken_gone_back_to_and_deleted() {
    let (world, lease, agent) = leased("reset: DISK").await;
    let vmid = agent.vmid.unwrap().0;
    done(&world, &agent.agent, snapshot("one", false)).await;
    done(&world, &agent.agent, snapshot("two", true)).await;
    let tree = |seen: &MachineSeen| -> Vec<(String, Option<String>, bool)> {
        let mut all = seen.view.snapshots.clone();
        all.sort_by_key(|one| one.taken);
        all.into_iter().map(|one| (one.name, one.parent, one.memory)).collect()
    };
    let seen = look(&world, &agent.agent).await;
    let row = |name: &str, parent: Option<&str>, memory| {
        (name.to_owned(), parent.map(str::to_owned), memory)
    };
    let (clean, one) = (row("drover-clean", None, false), row("one", Some("drover-clean"), false));
    assert_eq!(tree(&seen), [clean.clone(), one, row("two", Some("one"), true)]);
    let two = seen.view.snapshots.iter().find(|one| one.name == "two").unwrap();
    assert!(two.description == "two words" && two.taken.is_some());
    done(&world, &agent.agent, Work::Stop).await;
    done(&world, &agent.agent, revert("two")).await;
    assert_eq!(world.shell.admitted(vmid).len(), 1, "the holder is let in once the order is over");
    assert_eq!(look(&world, &agent.agent).await.view.power, Power::Running);
    done(&world, &agent.agent, Work::DeleteSnapshot { name: "one".into() }).await;
    let seen = look(&world, &agent.agent).await;
    assert_eq!(tree(&seen), [clean, row("two", Some("drover-clean"), true)]);
    for work in [snapshot("two", false), revert("one"), Work::DeleteSnapshot { name: "no".into() }]
    {
        let end = order(&world, &agent.agent, work.clone()).await;
        assert_eq!(end.phase, OrderPhase::Failed, "{work}");
    }
    world.release(&lease).await;
    assert_eq!(gone(&world, &agent.agent).await, Reason::Altered, "it is not reset");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_somebody_took_by_hand_is_not_the_next_holders() {
    let (world, first, agent) = leased("instanceCap: 1").await;
    world.side.snapshot_by_hand(agent.vmid.unwrap().0, "hand").await;
    world.release(&first).await;
    let (lease, again) = world.leased("linux").await;
    assert_eq!(again.agent, agent.agent, "it is handed on");
    let seen = look(&world, &agent.agent).await.view;
    assert_eq!((seen.snapshots.len(), seen.parent.as_deref()), (0, None), "{seen:?}");
    for work in [revert("hand"), Work::DeleteSnapshot { name: "hand".into() }] {
        let end = order(&world, &agent.agent, work.clone()).await;
        assert_eq!(end.phase, OrderPhase::Failed, "{work}");
        assert!(end.text.contains("no snapshot `hand` that an order took"), "{}", end.text);
    }
    done(&world, &agent.agent, snapshot("own", false)).await;
    done(&world, &agent.agent, revert("own")).await;
    let seen = look(&world, &agent.agent).await.view;
    let names: Vec<&str> = seen.snapshots.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names, seen.parent.as_deref()), (vec!["own"], Some("own")));
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_by_hand_that_has_the_name_of_an_orders_is_left_alone() {
    let (world, lease, agent) = leased("").await;
    let vmid = agent.vmid.unwrap().0;
    done(&world, &agent.agent, snapshot("mine", false)).await;
    world.pass(MINUTE).await;
    // An administrator deletes it, and takes another of that name.
    world.side.snapshot_by_hand(vmid, "mine").await;
    let seen = look(&world, &agent.agent).await.view;
    assert!(seen.snapshots.iter().all(|one| one.name != "mine"), "{seen:?}");
    for work in [revert("mine"), Work::DeleteSnapshot { name: "mine".into() }] {
        let end = order(&world, &agent.agent, work.clone()).await;
        assert_eq!(end.phase, OrderPhase::Failed, "{work}");
        assert!(end.text.contains("is another one than the order took"), "{}", end.text);
    }
    assert_eq!(world.view().agent(&agent.agent).unwrap().machine.power, Power::Running);
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_its_orders_though_the_power_goes_before_its_time_is_known() {
    for hold in [Hold::Call, Hold::Answer] {
        let (mut world, lease, agent) = leased("").await;
        world.wire.hold("POST", "/snapshot", hold);
        let target = Target::Agent(agent.agent.clone());
        let ordered = try_order(&world, target, snapshot("mine", false)).await.unwrap();
        world.until_sprung().await;
        world.restart(MINUTE).await;
        assert_eq!(over(&world, &ordered).await.phase, OrderPhase::Done, "{hold:?}");
        let seen = look(&world, &agent.agent).await.view;
        let mine = seen.snapshots.iter().find(|one| one.name == "mine").unwrap();
        assert_eq!(mine.description, "two words", "people see their own text");
        done(&world, &agent.agent, revert("mine")).await;
        done(&world, &agent.agent, Work::DeleteSnapshot { name: "mine".into() }).await;
        world.release(&lease).await;
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_has_so_many_snapshots_and_no_more() {
    let (world, lease, agent) = leased("").await;
    for n in 0..16 {
        done(&world, &agent.agent, snapshot(&format!("s{n}"), false)).await;
    }
    let end = order(&world, &agent.agent, snapshot("more", false)).await;
    assert!(end.phase == OrderPhase::Failed && end.text.contains("16 snapshots"), "{end:?}");
    world.release(&lease).await;
    world.end().await;
}

// Invariant: nothing of a machine outlasts it, also where a snapshot of it was cut short.

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_snapshot_that_a_dead_node_cut_short_goes_with_its_machine() {
    let (world, lease, agent) = leased("instanceCap: 1").await;
    let (vmid, node) = (agent.vmid.unwrap().0, agent.node.clone().unwrap());
    let target = Target::Agent(agent.agent.clone());
    try_order(&world, target, snapshot("ram", true)).await.unwrap();
    let name = format!("vm-{vmid}-state-ram");
    for _ in 0..600 {
        if world.side.volumes_of(vmid).iter().any(|volume| volume.contains(&name)) {
            break;
        }
        world.pass(Duration::from_millis(100)).await;
    }
    world.side.node_down(node.as_str()).await;
    world.pass(MINUTE).await;
    world.side.node_up(node.as_str());
    // An administrator takes off the lock of the dead task.
    world.side.set_config(vmid, "lock", None);
    let left = world.side.volumes_of(vmid);
    assert!(left.iter().any(|volume| volume.contains(&name)), "{left:?}");
    world.release(&lease).await;
    gone(&world, &agent.agent).await;
    assert_eq!(world.side.volumes_of(vmid), Vec::<String>::new());
    world.end().await;
}

// Invariant: a machine gets the sizes that were ordered, now or at its restart, and its account counts
// them; a smaller disk and what has no room is refused before any call.

#[tokio::test(start_paused = true)]
async fn other_sizes_hold_at_once_or_after_a_restart_and_that_is_said() {
    let (world, lease, agent) = leased("").await;
    let vmid = agent.vmid.unwrap().0;
    let end = done(&world, &agent.agent, sizes(Some(3), Some(3072), Some(40))).await;
    let waits = "3 cores: pending until the machine restarts, 2 until then; 3072 MiB: pending until \
                 the machine restarts, 2048 until then; 40 GiB of disk: applied";
    assert_eq!(end.text, waits);
    let seen = look(&world, &agent.agent).await.view;
    let pending = |key: &str| {
        let row = seen.config.iter().find(|one| one.key == key).unwrap();
        row.pending.clone()
    };
    assert_eq!((pending("cores"), pending("memory")), (Some("3".into()), Some("3072".into())));
    done(&world, &agent.agent, Work::Reboot).await;
    let config = world.side.config(vmid).unwrap();
    let value = |key: &str| config.iter().find(|(name, _)| name.as_str() == key).unwrap().1.clone();
    assert_eq!((value("cores"), value("memory")), ("3".to_owned(), "3072".to_owned()));
    let nodes = world.command(|reply| HerdCommand::Nodes { reply }).await;
    assert_eq!(nodes.nodes.iter().map(|node| node.own_mb).sum::<u64>(), 3072);
    world.wire.take();
    let small = try_order(&world, Target::Agent(agent.agent.clone()), sizes(None, None, Some(39)));
    let Err(Refusal::Conflict(text)) = small.await else { panic!("a smaller disk") };
    assert!(text.contains("cannot shrink to 39 GiB"), "{text}");
    let many = try_order(&world, Target::Agent(agent.agent.clone()), sizes(Some(999), None, None));
    let Err(Refusal::Conflict(text)) = many.await else { panic!("more cores than the node has") };
    assert!(text.contains("processors, and a machine on it cannot start with 999 cores"), "{text}");
    let huge = sizes(None, Some(16_000_000), None);
    let Err(Refusal::Conflict(text)) =
        try_order(&world, Target::Agent(agent.agent.clone()), huge).await
    else {
        panic!("more than the node has")
    };
    assert!(text.contains("has no room for 16000000 MiB of memory"), "{text}");
    let writes = world.wire.take().into_iter().filter(|call| !call.starts_with("GET"));
    assert_eq!(writes.collect::<Vec<_>>(), Vec::<String>::new());
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_can_be_plugged_is_applied_at_once_and_the_rest_waits() {
    let keys = "cores: 2, memoryMb: 2048, hardware: {hotplug: [network, disk, usb, cpu, memory], numa: \
                true, maxCores: 4}";
    let (world, lease, agent) = leased(keys).await;
    let vmid = agent.vmid.unwrap().0;
    let value = |key: &str| {
        let config = world.side.config(vmid).unwrap();
        config.iter().find(|(name, _)| name.as_str() == key).map(|(_, value)| value.clone())
    };
    assert_eq!((value("cores").as_deref(), value("vcpus").as_deref()), (Some("4"), Some("2")));
    let end = done(&world, &agent.agent, sizes(Some(3), Some(4096), Some(40))).await;
    assert_eq!(end.text, "3 cores: applied; 4096 MiB: applied; 40 GiB of disk: applied");
    assert_eq!((value("vcpus").as_deref(), value("memory").as_deref()), (Some("3"), Some("4096")));
    let end = done(&world, &agent.agent, sizes(Some(1), Some(2048), None)).await;
    assert_eq!(end.text, "1 core: applied; 2048 MiB: applied", "less is taken away at once too");
    // More than it was made with waits, and meanwhile it has all of these.
    let end = done(&world, &agent.agent, sizes(Some(6), None, None)).await;
    assert_eq!(end.text, "6 cores: pending until the machine restarts, 4 until then");
    assert_eq!((value("cores").as_deref(), value("vcpus")), (Some("4"), None));
    // Fewer are there at once, and what waited for the restart is dropped.
    let end = done(&world, &agent.agent, sizes(Some(2), None, None)).await;
    assert_eq!(end.text, "2 cores: applied");
    let seen = look(&world, &agent.agent).await.view;
    assert!(seen.config.iter().all(|one| one.pending.is_none()), "{:?}", seen.config);
    done(&world, &agent.agent, sizes(Some(6), None, None)).await;
    done(&world, &agent.agent, Work::Reboot).await;
    assert_eq!(value("cores").as_deref(), Some("6"));
    let small = order(&world, &agent.agent, sizes(None, Some(512), None)).await;
    assert!(small.text.contains("needs 1024 MiB at least"), "{small:?}");
    assert_eq!(value("memory").as_deref(), Some("2048"));
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn sizes_of_which_proxmox_refuses_one_are_said_one_by_one() {
    let (world, lease, agent) = leased("").await;
    let route = Some("/resize".into());
    let message = "storage is full".into();
    let fault = CallFault { route, status: Some(500), message, ..CallFault::default() };
    world.faults(Faults { calls: vec![fault], ..Faults::default() });
    let end = order(&world, &agent.agent, sizes(Some(3), None, Some(40))).await;
    world.faults(Faults::default());
    assert_eq!(end.phase, OrderPhase::Failed);
    let said = "storage is full";
    assert!(end.text.contains(said), "{}", end.text);
    assert!(end.text.contains("3 cores: pending until the machine restarts"), "{}", end.text);
    assert!(end.text.contains("40 GiB of disk: not done"), "{}", end.text);
    world.release(&lease).await;
    world.end().await;
}

// Invariant: a look says why no address is known.

#[tokio::test(start_paused = true)]
async fn a_machine_whose_agent_says_nothing_is_shown_with_the_reason() {
    for (quirk, text) in [
        (Quirk::NoAgent, "QEMU guest agent is not running"),
        (Quirk::Hangs, "QEMU guest agent is not running"),
        (Quirk::NoAddress, "its guest agent reports no address yet"),
    ] {
        let (world, lease, agent) = leased("").await;
        world.guests.quirk_next_boot(quirk);
        let target = Target::Agent(agent.agent.clone());
        try_order(&world, target, Work::Reset).await.unwrap();
        world.pass(MINUTE).await;
        let seen = look(&world, &agent.agent).await.view;
        let why = seen.no_address.unwrap_or_default();
        assert!(why.contains(text) && seen.addresses.is_empty(), "{quirk:?}: {why}");
        assert_eq!(seen.power, Power::Running, "{quirk:?}: all else is shown");
        world.release(&lease).await;
        world.end().await;
    }
    let (world, lease, agent) = leased("").await;
    world.side.set_config(agent.vmid.unwrap().0, "agent", None);
    let seen = look(&world, &agent.agent).await.view;
    assert_eq!(seen.no_address.as_deref(), Some("its guest agent is not enabled"));
    world.release(&lease).await;
    world.end().await;
}

// Invariant: a machine that stops by itself is lost, also where an order failed for it.

#[tokio::test(start_paused = true)]
async fn a_machine_that_died_before_its_order_failed_is_lost() {
    for work in [Work::Reboot, Work::Suspend, Work::Reset, Work::Resume] {
        let (world, lease, agent) = leased("").await;
        world.pass(MINUTE).await;
        world.side.kill_guest(agent.vmid.unwrap().0).await;
        let end = order(&world, &agent.agent, work.clone()).await;
        assert_eq!(end.phase, OrderPhase::Failed, "{work}: {end:?}");
        assert_eq!(gone(&world, &agent.agent).await, Reason::PoweredOff, "{work}");
        assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ended, "{work}");
        world.end().await;
    }
}

// Invariant: whether a machine runs is found out after an order that a restart cut short.

#[tokio::test(start_paused = true)]
async fn a_machine_whose_order_was_cut_short_is_watched_again() {
    for work in [Work::Reboot, Work::Reset] {
        let (mut world, lease, agent) = leased("").await;
        let target = Target::Agent(agent.agent.clone());
        let ordered = try_order(&world, target, work.clone()).await.unwrap();
        world.pass(Duration::from_millis(500)).await;
        world.crash();
        world.start().await;
        over(&world, &ordered).await;
        world.pass(10 * MINUTE).await;
        let seen = world.view().agent(&agent.agent).unwrap();
        let lasts = world.view().lease(&lease).unwrap();
        assert_eq!(
            (seen.machine.power, lasts.state),
            (Power::Running, LeasePhase::Ready),
            "{work}"
        );
        assert_eq!((seen.detail.as_str(), lasts.detail.as_str()), ("", ""), "{work}");
        world.side.kill_guest(agent.vmid.unwrap().0).await;
        assert_eq!(gone(&world, &agent.agent).await, Reason::PoweredOff, "{work}");
        world.end().await;
    }
}
