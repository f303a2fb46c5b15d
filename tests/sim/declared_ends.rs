//! Declared machines in bad times: the power goes at any record, the cluster is away, the file is half
//! written, others have copies or the same names, and the journal is older than the world.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::phase::{DeclaredPhase, DriftKind, Power};
use drover_model::record::Body;
use drover_server::view::View;
use pve_sim::spec::GuestSpec;

use super::declared::{finish, gitea, guests, is, kept, machines, reload, runs, setup};
use super::world::World;
use super::world::tally::Hold;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const NODES: [&str; 3] = ["pve1", "pve2", "pve3"];

/// No call reaches the cluster.
fn cut_off(world: &World, away: bool) {
    world.ways.cut(0, away);
}

/// Each node sees only itself.
fn split(world: &World, apart: bool) {
    NODES.iter().for_each(|node| world.side.set_partitioned(node, apart));
}

fn config(world: &World, vmid: u32) -> BTreeMap<String, String> {
    world.side.config(vmid).unwrap().into_iter().collect()
}

/// Calls since the last time that may change something.
fn writes(world: &World) -> Vec<String> {
    world.wire.take().into_iter().filter(|call| !call.starts_with("GET")).collect()
}

// Invariant: wherever the power goes, a machine is there once, or it is gone whole.

#[tokio::test(start_paused = true)]
async fn the_power_may_go_at_every_record_of_the_making_the_correction_and_the_removal() {
    // The making.
    for made in [false, true] {
        let mut world = World::new(setup(""));
        world.notes.hold(move |body| match body {
            Body::DeclaredIntended { .. } => !made,
            Body::DeclaredMade { .. } => made,
            _ => false,
        });
        world.start().await;
        world.until_sprung().await;
        world.restart(30 * SECOND).await;
        world.until("it runs after all", runs).await;
        world.pass(10 * MINUTE).await;
        assert_eq!((guests(&world).len(), world.journal_state().declared.len()), (1, 1));
        finish(world);
    }
    // A correction.
    let (mut world, vmid) = kept("correct: [POWER]").await;
    world.notes.hold(|body| matches!(body, Body::DeclaredCorrecting { .. }));
    world.side.kill_guest(vmid).await;
    world.until_sprung().await;
    world.restart(30 * SECOND).await;
    world.until("it runs again", runs).await;
    assert_eq!(guests(&world), [vmid]);
    finish(world);
    // The removal.
    for gone in [false, true] {
        let (mut world, vmid) = kept("onRemoval: DELETE").await;
        world.notes.hold(move |body| match body {
            Body::DeclaredRemoving { .. } => !gone,
            Body::DeclaredGone { .. } => gone,
            _ => false,
        });
        reload(&mut world, String::new());
        world.until_sprung().await;
        world.restart(30 * SECOND).await;
        world.until("it is gone", |view| gitea(view).is_none()).await;
        world.pass(MINUTE).await;
        let known = world.journal_state().declared.len();
        assert_eq!((guests(&world), known), (Vec::new(), 0), "gone {gone}");
        assert_eq!(world.side.volumes_of(vmid), Vec::<String>::new());
        finish(world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_made_again_is_made_once_though_the_power_goes_in_between() {
    for intended in [false, true] {
        let (mut world, vmid) = kept("correct: [CREATE]").await;
        world.notes.hold(move |body| match body {
            Body::DeclaredGone { .. } => !intended,
            Body::DeclaredIntended { .. } => intended,
            _ => false,
        });
        world.side.remove_guest(vmid);
        world.until_sprung().await;
        world.restart(30 * SECOND).await;
        world.until("it runs again", runs).await;
        world.pass(10 * MINUTE).await;
        assert_eq!(guests(&world).len(), 1, "intended {intended}");
        assert_eq!(world.journal_state().declared.len(), 1);
        finish(world);
    }
}

// Invariant: a machine that the configuration has is not destroyed, whatever was said before.

#[tokio::test(start_paused = true)]
async fn a_file_that_was_half_written_for_a_moment_costs_no_machine() {
    let (mut world, vmid) = kept("onRemoval: DELETE").await;
    world.wire.take();
    reload(&mut world, String::new());
    world.pass(30 * SECOND).await;
    assert!(is(world.view(), DeclaredPhase::Removing));
    assert!(gitea(world.view()).unwrap().detail.contains("declare it again to keep it"));
    reload(&mut world, machines("onRemoval: DELETE"));
    world.until("it is kept", runs).await;
    world.pass(30 * MINUTE).await;
    assert_eq!((guests(&world), writes(&world)), (vec![vmid], Vec::new()));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_waits_for_its_cluster_ends_when_the_machine_is_declared_again() {
    for restart in [false, true] {
        let (mut world, vmid) = kept("onRemoval: DELETE").await;
        world.wire.take();
        cut_off(&world, true);
        reload(&mut world, String::new());
        world.pass(10 * MINUTE).await;
        assert!(is(world.view(), DeclaredPhase::Removing));
        if restart {
            world.kill();
            world.setup.sections = machines("onRemoval: DELETE");
            world.start().await;
        } else {
            reload(&mut world, machines("onRemoval: DELETE"));
        }
        world.pass(MINUTE).await;
        cut_off(&world, false);
        world.until("it is kept", runs).await;
        world.pass(30 * MINUTE).await;
        assert_eq!((guests(&world), writes(&world)), (vec![vmid], Vec::new()), "{restart}");
        assert!(world.journal_state().declared.values().all(|entry| !entry.removing));
        world.judged = true;
    }
}

// Invariant: silence is no evidence.

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_away_makes_nothing_and_loses_nothing() {
    let (mut world, vmid) = kept("correct: [CREATE, POWER, SIZE]").await;
    world.wire.take();
    cut_off(&world, true);
    world.pass(30 * MINUTE).await;
    assert!(is(world.view(), DeclaredPhase::Kept));
    assert!(!gitea(world.view()).unwrap().detail.is_empty(), "it says that it is not read");
    world.restart(MINUTE).await;
    world.pass(10 * MINUTE).await;
    let status = gitea(world.view()).unwrap();
    assert_eq!((status.phase, status.power), (DeclaredPhase::Kept, Power::Unknown));
    assert!(!status.detail.is_empty(), "so it does after a restart");
    cut_off(&world, false);
    world
        .until("it is read again", |view| runs(view) && gitea(view).unwrap().detail.is_empty())
        .await;
    assert_eq!((guests(&world), writes(&world)), (vec![vmid], Vec::new()));
    world.judged = true;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_cluster_is_away_at_first_is_made_once_it_is_there() {
    let mut world = World::new(setup(""));
    split(&world, true);
    world.start().await;
    world.pass(30 * MINUTE).await;
    assert!(is(world.view(), DeclaredPhase::Waiting));
    split(&world, false);
    world.until("it runs", runs).await;
    assert_eq!(guests(&world).len(), 1);
    world.judged = true;
}

// Invariant: a guest that is not exactly the machine's is never touched.

#[tokio::test(start_paused = true)]
async fn two_drovers_that_declare_the_same_name_make_one_guest_and_leave_each_others_alone() {
    let (world, vmid) = kept("correct: [CREATE, POWER]").await;
    let mut other = world.beside(setup("correct: [CREATE, POWER], onRemoval: DELETE").seed(2));
    other.start().await;
    other.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    other.pass(30 * MINUTE).await;
    let detail = gitea(other.view()).unwrap().detail;
    assert!(detail.contains("drover installation"), "{detail}");
    let before = config(&world, vmid);
    reload(&mut other, String::new());
    other.until("it has none", |view| gitea(view).is_none()).await;
    other.pass(10 * MINUTE).await;
    assert_eq!((guests(&world), config(&world, vmid)), (vec![vmid], before));
    assert!(runs(world.view()));
    finish(world);
    other.judged = true;
}

#[tokio::test(start_paused = true)]
async fn a_copy_by_hand_is_no_machine_and_stands_in_the_way_of_another_one() {
    let (world, vmid) = kept("correct: [CREATE, POWER]").await;
    let copy = GuestSpec {
        vmid: 700,
        node: "pve2".to_owned(),
        template: false,
        running: false,
        pool: None,
        config: config(&world, vmid),
    };
    assert!(world.side.add_guest(&copy));
    world.notes.planted(700);
    let before = config(&world, 700);
    world.pass(10 * MINUTE).await;
    assert!(runs(world.view()));
    // The machine's own guest is gone: which of the two was meant is for people to say.
    world.side.remove_guest(vmid);
    world.pass(30 * MINUTE).await;
    assert!(world.side.config(vmid).is_none());
    assert_eq!((config(&world, 700), world.journal_state().declared.len()), (before, 1));
    let detail = gitea(world.view()).unwrap().detail;
    assert!(detail.contains("in the list of all guests"), "{detail}");
    let mut world = world;
    world.judged = true;
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_older_than_the_machine_makes_no_second_one() {
    let mut world = World::new(setup(""));
    world.setup.sections = String::new();
    world.start().await;
    world.pass(MINUTE).await;
    let backup = world.backup();
    reload(&mut world, machines("correct: [CREATE, POWER], onRemoval: DELETE"));
    world.until("it runs", runs).await;
    let made = guests(&world);
    world.kill();
    world.restore(backup);
    world.start().await;
    world.pass(30 * MINUTE).await;
    world.confirm_older_journal();
    world.pass(30 * MINUTE).await;
    assert_eq!(guests(&world), made);
    assert!(is(world.view(), DeclaredPhase::Blocked), "{:?}", gitea(world.view()));
    world.judged = true;
}

// Invariant: what a hand changes is shown, and the rest of the guest stays as the hand left it.

#[tokio::test(start_paused = true)]
async fn a_correction_changes_what_differs_and_nothing_else() {
    let (world, vmid) = kept("correct: [SIZE]").await;
    // A change of memory waits for a restart while the guest runs.
    world.side.kill_guest(vmid).await;
    world.side.set_config(vmid, "memory", Some("512"));
    world.side.set_config(vmid, "tags", Some("by-hand"));
    world.side.set_config(vmid, "net1", Some("virtio=BC:24:11:00:00:01,bridge=vmbr0"));
    let before = config(&world, vmid);
    let right = |view: &View| {
        gitea(view).is_some_and(|one| one.corrected.is_some() && one.drift.len() == 1)
    };
    world.until("the memory is right", right).await;
    let mut after = config(&world, vmid);
    assert_eq!(after.insert("memory".to_owned(), "512".to_owned()).as_deref(), Some("1024"));
    let bare = |mut config: BTreeMap<String, String>| {
        config.remove("digest");
        config
    };
    assert_eq!(bare(after), bare(before));
    let kinds: Vec<DriftKind> =
        gitea(world.view()).unwrap().drift.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [DriftKind::Power]);
    finish(world);
}

// Invariant: a machine of an ISO image is made new, once, with an empty disk, and the image stays.

const ISO: &str = "local:iso/opnsense.iso";

fn of_iso(keys: &str) -> String {
    format!(
        "machines:\n  gitea: {{cloud: rack, iso: \"{ISO}\", node: pve1, storage: local-lvm, \
         diskSizeGb: 8, cores: 2, memoryMb: 1024, tags: [infra], {keys}}}\n"
    )
}

fn with_iso(keys: &str) -> World {
    let mut world = World::new(setup(""));
    world.setup.sections = of_iso(keys);
    world.side.add_volume("pve1", ISO, 700 << 20);
    world
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_an_iso_boots_it_until_its_disk_is_installed_and_is_kept_as_others() {
    let mut world = with_iso("correct: [POWER, SIZE], onRemoval: DELETE");
    world.start().await;
    world.until("it runs", runs).await;
    let status = gitea(world.view()).unwrap();
    let vmid = status.vmid.unwrap().0;
    assert_eq!((guests(&world), status.source), (vec![vmid], None));
    let made = config(&world, vmid);
    assert!(made["scsi0"].contains(&format!("vm-{vmid}-disk-")), "{made:?}");
    assert!(made["scsi0"].contains("size=8G"), "{made:?}");
    assert!(made["ide0"].starts_with(ISO), "{made:?}");
    assert_eq!((&*made["boot"], made.get("serial0")), ("order=scsi0;ide0", None), "{made:?}");
    assert!(made["tags"].contains("infra"), "{made:?}");
    assert_eq!((made.get("ciuser"), made.get("sshkeys")), (None, None), "{made:?}");
    assert_eq!(world.resync().await, Vec::<String>::new());
    reload(&mut world, String::new());
    world.until("it is gone", |view| gitea(view).is_none()).await;
    assert_eq!(world.side.volumes_of(vmid), Vec::<String>::new());
    assert!(world.side.volumes("pve1", "local").contains(&ISO.to_owned()), "the image stays");
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_an_iso_is_made_once_though_the_power_goes_at_its_calls() {
    for (method, end) in [("POST", "/qemu"), ("PUT", "/config"), ("POST", "/status/start")] {
        for hold in [Hold::Call, Hold::Answer] {
            let mut world = with_iso("");
            world.wire.hold(method, end, hold);
            world.start().await;
            world.until_sprung().await;
            world.restart(30 * SECOND).await;
            world.until("it runs after all", runs).await;
            world.pass(10 * MINUTE).await;
            assert_eq!(guests(&world).len(), 1, "{method} {end} {hold:?}");
            assert_eq!(world.journal_state().declared.len(), 1, "{method} {end} {hold:?}");
            finish(world);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_iso_is_not_there_waits_and_says_so() {
    let mut world = World::new(setup(""));
    world.setup.sections = of_iso("");
    world.start().await;
    world.pass(10 * MINUTE).await;
    let status = gitea(world.view()).unwrap();
    assert_eq!((guests(&world).len(), status.phase), (0, DeclaredPhase::Waiting));
    assert_eq!(
        status.detail,
        "there is no ISO image `opnsense.iso` on storage `local` of node `pve1`: upload it there, or name \
         one in `iso` that `pvesm list local --content iso` shows on that node"
    );
    world.side.add_volume("pve1", ISO, 700 << 20);
    world.until("it runs", runs).await;
    assert_eq!(guests(&world).len(), 1);
    finish(world);
}
