//! What a feature is for, done; and what is seen where it cannot be.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{HerdCommand, ImageBuildAsk};
use drover_admin::doctor::{Clients, CloudReport, FixedCertificates, check_cloud};
use drover_admin::rights::{At, Feature, Row};
use drover_model::fact::What;
use drover_model::id::CloudId;
use drover_model::image::ImagePlan;
use drover_model::phase::{ImagePhase, LeasePhase};
use drover_model::status::ImageStatus;
use pve_sim::guest::GuestHost;
use pve_sim::spec::WebFile;
use pve_sim::world::{EPOCH, Faults, FreeFault};

use super::stage::{DISK, DISK_URL, builds, disk_sum};
use crate::world::setup::Setup;
use crate::world::{World, call_in_key};

/// The snippet that templates name.
const SNIPPET: &str = "local:snippets/ci.yaml";
const MINUTE: Duration = Duration::from_secs(60);

/// What the doctor says of a cluster.
pub async fn doctored(setup: &Setup) -> CloudReport {
    let checked = setup.checked();
    let rack = CloudId::new("rack");
    let mut twin = Setup::linux("");
    twin.cluster.clone_from(&setup.cluster);
    twin.version = setup.version;
    let world = World::new(twin);
    let clients = Clients {
        dialer: &world.dialer(),
        certificates: &FixedCertificates::default(),
        clock: &|| EPOCH,
        config: None,
    };
    check_cloud(clients, &checked.herd, &rack, &checked.connections[&rack]).await
}

/// A lease is served, and everything that these features are for is done meanwhile.
pub async fn served(setup: Setup, features: &[Feature]) -> World {
    let calls = features == [Feature::CallIn];
    let resets = features.contains(&Feature::Reset);
    let world = World::started(setup).await;
    if features.contains(&Feature::Snippets) {
        world.side.add_volume("pve1", SNIPPET, 100);
    }
    let version = if builds(features) {
        let status = built(&world).await;
        assert_eq!(status.phase, ImagePhase::Done, "{status:?}");
        status.vmid
    } else {
        None
    };
    let lease = world.lease("linux").await;
    if calls {
        call(&world).await;
    }
    let agent = world.ready(&lease).await;
    let vmid = agent.vmid.unwrap().0;
    let config = world.side.config(vmid).unwrap();
    let says = |key: &str| config.get(key).cloned().unwrap_or_default();
    assert!(says("tags").contains("drover"), "{config:?}");
    for feature in features {
        match feature {
            Feature::Cores => assert_eq!(says("cores"), "4"),
            Feature::Memory => assert_eq!(says("memory"), "4096"),
            Feature::DiskSize => assert!(says("scsi0").contains("size=20G"), "{config:?}"),
            Feature::Networks => {
                let first = says("net0").contains("bridge=vmbr0");
                let second =
                    says("net1").contains("bridge=vmbr1") && says("net1").contains("tag=5");
                assert!(first && second, "{config:?}");
            }
            Feature::Discs => {
                assert!(says("ide2").starts_with("local:iso/drover-"), "{config:?}");
            }
            Feature::Snippets if features.contains(&Feature::Discs) => {}
            Feature::Snippets => assert_eq!(says("cicustom"), format!("user={SNIPPET}")),
            Feature::Network if features.contains(&Feature::Networks) => {}
            Feature::Placement => assert!(knows_room(&world).await),
            Feature::Network => {
                assert!(says("net0").contains("bridge=vmbr1") && says("net0").contains("tag=5"));
            }
            Feature::CallIn if calls => assert!(says("smbios1").contains("serial=")),
            Feature::AgentAddress | Feature::HostKeys => {
                assert!(agent.address.is_some() && agent.host_keys.len() == 1, "{agent:?}");
            }
            Feature::Reset
            | Feature::CallIn
            | Feature::Cluster
            | Feature::Life
            | Feature::Leftovers
            | Feature::Orders
            | Feature::Pool
            | Feature::Images
            | Feature::Containers
            | Feature::OsTemplates
            | Feature::OsTemplateUrls
            | Feature::Machine
            | Feature::Processors
            | Feature::Disks
            | Feature::Devices
            | Feature::Downloads
            | Feature::Uploads
            | Feature::Doctor => {}
        }
    }
    world.release(&lease).await;
    if resets {
        let clean = |world: &World| {
            let reported = world.notes.facts(|what| match what {
                What::Resets { resets, .. } => Some(resets.count),
                _ => None,
            });
            reported.last().is_some_and(|count| *count > 0)
        };
        world.until("it is clean again", |_| clean(&world)).await;
    }
    if features.contains(&Feature::Leftovers) {
        assert_eq!(leftovers(&world, vmid).await, Vec::<String>::new());
        assert_eq!(world.view().agents().len(), 0, "nobody has to be called");
    }
    world.reap(true).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    let left = world.side.volumes("pve1", "local");
    assert!(left.iter().all(|volume| !volume.contains("iso/drover-")), "{left:?}");
    if features.contains(&Feature::Discs) {
        assert!(sweeps(&world).await);
    }
    if features.contains(&Feature::Snippets) {
        world.side.remove_volume("pve1", SNIPPET);
    }
    if let Some(vmid) = version {
        world.side.remove_guest(vmid.0);
        for file in world.side.volumes("pve1", "shared") {
            world.side.remove_volume("pve1", &file);
        }
    }
    world
}

/// What came of a build of the stage's image.
async fn built(world: &World) -> ImageStatus {
    let (url, sha256) = (DISK_URL.to_owned(), disk_sum());
    world.mirror.publish(DISK_URL, DISK);
    world.side.publish(WebFile { url, size: 400 << 20, sha256, ..WebFile::default() });
    let image = "debian".to_owned();
    let (node, given, dry_run) = (None, BTreeMap::new(), false);
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
    let plans = world.command(command).await.unwrap();
    assert!(matches!(plans[..], [ImagePlan::Starts { .. }]), "{plans:?}");
    world
        .until("the build is over", |view| {
            let builds = view.image_builds();
            !builds.is_empty() && builds.iter().all(|build| build.phase.is_over())
        })
        .await;
    world.view().image_builds().pop().unwrap()
}

/// Whether drover knows what is free on the nodes.
async fn knows_room(world: &World) -> bool {
    let seen = world.command(|reply| HerdCommand::Nodes { reply }).await;
    assert!(!seen.nodes.is_empty());
    seen.nodes.iter().all(|node| node.known)
}

/// Whether an image of nobody's is removed.
async fn sweeps(world: &World) -> bool {
    let installation = world.journal_state().installation.unwrap();
    let unknown = format!("local:iso/drover-{installation}-0123456789abcdef.iso");
    world.side.add_volume("pve1", &unknown, 400_000);
    for _ in 0..3 {
        world.resync().await;
        world.pass(5 * MINUTE).await;
    }
    !world.side.remove_volume("pve1", &unknown)
}

/// The next destroy leaves a volume of a guest behind: it is removed by itself, or stays.
async fn leftovers(world: &World, vmid: u32) -> Vec<String> {
    let free = FreeFault {
        storage: None,
        chance: 1.0,
        skip: 0,
        times: Some(1),
        error: "device is busy".into(),
    };
    world.faults(Faults { frees: vec![free], ..Faults::default() });
    world.reap(true).await;
    world.pass(10 * MINUTE).await;
    world.faults(Faults::default());
    world.side.volumes_of(vmid)
}

async fn call(world: &World) {
    let waits = |view: &drover_server::view::View| {
        view.agents().iter().any(|agent| agent.detail == "waits for the guest's call")
    };
    world.until("it waits", waits).await;
    let vmid = world.view().agents()[0].vmid.unwrap().0;
    let place = world.guests.address(vmid).unwrap().ip;
    let config = world.side.config(vmid).unwrap();
    let serial =
        config["smbios1"].split(',').find_map(|part| part.strip_prefix("serial=")).unwrap();
    let agent = call_in_key().agent(serial).unwrap();
    let command = |reply| HerdCommand::CallIn { agent, peer: Some(place), said: Vec::new(), reply };
    world.command(command).await.unwrap();
}

/// Nothing becomes ready for want of what a line of the table is about.
pub async fn denied(setup: Setup, row: &Row, any_of: &[&str]) {
    let path = match row.at {
        At::Root => "`/`",
        At::Access => "`/access`",
        // Proxmox names no path for this one.
        At::Guests if any_of == ["VM.Allocate"] => "with `targetPool`",
        // Proxmox names neither privilege nor path where one of several checks would do; the doctor does.
        At::Nodes if row.feature == Feature::Downloads => {
            let call = "/nodes/pve1/storage/shared/download-url";
            return refused(setup, row.feature, "Permission check failed", call).await;
        }
        At::Nodes => "`/nodes`",
        At::AllGuests | At::Guests | At::Template => "`/vms/",
        At::Storage => "`/storage/local-lvm`",
        At::DiscStorage => "`/storage/local`",
        At::ImportStorage => "`/storage/shared`",
        At::OsTemplateStorage => "`/storage/local`",
        At::Mapping => "`/mapping/pci/gpu`",
        At::Bridge => "`/sdn/zones/localnetwork/vmbr0`",
    };
    refused(setup, row.feature, &any_of.join("|"), path).await;
}

/// Nothing becomes ready, and what is reported names the privilege and where it is missing.
pub async fn refused(setup: Setup, feature: Feature, privilege: &str, path: &str) {
    let mut world = World::started(setup).await;
    world.judged = true;
    if builds(&[feature]) {
        let status = built(&world).await;
        assert_eq!(status.phase, ImagePhase::Failed, "{status:?}");
        let text = &status.detail;
        assert!(text.contains(privilege) && text.contains(path), "{privilege} on {path}: {text}");
        return;
    }
    let lease = world.lease("linux").await;
    world.pass(20 * MINUTE).await;
    if feature == Feature::CallIn {
        assert!(world.view().agents().iter().all(|agent| !agent.detail.contains("call")));
    }
    let status = world.view().lease(&lease).unwrap();
    assert_ne!(status.state, LeasePhase::Ready, "{status:?}");
    let reported = world.notes.facts(|what| Some(format!("{what:?}")));
    let names = |text: &String| text.contains(privilege) && text.contains(path);
    let named = reported.iter().any(names);
    let some: Vec<_> = reported.iter().filter(|text| text.contains("ermission")).take(3).collect();
    assert!(named, "nothing names {privilege} on {path}: {some:#?}\n{reported:#?}");
}

/// What is documented to become of a feature has become of it.
pub async fn degrades(world: &World, row: &Row) {
    let any = |wanted: &str| {
        let reported = world.notes.facts(|what| Some(format!("{what:?}")));
        reported.iter().any(|text| text.contains(wanted))
    };
    match (row.feature, row.at) {
        (Feature::Reset, _) => {
            assert!(any("VM.Snapshot"), "it is reported why there are no resets");
            assert!(!any("count: 1,"), "there was none");
        }
        (Feature::HostKeys, _) => {
            let asked = world.wire.take();
            assert!(asked.iter().any(|call| call.contains("file-read")), "{asked:?}");
        }
        (Feature::Leftovers, _) => {
            let (lease, agent) = world.leased("linux").await;
            world.release(&lease).await;
            let vmid = agent.vmid.unwrap().0;
            let left = leftovers(world, vmid).await;
            assert_eq!(left.len(), 1, "{left:?}");
            world.side.remove_volume("pve1", &left[0]);
        }
        (Feature::Placement, _) => assert!(!knows_room(world).await),
        (Feature::Discs, _) => assert!(!sweeps(world).await),
        (Feature::Cluster | Feature::Pool | Feature::Doctor, _) => {}
        (other, at) => panic!("say what is seen without {other:?} on {at:?}"),
    }
}
