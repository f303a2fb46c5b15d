#![expect(clippy::unwrap_used, reason = "tests")]

use drover_model::container::GuestType;
use drover_model::id::{CloudId, NodeName};
use drover_model::os::LoginShell;
use drover_model::ports::VmRef;
use drover_model::seed::NicSpec;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Clients as _, Script, Step, marks, spec, token};

fn call() -> ConfigureCall {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    let vm = VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Vm };
    ConfigureCall { vm, marks: marks(), spec: spec() }
}

/// Reads and writes as the port does for a guest without a disc image.
async fn go(
    client: &Client,
    call: &ConfigureCall,
    serial: Option<&SecretString>,
) -> Result<Configuring, Failure> {
    let config = read(client, call).await?;
    start(client, call, &config, None, serial).await
}

/// A fresh clone of a template with tags, one of them drover's, and with protection.
fn fresh() -> Vec<(&'static str, String)> {
    vec![
        ("name", marks().name("ci")),
        ("description", format!("{}\n", marks().describe("built by the team"))),
        ("digest", "abc".into()),
        ("tags", "base;drover-image".into()),
        ("boot", "order=scsi0;ide2;net0".into()),
        ("scsi0", "store:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2,size=10G".into()),
        ("ide2", "store:101/vm-101-cloudinit.qcow2,media=cdrom".into()),
        ("ide0", "local:iso/debian.iso,media=cdrom".into()),
        ("net0", "virtio=bc:24:11:00:00:01,bridge=vmbr0".into()),
        ("memory", "2048".into()),
        ("cores", "4".into()),
        ("agent", "0,fstrim_cloned_disks=1".into()),
        ("protection", "1".into()),
    ]
}

fn config(pairs: Vec<(&'static str, String)>) -> VmConfig {
    VmConfig::new(pairs)
}

// Invariant: one write sets what differs and nothing else.

#[test]
fn a_fresh_clone_gets_everything_that_differs() {
    let plan = plan(&config(fresh()), &call());
    let changes: Vec<_> =
        plan.changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    insta::assert_snapshot!(changes.join("\n"), @r"
    ciuser=ci
    sshkeys=ssh-ed25519%20AAAA%2Fb%2Bc%3D%20drover%20key
    ipconfig0=ip=dhcp
    nameserver=10.0.0.1
    searchdomain=example.com
    ciupgrade=0
    memory=4096
    agent=enabled=1,fstrim_cloned_disks=1
    protection=0
    ");
    assert_eq!(plan.tags.as_deref(), Some("base;drover;drover-7k2m9qxw;team-a"));
    assert_eq!(plan.resize, Some(("scsi0".into(), 20)));
}

#[test]
fn a_clone_of_windows_gets_nothing_that_cloud_init_would_read() {
    let mut call = call();
    call.spec.os = Os::Windows(LoginShell::Auto);
    call.spec.cloud_init.ip_configs = vec!["ip=dhcp".into()];
    let plan = plan(&config(fresh()), &call);
    let keys: Vec<&str> = plan.changes.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["memory", "agent", "protection"]);
    assert!(plan.tags.is_some());
    assert_eq!(plan.resize, Some(("scsi0".into(), 20)));
    let nic = |bridge: &str| -> NicSpec {
        serde_json::from_value(json!({"bridge": bridge, "ip_config": "ip=10.0.0.9/24"})).unwrap()
    };
    call.spec.nics = vec![nic("vmbr0"), nic("vmbr1")];
    let plan = super::plan(&config(fresh()), &call);
    let cards: Vec<&str> = plan.changes.iter().map(|(key, _)| key.as_str()).collect();
    assert!(cards.contains(&"net1") && !cards.contains(&"ipconfig1"), "{cards:?}");
}

#[test]
fn a_guest_that_is_as_wanted_is_left_alone() {
    let first = plan(&config(fresh()), &call());
    let mut pairs: Vec<(String, String)> =
        fresh().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    pairs.extend(first.changes);
    // Proxmox returns tags in an order of its own.
    pairs.push(("tags".into(), "team-a;drover-7k2m9qxw;base;drover".into()));
    pairs.push(("scsi0".into(), "store:101/vm-101-disk-0.qcow2,size=20480M".into()));
    assert_eq!(plan(&VmConfig::new(pairs), &call()), Plan::default());
}

#[test]
fn the_agent_is_switched_on_only_when_it_is_off() {
    assert_eq!(enable_agent(None).as_deref(), Some("enabled=1"));
    assert_eq!(
        enable_agent(Some("enabled=0,type=virtio")).as_deref(),
        Some("enabled=1,type=virtio")
    );
    assert_eq!(enable_agent(Some("type=isa")).as_deref(), Some("enabled=1,type=isa"));
    assert_eq!(enable_agent(Some("1")), None);
    assert_eq!(enable_agent(Some("enabled=1,fstrim_cloned_disks=1")), None);
}

#[test]
fn a_balloon_never_exceeds_the_memory() {
    let mut pairs = fresh();
    pairs.push(("balloon", "8192".into()));
    let plan = plan(&config(pairs), &call());
    assert!(plan.changes.contains(&("balloon".into(), "4096".into())));
}

// Invariant: only the wanted settings of a network card change.

#[test]
fn the_card_is_put_on_another_bridge_or_vlan_and_keeps_the_rest() {
    let bridge = |name: &str| NetworkSpec { bridge: Some(name.into()), vlan: None };
    let vlan = NetworkSpec { bridge: None, vlan: Some(30) };
    let both = NetworkSpec { vlan: Some(7), ..bridge("vmbr1") };
    let card = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=5,mtu=1400";
    let cases = [
        (Some(card), NetworkSpec::default(), None),
        (Some(card), bridge("vmbr0"), None),
        (Some(card), bridge("vmbr2"), Some(card.replace("vmbr0", "vmbr2"))),
        (Some(card), vlan.clone(), Some(card.replace("tag=5", "tag=30"))),
        (Some("e1000=BC:24:11:00:00:01"), both.clone(), {
            Some("e1000=BC:24:11:00:00:01,bridge=vmbr1,tag=7".to_owned())
        }),
        (None, both, Some("virtio,bridge=vmbr1,tag=7".to_owned())),
        (None, vlan, None),
    ];
    for (now, wanted, then) in cases {
        assert_eq!(on_network(now, &wanted), then, "{now:?} {wanted:?}");
    }
}

#[test]
fn further_cards_upgrades_and_the_start_with_the_node_are_written_where_they_differ() {
    let mut call = call();
    call.spec.cloud_init.ip_configs = vec!["ip=dhcp".into(), "ip=10.1.0.5/24".into()];
    call.spec.cloud_init.upgrade = true;
    call.spec.on_boot = true;
    let mut pairs = fresh();
    pairs.push(("ipconfig1", "ip=dhcp".into()));
    let plan = plan(&config(pairs), &call);
    for (key, value) in [("ipconfig2", "ip=10.1.0.5/24"), ("ciupgrade", "1"), ("onboot", "1")] {
        assert!(plan.changes.contains(&(key.into(), value.into())), "{key}");
    }
    assert!(!plan.changes.iter().any(|(key, _)| key == "ipconfig1"));
}

#[test]
fn a_throw_away_machine_does_not_start_with_its_node_because_its_template_did() {
    let mut pairs = fresh();
    pairs.push(("onboot", "1".into()));
    let plan = plan(&config(pairs), &call());
    assert!(plan.changes.contains(&("onboot".into(), "0".into())));
}

// Invariant: the primary disk grows to an absolute size and never shrinks.

#[test]
fn the_primary_disk_is_found_in_the_boot_order_or_the_usual_places() {
    let primary = |pairs: &[(&str, &str)]| {
        let config = VmConfig::new(pairs.iter().copied());
        primary_disk(&config).map(str::to_owned)
    };
    let disk = "s:vm-101-disk-0,size=1G";
    let cdrom = "s:iso/x.iso,media=cdrom";
    assert_eq!(
        primary(&[
            ("boot", "order=ide2;virtio1"),
            ("ide2", cdrom),
            ("virtio1", disk),
            ("scsi0", disk)
        ])
        .unwrap(),
        "virtio1"
    );
    assert_eq!(primary(&[("boot", "order=net0"), ("sata0", disk)]).unwrap(), "sata0");
    assert_eq!(primary(&[("bootdisk", "scsi3"), ("scsi3", disk)]).unwrap(), "scsi3");
    assert_eq!(primary(&[("ide0", cdrom), ("scsihw", "virtio-scsi-pci")]), None);
}

#[test]
fn a_disk_that_is_large_enough_is_left_alone() {
    let grow = |size: &str, wanted: u32| {
        disk_to_grow(&VmConfig::new([("scsi0", format!("s:vm-101-disk-0{size}"))]), Some(wanted))
            .is_some()
    };
    assert!(grow(",size=10G", 11) && !grow(",size=10G", 10) && !grow(",size=10G", 9));
    assert!(grow(",size=2252M", 3) && !grow(",size=1T", 1024) && grow("", 5));
    assert!(!grow(",size=10737418240", 10));
}

#[test]
fn volumes_and_mac_are_read() {
    let config = config(fresh());
    assert_eq!(
        volumes(&config, VmId(101)),
        [
            "store:101/vm-101-cloudinit.qcow2",
            "store:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2"
        ]
    );
    assert_eq!(mac(&config).as_deref(), Some("BC:24:11:00:00:01"));
    assert!(carries("local-lvm:vm-101-disk-0", VmId(101)));
    assert!(!carries("local-lvm:vm-1012-disk-0", VmId(101)));
    assert!(!carries("local:iso/vm-1-x.iso", VmId(101)));
}

// Invariant: nothing is written to a guest that is not exactly the agent's.

fn refused(change: impl FnOnce(&mut Vec<(&'static str, String)>)) -> Fault {
    let mut pairs = fresh();
    change(&mut pairs);
    verify(&config(pairs), &marks(), VmId(101)).unwrap_err()
}

#[test]
fn strangers_and_templates_are_left_alone() {
    assert!(verify(&config(fresh()), &marks(), VmId(101)).is_ok());
    assert_eq!(verify(&config(fresh()), &marks(), VmId(102)).unwrap_err().kind, FaultKind::Foreign);
    let other = refused(|pairs| {
        let mut twin = marks();
        twin.vmid = VmId(102);
        pairs.push(("description", twin.describe("")));
    });
    insta::assert_snapshot!(other, @"guest `101` does not belong to agent `4f8z1c3px9t2vkab`: its marks name agent `4f8z1c3px9t2vkab` and VMID `102`; drover leaves it alone");
    let bare = refused(|pairs| pairs.retain(|(key, _)| !matches!(*key, "name" | "description")));
    insta::assert_snapshot!(bare, @"guest `101` does not belong to agent `4f8z1c3px9t2vkab`: it has no marks; drover leaves it alone");
    assert_eq!(refused(|pairs| pairs.push(("template", "1".into()))).kind, FaultKind::Foreign);
    let damaged = refused(|pairs| pairs.push(("description", "mine".into())));
    assert_eq!(damaged.kind, FaultKind::Foreign);
}

#[test]
fn a_guest_half_cloned_or_half_destroyed_is_locked_and_no_stranger() {
    for lock in ["clone", "destroyed"] {
        let fault = verify(&VmConfig::new([("lock", lock)]), &marks(), VmId(101)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Locked { lock: lock.into() });
    }
}

// Invariant: configuring takes one read, one write and one resize; refused tags cost one more
// write.

fn answer(config: Vec<(&'static str, String)>) -> Value {
    config.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_configured_in_three_calls() {
    let script = Script::new(|asked| match asked.split(' ').next() {
        Some("GET") => Step::Data(answer(fresh())),
        _ if asked.contains("/resize") => {
            Step::Data(json!("UPID:pve1:1:1:1:resize:101:ci@pve!drover:"))
        }
        _ => Step::Data(json!(null)),
    });
    let started = go(&script.client(&["a"], token()), &call(), None).await.unwrap();
    assert!(started.resize.is_some() && started.configured.tags_refused.is_none());
    let seen = script.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen[1].starts_with("a PUT /nodes/pve1/qemu/101/config ciuser=ci "));
    assert!(seen[1].ends_with("tags=base;drover;drover-7k2m9qxw;team-a digest=abc"), "{}", seen[1]);
    assert_eq!(seen[2], "a PUT /nodes/pve1/qemu/101/resize disk=scsi0 size=20G");
}

#[tokio::test(start_paused = true)]
async fn refused_tags_are_left_out_and_reported() {
    let script = Script::new(|asked| {
        if asked.contains("tags=") {
            return Step::Refuse(
                403,
                "Permission check failed (/, Sys.Modify for modifying tag 'drover')",
            );
        }
        match asked.split(' ').next() {
            Some("GET") => Step::Data(answer(fresh())),
            _ => Step::Data(json!(null)),
        }
    });
    let started = go(&script.client(&["a"], token()), &call(), None).await.unwrap();
    assert_eq!(started.resize, None, "an old node resizes at once");
    insta::assert_snapshot!(started.configured.tags_refused.unwrap(), @"`PUT /nodes/pve1/qemu/101/config` needs the privilege `Sys.Modify` on `/` for modifying tag 'drover': give `ci@pve!drover` a role with it there (with privilege separation, both the token and its user need it)");
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_only_read() {
    let script = Script::new(|_| Step::Data(json!({"name": "somebody", "digest": "abc"})));
    let client = script.client(&["a"], token());
    let error = go(&client, &call(), None).await.unwrap_err();
    assert_eq!(client.fault(&error).kind, FaultKind::Foreign);
    assert_eq!(script.seen().len(), 1);
}

// Invariant: a serial number is added to what the clone has, in the encoding that is there.

#[test]
fn a_serial_number_is_put_beside_everything_else() {
    for (now, wanted) in [
        (None, Some("serial=abc1")),
        (Some("uuid=1-2"), Some("uuid=1-2,serial=abc1")),
        (Some("uuid=1-2,serial=old,sku=x"), Some("uuid=1-2,sku=x,serial=abc1")),
        (
            Some("uuid=1-2,base64=1,serial=b2xk,family=Zg=="),
            Some("uuid=1-2,base64=1,family=Zg==,serial=YWJjMQ=="),
        ),
        (Some("uuid=1-2,serial=abc1"), None),
        (Some("base64=1,serial=YWJjMQ=="), None),
    ] {
        assert_eq!(with_serial(now, "abc1").as_deref(), wanted, "{now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_serial_number_is_written_and_never_shown() {
    let script = Script::new(|asked| match asked.split(' ').next() {
        Some("GET") => Step::Data(answer(fresh())),
        _ if asked.contains("/resize") => Step::Data(json!(null)),
        _ => Step::Data(json!(null)),
    });
    let serial = SecretString::from("t0psecret");
    go(&script.client(&["a"], token()), &call(), Some(&serial)).await.unwrap();
    assert!(script.seen()[1].contains(" smbios1=serial=t0psecret "), "{:?}", script.seen());
}
