//! Well-formed values that make no sense: each is a fault, or a warning where it may be intended.

use insta::assert_snapshot;

use super::*;

/// What is said of each of these agents, one after the other.
fn said(agents: &[&str]) -> String {
    let scene = Scene::new();
    agents.iter().map(|lines| scene.faults(&with_agent(lines))).collect::<Vec<_>>().join("\n")
}

/// What is said of each of these agents, which are without faults.
fn warned(agents: &[&str]) -> String {
    let scene = Scene::new();
    let shown = agents.iter().map(|lines| scene.good(&with_agent(lines)).rendered_warnings());
    shown.collect::<Vec<_>>().join("\n")
}

// Invariant: a gateway is one that its address reaches.

#[test]
fn a_link_local_gateway_is_reached_from_any_address() {
    let card = "{bridge: vmbr0, ip6: \"fd00::5/64\", gateway6: \"fe80::1\"}";
    Scene::new().good(&with_agent(&format!("instanceCap: 1\nnetworks: [{card}]")));
}

#[test]
fn a_gateway_of_a_pool_is_one_of_its_network() {
    let pools = |pools: &str| format!("{}addressPools: {{lab: {pools}}}\n", with_agent("cores: 1"));
    let scene = Scene::new();
    let bad = ["10.5.1.1", "10.5.0.0", "10.5.0.255"].map(|gateway| {
        let pool = format!("{{ranges: [10.5.0.9-10.5.0.20], prefix: 24, gateway: {gateway}}}");
        scene.faults(&pools(&pool))
    });
    assert_snapshot!(bad.join("\n"));
    let link = "{ranges: [\"fd00::10-fd00::20\"], prefix: 64, gateway: \"fe80::1\"}";
    let checked = scene.good(&pools(link));
    assert!(checked.herd.pools.values().all(|pool| pool.gateway.is_some()));
}

// Invariant: a storage's name is one that Proxmox could have, and it is said once where disks go.

#[test]
fn a_storage_class_beside_storages_is_shown_and_the_upper_layer_wins() {
    let scene = Scene::new();
    let fast =
        |text: String| text.replace("{name: C,", "{name: C, storageClasses: {fast: [nvme]},");
    let both = [
        "storageClass: fast\ntargetStorage: nfs",
        "storageClass: fast\ntargetStorages: [nfs]",
        "storageClass: thin\ntargetStorage: nfs",
    ];
    let faults = both.map(|lines| scene.faults(&fast(with_agent(lines))));
    assert_snapshot!(faults.join("\n"));
    scene.good(&with_agent("storageClass: thin\ntargetStorages: [nfs, ceph]"));
    let layered = |defaults: &str, own: &str| {
        let text =
            with_agent(own).replace("agentDefaults:\n", &format!("agentDefaults:\n  {defaults}\n"));
        let checked = scene.good(&fast(text));
        let spec = checked.herd.templates.values().next().unwrap().clone();
        (spec.target_storage.clone(), spec.storages.clone())
    };
    let nvme = (None, vec!["nvme".to_owned()]);
    assert_eq!(layered("targetStorage: nfs", "storageClass: fast"), nvme);
    assert_eq!(layered("targetStorages: [nfs]", "storageClass: fast"), nvme);
    assert_eq!(layered("storageClass: fast", "targetStorage: nfs"), (Some("nfs".into()), vec![]));
}

#[test]
fn a_storage_class_that_linked_clones_do_not_use_is_warned_about() {
    assert_snapshot!(warned(&["cloneStrategy: LINKED\nstorageClass: thin"]));
}

// Invariant: a text that an ISO image cannot use, or should not contain, is a warning.

#[test]
fn values_that_no_text_uses_are_warned_about() {
    assert_snapshot!(warned(&[
        "userDataValues: {repo: x}",
        "userData: \"#!${repo}\"\nuserDataValues: {repo: x, rope: y}",
    ]));
    let shared = with_agent("userData: \"#!\"")
        .replace("agentDefaults:\n", "agentDefaults:\n  userDataValues: {repo: x}\n");
    assert_eq!(Scene::new().good(&shared).rendered_warnings(), "");
    let meta = "metaData: \"{a: '${repo}'}\"\nuserDataValues: {repo: x}";
    assert_eq!(Scene::new().good(&with_agent(meta)).rendered_warnings(), "");
}

#[test]
fn passwords_in_user_data_are_warned_about() {
    let config = |lines: &str| format!("userData: \"#cloud-config\\n{lines}\\n\"");
    let bad = [
        "password: hunter2",
        "chpasswd: {list: ['root:hunter2']}",
        "chpasswd: {users: [{name: ci, password: hunter2}]}",
        "users: [{name: ci, plain_text_passwd: hunter2}]",
        "user: {passwd: $6$x}",
    ]
    .map(config);
    let script = "userData: \"#!/bin/sh\\necho root:hunter2 | chpasswd\\n\"".to_owned();
    let all: Vec<&str> = bad.iter().chain([&script]).map(String::as_str).collect();
    let shown = warned(&all);
    assert!(!shown.contains("hunter2") && !shown.contains("$6$x"));
    assert_snapshot!(shown);
    let fine = [
        config("chpasswd: {expire: false}"),
        config("users: [default, {name: ci, lock_passwd: true}]"),
        config("password: ''"),
        "userData: \"#!/bin/sh\\n# no chpasswd here\\n\"".to_owned(),
    ];
    let fine: Vec<&str> = fine.iter().map(String::as_str).collect();
    assert_eq!(warned(&fine).trim(), "");
}

// Invariant: a guest's name is one that Proxmox takes.

#[test]
fn a_prefix_that_begins_no_name_is_shown() {
    let scene = Scene::with(&[("RUNNER_NAME_PREFIX", "energy runner_")]);
    let long = "x".repeat(37);
    let all = [
        scene.faults(&with_agent("cores: 1")),
        Scene::new().faults(&with_agent("namePrefix: -ci")),
        Scene::new().faults(&with_agent(&format!("namePrefix: {long}"))),
    ];
    assert_snapshot!(all.join("\n"));
}

// Invariant: an address is complained of where it is written.

#[test]
fn an_address_of_a_card_is_warned_about_in_networks() {
    assert_snapshot!(warned(&[
        "networks: [{name: lan, ip: 10.0.0.5/24}]",
        "networks: [{name: lan, ip6: \"fd00::5/64\"}]",
    ]));
    assert_snapshot!(said(&["networks: [{name: lan}]\naddressFrom: static"]));
}

// Invariant: a fault of a secret is the fault of nothing that names what it is for.

#[test]
fn the_full_file_without_its_secrets_lacks_those_alone() {
    let scene = Scene::new();
    for name in ["token", "ed25519"] {
        fs::remove_file(scene.path(name)).unwrap();
    }
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/full.yaml");
    let text = fs::read_to_string(shipped).unwrap();
    let text = text.replace("/etc/drover", &scene.dir.path().display().to_string());
    assert_snapshot!(scene.faults(&text));
}

// Invariant: a stop that systemd would cut is warned about, by the time that the shipped unit has.

#[test]
fn a_stop_that_may_take_longer_than_the_unit_lets_it_is_warned_about() {
    let scene = Scene::new();
    let warnings = |seconds: u64| {
        let text = format!("{}service: {{stopTimeoutSec: {seconds}}}\n", with_cloud("{}"));
        scene.good(&text).warnings
    };
    assert!(warnings(95).is_empty());
    let warnings = warnings(96);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(warning.path, "service.stopTimeoutSec");
    let message = "systemd kills drover 120 s after a stop begins (TimeoutStopSec of the shipped \
                   unit), which may be before drover has waited 96 s and closed its journal";
    assert_eq!(warning.message, message);
    let help = "use at most 95, or set `TimeoutStopSec=121` or more by `systemctl edit drover`";
    assert_eq!(warning.help.as_deref(), Some(help));
    let unit = fs::read_to_string(super::files::shipped("drover.service")).unwrap();
    assert!(unit.lines().any(|line| line == "TimeoutStopSec=120"), "{unit}");
}
