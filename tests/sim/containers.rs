//! Containers as agents: cloned one after another and served as machines are, cut off at each step,
//! and left alone where they are somebody else's.

use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal, Target};
use drover_model::order::Work;
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::record::Body;
use drover_model::size::Size;
use drover_model::tenant::By;
use pve_sim::spec::{ClusterSpec, GuestSpec};
use pve_sim::world::{Faults, TaskFault};

use super::world::World;
use super::world::setup::{Setup, container_template};
use super::world::tally::Hold;

const MINUTE: Duration = Duration::from_secs(60);
const AWAY: Duration = Duration::from_secs(30);

/// The template of the containers.
const TEMPLATE: u32 = 9100;

/// The cluster with a container's template.
fn cluster() -> ClusterSpec {
    let mut cluster = Setup::three_nodes();
    cluster.containers.push(container_template(TEMPLATE, "pve1"));
    cluster
}

/// One template of containers with these keys.
fn setup(keys: &str) -> Setup {
    let mut setup =
        Setup::linux(&format!("guestType: CONTAINER, templateVmId: {TEMPLATE}, {keys}"));
    setup.cluster = cluster();
    setup
}

// Invariant: a container is cloned, leased and destroyed by the calls of containers, as few as a
// machine's.

#[tokio::test(start_paused = true)]
async fn a_container_is_cloned_leased_and_destroyed() {
    let world = World::started(setup("cores: 2, memoryMb: 1024, swapMb: 64, diskSizeGb: 6")).await;
    world.wire.take();
    let (lease, agent) = world.leased("linux").await;
    let calls = world.wire.take();
    let of_guest: Vec<&str> =
        calls.iter().filter(|call| call.contains("/lxc")).map(String::as_str).collect();
    assert_eq!(
        of_guest[..5],
        [
            "POST /nodes/pve1/lxc/N/clone",
            "GET /nodes/pve1/lxc/N/config",
            "PUT /nodes/pve1/lxc/N/config",
            "PUT /nodes/pve1/lxc/N/resize",
            "POST /nodes/pve1/lxc/N/status/start",
        ]
    );
    assert!(of_guest[5..].iter().all(|call| *call == "GET /nodes/pve1/lxc/N/interfaces"));
    assert!(!calls.iter().any(|call| call.contains("/qemu/")), "{calls:?}");
    let vmid = agent.vmid.unwrap().0;
    assert!(world.side.has_container(vmid));
    let config = world.side.config(vmid).unwrap();
    let of = |key: &str| config.get(key).cloned().unwrap_or_default();
    assert_eq!((of("cores"), of("memory"), of("swap")), ("2".into(), "1024".into(), "64".into()));
    assert!(of("rootfs").contains("size=6G"), "{config:?}");
    assert!(of("tags").contains("drover") && of("description").contains("guest container"));
    world.wire.take();
    world.release(&lease).await;
    world.reap(true).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    let calls = world.wire.take();
    let of_guest: Vec<&str> =
        calls.iter().filter(|call| call.contains("/lxc")).map(String::as_str).collect();
    assert_eq!(
        of_guest,
        [
            "GET /nodes/pve1/lxc/N/config",
            "GET /nodes/pve1/lxc/N/status/current",
            "PUT /nodes/pve1/lxc/N/config",
            "POST /nodes/pve1/lxc/N/status/shutdown",
            "DELETE /nodes/pve1/lxc/N",
        ]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_clone_goes_to_another_storage() {
    let setup = setup("cloneStrategy: FULL, targetStorage: local-lvm");
    let world = World::started(setup).await;
    let (_, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    assert_eq!(world.side.volumes_of(vmid), [format!("local-lvm:vm-{vmid}-disk-0")]);
    world.end().await;
}

// Invariant: orders are for virtual machines; a container takes none, and its death is known as ever.

#[tokio::test(start_paused = true)]
async fn a_container_takes_no_order() {
    let world = World::started(setup("")).await;
    let (lease, agent) = world.leased("linux").await;
    let name = || "one".to_owned();
    for work in [
        Work::Start,
        Work::Stop,
        Work::Shutdown,
        Work::Reboot,
        Work::Reset,
        Work::Suspend,
        Work::Resume,
        Work::Snapshot { name: name(), description: String::new(), memory: false },
        Work::Revert { name: name() },
        Work::DeleteSnapshot { name: name() },
        Work::Resize(Size { cores: Some(2), ..Size::NONE }),
    ] {
        for target in [Target::Agent(agent.agent.clone()), Target::Lease(lease.clone())] {
            let (work, by) = (work.clone(), By::admin("test"));
            let command = |reply| HerdCommand::Order { target, work, key: None, by, reply };
            let Err(Refusal::Conflict(text)) = world.command(command).await else { panic!() };
            assert!(text.contains("is a container: `drover machine` knows virtual"), "{text}");
        }
    }
    assert!(world.view().agent(&agent.agent).unwrap().machine.is_untouched());
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

// Invariant: one clone of a container's template runs at a time, and nothing fails for it.

#[tokio::test(start_paused = true)]
async fn clones_of_one_template_run_one_after_another() {
    let world = World::started(setup("cloneStrategy: FULL")).await;
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
    }
    assert_eq!((world.notes.intended(), world.wire.clones()), (6, 6), "no clone was refused");
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn clones_of_two_templates_run_beside_each_other() {
    let mut setup = setup("cloneStrategy: FULL, instanceCap: 1");
    setup.cluster.containers.push(container_template(TEMPLATE + 1, "pve1"));
    let keys = "guestType: CONTAINER, templateVmId: 9101, cloneStrategy: FULL, instanceCap: 1";
    let setup = setup.template("other", keys);
    let world = World::started(setup).await;
    let leases = [world.lease("linux").await, world.lease("other").await];
    world
        .until("both are cloned at once", |view| {
            let agents = view.agents();
            agents.iter().filter(|agent| agent.phase == AgentPhase::Cloning).count() == 2
        })
        .await;
    for lease in &leases {
        world.ready(lease).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_clone_of_somebody_else_is_waited_for() {
    let world = World::started(setup("cloneStrategy: FULL")).await;
    world.side.set_config(TEMPLATE, "lock", Some("disk"));
    let lease = world.lease("linux").await;
    world.until("a clone is refused", |_| world.wire.clones() > 0).await;
    world.pass(2 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    world.side.set_config(TEMPLATE, "lock", None);
    world.ready(&lease).await;
    assert!(world.wire.clones() < 40, "it waits longer each time: {}", world.wire.clones());
    world.end().await;
}

// Invariant: a lease that was taken is honoured after any crash, by at most one container an agent.

/// A lease is asked for, the power goes when the trap springs, and the lease is served all the same.
async fn cut_while_serving(arm: impl FnOnce(&World)) {
    let mut world =
        World::started(setup("instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1")).await;
    arm(&world);
    let lease = world.lease("linux").await;
    world.until_sprung().await;
    world.restart(AWAY).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_at_each_record_it_is_served_all_the_same() {
    let records: [fn(&Body) -> bool; 4] = [
        |body| matches!(body, Body::CloneIntended { .. }),
        |body| matches!(body, Body::CloneSettled { .. }),
        |body| matches!(body, Body::VolumesKnown { .. }),
        |body| matches!(body, Body::HostKeyPinned { .. }),
    ];
    for record in records {
        cut_while_serving(|world| world.notes.hold(record)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cut_at_each_call_it_is_served_all_the_same() {
    for (method, end) in
        [("POST", "/clone"), ("PUT", "/config"), ("POST", "/status/start"), ("GET", "/interfaces")]
    {
        for hold in [Hold::Call, Hold::Answer] {
            cut_while_serving(|world| world.wire.hold(method, end, hold)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_use_is_taken_over_with_its_lease() {
    let mut world = World::started(setup("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.restart(AWAY).await;
    let again = world.ready(&lease).await;
    assert_eq!((&again.agent, again.vmid), (&agent.agent, agent.vmid));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_while_it_retires_it_is_destroyed_all_the_same() {
    for (method, end) in [("POST", "/status/shutdown"), ("DELETE", "")] {
        for hold in [Hold::Call, Hold::Answer] {
            let mut world = World::started(setup("")).await;
            let (lease, _) = world.leased("linux").await;
            world.wire.hold(method, end, hold);
            world.release(&lease).await;
            world.reap(true).await;
            world.until_sprung().await;
            world.restart(AWAY).await;
            world.until("it is gone", |view| view.agents().is_empty()).await;
            assert_eq!(world.ours(), Vec::<u32>::new());
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_stopped_by_itself_is_destroyed() {
    let world = World::started(setup("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ended);
    world.end().await;
}

// Invariant: what is not exactly drover's is never touched, whichever type of guest it is.

#[tokio::test(start_paused = true)]
async fn an_orphan_of_a_lost_record_is_retired_and_a_copy_is_not() {
    let mut world = World::started(setup("").rack("cleanupOrphanedAgents: true")).await;
    let backup = world.backup();
    let (_, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let config = world.side.config(vmid).unwrap();
    world.crash();
    world.restore(backup);
    // A copy made by hand has the same name and description at another VMID.
    let copy = GuestSpec { vmid: 700, template: false, ..container_template(700, "pve2") };
    let copied = ["hostname", "description", "tags"];
    let marks = copied.iter().map(|key| ((*key).to_owned(), config[*key].clone()));
    let copy = GuestSpec { config: copy.config.into_iter().chain(marks).collect(), ..copy };
    world.side.plant_container(&copy);
    world.notes.planted(700);
    world.keep_planted(700);
    world.start().await;
    world.pass(60 * MINUTE).await;
    let found = world.resync().await.join("\n");
    assert!(found.contains(&vmid.to_string()), "{found}");
    world.confirm_older_journal();
    world.until("the orphan is gone", |_| !world.side.guests().contains(&vmid)).await;
    assert!(world.side.guests().contains(&700));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_with_the_marks_of_a_machine_is_left_alone() {
    let world = World::started(setup("").rack("cleanupOrphanedAgents: true")).await;
    let (_, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let description = world.side.config(vmid).unwrap()["description"].clone();
    let of_machine = description.replace("guest container\n", "");
    assert_ne!(of_machine, description);
    world.side.set_config(vmid, "description", Some(&of_machine));
    world.reap(true).await;
    let lease = world.view().leases()[0].lease.clone();
    world.release(&lease).await;
    world.reap(true).await;
    world.until_state(AgentPhase::Stranded).await;
    assert!(world.side.guests().contains(&vmid));
    let alarm = world.notes.facts(|what| match what {
        drover_model::fact::What::Alarm { command, .. } => Some(command.clone()),
        _ => None,
    });
    assert!(alarm.iter().any(|command| command.contains("pct config")), "{alarm:?}");
    world.side.set_config(vmid, "description", Some(&description));
    world.until("it is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: a template whose containers do not start is left alone for a while.

#[tokio::test(start_paused = true)]
async fn three_containers_that_do_not_start_open_the_breaker() {
    let setup = setup("instanceCap: 1, breakerThreshold: 3, breakerCooldownSec: 300");
    let world = World::started(setup).await;
    let fails = TaskFault {
        kind: Some("vzstart".into()),
        error: Some("startup for container '10000' failed".into()),
        ..TaskFault::default()
    };
    world.faults(Faults { tasks: vec![fails], ..Faults::default() });
    let lease = world.lease("linux").await;
    world.until("it opens", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    assert_eq!(world.notes.intended(), 3);
    world.faults(Faults::default());
    world.ready(&lease).await;
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    world.end().await;
}

// Invariant: a guest of the other type is refused as a template, with what to set.

#[tokio::test(start_paused = true)]
async fn a_machines_template_is_none_of_containers() {
    let mut setup = Setup::linux("guestType: CONTAINER");
    setup.cluster = cluster();
    let setup = setup.template("other", &format!("templateVmId: {TEMPLATE}"));
    let world = World::started(setup).await;
    let leases = [world.lease("linux").await, world.lease("other").await];
    world.pass(MINUTE).await;
    let said = world.notes.facts(|what| Some(format!("{what:?}"))).join("\n");
    assert!(said.contains("`guestType: VM`") && said.contains("`guestType: CONTAINER`"), "{said}");
    assert_eq!(world.notes.intended(), 0);
    for lease in &leases {
        world.release(lease).await;
    }
    world.pass(MINUTE).await;
    world.end().await;
}

// Invariant: an OS template that is missing is downloaded once, then containers are made of it.

const MADE: &str = "guestType: CONTAINER, cloneStrategy: FULL, targetStorage: local-lvm, \
                    bridge: vmbr0, credentialsId: root, ciUser: \"\"";

/// One template of new containers of this archive, on one node.
fn making(archive: &str, keys: &str) -> Setup {
    let mut setup = Setup::linux(&format!(
        "{MADE}, node: pve1, osTemplate: \"local:vztmpl/{archive}\", {keys}"
    ));
    setup.credentials = setup.login_of_root();
    setup
}

#[tokio::test(start_paused = true)]
async fn a_missing_archive_is_downloaded_once_and_containers_are_made_of_it() {
    let world = World::started(making("debian-13-standard_13.1-2_amd64.tar.zst", "")).await;
    world.wire.take();
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases {
        world.ready(lease).await;
    }
    let calls = world.wire.take();
    let count = |wanted: &str| calls.iter().filter(|call| *call == wanted).count();
    assert_eq!(count("POST /nodes/pve1/aplinfo"), 1, "{calls:?}");
    assert_eq!((count("POST /nodes/pve1/lxc"), world.notes.intended()), (4, 4));
    assert_eq!(world.view().templates()[0].breaker, BreakerPhase::Closed);
    let vmid = world.view().agents()[0].vmid.unwrap().0;
    let config = world.side.config(vmid).unwrap();
    assert!(config["rootfs"].contains("size=8G"), "{config:?}");
    assert!(config["ssh-public-keys"].contains("ssh-ed25519"), "{config:?}");
    assert_eq!(config["unprivileged"], "1");
    let mut world = world;
    world.keep_volume("pve1", "local");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_nobody_has_opens_the_breaker() {
    let keys = "breakerThreshold: 2, breakerCooldownSec: 300";
    let world = World::started(making("nobody_1_amd64.tar.zst", keys)).await;
    let lease = world.lease("linux").await;
    world.until("it opens", |view| view.templates()[0].breaker == BreakerPhase::Open).await;
    let cause = world.view().templates()[0].tripped.clone().unwrap().1;
    assert!(cause.contains("pveam available") && cause.contains("osTemplateUrl"), "{cause}");
    assert_eq!(world.notes.intended(), 0, "nothing was made");
    world.release(&lease).await;
    world.pass(MINUTE).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_at_each_call_a_new_container_is_served_all_the_same() {
    for (method, end) in [("POST", "/aplinfo"), ("POST", "/lxc"), ("PUT", "/config")] {
        for hold in [Hold::Call, Hold::Answer] {
            let keys = "instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1";
            let setup = making("debian-13-standard_13.1-2_amd64.tar.zst", keys);
            let mut world = World::started(setup).await;
            world.wire.hold(method, end, hold);
            let lease = world.lease("linux").await;
            world.until_sprung().await;
            world.restart(AWAY).await;
            world.ready(&lease).await;
            world.release(&lease).await;
            world.until("the agents are gone", |view| view.agents().is_empty()).await;
            assert_eq!(world.ours(), Vec::<u32>::new());
            world.keep_volume("pve1", "local");
            world.end().await;
        }
    }
}
