//! Trouble on the cluster: calls that fail, tasks that die, locks, nodes, guests and storages that
//! do not do their duty. Who waits for a lease gets it; nothing is left behind.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::record::Reason;
use drover_server::view::View;
use pve_sim::guests::Quirk;
use pve_sim::world::{CallFault, Faults, FreeFault, Spread, TaskFault};

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;

const MINUTE: Duration = Duration::from_secs(60);

/// One fault of calls, once.
fn call(method: &str, route: &str, status: u16, done: bool) -> Faults {
    let rule = CallFault {
        method: Some(method.into()),
        route: Some(route.into()),
        times: Some(1),
        status: Some(status),
        done,
        ..CallFault::default()
    };
    Faults { calls: vec![rule], ..Faults::default() }
}

/// A connection that breaks under one call, once.
fn reset(method: &str, route: &str, done: bool) -> Faults {
    let mut faults = call(method, route, 0, done);
    faults.calls[0].status = None;
    faults.calls[0].reset = true;
    faults
}

/// One task that fails with this, or dies after some seconds.
fn task(kind: &str, error: Option<&str>, after: f64) -> Faults {
    let rule = TaskFault {
        kind: Some(kind.into()),
        times: Some(1),
        error: error.map(str::to_owned),
        after,
        ..TaskFault::default()
    };
    Faults { tasks: vec![rule], ..Faults::default() }
}

/// A lease is served and its agent goes, with these faults from before the clone.
async fn serve_with(faults: Faults) -> World {
    let world =
        World::started(Setup::linux("instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1"))
            .await;
    world.faults(faults);
    serve(world).await
}

async fn serve(world: World) -> World {
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    world.check();
    world
}

/// The reasons of agents that are gone, as labels and kinds.
fn reasons(world: &World) -> Vec<String> {
    let name = |reason: &Reason| match reason {
        Reason::Failed { state, kind, .. } => format!("{state} {kind}"),
        Reason::TooSlow { state, .. } => format!("{state} too slow"),
        other => other.label().to_owned(),
    };
    world.view().gone_agents().iter().map(|gone| name(&gone.reason)).collect()
}

/// Those of agents that came to nothing.
fn failures(world: &World) -> Vec<String> {
    reasons(world).into_iter().filter(|reason| reason != "used-up" && reason != "idle").collect()
}

/// What administrators were asked to run.
fn alarms(world: &World) -> Vec<String> {
    world.notes.facts(|what| match what {
        What::Alarm { command, .. } => Some(command.clone()),
        _ => None,
    })
}

// Invariant: a clone call of any outcome makes one guest or none, and the lease is served.

#[tokio::test(start_paused = true)]
async fn a_clone_call_that_fails_before_its_effect_is_made_good_by_another_agent() {
    for status in [500, 595, 596, 599] {
        let world = serve_with(call("POST", "/clone", status, false)).await;
        assert!(reasons(&world).contains(&"used-up".to_owned()), "{status}");
        assert_eq!(world.wire.clones(), 2, "{status}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_call_that_fails_after_its_effect_finds_its_guest_again() {
    for status in [596, 599] {
        let world = serve_with(call("POST", "/clone", status, true)).await;
        assert_eq!(failures(&world), Vec::<String>::new(), "{status}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_under_the_clone_call_is_looked_into() {
    let world = serve_with(reset("POST", "/clone", true)).await;
    assert_eq!(failures(&world), Vec::<String>::new());
    world.end().await;
    let world = serve_with(reset("POST", "/clone", false)).await;
    assert_eq!(world.wire.clones(), 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_task_that_fails_is_made_good_by_another_agent() {
    let text =
        "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
    let world = serve_with(task("qmclone", Some(text), 0.0)).await;
    assert_eq!(reasons(&world).last().unwrap(), "used-up");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_task_that_dies_strands_its_guest_and_the_lease_is_served_by_another() {
    let mut setup = Setup::linux("instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1");
    setup.latency.clone_linked = Spread::of(3.0, 4.0);
    let world = World::started(setup).await;
    world.faults(task("qmclone", None, 1.0));
    let (lease, agent) = world.leased("linux").await;
    let stranded = world.until_state(AgentPhase::Stranded).await;
    assert_ne!(stranded.agent, agent.agent);
    let alarm = &world.view().alarms()[0];
    let vmid = stranded.vmid.unwrap();
    assert!(alarm.command.contains(&vmid.to_string()), "{alarm:?}");
    world.release(&lease).await;
    world.until("only the stranded one is left", |view| view.agents().len() == 1).await;
    world.administer(vmid.0);
    world.until("the stranded one is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: whatever happens to the calls in between, the guest is not lost.

#[tokio::test(start_paused = true)]
async fn any_call_of_a_life_may_fail_once_in_any_way() {
    let calls = [
        ("GET", "/cluster/nextid"),
        ("GET", "{vmid}/config"),
        ("PUT", "{vmid}/config"),
        ("POST", "/status/start"),
        ("GET", "network-get-interfaces"),
        ("GET", "file-read"),
        ("POST", "/status/shutdown"),
        ("DELETE", "/qemu/{vmid}"),
    ];
    for (method, route) in calls {
        for (status, done) in [(595, false), (596, true), (599, false), (500, false)] {
            let world = serve_with(call(method, route, status, done)).await;
            world.end().await;
        }
        for done in [false, true] {
            let world = serve_with(reset(method, route, done)).await;
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_task_of_a_life_may_fail_or_die_once() {
    for kind in ["qmstart", "qmshutdown"] {
        for error in [Some("got timeout"), None] {
            serve_with(task(kind, error, 0.05)).await.end().await;
        }
    }
    serve_with(task("qmdestroy", Some("got timeout"), 0.0)).await.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_destroy_that_goes_on_behind_a_lost_answer_raises_no_alarm() {
    let mut setup = Setup::linux("maxTotalUses: 1");
    setup.latency.free = Spread::of(20.0, 25.0);
    for hold in [None, Some(Hold::Answer)] {
        let mut world = World::started(setup).await;
        let (lease, _) = world.leased("linux").await;
        match hold {
            None => world.faults(call("DELETE", "/qemu/{vmid}", 596, true)),
            Some(hold) => world.wire.hold("DELETE", "", hold),
        }
        world.release(&lease).await;
        if hold.is_some() {
            world.until_sprung().await;
            world.restart(Duration::from_secs(1)).await;
        }
        world.until("the agent is gone", |view| view.agents().is_empty()).await;
        assert_eq!(alarms(&world), Vec::<String>::new());
        world = world.end().await;
        setup = std::mem::replace(&mut world.setup, Setup::linux(""));
    }
}

#[tokio::test(start_paused = true)]
async fn a_destroy_whose_task_dies_calls_an_administrator() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    world.faults(task("qmdestroy", None, 0.3));
    world.release(&lease).await;
    world.until("the alarm is raised", |view| view.alarms().len() == 1).await;
    let vmid = agent.vmid.unwrap().0;
    assert!(alarms(&world)[0].contains(&format!("qm destroy {vmid}")), "{:?}", alarms(&world));
    assert_eq!(world.ours(), [vmid], "what carries no marks is not touched");
    world.administer(vmid);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_ignores_the_shutdown_is_stopped() {
    let world = World::started(Setup::linux("maxTotalUses: 1, shutdownTimeoutSec: 20")).await;
    world.guests.quirk_next_boot(Quirk::IgnoresShutdown);
    serve(world).await.end().await;
}

// Invariant: locks are waited out.

#[tokio::test(start_paused = true)]
async fn a_storage_that_somebody_holds_for_half_a_minute_delays_and_no_more() {
    let world =
        World::started(Setup::linux("instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1"))
            .await;
    world.side.hold_storage("pve1", "local-lvm", Duration::from_secs(35));
    let world = serve(world).await;
    assert!(reasons(&world).contains(&"Cloning contention".to_owned()), "{:?}", reasons(&world));
    assert!(world.view().templates()[0].breaker == BreakerPhase::Closed);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_under_somebodys_backup_is_retired_after_it() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.set_config(vmid, "lock", Some("backup"));
    world.release(&lease).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.ours(), [vmid], "not touched under the lock");
    assert!(world.guests.running_vmids().contains(&vmid));
    world.side.set_config(vmid, "lock", None);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_configuration_is_locked_for_a_while_is_waited_for() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let lease = world.lease("linux").await;
    let agent = world.until_state(AgentPhase::Configuring).await;
    world.side.hold_guest("pve1", agent.vmid.unwrap().0, Duration::from_secs(45));
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: remains are never forgotten.

#[tokio::test(start_paused = true)]
async fn a_volume_that_stays_behind_calls_an_administrator_and_burns_its_id() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let disk = format!("local-lvm:vm-{vmid}-disk-0");
    world.side.block_volume_removal("pve1", &disk, "device is busy");
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    let reported = &world.view().alarms()[0];
    assert!(reported.text.contains(&disk) && reported.command.contains(&disk), "{reported:?}");
    assert!(world.side.remove_volume("pve1", &disk));
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_is_out_of_reach_for_a_while_is_waited_for() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    world.side.set_storage_reachable("local-lvm", false);
    let lease = world.lease("linux").await;
    world.pass(20 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    world.side.set_storage_reachable("local-lvm", true);
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_on_a_storage_that_was_out_of_reach_are_removed_when_it_is_back() {
    let world = World::started(Setup::linux("maxTotalUses: 1, instanceCap: 2")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.set_storage_reachable("local-lvm", false);
    world.release(&lease).await;
    world.pass(30 * MINUTE).await;
    assert_eq!(world.view().agents().len(), 1, "nobody knows what is left of it");
    world.side.set_storage_reachable("local-lvm", true);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.side.volumes_of(vmid), Vec::<String>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_clone_left_on_a_storage_out_of_reach_is_reported_until_it_is_removed() {
    let world = World::started(Setup::linux("instanceCap: 1")).await;
    world.notes.allow_slack();
    let lease = world.lease("linux").await;
    let agent = world.until_state(AgentPhase::Cloning).await;
    while world.side.volumes_of(agent.vmid.unwrap().0).is_empty() {
        world.pass(Duration::from_millis(10)).await;
    }
    world.side.set_storage_reachable("local-lvm", false);
    world.pass(30 * MINUTE).await;
    let (vmid, of) = (agent.vmid.unwrap().0, |view: &View| {
        view.alarms().first().map(|alarm| alarm.command.clone()).unwrap_or_default()
    });
    assert!(!world.side.volumes_of(vmid).is_empty(), "the clone could not free them");
    let command = format!("pvesm list local-lvm --vmid {vmid} ");
    assert!(of(world.view()).starts_with(&command), "{}", world.portrait());
    world.side.set_storage_reachable("local-lvm", true);
    world.until("it is listed", |view| of(view).starts_with("pvesm free ")).await;
    let left = world.side.volumes_of(vmid);
    assert!(left.iter().all(|volume| of(world.view()).contains(volume)));
    world.ready(&lease).await; // its slot is free, its id is not
    assert!(world.view().agents().iter().any(|other| other.agent == agent.agent));
    left.iter().for_each(|volume| assert!(world.side.remove_volume("pve1", volume)));
    world.until("it is gone", |view| view.agents().len() == 1 && view.alarms().is_empty()).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_a_destroy_left_behind_is_removed_and_somebody_elses_is_not() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let free = FreeFault {
        storage: None,
        chance: 1.0,
        skip: 0,
        times: Some(1),
        error: "device is busy".into(),
    };
    world.faults(Faults { frees: vec![free], ..Faults::default() });
    let foreign = format!("shared:{vmid}/vm-{vmid}-disk-5.qcow2");
    world.side.add_volume("pve1", &foreign, 1 << 30);
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    assert_eq!(world.side.volumes_of(vmid), std::slice::from_ref(&foreign));
    let reported = &world.view().alarms()[0];
    assert!(
        reported.command.contains(&foreign) && !reported.command.contains("disk-0"),
        "{reported:?}"
    );
    assert!(world.side.remove_volume("pve1", &foreign));
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_stays_behind_is_found_by_the_next_start_too() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.side.block_volume_removal(
        "pve1",
        &format!("local-lvm:vm-{vmid}-disk-0"),
        "device is busy",
    );
    world.wire.hold("DELETE", "", Hold::Answer);
    world.release(&lease).await;
    world.until_sprung().await;
    world.restart(MINUTE).await;
    world.until_state(AgentPhase::Stranded).await;
    assert!(alarms(&world)[0].contains("disk-0"), "{:?}", alarms(&world));
    world.administer(vmid);
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: a guest that does not do its duty goes, and the lease is served by another.

async fn serve_past(quirk: Quirk) -> World {
    let world = World::started(Setup::linux("instanceCap: 1, maxTotalUses: 1")).await;
    world.guests.quirk_next_boot(quirk);
    serve(world).await
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_boots_is_given_up() {
    let world = serve_past(Quirk::NeverBoots).await;
    assert_eq!(reasons(&world), ["Booting too slow", "used-up"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_hangs_is_given_up() {
    let world = serve_past(Quirk::Hangs).await;
    assert_eq!(reasons(&world), ["Booting too slow", "used-up"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_an_address_is_given_up() {
    let world = serve_past(Quirk::NoAddress).await;
    assert_eq!(reasons(&world), ["Booting too slow", "used-up"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_powers_itself_off_at_once_is_given_up() {
    let world = serve_past(Quirk::PowersOff(Duration::from_secs(3))).await;
    assert_eq!(reasons(&world).len(), 2, "{:?}", reasons(&world));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_claims_anothers_address_never_gets_its_lease() {
    let world = World::started(Setup::linux("instanceCap: 3, maxTotalUses: 1")).await;
    let (first, honest) = world.leased("linux").await;
    let address: IpAddr = honest.address.as_ref().unwrap().parse().unwrap();
    world.guests.quirk_next_boot(Quirk::WrongAddress(address));
    let (second, other) = world.leased("linux").await;
    assert_ne!(other.agent, honest.agent);
    assert_ne!(other.address, honest.address);
    // It is not even connected to there.
    assert_eq!(reasons(&world), ["Booting too slow"]);
    for lease in [&first, &second] {
        world.release(lease).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_dies_under_a_lease_ends_it_as_lost() {
    let world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.side.kill_guest(agent.vmid.unwrap().0).await;
    world
        .until("the lease is lost", |view| view.lease(&lease).unwrap().state == LeasePhase::Ended)
        .await;
    let detail = world.view().lease(&lease).unwrap().detail;
    assert_eq!(detail, "lost: its guest was switched off");
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(reasons(&world), ["powered-off"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_died_unnoticed_costs_the_next_lease_nothing_but_time() {
    let world = World::started(Setup::linux("idleMin: 1")).await;
    let warm = world.until_state(AgentPhase::Ready).await;
    world.side.kill_guest(warm.vmid.unwrap().0).await;
    let (lease, agent) = world.leased("linux").await;
    assert_ne!(agent.agent, warm.agent);
    let reported = |what: &What| match what {
        What::Lease(status) if status.lease == lease => Some(status.state),
        _ => None,
    };
    let mut states = world.notes.facts(reported);
    // What it waits for is reported meanwhile.
    states.dedup();
    assert_eq!(
        states,
        [
            LeasePhase::Waiting,
            LeasePhase::Granted,
            LeasePhase::Waiting,
            LeasePhase::Granted,
            LeasePhase::Ready
        ]
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_refused_once_costs_one_agent() {
    let world = World::started(Setup::linux("maxTotalUses: 1")).await;
    world.shell.refuse(1, FaultKind::KeyRejected);
    let world = serve(world).await;
    assert_eq!(reasons(&world), ["Connecting key-rejected", "used-up"]);
    world.end().await;
}

// Invariant: what is missing is waited for, with its name shown.

#[tokio::test(start_paused = true)]
async fn a_template_that_is_missing_is_waited_for() {
    let mut setup = Setup::linux("");
    let template = setup.cluster.guests.remove(0);
    assert_eq!(template.vmid, 9000);
    let mut world = World::started(setup).await;
    let lease = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    let reported = format!("{:?} {:?}", world.view().leases(), world.view().templates());
    assert!(reported.contains("9000"), "{reported}");
    assert!(world.side.add_guest(&template));
    world.keep_ground();
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_is_full_is_waited_for() {
    let mut setup = Setup::linux("cloneStrategy: FULL, targetStorage: shared");
    let shared = setup.cluster.storages.iter_mut().find(|storage| storage.name == "shared");
    shared.unwrap().size_bytes = 11 << 30;
    let mut world = World::new(setup);
    world.side.add_volume("pve1", "shared:iso/huge.iso", 11 << 30);
    world.keep_ground();
    world.start().await;
    let lease = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    // The list says so: nothing is tried that cannot be.
    assert_eq!(world.notes.intended(), 0, "{:?}", reasons(&world));
    let why = world.view().lease(&lease).unwrap().detail;
    assert!(why.contains("storage `shared`: 0 GiB are free, 10 GiB are needed"), "{why}");
    assert!(world.side.remove_volume("pve1", "shared:iso/huge.iso"));
    world.keep_ground();
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_turns_out_to_be_full_is_waited_for() {
    let world = World::started(Setup::linux("cloneStrategy: FULL, targetStorage: shared")).await;
    let full = TaskFault {
        kind: Some("qmclone".into()),
        error: Some("unable to create image: No space left on device".into()),
        ..TaskFault::default()
    };
    world.faults(Faults { tasks: vec![full], ..Faults::default() });
    let lease = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Waiting);
    let tried = reasons(&world);
    assert!(tried.iter().any(|reason| reason == "Cloning capacity"), "{tried:?}");
    world.faults(Faults::default());
    world.ready(&lease).await;
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_for_a_while_leaves_leases_alone() {
    let mut setup = Setup::linux("instanceCap: 3");
    setup.faults = Faults::default();
    let world = World::started(setup).await;
    let (held, agent) = world.leased("linux").await;
    let refused = CallFault { status: Some(401), ..CallFault::default() };
    world.faults(Faults { calls: vec![refused], ..Faults::default() });
    let waiting = world.lease("linux").await;
    world.pass(20 * MINUTE).await;
    assert_eq!(world.view().lease(&held).unwrap().state, LeasePhase::Ready);
    assert_eq!(world.view().lease(&waiting).unwrap().state, LeasePhase::Waiting);
    assert_eq!(
        world.view().clouds()[0].health,
        CloudHealth::Degraded,
        "{:?}",
        world.view().clouds()
    );
    world.faults(Faults::default());
    world.ready(&waiting).await;
    assert_eq!(world.ready(&held).await.agent, agent.agent);
    assert_eq!(world.view().clouds()[0].health, CloudHealth::Well);
    for lease in [&held, &waiting] {
        world.release(lease).await;
    }
    world.end().await;
}
