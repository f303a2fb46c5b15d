use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::hardware::{DeviceKind, DeviceMapping, Devices};
use drover_model::id::VmId;
use drover_model::placement::fleet::{GuestObservation, NodeFigures, NodeObservation};
use drover_model::placement::term::Operator;
use proptest::prelude::*;

use super::*;
use crate::placement::rank;
use crate::testing::template;

fn node(name: &str) -> NodeName {
    NodeName::new(name)
}

fn a_node(used_gib: u64) -> NodeObservation {
    let figures = NodeFigures { cpus: 16, busy: 2000, memory: 64 * GIB, used: used_gib * GIB };
    NodeObservation { figures: Some(figures), ..NodeObservation::default() }
}

fn guest(at: &str, memory_gib: u64, used_gib: u64, tags: &[&str]) -> GuestObservation {
    GuestObservation {
        node: node(at),
        running: true,
        template: false,
        memory: memory_gib * GIB,
        used: used_gib * GIB,
        cpus: 2,
        busy: 500,
        disk: 0,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

fn claim(at: &str, vmid: Option<u32>, memory_mb: u64, labels: &[&str]) -> Claim {
    let spec = Arc::new(template("c/t", labels));
    let mut claim = Claim::coming(&spec, node(at), None);
    claim.vmid = vmid.map(VmId);
    claim.sizes = Sizes { cores: 2, memory_mb, disk_gb: 0 };
    claim
}

fn fleet(used_gib: u64, guests: &[(u32, GuestObservation)]) -> Fleet {
    let nodes = [(node("pve1"), a_node(used_gib)), (node("pve2"), a_node(0))];
    let guests = guests.iter().map(|(vmid, guest)| (VmId(*vmid), guest.clone()));
    Fleet::new(nodes.into(), Vec::new(), guests.collect())
}

fn free_gib(fleet: &Fleet, claims: &[Claim]) -> i64 {
    Scene::new(fleet, claims).room(&node("pve1")).free_memory(100) / (1 << 30)
}

// Invariant: what is free counts others by what they use or may use, and drover's own in full, once.

#[test]
fn others_count_by_what_they_use_and_at_least_by_what_they_may() {
    let lazy = [(500, guest("pve1", 20, 2, &[]))];
    assert_eq!(free_gib(&fleet(4, &lazy), &[]), 44, "all that its guests may take");
    assert_eq!(free_gib(&fleet(30, &lazy), &[]), 34, "what is in use, where that is more");
    let stopped = [(500, GuestObservation { running: false, ..guest("pve1", 20, 2, &[]) })];
    assert_eq!(free_gib(&fleet(4, &stopped), &[]), 60);
}

#[test]
fn an_agent_counts_once_whether_the_list_knows_it_or_not() {
    let own = claim("pve1", Some(10_000), 8 * 1024, &[]);
    assert_eq!(free_gib(&fleet(4, &[]), std::slice::from_ref(&own)), 52, "not listed yet");
    let listed = [(10_000, guest("pve1", 8, 2, &[]))];
    assert_eq!(free_gib(&fleet(6, &listed), std::slice::from_ref(&own)), 52, "listed");
    let coming = claim("pve1", None, 8 * 1024, &[]);
    assert_eq!(free_gib(&fleet(6, &listed), &[own, coming]), 44, "beside one on its way");
    let unknown = claim("pve1", Some(10_000), 0, &[]);
    assert_eq!(free_gib(&fleet(6, &listed), &[unknown]), 52, "as the list says");
}

#[test]
fn processors_and_guests_are_counted_the_same_way() {
    let listed = [(10_000, guest("pve1", 8, 2, &[])), (500, guest("pve1", 1, 1, &[]))];
    let (fleet, own) = (fleet(6, &listed), claim("pve1", Some(10_000), 8192, &[]));
    let claims = [own];
    let room = Scene::new(&fleet, &claims).room(&node("pve1"));
    assert_eq!((room.guests, room.agents), (1, 1));
    assert_eq!(room.free_cpus(), 16_000 - 1500 - 2000);
}

#[test]
fn a_node_that_promised_more_than_it_has_is_said_to() {
    let why = Refusal::Memory { free: -256, needed: 2048, kept: 0 };
    let reported = "256 MiB more of its memory are taken than it has, 2048 MiB are needed";
    assert_eq!(why.to_string(), reported);
}

// Invariant: what must stay free stays free, and each refusal says what is short.

fn refused(change: impl FnOnce(&mut PlacementSpec), memory_mb: u64) -> Option<String> {
    let mut spec = template("c/t", &["linux"]);
    change(&mut spec.placement);
    let guests = [(500, guest("pve1", 20, 2, &["vm.type.database"]))];
    let fleet = fleet(24, &guests);
    let claims = [claim("pve1", None, 1024, &["gpu"])];
    let sizes = Sizes { cores: 4, memory_mb, disk_gb: 0 };
    let scene = Scene::new(&fleet, &claims);
    let why = scene.refusal(&spec, &scene.crowds(&spec), sizes, &node("pve1"));
    why.map(|why| why.to_string())
}

fn term(key: &str, values: &[&str]) -> Term {
    let operator = if values.is_empty() { Operator::Exists } else { Operator::In };
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Term { key: key.into(), operator, values }
}

#[test]
fn each_refusal_names_what_is_in_the_way() {
    // 64 GiB less 24 in use and 1 of an agent on its way are 39.
    assert_eq!(refused(|_| (), 39 * 1024), None);
    let reported: Vec<String> = [
        refused(|_| (), 39 * 1024 + 1),
        refused(|all| all.headroom.memory_mb = 4096, 36 * 1024),
        refused(|all| all.headroom.memory_percent = 10, 36 * 1024),
        refused(|all| all.min_free_mb = 8192, 36 * 1024),
        refused(|all| all.headroom.cpu_percent = 60, 1024),
        refused(|all| all.max_guests = Some(2), 1024),
        refused(|all| all.selector = ["ssd".to_owned()].into(), 1024),
        refused(|all| all.anti_affinity = vec![term("vm.type", &["database"])], 1024),
        refused(|all| all.anti_affinity = vec![term("gpu", &[])], 1024),
        refused(|all| all.affinity = vec![term("cache", &[])], 1024),
    ]
    .into_iter()
    .map(Option::unwrap)
    .collect();
    let wanted = [
        "39936 MiB of its memory are free, 39937 MiB are needed",
        "39936 MiB of its memory are free, 36864 MiB are needed and 4096 MiB must stay free (`headroom`, `minFreeMemoryMb`)",
        "39936 MiB of its memory are free, 36864 MiB are needed and 6553 MiB must stay free (`headroom`, `minFreeMemoryMb`)",
        "39936 MiB of its memory are free, 36864 MiB are needed and 8192 MiB must stay free (`headroom`, `minFreeMemoryMb`)",
        "12.0 of its processors are free, 4.0 are needed and 9.6 must stay free (`headroom`)",
        "2 guests are on it, and 2 may be (`maxVmsPerNode`)",
        "it lacks the label `ssd`, which `nodeSelector` requires: drop it there, or give it to \
         the node in `nodeLabels` if the node has what it stands for",
        "a guest on it has vm.type in [database] (`antiAffinity`)",
        "a guest on it has gpu (`antiAffinity`)",
        "no guest on it has cache (`affinity`)",
    ];
    assert_eq!(reported, wanted);
    assert_eq!(refused(|all| all.headroom.overcommit_percent = 200, 64 * 1024), None);
    assert_eq!(refused(|all| all.affinity = vec![term("gpu", &[])], 1024), None);
    assert_eq!(refused(|all| all.affinity = vec![term("vm.type", &["database"])], 1024), None);
    assert_eq!(refused(|all| all.affinity = vec![term("linux", &[])], 1024), None, "the first one");
    let labelled = |all: &mut PlacementSpec| {
        all.selector = ["ssd".to_owned()].into();
        all.labels.insert(node("pve1"), BTreeSet::from(["ssd".to_owned()]));
    };
    assert_eq!(refused(labelled, 1024), None);
}

#[test]
fn nothing_is_refused_for_room_that_is_not_reported() {
    let nodes = [(node("pve1"), NodeObservation::default())];
    let fleet = Fleet::new(nodes.into(), Vec::new(), std::collections::BTreeMap::new());
    let spec = template("c/t", &[]);
    let sizes = Sizes { cores: 4, memory_mb: 1 << 30, disk_gb: 0 };
    let scene = Scene::new(&fleet, &[]);
    assert_eq!(scene.refusal(&spec, &Crowds::default(), sizes, &node("pve1")), None);
}

proptest! {
    // Invariant: whatever is asked for, no node ends up with less than its headroom.
    #[test]
    fn no_node_is_ever_filled_beyond_its_headroom(
        others in prop::collection::vec((0u64..60, 0u64..40), 1..6),
        asks in prop::collection::vec(1u64..20, 1..60),
        headroom in 0u64..20,
        strategy in prop::sample::select(vec![
            drover_model::placement::Strategy::Topsis, drover_model::placement::Strategy::Spread,
            drover_model::placement::Strategy::Pack, drover_model::placement::Strategy::Fixed,
        ]),
    ) {
        let names: Vec<NodeName> = (0..others.len()).map(|n| node(&format!("n{n}"))).collect();
        let nodes = names.iter().zip(&others).map(|(name, (used, _))| (name.clone(), a_node(*used)));
        let guests = names.iter().zip(&others).zip(500..).map(|((name, (_, promised)), vmid)| {
            (VmId(vmid), guest(name.as_str(), *promised, 0, &[]))
        });
        let fleet = Fleet::new(nodes.collect(), Vec::new(), guests.collect());
        let mut spec = template("c/t", &[]);
        spec.placement.strategy = strategy;
        spec.placement.headroom.memory_mb = headroom * 1024;
        let mut claims: Vec<Claim> = Vec::new();
        for gib in asks {
            let sizes = Sizes { cores: 1, memory_mb: gib * 1024, disk_gb: 0 };
            let scene = Scene::new(&fleet, &claims);
            let fits = |name: &&NodeName| scene.refusal(&spec, &Crowds::default(), sizes, name).is_none();
            let fit: Vec<&NodeName> = names.iter().filter(fits).collect();
            let seats: Vec<Seat> = fit
                .iter()
                .enumerate()
                .map(|(at, name)| scene.seat(&spec.placement, sizes, at, name))
                .collect();
            let Some(first) = rank::order(&spec.placement, &seats).first().copied() else {
                let room = |name: &NodeName| scene.room(name).free_memory(100);
                prop_assert!(names.iter().all(|n| room(n) < signed((gib + headroom) * GIB)));
                continue;
            };
            let mut taken = claim(fit[first].as_str(), None, gib * 1024, &[]);
            taken.sizes = sizes;
            claims.push(taken);
        }
        let scene = Scene::new(&fleet, &claims);
        for name in names.iter().filter(|name| scene.room(name).agents > 0) {
            prop_assert!(scene.room(name).free_memory(100) >= signed(headroom * GIB));
        }
    }
}

// Invariant: no node is promised more devices of a resource mapping than it has.

/// A template whose agents take so many devices of the mapping `pci/gpu`.
fn with_devices(count: usize) -> TemplateSpec {
    let mut spec = template("c/t", &[]);
    spec.hardware.pci = vec!["gpu".to_owned(); count];
    spec
}

fn gpu() -> DeviceMapping {
    DeviceMapping { kind: DeviceKind::Pci, id: "gpu".into() }
}

/// Why pve1, with three devices of the mapping, takes no agent beside these.
fn refused_device(spec: &TemplateSpec, claims: &[Claim], devices: Devices) -> Option<String> {
    let fleet = fleet(0, &[]).with_devices(devices);
    let scene = Scene::new(&fleet, claims);
    let why = scene.refusal(spec, &Crowds::default(), Sizes::default(), &node("pve1"));
    why.map(|why| why.to_string())
}

#[test]
fn agents_share_out_the_devices_of_a_node() {
    let three = || -> Devices { [(gpu(), Some([(node("pve1"), 3)].into()))].into() };
    let on = |at: &str, count| Claim::coming(&Arc::new(with_devices(count)), node(at), None);
    let two = with_devices(2);
    assert_eq!(refused_device(&two, &[on("pve1", 1), on("pve2", 3)], three()), None);
    let why = refused_device(&two, &[on("pve1", 2)], three());
    assert_eq!(
        why.as_deref(),
        Some(
            "2 of its 3 devices of the resource mapping `pci/gpu` are in use by agents, 2 are needed"
        )
    );
    let why = refused_device(&with_devices(4), &[], three());
    assert_eq!(
        why.as_deref(),
        Some(
            "it has 3 devices of the resource mapping `pci/gpu`, 4 are needed: add the node to the mapping, or grant `Mapping.Use` on `/mapping/pci/gpu`"
        )
    );
    let why = refused_device(&two, &[], Devices::new());
    assert_eq!(
        why.as_deref(),
        Some(
            "it has 0 devices of the resource mapping `pci/gpu`, 2 are needed: add the node to the mapping, or grant `Mapping.Use` on `/mapping/pci/gpu`"
        )
    );
    assert_eq!(refused_device(&two, &[], [(gpu(), None)].into()), None, "guests share these");
    let fleet = fleet(0, &[]).with_devices(three());
    let claims = [on("pve1", 1)];
    let scene = Scene::new(&fleet, &claims);
    let small = Sizes { memory_mb: 1, ..Sizes::default() };
    assert_eq!(scene.fits(&with_devices(1), small, &node("pve1")), Some(2));
}
