//! Images in virtual time: builds, restarts in each of their states, versions that go and stay.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{HerdCommand, ImageBuildAsk, Refusal};
use drover_model::id::{AgentId, NodeName, VmId};
use drover_model::image::{ImagePlan, Route};
use drover_model::machine::Machine;
use drover_model::marks::{Kind, Reading, read};
use drover_model::phase::ImagePhase;
use drover_model::record::Want;
use drover_model::status::ImageStatus;
use drover_nocloud::iso;
use drover_server::view::View;
use pve_sim::spec::WebFile;
use sha2::{Digest as _, Sha256};

use super::world::World;
use super::world::setup::Setup;

const SECOND: Duration = Duration::from_secs(1);
const URL: &str = "https://cloud.example/debian-13.qcow2";

fn sum() -> String {
    "ab".repeat(32)
}

/// One image `debian` with these keys, and what a node can download.
pub(super) fn setup(keys: &str) -> Setup {
    let mut setup = Setup::linux("cloneStrategy: LINKED").rack("cleanupOrphanedAgents: true");
    setup.sections = format!(
        "images:\n  debian: {{cloudIds: [rack], source: {{url: \"{URL}\", checksum: {sum}}}, \
         storage: local-lvm, importStorage: shared, credentialsId: ssh, packages: [git], \
         commands: ['echo ${{word}}'], variables: {{word: hello}}, nodes: [pve1], {keys}}}\n",
        sum = sum(),
    );
    setup
}

pub(super) async fn started(keys: &str) -> World {
    started_with(setup(keys)).await
}

pub(super) async fn started_with(setup: Setup) -> World {
    let world = World::new(setup);
    let file = WebFile { url: URL.into(), size: 400 << 20, sha256: sum(), ..WebFile::default() };
    world.side.publish(file);
    let mut world = world;
    world.start().await;
    world
}

pub(super) async fn ask(
    world: &World,
    given: &[(&str, &str)],
    dry_run: bool,
) -> Result<Vec<ImagePlan>, Refusal> {
    let given: BTreeMap<String, String> =
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (image, node) = ("debian".to_owned(), None);
    let command = |reply| {
        HerdCommand::BuildImage(Box::new(ImageBuildAsk {
            image,
            node,
            given,
            afresh: false,
            dry_run,
            reply,
        }))
    };
    world.command(command).await
}

pub(super) fn builds(view: &View) -> Vec<ImageStatus> {
    view.image_builds()
}

/// Lets it run until no build runs; gives the last one.
async fn over(world: &World) -> ImageStatus {
    let done = |view: &View| {
        let all = builds(view);
        !all.is_empty() && all.iter().all(|build| build.phase.is_over())
    };
    world.until("the builds are over", done).await;
    builds(world.view()).pop().unwrap()
}

pub(super) async fn built(world: &World, given: &[(&str, &str)]) -> ImageStatus {
    let plans = ask(world, given, false).await.unwrap();
    assert!(matches!(plans[..], [ImagePlan::Starts { .. }]), "{plans:?}");
    let status = over(world).await;
    assert_eq!(status.phase, ImagePhase::Done, "{status:?}");
    let again = ask(world, given, true).await.unwrap();
    assert!(matches!(again[..], [ImagePlan::UpToDate { .. }]), "{again:?}");
    status
}

/// What the configuration of a guest says; none where there is no guest.
fn config(world: &World, vmid: u32) -> Option<BTreeMap<String, String>> {
    world.side.config(vmid)
}

fn marks(world: &World, vmid: u32) -> Reading {
    let config = config(world, vmid).unwrap();
    let text = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
    read(text("name"), text("description"))
}

/// Guests from 9003 on: 9000 to 9002 are the cluster's own templates.
pub(super) fn ours(world: &World) -> Vec<u32> {
    (9003..9030).filter(|vmid| config(world, *vmid).is_some()).collect()
}

pub(super) fn finish(mut world: World) {
    world.check();
    world.judged = true;
}

// Invariant: a build makes a template with the marks of an image, out of the lowest free VMID, and
// nothing twice.

#[tokio::test(start_paused = true)]
async fn an_image_is_built_once_and_agents_are_cloned_from_it() {
    let mut world = started("").await;
    assert!(matches!(ask(&world, &[], true).await.unwrap()[..], [ImagePlan::WouldStart { .. }]));
    let status = built(&world, &[]).await;
    assert_eq!((status.vmid, ours(&world)), (Some(VmId(9003)), vec![9003]));
    let Reading::Marked(found) = marks(&world, 9003) else { panic!("no marks") };
    assert_eq!((found.kind, &found.agent), (Kind::Image, &status.version));
    let made = config(&world, 9003).unwrap();
    assert_eq!(made["template"], "1");
    assert_eq!((&*made["machine"], &*made["bios"], &*made["agent"]), ("q35", "ovmf", "enabled=1"));
    assert!(made["scsi0"].starts_with("local-lvm:base-9003-disk-"), "{made:?}");
    assert!(made["scsi1"].contains("cloudinit"), "{made:?}");
    assert!(!made.contains_key("sshkeys") && !made.contains_key("ciuser"), "{made:?}");
    let ran = world.shell.ran();
    assert!(ran.iter().any(|command| command == "echo hello"), "{ran:?}");
    assert!(ran.last().unwrap().contains("cloud-init clean"), "it cleans last");
    let again = ask(&world, &[], false).await.unwrap();
    assert!(matches!(again[..], [ImagePlan::UpToDate { vmid: VmId(9003), .. }]), "{again:?}");
    world.setup.templates = vec![("linux", "image: debian, cloneStrategy: LINKED".into())];
    world.reload();
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(agent.node, Some(NodeName::new("pve1")));
    assert_eq!(world.journal_state().agents[&agent.agent].spec.source, VmId(9003));
    // An image is no orphan, however often it is looked at.
    assert_eq!(world.resync().await, Vec::<String>::new());
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn agents_of_an_image_have_the_sizes_that_jobs_ask_for() {
    let mut world = started("").await;
    built(&world, &[]).await;
    let keys = "image: debian, cloneStrategy: LINKED, cores: 2, \
                sizeLabels: {cpu: {max: 8}, disk: {max: 50}}";
    world.setup.templates = vec![("linux", keys.into())];
    world.reload();
    let mut ask = world.an_ask("linux", Duration::from_secs(600));
    ask.want = Want::Labels(["linux", "cpu=4", "disk=40g"].map(str::to_owned).into());
    let lease = world.command(|reply| HerdCommand::Lease { ask, reply }).await.unwrap();
    let agent = world.ready(&lease).await;
    let made = config(&world, agent.vmid.unwrap().0).unwrap();
    assert_eq!(made["cores"], "4");
    assert!(made["scsi0"].ends_with("size=40G"), "{made:?}");
    let (lease, plain) = world.leased("linux").await;
    assert_eq!(config(&world, plain.vmid.unwrap().0).unwrap()["cores"], "2");
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn two_who_want_an_image_share_one_build_and_other_values_make_another_version() {
    let world = started("").await;
    let first = ask(&world, &[], false).await.unwrap();
    let second = ask(&world, &[], false).await.unwrap();
    let [ImagePlan::Starts { build, .. }] = &first[..] else { panic!("{first:?}") };
    let [ImagePlan::Running { build: shared, .. }] = &second[..] else { panic!("{second:?}") };
    assert_eq!(build, shared);
    let done = over(&world).await;
    world.pass(15 * SECOND).await;
    let other = built(&world, &[("word", "other")]).await;
    assert_ne!(done.version, other.version);
    assert_eq!(ours(&world), [9003, 9004], "`keep` is 1");
    let unknown = ask(&world, &[("wort", "x")], false).await.unwrap_err();
    assert!(unknown.to_string().contains("no variable `wort`"), "{unknown}");
    finish(world);
}

// Invariant: the next agent after a build is cloned from what was built.

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_right_after_a_build_has_the_new_version() {
    let mut world = started("").await;
    let mut sources = Vec::new();
    for word in ["one", "two", "three"] {
        let version = built(&world, &[("word", word)]).await;
        world.setup.templates =
            vec![("linux", "image: debian, cloneStrategy: LINKED, maxTotalUses: 1".into())];
        world.reload();
        let (lease, agent) = world.leased("linux").await;
        let source = world.journal_state().agents[&agent.agent].spec.source;
        sources.push((Some(source), version.vmid));
        world.release(&lease).await;
    }
    assert!(sources.iter().all(|(source, version)| source == version), "{sources:?}");
    finish(world);
}

// Invariant: a build that an operator cancels leaves nothing, and is not started again.

#[tokio::test(start_paused = true)]
async fn a_build_that_is_cancelled_leaves_nothing() {
    let world = started("").await;
    let cancel = async |build: &AgentId| {
        let build = build.clone();
        world.command(|reply| HerdCommand::CancelBuild { build, reply }).await
    };
    for state in [ImagePhase::Pulling, ImagePhase::Creating, ImagePhase::Provisioning] {
        ask(&world, &[], false).await.unwrap();
        let runs = |view: &View| builds(view).iter().any(|build| build.phase == state);
        world.until(state.name(), runs).await;
        let running = builds(world.view()).into_iter().find(|build| !build.phase.is_over());
        cancel(&running.unwrap().build).await.unwrap();
        let status = over(&world).await;
        assert_eq!(status.phase, ImagePhase::Failed, "{state}");
        assert!(status.detail.contains("an operator cancelled it"), "{status:?}");
        assert_eq!(ours(&world), Vec::<u32>::new(), "{state}");
        assert!(cancel(&status.build).await.is_err(), "it runs no more");
    }
    built(&world, &[]).await;
    finish(world);
}

// Invariant: a build that fails leaves nothing, and says why.

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_ends_the_build_and_destroys_its_guest() {
    let world = started("").await;
    world.shell.fail(Some("echo hello"));
    ask(&world, &[], false).await.unwrap();
    let status = over(&world).await;
    assert_eq!(status.phase, ImagePhase::Failed);
    assert!(status.detail.contains("the step `command 1` ended with exit status"), "{status:?}");
    assert_eq!(ours(&world), Vec::<u32>::new());
    assert!(world.journal_state().builds.is_empty());
    world.shell.fail(None);
    built(&world, &[]).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_source_with_another_checksum_or_none_at_all_ends_the_build() {
    let world = World::new(setup(""));
    let file =
        WebFile { url: URL.into(), size: 1 << 20, sha256: "cd".repeat(32), ..WebFile::default() };
    world.side.publish(file);
    let mut world = world;
    world.start().await;
    ask(&world, &[], false).await.unwrap();
    let status = over(&world).await;
    assert!(status.detail.contains("checksum mismatch"), "{status:?}");
    assert_eq!((status.phase, ours(&world)), (ImagePhase::Failed, Vec::new()));
    finish(world);
}

// Invariant: where drover downloads, the nodes never do, and a crash leaves no file behind.

const DISK: &[u8] = b"QFI\xfb, a disk image that drover downloads";
const DISK_SUM: &str = "a7f8e46e5e8f62604952a70021eb6bacf00fbd7c69e0efd53b4370eb1fc606ab";

/// A world whose image drover downloads.
fn uploading() -> Setup {
    let mut setup = setup("downloadBy: DROVER, downloadProxy: 'http://proxy.lan:3128'");
    setup.sections = setup.sections.replace(&sum(), DISK_SUM);
    setup
}

/// The files in the folder that drover downloads to.
fn spooled(world: &World) -> usize {
    let folder = world.folder.as_ref().unwrap().path().join("downloads");
    std::fs::read_dir(folder).unwrap().count()
}

#[tokio::test(start_paused = true)]
async fn drover_downloads_and_uploads_for_nodes_without_internet() {
    let world = World::started(uploading()).await;
    world.mirror.publish(URL, DISK);
    world.mirror.cut(0);
    built(&world, &[]).await;
    let by = Route::Proxy("http://proxy.lan:3128".into());
    assert_eq!(world.mirror.asked(), [(URL.to_owned(), by.clone()), (URL.to_owned(), by)]);
    let kept = world.side.volumes("pve1", "shared");
    let name = format!("shared:import/debian-13-{}.qcow2", &DISK_SUM[..12]);
    assert!(kept.contains(&name), "{kept:?}");
    assert_eq!(world.side.file("pve1", &name).unwrap(), DISK);
    // The next version finds it there.
    built(&world, &[("word", "other")]).await;
    assert_eq!((world.mirror.asked().len(), spooled(&world)), (3, 0));
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_a_download_leaves_no_file() {
    let mut world = World::started(uploading()).await;
    world.mirror.publish(URL, [DISK, &[0; 1 << 20]].concat());
    world.mirror.slow(60 * SECOND);
    ask(&world, &[], false).await.unwrap();
    world.pass(120 * SECOND).await;
    assert_eq!(spooled(&world), 1);
    world.restart(30 * SECOND).await;
    assert!(ours(&world).is_empty() && builds(world.view()).is_empty());
    world.pass(1200 * SECOND).await;
    world.mirror.publish(URL, DISK);
    built(&world, &[]).await;
    assert_eq!(spooled(&world), 0);
    finish(world);
}

// Invariant: an installer gets its answers on a disc, and its guest is built on when it is off.

const ISO_URL: &str = "https://cloud.example/ubuntu-24.04.iso";

/// An ISO image whose kernel starts with these parameters.
fn installer(parameters: &str) -> Vec<u8> {
    iso::disc_with("Ubuntu", "grub.cfg", parameters.as_bytes())
}

/// A world whose image is installed from an ISO image that drover uploads.
async fn installing(parameters: &str, keys: &str) -> World {
    let image = installer(parameters);
    let digest = Sha256::digest(&image);
    let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut setup = Setup::linux("cloneStrategy: LINKED").rack("cleanupOrphanedAgents: true");
    setup.sections = format!(
        "images:\n  debian: {{cloudIds: [rack], source: {{iso: \"{ISO_URL}\", checksum: {sum}}}, \
         diskSizeGb: 20, storage: local-lvm, downloadBy: DROVER, credentialsId: ssh, \
         commands: ['echo hello'], variables: {{word: hello}}, nodes: [pve1], {keys}}}\n"
    );
    let world = World::started(setup).await;
    world.mirror.publish(ISO_URL, image);
    world
}

#[tokio::test(start_paused = true)]
async fn an_image_is_installed_from_an_iso_without_questions() {
    let mut world = installing("linux /casper/vmlinuz autoinstall ---", "").await;
    let status = built(&world, &[]).await;
    let installed = status.phases.iter().find(|(phase, _)| phase == "Installing").unwrap();
    assert!((200_000..600_000).contains(&installed.1), "{status:?}");
    let made = config(&world, status.vmid.unwrap().0).unwrap();
    assert!(made["scsi0"].contains("base-9003-disk-") && made["scsi0"].contains("size=20G"));
    assert_eq!((made.get("ide0"), &*made["boot"]), (None, "order=scsi0"), "{made:?}");
    assert!(made["scsi1"].contains("cloudinit"), "{made:?}");
    let kept = world.side.volumes("pve1", "local");
    assert!(kept.iter().any(|name| name.starts_with("local:iso/ubuntu-24.04-")), "{kept:?}");
    assert!(kept.iter().all(|name| !name.starts_with("local:iso/drover-")), "{kept:?}");
    world.setup.templates = vec![("linux", "image: debian, cloneStrategy: LINKED".into())];
    world.reload();
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn an_installer_that_asks_ends_the_build_with_what_its_iso_lacks() {
    let world = installing("linux /casper/vmlinuz quiet ---", "buildTimeoutMinutes: 30").await;
    ask(&world, &[], false).await.unwrap();
    let status = over(&world).await;
    assert_eq!(status.phase, ImagePhase::Failed);
    assert!(status.detail.contains("must boot with `autoinstall`"), "{status:?}");
    assert_eq!(ours(&world), Vec::<u32>::new());
    let kept = world.side.volumes("pve1", "local");
    assert!(kept.iter().all(|name| !name.starts_with("local:iso/drover-")), "{kept:?}");
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn an_iso_that_its_storage_lacks_ends_the_build_before_there_is_a_guest() {
    let mut setup = Setup::linux("cloneStrategy: LINKED");
    setup.sections =
        "images:\n  debian: {cloudIds: [rack], source: {iso: 'local:iso/none.iso'}, diskSizeGb: \
                      20, storage: local-lvm, credentialsId: ssh, nodes: [pve1]}\n"
            .to_owned();
    let world = World::started(setup).await;
    ask(&world, &[], false).await.unwrap();
    world.pass(10 * SECOND).await;
    let status = builds(world.view()).pop().unwrap();
    assert_eq!((status.phase, ours(&world)), (ImagePhase::Failed, Vec::new()), "{status:?}");
    assert_eq!(
        status.detail,
        "Creating: there is no ISO image `none.iso` on storage `local` of node `pve1`: upload it there, or \
         name one in `iso` that `pvesm list local --content iso` shows on that node"
    );
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_an_installer_runs_leads_to_the_same_end() {
    let mut world = installing("linux /casper/vmlinuz autoinstall ---", "").await;
    ask(&world, &[], false).await.unwrap();
    let runs = |view: &View| {
        let build = builds(view).pop();
        build.is_some_and(|build| build.detail == "the installer runs")
    };
    world.until("it installs", runs).await;
    world.restart(30 * SECOND).await;
    let done = |view: &View| builds(view).iter().any(|one| one.phase == ImagePhase::Done);
    world.until("it is built after all", done).await;
    assert_eq!(ours(&world).len(), 1);
    finish(world);
}

// Invariant: after a crash in any state the guest of the build goes and the build is made again.

#[tokio::test(start_paused = true)]
async fn a_crash_in_any_state_leads_to_the_same_end() {
    let states = [
        ImagePhase::Pulling,
        ImagePhase::Creating,
        ImagePhase::Configuring,
        ImagePhase::Booting,
        ImagePhase::Connecting,
        ImagePhase::Provisioning,
        ImagePhase::Cleaning,
        ImagePhase::ShuttingDown,
        ImagePhase::Converting,
        ImagePhase::Verifying,
        ImagePhase::Sealing,
    ];
    for state in states {
        // Nobody cleans up orphans: what a build makes, the build itself removes.
        let mut setup = setup("");
        setup.clouds = vec![("rack", "cleanupOrphanedAgents: false".into())];
        let mut world = started_with(setup).await;
        ask(&world, &[], false).await.unwrap();
        let reached = |view: &View| builds(view).iter().any(|build| build.phase == state);
        world.until(state.name(), reached).await;
        world.restart(30 * SECOND).await;
        if world.journal_state().builds.is_empty() {
            // Nothing was intended yet: nobody wants it any more.
            assert!(ours(&world).is_empty(), "{state}");
            built(&world, &[]).await;
        } else {
            let done = |view: &View| builds(view).iter().any(|one| one.phase == ImagePhase::Done);
            world.until("it is built after all", done).await;
        }
        world.pass(20 * SECOND).await;
        assert!(world.journal_state().builds.is_empty(), "{state}");
        let left = ours(&world);
        assert_eq!(left.len(), 1, "{state}: {left:?}");
        let Reading::Marked(found) = marks(&world, left[0]) else { panic!("{state}: no marks") };
        assert_eq!(found.kind, Kind::Image, "{state}");
        let kept = world.side.volumes("pve1", "local");
        let discs: Vec<_> = kept.iter().filter(|name| name.contains("iso/drover-")).collect();
        assert!(discs.is_empty(), "{state}: {discs:?}");
        finish(world);
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_in_a_journal_on_another_machine_goes_only_once_an_operator_says_that_it_moved() {
    let machine = |id: &str| Some(Machine { id: Some(id.to_owned()), ..Machine::default() });
    let mut world = World::new(setup(""));
    let file = WebFile { url: URL.into(), size: 400 << 20, sha256: sum(), ..WebFile::default() };
    world.side.publish(file);
    world.machine = machine("m1");
    world.start().await;
    ask(&world, &[], false).await.unwrap();
    let connects = |view: &View| builds(view).iter().any(|b| b.phase == ImagePhase::Connecting);
    world.until("it has a guest", connects).await;
    let guests = ours(&world);
    assert_eq!(guests.len(), 1);
    world.crash();
    world.machine = machine("m2");
    world.start().await;
    world.pass(30 * 60 * SECOND).await;
    assert_eq!(ours(&world), guests, "the drover on the first machine may be building it");
    let waits = builds(world.view());
    assert!(waits.iter().any(|b| b.detail.contains("--confirm-machine")), "{waits:?}");
    world.send(HerdCommand::ConfirmMachine);
    let done = |view: &View| builds(view).iter().any(|one| one.phase == ImagePhase::Done);
    world.until("it is built", done).await;
    world.pass(20 * SECOND).await;
    assert_eq!(ours(&world).len(), 1, "what was cut off is gone");
    finish(world);
}

// Invariant: versions beyond `keep` go, and none in use does.

#[tokio::test(start_paused = true)]
async fn old_versions_go_and_one_with_linked_clones_stays() {
    let mut world = started("keep: 0").await;
    built(&world, &[("word", "one")]).await;
    world.setup.templates = vec![("linux", "image: debian, cloneStrategy: LINKED".into())];
    world.reload();
    let (lease, _) = world.leased("linux").await;
    built(&world, &[("word", "two")]).await;
    world.pass(60 * SECOND).await;
    assert_eq!(ours(&world), [9003, 9004], "an agent was cloned from the first");
    let plan = |reply| HerdCommand::PruneImages { unconfigured: false, dry_run: true, reply };
    let kept: Vec<_> = world.command(plan).await.versions.into_iter().map(|one| one.kept).collect();
    assert_eq!(
        kept,
        [Some("agents were cloned from it".to_owned()), Some("it is the newest".to_owned())]
    );
    world.release(&lease).await;
    world.reap(true).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    world.pass(60 * SECOND).await;
    world
        .command(|reply| HerdCommand::PruneImages { unconfigured: false, dry_run: false, reply })
        .await;
    world.pass(120 * SECOND).await;
    assert_eq!(ours(&world), [9004]);
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn versions_of_an_image_that_left_the_yaml_are_listed_and_go_when_that_is_asked_for() {
    let mut world = started("").await;
    built(&world, &[]).await;
    world.setup.templates = vec![("linux", "image: debian, cloneStrategy: LINKED".into())];
    world.reload();
    let (lease, _) = world.leased("linux").await;
    world.setup.templates = vec![("linux", "templateVmId: 9000".into())];
    world.setup.sections = String::new();
    world.reload();
    let listed = async || {
        let seen = world.command(|reply| HerdCommand::Images { reply }).await;
        let shown = seen.versions.into_iter();
        shown.map(|one| format!("{} {:?}", one.image, one.kept)).collect::<Vec<_>>()
    };
    let why =
        "its image is not in the YAML any more; `drover image prune --unconfigured` removes it";
    assert_eq!(listed().await, [format!("rack/debian Some({why:?})")]);
    let prune = async |unconfigured| {
        let command = |reply| HerdCommand::PruneImages { unconfigured, dry_run: false, reply };
        world.command(command).await;
        world.pass(60 * SECOND).await;
    };
    prune(false).await;
    prune(true).await;
    assert_eq!(ours(&world), [9003], "an agent was cloned from it");
    world.release(&lease).await;
    world.reap(true).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    prune(false).await;
    assert_eq!(ours(&world), [9003], "nobody asked for that");
    prune(true).await;
    assert_eq!((ours(&world), listed().await), (Vec::new(), Vec::new()));
    finish(world);
}

// Invariant: a template that exists becomes a version, once.

#[tokio::test(start_paused = true)]
async fn a_template_that_exists_is_imported() {
    let world = started("").await;
    let import = async |vmid: u32, dry_run: bool| {
        let image = "debian".to_owned();
        let vmid = VmId(vmid);
        world.command(|reply| HerdCommand::ImportImage { image, vmid, dry_run, reply }).await
    };
    let planned = import(9001, true).await.unwrap();
    assert!(matches!(marks(&world, 9001), Reading::Unmarked));
    assert_eq!(planned.unreached, []);
    let done = import(9001, false).await.unwrap();
    assert_eq!((&planned.version, &planned.name), (&done.version, &done.name));
    let Reading::Marked(found) = marks(&world, 9001) else { panic!("no marks") };
    assert_eq!((found.kind, &found.agent), (Kind::Image, &done.version));
    let refused = import(9001, false).await.unwrap_err();
    assert!(refused.to_string().contains("carries marks of drover's"), "{refused}");
    let missing = import(9500, true).await.unwrap_err().to_string();
    assert!(missing.contains("has no guest `9500`: give the VMID of a template"), "{missing}");
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_an_import_says_which_node_would_not_reach_the_version() {
    let mut world = started("").await;
    let keys = "image: debian, cloneStrategy: LINKED, nodes: [pve1, pve2]";
    world.setup.templates = vec![("linux", keys.into())];
    world.reload();
    let image = "debian".to_owned();
    let command =
        |reply| HerdCommand::ImportImage { image, vmid: VmId(9001), dry_run: true, reply };
    let planned = world.command(command).await.unwrap();
    let names = planned.unreached.iter().map(|(node, template)| format!("{node} {template}"));
    assert_eq!(names.collect::<Vec<_>>(), ["pve1 rack/linux"], "{planned:?}");
    finish(world);
}
