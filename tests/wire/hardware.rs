//! What machines are made of where their template says it: network cards, sizes, hardware, further
//! disks, and the storages that their disks are on.

use serde_json::{Value, json};

use crate::harness::{Service, Sim, world_of};
use crate::parity::{guest_of, leased, setting, yaml};

/// A template on thin storage with a card too many and an EFI disk, one on thick storage, and a guest of
/// others that uses half of `nvme1`.
const CLUSTER: &str = r#"
name: hardware
nodes: [{name: pve1, bridges: [vmbr0, vmbr1, vmbr7]}]
storages:
  - {name: thin, type: lvmthin, content: [images]}
  - {name: thick, type: lvm, content: [images]}
  - {name: nvme1, type: lvm, content: [images], sizeBytes: 107374182400}
  - {name: nvme2, type: lvm, content: [images], sizeBytes: 85899345920}
guests:
  - vmid: 9000
    node: pve1
    template: true
    config:
      name: debian
      memory: "1024"
      cores: "1"
      scsi0: "thin:base-9000-disk-0,size=4G"
      ide2: "thin:vm-9000-cloudinit,media=cdrom"
      efidisk0: "thin:base-9000-disk-1,size=4M"
      net0: "virtio=BC:24:11:90:00:00,bridge=vmbr0"
      net3: "virtio=BC:24:11:90:00:03,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "enabled=1"
  - vmid: 9001
    node: pve1
    template: true
    config:
      name: thick
      memory: "1024"
      cores: "1"
      scsi0: "thick:base-9001-disk-0,size=4G"
      ide2: "thick:vm-9001-cloudinit,media=cdrom"
      net0: "virtio=BC:24:11:90:01:00,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "enabled=1"
  - {vmid: 100, node: pve1, config: {name: web, memory: "512", scsi0: "nvme1:vm-100-disk-0,size=60G"}}
"#;

/// The storages with volumes of a guest.
fn storages(sim: &Sim, agent: &Value) -> Vec<&'static str> {
    let has = |storage: &&str| {
        let path = format!("/nodes/pve1/storage/{storage}/content?vmid={}", agent["vmid"]);
        sim.call("GET", &path)["data"].as_array().is_some_and(|volumes| !volumes.is_empty())
    };
    ["thin", "thick", "nvme1", "nvme2"].into_iter().filter(has).collect()
}

// Invariant: a machine has the cards that its template names, on the bridges that the names mean, with
// their own addresses, and no card more.

#[test]
fn a_machine_has_the_cards_of_its_template_on_the_bridges_that_their_names_mean() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let cards = "instanceCap: 1, networks: [{name: lan, firewall: true}, \
                 {name: dmz, ip: 10.1.0.5/24, gateway: 10.1.0.1, mac: \"BC:24:11:00:00:01\"}, \
                 {name: lab, model: e1000, ip: none}, {bridge: vmbr7, ip6: auto, vlan: 4}]";
    let cloud = ["networkNames: {lab: vmbr7.30}"];
    let templates = [("cards", cards), ("plain", "")];
    site.write_yaml(&yaml(&site, &sim, &cloud, &templates));
    let _service = Service::start(&site);
    let [(_, agent), (_, plain)] = leased(&site, ["cards", "plain"]);
    let guest = guest_of(&sim, &agent);
    let card = |number: usize| setting(&guest, &format!("net{number}"));
    let mac = |number: usize| {
        card(number).split(['=', ',']).nth(1).unwrap_or_else(|| panic!("{guest}")).to_owned()
    };
    assert_eq!(card(0), format!("virtio={},bridge=vmbr0,firewall=1", mac(0)));
    assert_eq!(card(1), "virtio=BC:24:11:00:00:01,bridge=vmbr1");
    assert_eq!(card(2), format!("e1000={},bridge=vmbr7,tag=30", mac(2)));
    assert_eq!(card(3), format!("virtio={},bridge=vmbr7,tag=4", mac(3)));
    assert!(guest["net4"].is_null(), "{guest}");
    // Two clones never have one address of hardware.
    assert!(![mac(0), mac(2), mac(3)].iter().any(|mac| mac.starts_with("BC:24:11:90:")), "{guest}");
    let ip = |number: usize| setting(&guest, &format!("ipconfig{number}"));
    assert_eq!([ip(0), ip(1), ip(2)], ["ip=dhcp", "ip=10.1.0.5/24,gw=10.1.0.1", ""]);
    assert!(ip(3).contains("ip6=auto"), "{guest}");
    // What cloud-init reads in the guest.
    let path = format!("/nodes/pve1/qemu/{}/cloudinit/dump?type=network", agent["vmid"]);
    let network = sim.call("GET", &path)["data"].to_string();
    let second = network.split("bc:24:11:00:00:01").nth(1).unwrap_or_else(|| panic!("{network}"));
    assert!(second.contains("address: '10.1.0.5/24'"), "{network}");

    let guest = guest_of(&sim, &plain);
    assert!(guest["net3"].is_string() && guest["net1"].is_null(), "as in the template: {guest}");
}

// Invariant: a machine has the size, the hardware, the disks and the storages that its template names.

#[test]
fn a_machine_has_the_size_the_hardware_and_the_storages_of_its_template() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let hard = "hardware: {machine: q35, bios: OVMF, cpu: host, sockets: 2, numa: true, \
                disks: [{storage: thin, sizeGb: 5}, {storage: thick, sizeGb: 7}]}";
    let templates = [
        ("named", "size: large"),
        ("written", "size: \"cpu:4,memory:4096,disk:11\", cores: 3"),
        ("hard", hard),
        ("fast", "cloneStrategy: FULL, storageClass: fast"),
        ("thick", "cloneStrategy: FULL, storageClass: thick"),
        ("thin", "templateVmId: 9001, cloneStrategy: FULL, storageClass: thin"),
    ];
    let cloud = ["storageClasses: {fast: [nvme1, nvme2]}"];
    let sizes = "sizes: {large: {cpu: 6, memory: 3072, disk: 14}}\n";
    site.write_yaml(&(yaml(&site, &sim, &cloud, &templates) + sizes));
    let _service = Service::start(&site);
    let agents = leased(&site, ["named", "written", "hard", "fast", "thick", "thin"]);
    let [named, written, hard, fast, thick, thin] = agents.map(|(_, agent)| agent);
    let size = |agent: &Value| {
        let guest = guest_of(&sim, agent);
        let disk = setting(&guest, "scsi0").split("size=").nth(1).unwrap_or_default().to_owned();
        [setting(&guest, "cores"), setting(&guest, "memory"), disk]
    };
    assert_eq!(size(&named), ["6", "3072", "14G"]);
    assert_eq!(size(&written), ["3", "4096", "11G"]);

    let guest = guest_of(&sim, &hard);
    for (key, value) in
        [("machine", "q35"), ("bios", "ovmf"), ("cpu", "host"), ("sockets", "2"), ("numa", "1")]
    {
        assert_eq!(setting(&guest, key), value, "{key}: {guest}");
    }
    let disks = ["scsi1", "scsi2"].map(|drive| setting(&guest, drive));
    assert!(disks[0].starts_with("thin:") && disks[0].contains("size=5G"), "{guest}");
    assert!(disks[1].starts_with("thick:") && disks[1].contains("size=7G"), "{guest}");
    assert_eq!((&guest["scsi3"], storages(&sim, &hard)), (&json!(null), vec!["thin", "thick"]));
    let vmid = hard["vmid"].as_u64().unwrap();
    let running = sim.call("GET", &format!("/nodes/pve1/qemu/{vmid}/status/current"));
    assert_eq!(running["data"]["cpus"], json!(2), "two sockets of one core: {running}");

    // nvme1 is larger, nvme2 has more free.
    assert_eq!(storages(&sim, &fast), ["nvme2"]);
    assert_eq!(storages(&sim, &thick), ["thick"]);
    assert_eq!(storages(&sim, &thin), ["thin"]);
}
