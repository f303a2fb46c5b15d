//! What configurations need, and where: by the YAML alone, and with facts about a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use drover_model::id::{CloudId, NodeName, TemplateId, VmId};
use drover_model::placement::Thickness;
use drover_model::spec::HerdSpec;
use drover_ssh::PrivateKey;

use super::*;
use drover_config::{Environment, Sources, check};

fn herd(templates: &str) -> HerdSpec {
    let key = PrivateKey::from_seed(&[7; 32], "drover-test").to_openssh().unwrap();
    let key = secrecy::ExposeSecret::expose_secret(&key).replace('\n', "\\n");
    let yaml = format!(
        "credentials:\n  api: {{kind: proxmoxToken, tokenId: \"a@pve!ci\", secret: 0123456789}}\n  \
           ssh: {{kind: sshKey, username: debian, secret: \"{key}\"}}\n\
         cloudConfigurations:\n  rack: {{name: R, credentialsId: api}}\n  other: {{name: O, credentialsId: api}}\n\
         agentDefaults: {{cloudIds: [rack], credentialsId: ssh, ciUser: debian}}\n\
         agentConfigurations:\n{templates}"
    );
    let checked = check(Sources::of_text("drover.yaml", &yaml), &Environment::default());
    checked.unwrap_or_else(|error| panic!("{}", error.render())).herd
}

fn source(vmid: u32, pool: Option<&str>, storage: &str, bridge: &str) -> TemplateGuest {
    TemplateGuest {
        vmid: VmId(vmid),
        node: NodeName::new("pve1"),
        pool: pool.map(str::to_owned),
        storages: [storage.to_owned()].into(),
        bridges: [(bridge.to_owned(), None)].into(),
    }
}

/// Roles and entries, one line each.
fn shown(herd: &HerdSpec, facts: &Facts) -> String {
    let needs = Needs::of(herd, &CloudId::new("rack"), Release::V9, facts);
    let Grants { roles, entries, pools } =
        grants(&needs, &facts.template_pools(herd), GrantOptions::default());
    let mut text = String::new();
    for (kind, privileges) in roles {
        let all: Vec<String> = privileges.into_iter().collect();
        let _ = writeln!(text, "{}: {}", kind.name(""), all.join(" "));
    }
    for (path, kind) in entries {
        let _ = writeln!(text, "{path} {}", kind.name(""));
    }
    let _ = writeln!(text, "pools: {pools:?}");
    text
}

fn facts(sources: &[(&str, TemplateGuest)]) -> Facts {
    let mut facts = Facts::default();
    for (name, source) in sources {
        let id = TemplateId { cloud: CloudId::new("rack"), name: (*name).into() };
        facts.sources.entry(id).or_default().push(source.clone());
    }
    facts
}

// Invariant: nothing is granted that no template of the cloud uses, and each privilege only where
// it is used.

#[test]
fn a_template_by_its_id_has_an_entry_of_its_own() {
    let herd = herd("  small: {templateVmId: 9000, targetPool: ci, cloneStrategy: LINKED}\n");
    let facts = facts(&[("small", source(9000, None, "local-lvm", "vmbr0"))]);
    insta::assert_snapshot!(shown(&herd, &facts));
}

#[test]
fn templates_that_are_sought_are_granted_on_their_pool_where_they_are_in_one() {
    let herd = herd(
        "  pooled: {templateName: image, targetPool: ci, targetStorages: [fast, slow], bridge: lab, vlan: 5}\n  \
           alone: {templateTag: golden, cores: 2}\n  \
           elsewhere: {cloudIds: [other], templateVmId: 1, memoryMb: 64, reset: DISK}\n"
            .replace("templateVmId: 1,", "templateVmId: 100,")
            .as_str(),
    );
    let mut facts = facts(&[
        ("pooled", source(9001, Some("images"), "nfs", "vmbr0")),
        ("alone", source(9002, None, "nfs", "vmbr1")),
        ("alone", source(9003, None, "ceph", "vmbr1")),
    ]);
    facts.zones.insert("lab".into(), "blue".into());
    insta::assert_snapshot!(shown(&herd, &facts));
}

#[test]
fn what_hangs_on_the_cluster_is_left_open_where_nobody_looked() {
    let herd = herd("  small: {templateName: image}\n");
    let needs = Needs::of(&herd, &CloudId::new("rack"), Release::V8, &Facts::default());
    assert_eq!(needs.unknown, ["rack/small"]);
    let grants = grants(&needs, &BTreeMap::new(), GrantOptions::default());
    let placeholders: BTreeSet<&str> = grants.placeholders().collect();
    let all = [
        "/sdn/zones/localnetwork/<bridges of small>",
        "/storage/<storages of small>",
        "/vms/<templates of small>",
    ];
    assert_eq!(placeholders, all.into());
}

// Invariant: of several privileges that are enough, none is granted where another is granted
// anyway.

#[test]
fn the_network_privilege_makes_up_for_that_of_cloud_init() {
    let roles = |keys: &str| {
        let herd = herd(&format!("  small: {{templateVmId: 9000, {keys}}}\n"));
        let needs = Needs::of(&herd, &CloudId::new("rack"), Release::V9, &Facts::default());
        let grants =
            grants(&needs, &BTreeMap::new(), GrantOptions { optional: true, orders: false });
        assert!(grants.roles[&RoleKind::Storage].contains("Datastore.Allocate"));
        let role = &grants.roles[&RoleKind::Guests];
        ["VM.Config.Cloudinit", "VM.Config.Network"].map(|name| role.contains(name))
    };
    assert_eq!(roles("cores: 2"), [true, false]);
    assert_eq!(roles("bridge: vmbr1"), [false, true]);
}

// Invariant: a template needs its rights on each path that it uses: on every card's bridge, and on
// every storage that may hold its disks or its cloud-init images.

#[test]
fn cards_discs_and_classes_are_needed_wherever_they_may_be() {
    let herd = herd(
        "  cards: {templateVmId: 9000, targetPool: ci, cloneStrategy: FULL, storageClass: thick, \
             networks: [{bridge: vmbr0}, {bridge: vmbr1.30}, {bridge: lab}], \
             userData: \"#cloud-config\", cloudInitIsoStorage: nfs}\n  \
           snippet: {templateVmId: 9000, targetPool: ci, cloneStrategy: LINKED, \
             targetStorages: [fast], cloudInitCustom: {user: \"nfs:snippets/a\"}}\n",
    );
    let mut facts = facts(&[
        ("cards", source(9000, None, "local-lvm", "vmbr0")),
        ("snippet", source(9000, None, "local-lvm", "vmbr0")),
    ]);
    facts.zones.insert("lab".into(), "blue".into());
    for (name, kind) in
        [("local-lvm", Thickness::Thin), ("raid", Thickness::Thick), ("old", Thickness::Thick)]
    {
        facts.storages.insert(name.into(), kind);
    }
    insta::assert_snapshot!(shown(&herd, &facts));
    facts.storages.clear();
    let blind = shown(&herd, &facts);
    assert!(blind.contains("/storage/<storages of cards> Storage"), "{blind}");
}
