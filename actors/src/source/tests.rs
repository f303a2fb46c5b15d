#![expect(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::BTreeMap;

use super::*;
use crate::testbed::template;

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
    }
}

fn found(candidates: Vec<Candidate>) -> Found {
    Found { candidates, offline: BTreeSet::new(), shared: set(&["nfs"]), whole: true }
}

#[derive(Default)]
struct Bed {
    nodes: BTreeSet<NodeName>,
    storages: BTreeSet<String>,
    load: BTreeMap<NodeName, usize>,
}

impl Ground for Bed {
    fn node_closed(&self, node: &NodeName) -> Option<String> {
        self.nodes.contains(node).then(|| "its breaker is tripped".into())
    }

    fn storage_closed(&self, storage: &str, _: Option<&NodeName>) -> Option<String> {
        self.storages.contains(storage).then(|| "its breaker is tripped".into())
    }

    fn load(&self, node: &NodeName) -> usize {
        self.load.get(node).copied().unwrap_or(0)
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
    found.offline.insert(node("pve2"));
    let spec = sought(tag(), &[]);
    assert_eq!(chosen(&spec, &found, &Bed::default()), ok(9001, "pve1", "pve1"));
    let why = choose(&spec, &found, &Bed::default()).unwrap().origin.why;
    assert!(why.contains("passed over: node `pve2` is offline"), "{why}");
}

// Invariant: each named node takes its own template of the name, else one on storage it shares.

#[test]
fn by_name_each_node_takes_its_own_and_the_emptiest_node_goes_first() {
    let found = found(vec![on("pve1", 9001, 10, "lvm"), on("pve2", 9002, 20, "lvm")]);
    let spec = sought(name(), &["pve1", "pve2"]);
    let mut bed = Bed::default();
    assert_eq!(chosen(&spec, &found, &bed), ok(9001, "pve1", "pve1"), "in order");
    bed.load.insert(node("pve1"), 1);
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

// Invariant: nothing is begun where something stands in the way, and it is said why.

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
