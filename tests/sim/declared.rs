//! Declared machines in virtual time: made once, also over crashes; drift shown and put right; other
//! guests left alone; what becomes of a machine that leaves the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::id::DeclaredName;
use drover_model::marks::{Kind, Reading, read};
use drover_model::phase::{DeclaredPhase, DriftKind, Power};
use drover_model::record::Body;
use drover_model::status::DeclaredStatus;
use drover_server::view::View;
use pve_sim::spec::GuestSpec;

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The machine `gitea` with these keys, beside the template `linux` of agents.
pub(super) fn machines(keys: &str) -> String {
    format!(
        "machines:\n  gitea: {{cloud: rack, templateVmId: 9000, credentialsId: ssh, cores: 2, \
         memoryMb: 1024, {keys}}}\n"
    )
}

pub(super) fn setup(keys: &str) -> Setup {
    let cleaning = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 30, \
                    orphanCleanupGracePeriodSeconds: 60";
    let mut setup = Setup::linux("").rack(cleaning);
    setup.sections = machines(keys);
    setup
}

pub(super) fn gitea(view: &View) -> Option<DeclaredStatus> {
    view.declared_one(&DeclaredName::new("gitea"))
}

pub(super) fn is(view: &View, phase: DeclaredPhase) -> bool {
    gitea(view).is_some_and(|one| one.phase == phase)
}

pub(super) fn runs(view: &View) -> bool {
    gitea(view).is_some_and(|one| one.phase == DeclaredPhase::Kept && one.power == Power::Running)
}

pub(super) async fn kept(keys: &str) -> (World, u32) {
    let world = World::started(setup(keys)).await;
    world.until("the machine runs", runs).await;
    let vmid = gitea(world.view()).unwrap().vmid.unwrap().0;
    (world, vmid)
}

/// Guests of declared machines on the cluster.
pub(super) fn guests(world: &World) -> Vec<u32> {
    let all = world.side.guests().into_iter();
    let machine = |vmid: &u32| {
        let config: BTreeMap<_, _> = world.side.config(*vmid).unwrap().into_iter().collect();
        let text = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
        match read(text("name"), text("description")) {
            Reading::Marked(marks) => marks.kind == Kind::Machine,
            _ => false,
        }
    };
    all.filter(machine).collect()
}

pub(super) fn value(world: &World, vmid: u32, key: &str) -> Option<String> {
    world.side.config(vmid).unwrap().get(key).cloned()
}

pub(super) fn reload(world: &mut World, sections: String) {
    world.setup.sections = sections;
    world.reload();
}

pub(super) fn finish(mut world: World) {
    world.check();
    world.judged = true;
}

// Invariant: a machine is made once, and nobody takes it for an agent.

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_runs_and_is_nobodys_agent() {
    let (world, vmid) = kept("tags: [infra], description: the forge").await;
    let config: BTreeMap<_, _> = world.side.config(vmid).unwrap().into_iter().collect();
    assert_eq!((&*config["cores"], &*config["memory"]), ("2", "1024"));
    assert!(config["name"].starts_with("gitea-"), "{config:?}");
    assert!(config["description"].starts_with("the forge"), "{config:?}");
    assert!(config["tags"].contains("infra"), "{config:?}");
    assert!(config["scsi0"].contains(&format!("vm-{vmid}-disk-0")), "{config:?}");
    let status = gitea(world.view()).unwrap();
    assert_eq!((status.drift.len(), &*status.detail), (0, ""));
    let addressed = |view: &View| gitea(view).is_some_and(|one| !one.addresses.is_empty());
    world.until("its guest agent says its address", addressed).await;
    // Agents come and go, orphans are cleaned, and everything idle is reaped.
    let (lease, agent) = world.leased("linux").await;
    assert_ne!(agent.vmid.unwrap().0, vmid);
    world.release(&lease).await;
    world.reap(true).await;
    world.pass(30 * MINUTE).await;
    assert_eq!(world.resync().await, Vec::<String>::new());
    assert_eq!(guests(&world), [vmid]);
    assert!(runs(world.view()));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_once_whichever_step_the_service_dies_in() {
    let phases = [
        DeclaredPhase::Waiting,
        DeclaredPhase::Creating,
        DeclaredPhase::Configuring,
        DeclaredPhase::Starting,
        DeclaredPhase::Kept,
    ];
    for phase in phases {
        let mut world = World::started(setup("")).await;
        world.until(phase.name(), |view| is(view, phase)).await;
        world.kill();
        world.pass(5 * SECOND).await;
        world.start().await;
        world.until("it runs after all", runs).await;
        world.pass(10 * MINUTE).await;
        assert_eq!(guests(&world).len(), 1, "{phase}");
        assert_eq!(world.journal_state().declared.len(), 1, "{phase}");
        assert_eq!(world.resync().await, Vec::<String>::new(), "{phase}");
        finish(world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_once_though_the_power_goes_at_its_intent_or_at_each_of_its_calls() {
    let calls = [("POST", "/clone"), ("PUT", "/config"), ("POST", "/status/start")];
    let cuts = calls.into_iter().flat_map(|call| [(call, Hold::Call), (call, Hold::Answer)]);
    for cut in [None].into_iter().chain(cuts.map(Some)) {
        let mut world = World::new(setup(""));
        match cut {
            Some(((method, end), hold)) => world.wire.hold(method, end, hold),
            None => world.notes.hold(|body| matches!(body, Body::DeclaredIntended { .. })),
        }
        world.start().await;
        world.until_sprung().await;
        world.restart(30 * SECOND).await;
        world.until("it runs after all", runs).await;
        world.pass(10 * MINUTE).await;
        assert_eq!(guests(&world).len(), 1, "{cut:?}");
        assert_eq!(world.journal_state().declared.len(), 1, "{cut:?}");
        assert_eq!(world.resync().await, Vec::<String>::new(), "{cut:?}");
        finish(world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_correction_and_a_removal_go_on_after_a_power_cut_at_each_of_their_calls() {
    for (method, end) in [("POST", "/status/start"), ("PUT", "/config")] {
        for hold in [Hold::Call, Hold::Answer] {
            let (mut world, vmid) = kept("correct: [POWER, SIZE]").await;
            world.side.set_config(vmid, "memory", Some("512"));
            world.side.kill_guest(vmid).await;
            world.wire.hold(method, end, hold);
            world.until_sprung().await;
            world.restart(30 * SECOND).await;
            let right = |view: &View| runs(view) && gitea(view).unwrap().drift.is_empty();
            world.until("it is as declared", right).await;
            assert_eq!(guests(&world), [vmid], "{method} {end} {hold:?}");
            finish(world);
        }
    }
    for end in ["/config", "/status/stop", ""] {
        let method = match end {
            "/config" => "PUT",
            "" => "DELETE",
            _ => "POST",
        };
        for hold in [Hold::Call, Hold::Answer] {
            let (mut world, _) = kept("onRemoval: DELETE").await;
            world.wire.hold(method, end, hold);
            reload(&mut world, String::new());
            world.until_sprung().await;
            world.restart(30 * SECOND).await;
            world.until("it is gone", |view| gitea(view).is_none()).await;
            world.pass(MINUTE).await;
            let left = world.journal_state().declared.len();
            assert_eq!((guests(&world), left), (Vec::new(), 0), "{method} {end} {hold:?}");
            finish(world);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_takes_a_machine_over_as_it_is() {
    let (mut world, vmid) = kept("").await;
    world.restart(10 * MINUTE).await;
    world.until("it is looked at", runs).await;
    assert_eq!(guests(&world), [vmid]);
    let status = gitea(world.view()).unwrap();
    assert_eq!((status.vmid.unwrap().0, status.corrected), (vmid, None));
    finish(world);
}

// Invariant: drift is shown, and put right only where the declaration allows it.

#[tokio::test(start_paused = true)]
async fn drift_is_shown_and_nothing_is_done_where_nothing_is_allowed() {
    let (world, vmid) = kept("").await;
    world.side.set_config(vmid, "cores", Some("1"));
    world.side.kill_guest(vmid).await;
    world.until("both are shown", |view| gitea(view).is_some_and(|one| one.drift.len() == 2)).await;
    world.pass(30 * MINUTE).await;
    let status = gitea(world.view()).unwrap();
    let kinds: Vec<DriftKind> = status.drift.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [DriftKind::Power, DriftKind::Size]);
    assert!(status.drift.iter().all(|one| one.stays.is_some()));
    assert_eq!((status.power, status.corrected), (Power::Stopped, None));
    assert_eq!(value(&world, vmid, "cores").as_deref(), Some("1"));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn cards_cloud_init_and_tags_that_a_hand_changed_are_shown_and_stay() {
    let keys = "correct: [POWER, SIZE, CREATE], bridge: vmbr0, nameserver: 10.0.0.1, tags: [infra]";
    let (world, vmid) = kept(keys).await;
    assert_eq!(gitea(world.view()).unwrap().drift, Vec::new());
    let card = value(&world, vmid, "net0").unwrap().replace("vmbr0", "vmbr9");
    for (key, now) in [("net0", &*card), ("nameserver", "10.0.0.2"), ("tags", "drover")] {
        world.side.set_config(vmid, key, Some(now));
    }
    world.until("all are shown", |view| gitea(view).is_some_and(|one| one.drift.len() == 3)).await;
    world.pass(10 * MINUTE).await;
    let shown: Vec<(DriftKind, String)> =
        gitea(world.view()).unwrap().drift.into_iter().map(|one| (one.kind, one.what)).collect();
    let wanted = [
        (DriftKind::Network, "net0".to_owned()),
        (DriftKind::CloudInit, "nameserver".to_owned()),
        (DriftKind::Tags, "tags".to_owned()),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(value(&world, vmid, "net0").as_deref(), Some(&*card));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn drift_is_put_right_where_it_is_allowed() {
    let (world, vmid) = kept("correct: [POWER, SIZE]").await;
    world.side.set_config(vmid, "memory", Some("512"));
    world.side.kill_guest(vmid).await;
    let again = |view: &View| runs(view) && gitea(view).unwrap().corrected.is_some();
    world.until("it is as declared", again).await;
    world.until("nothing differs", |view| gitea(view).unwrap().drift.is_empty()).await;
    assert_eq!(value(&world, vmid, "memory").as_deref(), Some("1024"));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_declaration_that_grows_reaches_the_machine_and_a_disk_never_shrinks() {
    let (mut world, vmid) = kept("correct: [SIZE], diskSizeGb: 30").await;
    assert!(value(&world, vmid, "scsi0").unwrap().ends_with("size=30G"));
    reload(&mut world, machines("correct: [SIZE], diskSizeGb: 40"));
    let grown = |view: &View| gitea(view).is_some_and(|one| one.corrected.is_some());
    world.until("it has grown", grown).await;
    assert!(value(&world, vmid, "scsi0").unwrap().ends_with("size=40G"));
    reload(&mut world, machines("correct: [SIZE], diskSizeGb: 20"));
    let shown = |view: &View| gitea(view).is_some_and(|one| !one.drift.is_empty());
    world.until("the difference is shown", shown).await;
    world.pass(10 * MINUTE).await;
    let status = gitea(world.view()).unwrap();
    assert_eq!(status.drift[0].stays.as_deref(), Some("disks cannot shrink"));
    assert!(value(&world, vmid, "scsi0").unwrap().ends_with("size=40G"));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_gone_is_missing_and_made_again_only_with_create() {
    let (mut world, vmid) = kept("").await;
    world.side.remove_guest(vmid);
    world.until("it is missing", |view| is(view, DeclaredPhase::Missing)).await;
    world.pass(30 * MINUTE).await;
    assert_eq!(guests(&world), Vec::<u32>::new());
    reload(&mut world, machines("correct: [CREATE]"));
    world.until("it is made again", runs).await;
    assert_eq!(guests(&world).len(), 1);
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_missing_while_its_cluster_or_node_is_silent() {
    let (mut world, vmid) = kept("correct: [CREATE, POWER]").await;
    let node = gitea(world.view()).unwrap().node.unwrap();
    world.side.node_down(node.as_str()).await;
    world.pass(30 * MINUTE).await;
    assert!(is(world.view(), DeclaredPhase::Kept), "{:?}", gitea(world.view()));
    assert_eq!(world.journal_state().declared.len(), 1);
    world.side.node_up(node.as_str());
    world.until("it runs again", runs).await;
    assert_eq!(guests(&world), [vmid]);
    world.judged = true;
}

// Invariant: a guest that drover did not make for the machine is never touched.

#[tokio::test(start_paused = true)]
async fn a_foreign_guest_of_the_same_name_blocks_the_machine_and_stays_as_it_is() {
    let mut world = World::new(setup(""));
    let config = [("name", "gitea"), ("cores", "1"), ("memory", "256")];
    let config: BTreeMap<String, String> =
        config.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let node = "pve1".to_owned();
    let spec = GuestSpec {
        vmid: 300,
        node,
        template: false,
        running: false,
        pool: None,
        config: config.clone(),
    };
    assert!(world.side.add_guest(&spec));
    world.keep_ground();
    world.start().await;
    world.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    world.pass(30 * MINUTE).await;
    let status = gitea(world.view()).unwrap();
    assert!(status.detail.starts_with("guest 300 on pve1 is called `gitea`"), "{status:?}");
    assert_eq!((guests(&world), world.journal_state().declared.len()), (Vec::new(), 0));
    assert!(world.wrongs().is_empty(), "{:?}", world.wrongs());
    world.side.remove_guest(300);
    world.keep_ground();
    world.until("it is made", runs).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_lost_its_marks_is_foreign_and_left_alone() {
    let (world, vmid) = kept("correct: [CREATE, POWER, SIZE], onRemoval: DELETE").await;
    world.side.set_config(vmid, "description", Some("somebody wrote over it"));
    world.until("it is foreign", |view| is(view, DeclaredPhase::Foreign)).await;
    world.side.kill_guest(vmid).await;
    world.wire.take();
    world.pass(30 * MINUTE).await;
    let calls = world.wire.take();
    let writes: Vec<&String> = calls.iter().filter(|call| !call.starts_with("GET")).collect();
    assert!(writes.is_empty(), "{writes:?}");
    finish(world);
}

// Invariant: a machine that leaves the configuration goes only where that was declared, or by its name.

#[tokio::test(start_paused = true)]
async fn a_machine_that_leaves_the_configuration_stays_until_a_command_names_it() {
    let (mut world, vmid) = kept("correct: [POWER]").await;
    reload(&mut world, String::new());
    world.until("it is left", |view| is(view, DeclaredPhase::Left)).await;
    world.restart(SECOND).await;
    world.pass(30 * MINUTE).await;
    assert!(is(world.view(), DeclaredPhase::Left));
    assert_eq!((guests(&world), world.resync().await), (vec![vmid], Vec::new()));
    let delete = async |world: &World, name: &str| {
        let name = name.to_owned();
        world.command(|reply| HerdCommand::DeleteMachine { name, reply }).await
    };
    assert!(matches!(delete(&world, "nope").await, Err(Refusal::Unknown(_))));
    delete(&world, "gitea").await.unwrap();
    world.until("it is gone", |view| gitea(view).is_none()).await;
    assert_eq!((guests(&world), world.journal_state().declared.len()), (Vec::new(), 0));
    assert_eq!(world.side.volumes_of(vmid), Vec::<String>::new());
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_stopped_or_destroyed_where_its_last_declaration_said_so() {
    let (mut world, vmid) = kept("onRemoval: STOP").await;
    reload(&mut world, String::new());
    let stopped = |view: &View| {
        gitea(view)
            .is_some_and(|one| one.phase == DeclaredPhase::Left && one.power == Power::Stopped)
    };
    world.until("it is stopped and left", stopped).await;
    assert_eq!(guests(&world), [vmid]);
    finish(world);

    // It has the time of a removal to come back, also where that is a minute of looks.
    let (mut world, _) = kept("onRemoval: STOP").await;
    reload(&mut world, String::new());
    world.pass(50 * SECOND).await;
    let one = gitea(world.view()).unwrap();
    assert_eq!((one.phase, one.power), (DeclaredPhase::Left, Power::Running));
    assert!(one.detail.contains("drover shuts it down in"), "{one:?}");
    reload(&mut world, machines("onRemoval: STOP"));
    world.pass(10 * MINUTE).await;
    assert!(runs(world.view()));
    assert_eq!(gitea(world.view()).unwrap().corrected, None);
    finish(world);

    let (mut world, _) = kept("onRemoval: KEEP").await;
    // The policy of the last declaration counts, and a crash forgets nothing of it.
    reload(&mut world, machines("onRemoval: DELETE"));
    world.pass(SECOND).await;
    world.kill();
    world.setup.sections = String::new();
    world.start().await;
    world.until("it is gone", |view| gitea(view).is_none()).await;
    world.pass(MINUTE).await;
    assert_eq!((guests(&world), world.journal_state().declared.len()), (Vec::new(), 0));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_declared_machine_is_neither_deleted_nor_forgotten_and_a_left_one_is_let_go() {
    let (mut world, vmid) = kept("").await;
    let forget = async |world: &World| {
        let name = "gitea".to_owned();
        world.command(|reply| HerdCommand::ForgetMachine { name, reply }).await
    };
    let name = "gitea".to_owned();
    let refused = world.command(|reply| HerdCommand::DeleteMachine { name, reply }).await;
    assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    assert!(matches!(forget(&world).await, Err(Refusal::Conflict(_))));
    reload(&mut world, String::new());
    world.until("it is left", |view| is(view, DeclaredPhase::Left)).await;
    forget(&world).await.unwrap();
    world.until("it is forgotten", |view| gitea(view).is_none()).await;
    world.pass(30 * MINUTE).await;
    assert_eq!(guests(&world), [vmid], "its guest stays, also where orphans are cleaned");
    // Declared again, it is not made beside the one that is there.
    reload(&mut world, machines(""));
    world.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    assert_eq!(guests(&world), [vmid]);
    finish(world);
}
