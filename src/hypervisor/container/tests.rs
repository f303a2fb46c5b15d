//! Configurations of containers: only what differs is written, and new containers carry their marks.
use drover_model::container::{ContainerSpec, GuestType, OsTemplate};
use drover_model::id::{CloudId, NodeName, VmId};
use drover_model::marks::{self, Marks, Reading};
use drover_model::ports::VmRef;
use drover_model::spec::NetworkSpec;

use super::*;
use crate::testing::{marks, spec};

fn create() -> CreateSpec {
    let template = OsTemplate {
        storage: "local".into(),
        file: "debian-13-standard_13.1-2_amd64.tar.zst".into(),
        download: None,
    };
    CreateSpec { template, unprivileged: true }
}

fn container_spec() -> TemplateSpec {
    let mut spec = spec();
    spec.container = Some(ContainerSpec { nesting: true, swap_mb: Some(256), create: None });
    spec.nics = Vec::new();
    spec.network = NetworkSpec { bridge: Some("vmbr1".into()), vlan: Some(7) };
    (spec.cores, spec.memory_mb, spec.disk_gb) = (Some(2), Some(2048), Some(20));
    spec.cloud_init.ip_config = Some("ip=dhcp".into());
    spec.cloud_init.nameserver = None;
    spec.cloud_init.search_domain = None;
    spec.on_boot = false;
    spec
}

fn container_marks() -> Marks {
    Marks { guest: GuestType::Container, ..marks() }
}

fn call(spec: TemplateSpec) -> ConfigureCall {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    let vm = VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Container };
    ConfigureCall { vm, marks: container_marks(), spec }
}

fn cloned() -> VmConfig {
    VmConfig::new([
        ("hostname", "linux-7k2m9qxw-4f8z1c3px9t2vkab"),
        (
            "net0",
            "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=10.0.0.9/24,gw=10.0.0.1,type=veth",
        ),
        ("rootfs", "local-lvm:vm-101-disk-0,size=8G"),
        ("memory", "512"),
        ("swap", "512"),
        ("features", "keyctl=1"),
        ("protection", "1"),
    ])
}

fn text(params: &Params) -> String {
    params.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

// Invariant: only what differs from the template's specification is written.

#[test]
fn a_clone_gets_sizes_card_and_features_of_its_template() {
    let changes = changes(&cloned(), &call(container_spec()));
    insta::assert_snapshot!(text(&changes), @r"
    cores: 2
    memory: 2048
    swap: 256
    features: keyctl=1,nesting=1
    protection: 0
    net0: name=eth0,bridge=vmbr1,hwaddr=BC:24:11:00:00:01,ip=dhcp,tag=7,type=veth
    ");
}

#[test]
fn nothing_is_written_where_all_is_as_it_should_be() {
    let call = call(container_spec());
    let first = changes(&cloned(), &call);
    let written = crate::nics::after(&cloned(), &first);
    assert_eq!(changes(&written, &call), Params::new());
    // Proxmox prints the parts of a card in an order of its own.
    let net0 = written.get("net0").unwrap_or_default().split(',').rev().collect::<Vec<_>>();
    let net0 = net0.join(",");
    let again = written.iter().chain([("net0", net0.as_str())]);
    assert_eq!(changes(&VmConfig::new(again), &call), Params::new());
}

#[test]
fn every_card_of_a_template_is_named_and_further_ones_go() {
    let nic = |bridge: &str, ip: Option<&str>| NicSpec {
        bridge: bridge.into(),
        vlan: None,
        mac: None,
        model: None,
        firewall: Some(true),
        ip_config: ip.map(str::to_owned),
        dns: Vec::new(),
        search: Vec::new(),
    };
    let mut spec = container_spec();
    spec.nics = vec![nic("vmbr0", Some("ip=dhcp")), nic("vmbr2", Some("ip=10.9.0.2/24"))];
    let now = cloned();
    let now = VmConfig::new(now.iter().chain([("net3", "name=eth3,bridge=vmbr9")]));
    let changes = changes(&now, &call(spec));
    let cards = changes.iter().filter(|(key, _)| key.starts_with("net") || key == "delete");
    insta::assert_snapshot!(text(&cards.cloned().collect()), @r"
    net0: name=eth0,bridge=vmbr0,firewall=1,hwaddr=BC:24:11:00:00:01,ip=dhcp,type=veth
    net1: name=eth1,bridge=vmbr2,firewall=1,ip=10.9.0.2/24
    delete: net3
    ");
}

// Invariant: a new container carries its marks, and drover's key alone.

#[test]
fn a_new_container_carries_marks_key_and_sizes() {
    let mut spec = container_spec();
    spec.target_storage = Some("local-zfs".into());
    spec.container = Some(ContainerSpec { create: Some(create()), ..Default::default() });
    let node = NodeName::new("pve1");
    let call = CloneCall {
        cloud: CloudId::new("primary"),
        node,
        target: None,
        marks: container_marks(),
        spec,
    };
    let params = create_params(&call, &create());
    let of = |key: &str| {
        let found = params.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    assert_eq!((of("vmid"), of("rootfs"), of("unprivileged")), ("101", "local-zfs:20", "1"));
    assert_eq!(of("ostemplate"), "local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst");
    assert_eq!(of("net0"), "name=eth0,bridge=vmbr1,ip=dhcp,tag=7");
    assert_eq!(of("ssh-public-keys").trim(), call.spec.ssh.public_key.trim());
    let read = marks::read(of("hostname"), of("description"));
    assert_eq!(read, Reading::Marked(Box::new(container_marks())));
    assert_eq!(of("tags"), "", "Proxmox may refuse them");
}
