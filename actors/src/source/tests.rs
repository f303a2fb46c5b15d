#![expect(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::hardware::DiskSpec;
use drover_model::placement::{
    Fleet, GuestObservation, Headroom, NodeFigures, NodeObservation, PlacementSpec,
    StorageObservation,
};

use super::*;
use crate::testing::template;

const GIB: u64 = 1 << 30;

fn node(name: &str) -> NodeName {
    NodeName::new(name)
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn on(at: &str, vmid: u32, created: u64, storage: &str) -> Candidate {
    Candidate {
        vmid: VmId(vmid),
        node: node(at),
        name: "debian-13".into(),
        created: (created > 0).then_some(created),
        storages: set(&[storage]),
        digest: "d".into(),
        sizes: Sizes::default(),
    }
}

fn found(candidates: Vec<Candidate>) -> Found {
    Found { candidates, fleet: fleet(&[]), whole: true }
}

/// Three nodes, of which these are offline, that share `nfs`; their figures are unknown.
fn fleet(offline: &[&str]) -> Arc<Fleet> {
    let nodes = ["pve1", "pve2", "pve3"].map(|name| {
        let offline = offline.contains(&name);
        (node(name), NodeObservation { offline, ..NodeObservation::default() })
    });
    let storages = nodes.iter().flat_map(|(node, _)| {
        [storage(node, "nfs", None), storage(node, "lvm", None), storage(node, "zfs", None)]
    });
    let storages = storages.collect();
    Arc::new(Fleet::new(nodes.into(), storages, BTreeMap::new()))
}

fn storage(node: &NodeName, name: &str, free_gib: Option<u64>) -> StorageObservation {
    StorageObservation {
        node: node.clone(),
        name: name.into(),
        shared: name == "nfs",
        kind: if name == "lvm" { "lvm" } else { "dir" }.into(),
        images: true,
        containers: true,
        reached: free_gib.is_some(),
        space: free_gib.map(|free| ((100 - free) * GIB, 100 * GIB)),
    }
}

/// The same with memory free on each node, in GiB of 64, and space on its storages, of 100.
fn roomy(free: &[(&str, u64)], space: &[(&str, u64)]) -> Arc<Fleet> {
    let nodes = free.iter().map(|(name, free)| {
        let used = (64 - free) * GIB;
        let figures = NodeFigures { cpus: 16, busy: 0, memory: 64 * GIB, used };
        (node(name), NodeObservation { figures: Some(figures), ..NodeObservation::default() })
    });
    let nodes: BTreeMap<_, _> = nodes.collect();
    let storages = nodes
        .keys()
        .flat_map(|node| space.iter().map(|(name, free)| storage(node, name, Some(*free))));
    let storages = storages.collect();
    Arc::new(Fleet::new(nodes, storages, BTreeMap::new()))
}

fn claim(at: &str) -> Claim {
    Claim::coming(&Arc::new(template("c/t", &["x"])), node(at), None)
}

#[derive(Default)]
struct Bed {
    nodes: BTreeSet<NodeName>,
    storages: BTreeSet<String>,
    claims: Vec<Claim>,
}

impl Ground for Bed {
    fn node_closed(&self, node: &NodeName) -> Option<String> {
        self.nodes.contains(node).then(|| "its breaker is tripped".into())
    }

    fn storage_closed(&self, storage: &str, _: Option<&NodeName>) -> Option<String> {
        self.storages.contains(storage).then(|| "its breaker is tripped".into())
    }

    fn claims(&self) -> &[Claim] {
        &self.claims
    }
}

fn sought(search: Sought, nodes: &[&str]) -> TemplateSpec {
    TemplateSpec {
        node: None,
        nodes: nodes.iter().map(|name| node(name)).collect(),
        search: Some(search),
        ..template("c/t", &[])
    }
}

fn tag() -> Sought {
    Sought::Tag("golden".into())
}

fn name() -> Sought {
    Sought::Name("debian-13".into())
}

/// What is chosen: VMID, its node, the clone's node.
fn chosen(spec: &TemplateSpec, found: &Found, bed: &Bed) -> Result<(u32, String, String), String> {
    let choice = choose(spec, found, bed)?;
    Ok((choice.vmid.0, choice.origin.home.to_string(), choice.node.to_string()))
}

fn ok(vmid: u32, home: &str, node: &str) -> Result<(u32, String, String), String> {
    Ok((vmid, home.into(), node.into()))
}

// Invariant: the newest wins, and of those that are equally old the highest VMID; both are said.

#[test]
fn the_newest_of_three_is_taken_on_its_own_node() {
    let found = found(vec![
        on("pve1", 9002, 10, "lvm"),
        on("pve2", 9000, 30, "lvm"),
        on("pve3", 9001, 20, "lvm"),
    ]);
    let spec = sought(tag(), &[]);
    assert_eq!(chosen(&spec, &found, &Bed::default()), ok(9000, "pve2", "pve2"));
    let why = choose(&spec, &found, &Bed::default()).unwrap().origin.why;
    assert_eq!(
        why,
        "VMID 9000 `debian-13` on node pve2; the newest of 3 of which each carries the tag `golden`"
    );
}

#[test]
fn of_equally_old_ones_the_highest_vmid_wins_and_that_is_said() {
    let spec = sought(Sought::Pattern("debian-.*".into()), &[]);
    let tied = found(vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9007, 10, "lvm")]);
    let why = choose(&spec, &tied, &Bed::default()).unwrap().origin.why;
    assert_eq!(
        why,
        "VMID 9007 `debian-13` on node pve2; the newest of 2 of which each has a name that matches `debian-.*`; 9001 is as old: the highest VMID wins"
    );
    let ageless = found(vec![on("pve1", 9001, 0, "lvm"), on("pve2", 9007, 0, "lvm")]);
    let why = choose(&spec, &ageless, &Bed::default()).unwrap().origin.why;
    assert!(why.contains("9001 is of no known age either: the highest VMID wins"), "{why}");
}

#[test]
fn an_older_one_is_taken_where_the_newest_is_out_of_reach() {
    let mut found = found(vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm")]);
    found.fleet = fleet(&["pve2"]);
    let spec = sought(tag(), &[]);
    assert_eq!(chosen(&spec, &found, &Bed::default()), ok(9001, "pve1", "pve1"));
    let why = choose(&spec, &found, &Bed::default()).unwrap().origin.why;
    assert_eq!(
        why,
        "VMID 9001 `debian-13` on node pve1; the newest that node pve1 can take, of 2 of which each \
         carries the tag `golden`; passed over: node `pve2`: it is offline \
         (`pvecm status` on another node says more)"
    );
}

// Invariant: of templates with one image on each node the text names every one, and none as a fault.

#[test]
fn by_name_the_text_says_which_image_each_node_clones() {
    let images =
        [on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm"), on("pve3", 9003, 30, "lvm")];
    let spec = sought(name(), &["pve1", "pve2", "pve3"]);
    let why = choose(&spec, &found(images.to_vec()), &Bed::default()).unwrap().origin.why;
    assert_eq!(
        why,
        "VMID 9001 `debian-13` on node pve1; each node its own: pve1 VMID 9001, pve2 VMID 9002, pve3 VMID 9003"
    );
    let two = sought(name(), &["pve1", "pve2"]);
    let why = choose(&two, &found(images[..2].to_vec()), &Bed::default()).unwrap().origin.why;
    assert!(why.ends_with("; each node its own: pve1 VMID 9001, pve2 VMID 9002"), "{why}");
    let alone = sought(name(), &["pve1"]);
    let why = choose(&alone, &found(images.to_vec()), &Bed::default()).unwrap().origin.why;
    assert_eq!(why, "VMID 9001 `debian-13` on node pve1");
}

// Invariant: each named node takes its own template of the name, else one on storage it shares.

#[test]
fn by_name_each_node_takes_its_own_and_the_emptiest_node_goes_first() {
    let found = found(vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm")]);
    let spec = sought(name(), &["pve1", "pve2"]);
    let mut bed = Bed::default();
    assert_eq!(chosen(&spec, &found, &bed), ok(9001, "pve1", "pve1"), "in order");
    bed.claims.push(claim("pve1"));
    assert_eq!(chosen(&spec, &found, &bed), ok(9002, "pve2", "pve2"), "the emptiest");
}

#[test]
fn a_node_without_its_own_clones_over_shared_storage_alone() {
    let spec = sought(name(), &["pve2"]);
    let shared = found(vec![on("pve1", 9001, 10, "nfs")]);
    assert_eq!(chosen(&spec, &shared, &Bed::default()), ok(9001, "pve1", "pve2"));
    let own_first = found(vec![on("pve1", 9001, 99, "nfs"), on("pve2", 9002, 1, "lvm")]);
    assert_eq!(chosen(&spec, &own_first, &Bed::default()), ok(9002, "pve2", "pve2"));
    let by_tag = sought(tag(), &["pve2"]);
    assert_eq!(chosen(&by_tag, &own_first, &Bed::default()), ok(9001, "pve1", "pve2"));
    let local = found(vec![on("pve1", 9001, 10, "lvm")]);
    let why = choose(&spec, &local, &Bed::default()).unwrap_err();
    assert_eq!(why, "no template is called `debian-13` on node `pve2`, or on storage it shares");
}

// Invariant: nothing is started where something stands in the way, and it is said why.

#[test]
fn closed_nodes_and_storages_are_passed_over() {
    let found = found(vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "nfs")]);
    let spec = sought(name(), &["pve1", "pve2"]);
    let mut bed = Bed { nodes: [node("pve1")].into(), ..Bed::default() };
    assert_eq!(chosen(&spec, &found, &bed), ok(9002, "pve2", "pve2"));
    bed.storages = set(&["nfs"]);
    let why = choose(&spec, &found, &bed).unwrap_err();
    assert_eq!(why, "node `pve1`: its breaker is tripped; storage `nfs`: its breaker is tripped");
}

#[test]
fn target_storages_are_tried_in_order_and_must_be_shared_for_another_node() {
    let mut spec = sought(name(), &["pve2"]);
    spec.clone = CloneStrategy::Full;
    spec.storages = vec!["lvm".into(), "nfs".into()];
    let own = found(vec![on("pve2", 9002, 1, "zfs")]);
    let mut bed = Bed::default();
    assert_eq!(choose(&spec, &own, &bed).unwrap().storage.as_deref(), Some("lvm"));
    bed.storages = set(&["lvm"]);
    assert_eq!(choose(&spec, &own, &bed).unwrap().storage.as_deref(), Some("nfs"));
    let away = found(vec![on("pve1", 9001, 1, "nfs")]);
    let choice = choose(&spec, &away, &Bed::default()).unwrap();
    assert_eq!((choice.storage.as_deref(), choice.node), (Some("nfs"), node("pve2")));
    spec.storages.pop();
    let why = choose(&spec, &away, &Bed::default()).unwrap_err();
    assert_eq!(why, "storage `lvm` is not shared, and the template is on `pve1`");
}

#[test]
fn a_linked_clone_uses_its_templates_storage_alone() {
    let found = found(vec![on("pve1", 9000, 100, "lvm")]);
    let spec = TemplateSpec {
        clone: CloneStrategy::Linked,
        target_storage: Some("nfs".into()),
        ..sought(tag(), &["pve1"])
    };
    let bed = Bed { storages: set(&["nfs"]), ..Bed::default() };
    let choice = choose(&spec, &found, &bed).unwrap();
    assert_eq!((choice.storage, choice.origin.storages), (None, set(&["lvm"])));
}

#[test]
fn nothing_found_is_said_with_what_was_sought() {
    let why = choose(&sought(tag(), &[]), &found(Vec::new()), &Bed::default()).unwrap_err();
    assert_eq!(why, "no template carries the tag `golden` on cloud `c`");
}

// Invariant: the version changes with what may be cloned, and with nothing else.

#[test]
fn a_repaired_image_is_another_version_and_the_order_of_a_list_is_not() {
    let [one, two] = [on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm")];
    let version = found(vec![one.clone(), two.clone()]).version();
    assert_eq!(found(vec![two.clone(), one.clone()]).version(), version);
    let repaired = Candidate { digest: "e".into(), ..one };
    assert_ne!(found(vec![repaired, two.clone()]).version(), version);
    let in_part = Found { whole: false, ..found(vec![two]) };
    assert_eq!(in_part.version(), None, "what could not be read was not changed by that");
}

// Invariant: of several nodes the one with the most free is taken, and one without room never.

#[test]
fn the_node_with_the_most_free_memory_is_taken_until_others_have_more() {
    let candidates = vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm")];
    let fleet = roomy(&[("pve1", 30), ("pve2", 20)], &[]);
    let found = Found { candidates, fleet, whole: true };
    let spec = TemplateSpec { memory_mb: Some(8192), ..sought(name(), &["pve2", "pve1"]) };
    let mut bed = Bed::default();
    let mut taken = Vec::new();
    while let Ok(choice) = choose(&spec, &found, &bed) {
        taken.push(choice.node.to_string());
        let chosen = Arc::new(choice.apply(&spec));
        bed.claims.push(Claim::coming(&chosen, choice.node, chosen.origin.as_ref()));
    }
    assert_eq!(taken, ["pve1", "pve1", "pve2", "pve1", "pve2"]);
    let why = choose(&spec, &found, &bed).unwrap_err();
    assert_eq!(
        why,
        "node `pve2`: 4096 MiB of its memory are free, 8192 MiB are needed; \
         node `pve1`: 6144 MiB of its memory are free, 8192 MiB are needed"
    );
}

#[test]
fn where_nothing_is_said_an_agent_takes_what_its_template_has() {
    let sizes = Sizes { cores: 2, memory_mb: 40 * 1024, disk_gb: 0 };
    let candidates = vec![Candidate { sizes, ..on("pve1", 9001, 10, "lvm") }];
    let found = Found { candidates, fleet: roomy(&[("pve1", 30)], &[]), whole: true };
    let why = choose(&sought(tag(), &[]), &found, &Bed::default()).unwrap_err();
    assert_eq!(why, "node `pve1`: 30720 MiB of its memory are free, 40960 MiB are needed");
}

// Invariant: a name means one template on a node.

#[test]
fn several_templates_of_one_name_on_a_node_are_refused_with_their_ids() {
    let double = found(vec![
        on("pve1", 9001, 10, "lvm"),
        on("pve1", 9003, 30, "lvm"),
        on("pve2", 9002, 20, "lvm"),
    ]);
    let why = choose(&sought(name(), &["pve1"]), &double, &Bed::default()).unwrap_err();
    assert_eq!(
        why,
        "several templates on node `pve1` are called `debian-13`: 9001, 9003; rename all but one, or \
         use templateTag, of which the newest is taken"
    );
    let both = sought(name(), &["pve1", "pve2"]);
    assert_eq!(chosen(&both, &double, &Bed::default()), ok(9002, "pve2", "pve2"));
    assert_eq!(chosen(&sought(name(), &[]), &double, &Bed::default()), ok(9002, "pve2", "pve2"));
    assert_eq!(
        chosen(&sought(tag(), &["pve1"]), &double, &Bed::default()),
        ok(9003, "pve1", "pve1")
    );
}

// Invariant: where every node will do, each that can reach a template is one of them.

#[test]
fn anywhere_means_every_node_that_reaches_a_template() {
    let mut spec = sought(name(), &[]);
    spec.placement.anywhere = true;
    let fleet = roomy(&[("pve1", 10), ("pve2", 20), ("pve3", 30)], &[("nfs", 50), ("lvm", 50)]);
    let local =
        Found { candidates: vec![on("pve1", 9001, 1, "lvm")], fleet: fleet.clone(), whole: true };
    assert_eq!(chosen(&spec, &local, &Bed::default()), ok(9001, "pve1", "pve1"));
    let shared = Found { candidates: vec![on("pve1", 9001, 1, "nfs")], fleet, whole: true };
    assert_eq!(chosen(&spec, &shared, &Bed::default()), ok(9001, "pve1", "pve3"));
    let reported = survey(&spec, &local, &Bed::default());
    let refused: Vec<&str> =
        reported.iter().filter(|(_, why)| why.is_some()).map(|(node, _)| node.as_str()).collect();
    assert_eq!(refused, ["pve2", "pve3"]);
}

// Invariant: a preferred node is taken while it can take an agent; no node is lost or won by it but
// those that reach a template where none is named.

#[test]
fn preferred_nodes_are_taken_first_where_they_reach_a_template() {
    let mut spec = sought(tag(), &[]);
    spec.placement.preferred = vec![node("pve2"), node("pve9")];
    let fleet = roomy(&[("pve1", 30), ("pve2", 10), ("pve3", 20)], &[("nfs", 50), ("lvm", 50)]);
    let with = |storage: &str| Found {
        candidates: vec![on("pve1", 9001, 1, storage)],
        fleet: fleet.clone(),
        whole: true,
    };
    let names = |spec: &TemplateSpec, found: &Found| -> Vec<String> {
        let reported = survey(spec, found, &Bed::default());
        reported.into_iter().map(|(node, _)| node.to_string()).collect()
    };
    assert_eq!(chosen(&spec, &with("nfs"), &Bed::default()), ok(9001, "pve1", "pve2"));
    assert_eq!(names(&spec, &with("nfs")), ["pve2", "pve1", "pve3"]);
    assert_eq!(chosen(&spec, &with("lvm"), &Bed::default()), ok(9001, "pve1", "pve1"));
    assert_eq!(names(&spec, &with("lvm")), ["pve1"]);

    let closed = Bed { nodes: [node("pve2")].into(), ..Bed::default() };
    let choice = choose(&spec, &with("nfs"), &closed).unwrap();
    assert_eq!(choice.node, node("pve1"), "the one with the most free");
    assert_eq!(
        choice.origin.why,
        "VMID 9001 `debian-13` on node pve1; none of preferredNodes takes it: pve2, pve9; passed \
         over: node `pve2`: its breaker is tripped"
    );

    spec.nodes = vec![node("pve1"), node("pve3")];
    assert_eq!(chosen(&spec, &with("nfs"), &Bed::default()), ok(9001, "pve1", "pve1"));
    spec.placement.preferred = vec![node("pve3")];
    assert_eq!(chosen(&spec, &with("nfs"), &Bed::default()), ok(9001, "pve1", "pve3"));
}

#[test]
fn several_preferred_nodes_are_ordered_by_the_placement() {
    let mut spec = sought(tag(), &["pve1", "pve2", "pve3"]);
    spec.placement.preferred = vec![node("pve3"), node("pve2")];
    let fleet = roomy(&[("pve1", 30), ("pve2", 20), ("pve3", 10)], &[("nfs", 50)]);
    let found = Found { candidates: vec![on("pve1", 9001, 1, "nfs")], fleet, whole: true };
    for (strategy, wanted) in
        [(Strategy::Topsis, "pve2"), (Strategy::Pack, "pve3"), (Strategy::Fixed, "pve3")]
    {
        spec.placement.strategy = strategy;
        assert_eq!(chosen(&spec, &found, &Bed::default()), ok(9001, "pve1", wanted));
    }
}

// Invariant: a node whose storages have no room for the further disks of an agent takes none, and disks
// that are still to be made count.

#[test]
fn a_node_without_room_for_the_further_disks_takes_no_agent() {
    let mut spec = sought(tag(), &["pve1"]);
    spec.hardware.disks = vec![
        DiskSpec { storage: "lvm".into(), size_gb: 20 },
        DiskSpec { storage: "lvm".into(), size_gb: 10 },
    ];
    let fleet = roomy(&[("pve1", 60)], &[("lvm", 70), ("zfs", 90)]);
    let found = Found { candidates: vec![on("pve1", 9001, 1, "zfs")], fleet, whole: true };
    let mut bed = Bed::default();
    for _ in 0..2 {
        let choice = choose(&spec, &found, &bed).unwrap();
        let chosen = Arc::new(choice.apply(&spec));
        bed.claims.push(Claim::coming(&chosen, choice.node, chosen.origin.as_ref()));
    }
    assert_eq!(
        choose(&spec, &found, &bed).unwrap_err(),
        "node `pve1`: storage `lvm` (hardware.disks): 10 GiB are free, 30 GiB are needed"
    );
    // Of one whose disks are made, the storage's own figures count.
    bed.claims[0].awaits_disks = false;
    assert!(choose(&spec, &found, &bed).is_ok());
    bed.claims.clear();
    spec.clone = CloneStrategy::Full;
    spec.disk_gb = Some(50);
    spec.storages = vec!["lvm".into()];
    assert_eq!(
        choose(&spec, &found, &bed).unwrap_err(),
        "node `pve1`: storage `lvm` (the clone and hardware.disks): 70 GiB are free, 80 GiB are needed"
    );
}

// Invariant: a full clone goes where the most space is free, copies under way counted.

#[test]
fn of_several_storages_the_one_with_the_most_free_space_is_taken() {
    let mut spec = sought(tag(), &["pve1"]);
    spec.clone = CloneStrategy::Full;
    spec.disk_gb = Some(30);
    spec.storages = vec!["lvm".into(), "nfs".into()];
    let fleet = roomy(&[("pve1", 60)], &[("lvm", 70), ("nfs", 90)]);
    let found = Found { candidates: vec![on("pve1", 9001, 1, "zfs")], fleet, whole: true };
    let mut bed = Bed::default();
    let mut taken = Vec::new();
    while let Ok(choice) = choose(&spec, &found, &bed) {
        taken.push(choice.storage.clone().unwrap());
        let chosen = Arc::new(choice.apply(&spec));
        bed.claims.push(Claim::coming(&chosen, choice.node, chosen.origin.as_ref()));
    }
    assert_eq!(taken, ["nfs", "lvm", "nfs", "lvm", "nfs"]);
    let why = choose(&spec, &found, &bed).unwrap_err();
    assert!(why.contains("storage `nfs`: 0 GiB are free, 30 GiB are needed"), "{why}");
    bed.claims.clear();
    let headroom = Headroom { disk_percent: 50, ..Headroom::default() };
    spec.placement = PlacementSpec { headroom, ..PlacementSpec::default() };
    assert_eq!(choose(&spec, &found, &bed).unwrap().storage.as_deref(), Some("nfs"));
    spec.placement.thickness = Some(Thickness::Thick);
    let why = choose(&spec, &found, &bed).unwrap_err();
    assert_eq!(
        why,
        "storage `lvm`: 70 GiB are free, 30 GiB are needed and 50 GiB must stay free (`headroom`); \
         storage `nfs` is not thick"
    );
}

#[test]
fn a_class_of_thin_storage_takes_any_that_holds_disks() {
    let mut spec = sought(tag(), &["pve1"]);
    spec.clone = CloneStrategy::Full;
    spec.placement.thickness = Some(Thickness::Thin);
    let fleet = roomy(&[("pve1", 60)], &[("lvm", 90), ("nfs", 40), ("zfs", 60)]);
    let found = Found { candidates: vec![on("pve1", 9001, 1, "lvm")], fleet, whole: true };
    let choice = choose(&spec, &found, &Bed::default()).unwrap();
    assert_eq!(choice.storage.as_deref(), Some("zfs"));
}

// Invariant: maintenance and unknown nodes take nothing.

#[test]
fn a_node_in_maintenance_or_of_no_cluster_takes_nothing() {
    let kept = [("pve1", true), ("pve2", false)].map(|(name, maintenance)| {
        (node(name), NodeObservation { maintenance, ..NodeObservation::default() })
    });
    let guests: BTreeMap<VmId, GuestObservation> = BTreeMap::new();
    let fleet = Arc::new(Fleet::new(kept.into(), Vec::new(), guests));
    let candidates = vec![on("pve1", 9001, 1, "lvm"), on("pve2", 9002, 1, "lvm")];
    let found = Found { candidates, fleet, whole: true };
    let spec = sought(name(), &["pve1", "pve9"]);
    let why = choose(&spec, &found, &Bed::default()).unwrap_err();
    assert_eq!(
        why,
        format!(
            "node `pve1`: {}; node `pve9`: the cluster has no such node",
            Refusal::Maintenance(node("pve1"))
        )
    );
}
