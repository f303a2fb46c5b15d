//! Network cards, and user data that goes to guests in disc images: made, put into their drives, and
//! gone with them, whatever happens; images of others are never touched.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::{Body, Reason};
use drover_nocloud::iso::{self, Disc};
use pve_sim::world::{CallFault, Faults, TaskFault};

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;

const AWAY: Duration = Duration::from_secs(30);
const ENDS: &str = "instanceCap: 2, maxTotalUses: 1, idleTerminationMinutes: 1";
const USER_DATA: &str = r##"userData: "#cloud-config\nhostname: ${hostname}\nuser: ${user}\nssh_authorized_keys: [\"${sshPublicKey}\"]\n""##;

fn with_user_data(keys: &str) -> Setup {
    Setup::linux(&format!("{ENDS}, {USER_DATA}, {keys}"))
}

/// Disc images of drover's on the storages, with their nodes.
fn images(world: &World) -> Vec<(String, String)> {
    let nodes = ["pve1", "pve2", "pve3"].into_iter();
    let all = nodes.flat_map(|node| {
        let volumes = world.side.volumes(node, "local").into_iter();
        volumes.map(move |volume| (node.to_owned(), volume))
    });
    all.filter(|(_, volume)| volume.starts_with("local:iso/drover-")).collect()
}

/// The disc in the drive of an agent's guest.
fn disc(world: &World, vmid: u32) -> Disc {
    let config = world.side.config(vmid).unwrap();
    let volume = config["ide2"].strip_suffix(",media=cdrom").unwrap().to_owned();
    let node = images(world).into_iter().find(|(_, image)| *image == volume).unwrap().0;
    iso::read(&world.side.file(&node, &volume).unwrap()).unwrap()
}

/// A lease is served and its agent goes; no image is left.
async fn serve(world: World) -> World {
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(images(&world), []);
    world.check();
    world
}

/// Why agents came to nothing.
fn failures(world: &World) -> Vec<String> {
    let gone = world.view().gone_agents();
    let text = |reason: &Reason| match reason {
        Reason::Failed { text, .. } => Some(text.clone()),
        _ => None,
    };
    gone.iter().filter_map(|gone| text(&gone.reason)).collect()
}

// Invariant: a guest has its user data in the place of Proxmox's own drive, and nothing of either is
// left behind.

#[tokio::test(start_paused = true)]
async fn user_data_is_in_the_drive_of_cloud_init_and_goes_with_its_guest() {
    let world = World::started(with_user_data("")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let name = format!("drover-{}-{}", world.journal_state().installation.unwrap(), agent.agent);
    assert_eq!(images(&world).len(), 1);
    assert_eq!(images(&world)[0].1, format!("local:iso/{name}.iso"));
    let disc = disc(&world, vmid);
    assert_eq!(disc.label, "cidata");
    let config = world.side.config(vmid).unwrap();
    let user = disc.text("user-data").unwrap();
    assert!(
        user.starts_with(&format!("#cloud-config\nhostname: {}\nuser: debian\n", config["name"]))
    );
    assert!(user.contains("ssh_authorized_keys: [\"ssh-ed25519 "), "{user}");
    let meta = disc.text("meta-data").unwrap();
    assert!(meta.contains(&format!("instance-id: drover-{}\n", agent.agent)), "{meta}");
    let mac = config["net0"].split(['=', ',']).nth(1).unwrap().to_lowercase();
    let network = disc.text("network-config").unwrap();
    assert!(network.contains(&mac) && network.contains("dhcp4: true"), "{network}");
    let left: Vec<String> = world.side.volumes_of(vmid);
    assert!(left.iter().all(|volume| !volume.contains("cloudinit")), "{left:?}");
    assert!(world.journal_state().agents[&agent.agent].volumes.contains(&images(&world)[0].1));
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(images(&world), []);
    assert_eq!(failures(&world), Vec::<String>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_destroyed_leaves_no_image() {
    let world = World::started(with_user_data("")).await;
    let (_, agent) = world.leased("linux").await;
    world.side.remove_guest(agent.vmid.unwrap().0);
    world.resync().await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(images(&world), []);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_reset_keeps_its_image() {
    let world = World::started(Setup::linux(&format!("reset: DISK, {USER_DATA}"))).await;
    let (lease, agent) = world.leased("linux").await;
    let before = images(&world);
    world.release(&lease).await;
    let (_, again) = world.leased("linux").await;
    if again.agent == agent.agent {
        assert_eq!(images(&world), before);
    }
    world.end().await;
}

// Invariant: no crash, no lost answer and no dead task leaves an image behind.

async fn cut(arm: impl FnOnce(&World)) {
    let mut world = World::started(with_user_data("")).await;
    arm(&world);
    let lease = world.lease("linux").await;
    world.until_sprung().await;
    world.restart(AWAY).await;
    world.ready(&lease).await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(images(&world), []);
    assert_eq!(failures(&world), Vec::<String>::new());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_image_is_intended() {
    cut(|world| world.notes.hold(|body| matches!(body, Body::IsoIntended { .. }))).await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_upload_never_left() {
    cut(|world| world.wire.hold("POST", "/upload", Hold::Call)).await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_uploads_answer_is_lost() {
    cut(|world| world.wire.hold("POST", "/upload", Hold::Answer)).await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_image_is_uploaded_and_in_no_drive() {
    cut(|world| world.wire.hold("PUT", "/config", Hold::Call)).await;
}

#[tokio::test(start_paused = true)]
async fn cut_when_the_image_is_in_its_drive_and_nobody_knows() {
    cut(|world| world.wire.hold("PUT", "/config", Hold::Answer)).await;
}

#[tokio::test(start_paused = true)]
async fn cut_while_the_image_is_removed() {
    for hold in [Hold::Call, Hold::Answer] {
        let mut world = World::started(with_user_data("")).await;
        world.wire.hold("DELETE", ".iso", hold);
        let (lease, _) = world.leased("linux").await;
        world.release(&lease).await;
        world.until_sprung().await;
        world.restart(AWAY).await;
        world.until("the agents are gone", |view| view.agents().is_empty()).await;
        assert_eq!(images(&world), []);
        world.end().await;
    }
}

fn upload(done: bool) -> CallFault {
    CallFault {
        method: Some("POST".into()),
        route: Some("/upload".into()),
        times: Some(1),
        status: Some(596),
        done,
        ..CallFault::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_nobody_heard_the_end_of_is_looked_up_and_not_repeated() {
    for (done, uploads) in [(true, 1), (false, 2)] {
        let world = World::started(with_user_data("")).await;
        world.faults(Faults { calls: vec![upload(done)], ..Faults::default() });
        world.wire.take();
        let world = serve(world).await;
        let calls = world.wire.take();
        let count = calls.iter().filter(|call| call.ends_with("/upload")).count();
        assert_eq!(count, uploads, "{calls:?}");
        assert_eq!(failures(&world), Vec::<String>::new());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_task_dies_is_made_again_and_one_that_fails_ends_the_agent() {
    let task = |error: Option<&str>| TaskFault {
        kind: Some("imgcopy".into()),
        times: Some(1),
        error: error.map(str::to_owned),
        after: 0.01,
        ..TaskFault::default()
    };
    for (error, failed) in [(None, 0), (Some("import failed: No space left on device"), 1)] {
        let world = World::started(with_user_data("")).await;
        world.faults(Faults { tasks: vec![task(error)], ..Faults::default() });
        let world = serve(world).await;
        assert_eq!(failures(&world).len(), failed, "{:?}", failures(&world));
        assert!(failures(&world).iter().all(|text| text.contains("No space left")));
        world.end().await;
    }
}

/// A call that is answered with this status, however often it is made.
fn answered(method: &str, route: &str, status: u16, times: Option<u32>) -> CallFault {
    CallFault {
        method: Some(method.into()),
        route: Some(route.into()),
        times,
        status: Some(status),
        message: "Permission check failed".into(),
        ..CallFault::default()
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_refused_leaves_nothing_to_be_removed() {
    let world = World::started(with_user_data("")).await;
    let calls = vec![
        answered("POST", "/upload", 403, Some(1)),
        answered("DELETE", "/content", 403, Some(1)),
    ];
    world.faults(Faults { calls, ..Faults::default() });
    let _lease = world.lease("linux").await;
    world.until("an agent failed", |view| !view.gone_agents().is_empty()).await;
    assert!(failures(&world)[0].contains("Permission check failed"), "{:?}", failures(&world));
    let alarms = world.notes.facts(|what| matches!(what, What::Alarm { .. }).then_some(()));
    assert_eq!(alarms.len(), 0);
    world.faults(Faults::default());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_refused_after_one_nobody_heard_of_is_removed() {
    let world = World::started(with_user_data("")).await;
    let refused = answered("POST", "/upload", 403, Some(1));
    let unseen = answered("GET", "/content", 596, Some(8));
    world.faults(Faults { calls: vec![upload(true), refused, unseen], ..Faults::default() });
    let (_, agent) = world.leased("linux").await;
    world.until("the other agent is gone", |view| view.agents().len() == 1).await;
    assert!(failures(&world)[0].contains("Permission check failed"), "{:?}", failures(&world));
    let there = images(&world);
    assert!(there.len() == 1 && there[0].1.contains(&agent.agent.to_string()), "{there:?}");
    world.end().await;
}

// Invariant: what an operator must do is said in words.

#[tokio::test(start_paused = true)]
async fn a_storage_that_takes_no_images_is_reported_with_the_command_that_repairs_it() {
    let mut setup = with_user_data("");
    let local = setup.cluster.storages.iter_mut().find(|one| one.name == "local").unwrap();
    local.content.retain(|content| content != "iso");
    let world = World::started(setup).await;
    let _lease = world.lease("linux").await;
    world.until("an agent failed", |view| !view.gone_agents().is_empty()).await;
    let said = failures(&world)[0].clone();
    assert!(said.contains("pvesm set local --content vztmpl,snippets,backup,iso"), "{said}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_removed_is_alarmed_about_until_it_is() {
    let world = World::started(with_user_data("")).await;
    let (lease, agent) = world.leased("linux").await;
    let (node, image) = images(&world)[0].clone();
    world.side.block_volume_removal(&node, &image, "cannot remove: device busy");
    world.release(&lease).await;
    world.until_state(AgentPhase::Stranded).await;
    let alarms = world.notes.facts(|what| match what {
        What::Alarm { agent: of, command, .. } if *of == agent.agent => Some(command.clone()),
        _ => None,
    });
    assert_eq!(alarms, [format!("pvesm free {image} # on node {node}")]);
    world.side.remove_volume(&node, &image);
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: images whose agents are gone are swept after the grace, by exact names alone.

#[tokio::test(start_paused = true)]
async fn leftovers_of_ours_are_swept_and_files_of_others_are_not() {
    for cleaning in [true, false] {
        let keys =
            format!("cleanupOrphanedAgents: {cleaning}, orphanCleanupGracePeriodSeconds: 120");
        let world = World::started(with_user_data("").rack(&keys)).await;
        let (_lease, agent) = world.leased("linux").await;
        let installation = world.journal_state().installation.unwrap();
        let living = images(&world)[0].clone();
        let others = [
            "local:iso/debian.iso".to_owned(),
            "local:iso/drover-00000000-4f8z1c3px9t2vkab.iso".to_owned(),
            format!("local:iso/drover-{installation}-4f8z1c3px9t2vkab.img"),
            format!("local:iso/drover-{installation}-4f8z1c3px9t2vkabx.iso"),
            format!("local:iso/x-drover-{installation}-4f8z1c3px9t2vkab.iso"),
        ];
        others.iter().for_each(|volume| world.side.add_volume("pve2", volume, 4096));
        let unknown = format!("local:iso/drover-{installation}-4f8z1c3px9t2vkab.iso");
        world.side.add_volume("pve3", &unknown, 4096);
        let reported = world.resync().await;
        let wait = if cleaning { "left alone for 120 s more" } else { "cleaning is off" };
        let said = |reported: &[String], what: &str| {
            reported.iter().any(|line| line.contains(&unknown) && line.contains(what))
        };
        assert!(said(&reported, wait), "{reported:?}");
        world.pass(Duration::from_secs(121)).await;
        let reported = world.resync().await;
        assert_eq!(said(&reported, "is removed"), cleaning, "{reported:?}");
        let there = world.side.volumes("pve3", "local").contains(&unknown);
        assert_eq!(there, !cleaning);
        assert!(others.iter().all(|one| world.side.volumes("pve2", "local").contains(one)));
        assert!(images(&world).contains(&living), "{} lives", agent.agent);
        world.side.remove_volume("pve3", &unknown);
        for volume in &others {
            assert!(world.side.remove_volume("pve2", volume));
        }
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn leftovers_are_swept_from_where_images_were_once_put() {
    let sweep = "cleanupOrphanedAgents: true, orphanCleanupGracePeriodSeconds: 120";
    let mut world = World::started(with_user_data("").rack(sweep)).await;
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    let installation = world.journal_state().installation.unwrap();
    let unknown = format!("local:iso/drover-{installation}-4f8z1c3px9t2vkab.iso");
    // The user data leave the YAML by an edit, and by one while it is down.
    for restarts in [false, true] {
        world.side.add_volume("pve3", &unknown, 4096);
        if restarts {
            world.restart(AWAY).await;
        } else {
            world.setup = Setup::linux(ENDS).rack(sweep);
            world.reload();
        }
        world.resync().await;
        world.pass(Duration::from_secs(121)).await;
        world.resync().await;
        assert!(!world.side.volumes("pve3", "local").contains(&unknown), "{restarts}");
    }
    world.end().await;
}

// Invariant: a guest has the cards that are wanted, and hears of its addresses.

#[tokio::test(start_paused = true)]
async fn a_guest_has_all_its_cards_and_no_other() {
    let mut setup = Setup::linux(
        "instanceCap: 1, networks: [{name: lan, firewall: true}, \
         {name: dmz, ip: 10.1.0.5/24, gateway: 10.1.0.1, mac: \"BC:24:11:00:00:01\"}, \
         {bridge: vmbr0.100, ip: none, model: e1000}]",
    );
    setup.cluster.nodes.iter_mut().for_each(|node| node.bridges.push("vmbr1".into()));
    let world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    let config = world.side.config(agent.vmid.unwrap().0).unwrap();
    assert!(config["net0"].starts_with("virtio=BC:24:11:"), "{}", config["net0"]);
    assert!(config["net0"].contains("bridge=vmbr0") && config["net0"].contains("firewall=1"));
    assert_eq!(config["net1"], "virtio=BC:24:11:00:00:01,bridge=vmbr1");
    assert!(config["net2"].starts_with("e1000=BC:24:11:"), "{}", config["net2"]);
    assert!(config["net2"].ends_with("bridge=vmbr0,tag=100"), "{}", config["net2"]);
    assert_eq!(config["ipconfig0"], "ip=dhcp");
    assert_eq!(config["ipconfig1"], "ip=10.1.0.5/24,gw=10.1.0.1");
    assert!(!config.contains_key("ipconfig2") && config["ide2"].contains("cloudinit"));
    assert_eq!(images(&world), [], "Proxmox's own keys say all of that");
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn cards_with_servers_of_their_own_are_reported_by_an_image() {
    let networks = "networks: [{name: lan}, {bridge: vmbr0, dns: [10.1.0.2]}, \
                    {bridge: vmbr0, dns: [10.2.0.2]}]";
    let world = World::started(Setup::linux(&format!("{ENDS}, {networks}"))).await;
    let (lease, agent) = world.leased("linux").await;
    let disc = disc(&world, agent.vmid.unwrap().0);
    let network = disc.text("network-config").unwrap();
    for server in ["10.1.0.2", "10.2.0.2"] {
        assert!(network.contains(server), "{network}");
    }
    let user = disc.text("user-data").unwrap();
    assert!(user.contains("user: debian\n") && user.contains("ssh-ed25519"), "{user}");
    world.release(&lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(images(&world), []);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn snippets_that_are_there_are_named_and_one_that_is_not_is_reported() {
    let custom = "cloudInitCustom: {user: \"local:snippets/ci.yaml\"}";
    let world = World::started(Setup::linux(&format!("{ENDS}, {custom}"))).await;
    let _lease = world.lease("linux").await;
    world.until("an agent failed", |view| !view.gone_agents().is_empty()).await;
    let said = failures(&world)[0].clone();
    assert!(said.contains("volume 'local:snippets/ci.yaml' does not exist"), "{said}");
    world.side.add_volume("pve1", "local:snippets/ci.yaml", 100);
    world
        .until("it is served", |view| {
            view.leases().iter().all(|one| one.state == LeasePhase::Ready)
        })
        .await;
    let vmid = world.ours()[0];
    assert_eq!(world.side.config(vmid).unwrap()["cicustom"], "user=local:snippets/ci.yaml");
    world.side.remove_volume("pve1", "local:snippets/ci.yaml");
    world.end().await;
}
