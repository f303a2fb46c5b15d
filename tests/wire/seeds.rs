//! User data in disc images: read by programs others wrote, by cloud-init's own code, and by a guest
//! that somebody logs in to.

use std::path::Path;
use std::process::{Command, Output};

use drover_nocloud::iso::CloudInitTexts;
use serde_json::Value;

use crate::addresses::network;
use crate::api::release;
use crate::harness::{Events, Service, world, world_of};
use crate::parity::{guest_of, leased, yaml};

/// Texts as drover makes them, with everything in them that it says.
fn texts() -> CloudInitTexts {
    use drover_model::container::GuestType;
    use drover_model::id::{AgentId, CloudId, ClusterId, Installation, TemplateId, VmId};
    use drover_model::marks::{Kind, Marks};
    use drover_model::seed::{NicSpec, SeedSpec};
    use drover_model::spec::TemplateSpec;
    use proxmox_client::types::VmConfig;

    let mut spec = TemplateSpec::bare(TemplateId::new(CloudId::new("lab"), "linux"), VmId(9000));
    spec.ssh.public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ drover".into();
    spec.ssh.user = "ci".into();
    let user_data = "#cloud-config\nhostname: ${runner_name}\nuser: ${user}\nruncmd:\n\
                     - echo \"$HOME $(date) $$\" > /tmp/x\n";
    spec.cloud_init.seed = Some(SeedSpec {
        storage: "local".into(),
        user_data: Some(user_data.into()),
        values: [("runner_name".to_owned(), "run-${vmid}".to_owned())].into(),
        ..SeedSpec::default()
    });
    let nic = NicSpec {
        bridge: "vmbr0".into(),
        vlan: None,
        mac: None,
        model: None,
        firewall: None,
        ip_config: None,
        dns: Vec::new(),
        search: Vec::new(),
    };
    spec.nics = vec![nic.clone(), NicSpec { dns: vec!["10.1.0.2".into()], ..nic }];
    let marks = Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new("4f8z1c3px9t2vkab"),
        vmid: VmId(10_417),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        kind: Kind::Agent,
        guest: GuestType::Vm,
        seq: 7,
        cloud: "lab".into(),
        template: "linux".into(),
        born: "2026-11-21T08:11:02Z".into(),
    };
    let config = VmConfig::new([
        ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
        ("ipconfig0", "ip=dhcp"),
        ("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr0"),
        ("ipconfig1", "ip=10.1.0.5/24,gw=10.1.0.1,ip6=fd00::5/64,gw6=fd00::1"),
        ("nameserver", "10.0.0.2"),
        ("searchdomain", "example.com"),
    ]);
    drover_hypervisor::texts(&spec, &marks, "pve1", &config).unwrap().unwrap()
}

fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&out.stdout));
    out
}

/// A file of an image, by isoinfo through one of its three ways of names.
fn taken(image: &Path, way: &[&str], name: &str) -> Vec<u8> {
    run(Command::new("isoinfo").args(way).args(["-x", name]).arg("-i").arg(image)).stdout
}

fn written(dir: &Path, seed: &CloudInitTexts) -> std::path::PathBuf {
    let image = dir.join("seed.iso");
    std::fs::write(&image, seed.image()).unwrap();
    image
}

// Invariant: an image is one by the reading of others, through each of its three ways of names.

#[test]
fn isoinfo_finds_label_names_and_texts() {
    let dir = tempfile::tempdir().unwrap();
    let seed = texts();
    let image = written(dir.path(), &seed);
    let about = run(Command::new("isoinfo").args(["-d", "-i"]).arg(&image)).stdout;
    let about = String::from_utf8_lossy(&about).into_owned();
    let sectors = seed.image().len() / 2048;
    for line in [
        "CD-ROM is in ISO 9660 format",
        "Volume id: cidata",
        "Logical block size is: 2048",
        &format!("Volume size is: {sectors}"),
        "Joliet with UCS level 3 found",
        "Rock Ridge signatures version 1 found",
    ] {
        assert!(about.contains(line), "{line}\n{about}");
    }
    let network = seed.network_config.clone().unwrap();
    for (name, short, text) in [
        ("/user-data", "/USERDATA.;1", &seed.user_data),
        ("/meta-data", "/METADATA.;1", &seed.meta_data),
        ("/network-config", "/NETCONF.;1", &network),
    ] {
        for (way, name) in [(&["-R"][..], name), (&["-J"], name), (&[], short)] {
            let found = taken(&image, way, name);
            assert_eq!(String::from_utf8_lossy(&found), text.as_str(), "{way:?} {name}");
        }
    }
    let listed = run(Command::new("isoinfo").args(["-l", "-R", "-i"]).arg(&image)).stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    assert_eq!(listed.matches("-r--r--r--").count(), 3, "{listed}");
    let known = run(Command::new("blkid").args(["-p", "-o", "export"]).arg(&image)).stdout;
    let known = String::from_utf8_lossy(&known).into_owned();
    assert!(known.contains("LABEL=cidata") && known.contains("TYPE=iso9660"), "{known}");
}

// Invariant: cloud-init's own code takes what is on an image for what was meant.

#[test]
fn cloud_init_itself_reads_an_image_as_it_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let image = written(dir.path(), &texts());
    for name in ["user-data", "meta-data", "network-config"] {
        let text = taken(&image, &["-R"], &format!("/{name}"));
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let code = std::env::var("DROVER_TEST_CLOUD_INIT")
        .unwrap_or_else(|_| "/usr/lib/python3/dist-packages".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/nocloud.py");
    let mut python = Command::new("/usr/bin/python3");
    let out = run(python.env("PYTHONPATH", code).arg(script).arg(dir.path()));
    let heard: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(heard["found"], true);
    assert_eq!(heard["instanceId"], "drover-4f8z1c3px9t2vkab");
    assert_eq!(heard["hostname"], "linux-7k2m9qxw-4f8z1c3px9t2vkab");
    assert_eq!(heard["keys"][0], "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ drover");
    assert_eq!(heard["type"][0], "text/cloud-config");
    assert_eq!(heard["config"]["hostname"], "run-10417");
    assert_eq!(heard["config"]["user"], "ci");
    assert_eq!(heard["config"]["runcmd"][0], "echo \"$HOME $(date) $$\" > /tmp/x");
    let netplan = heard["netplan"].as_str().unwrap();
    for line in ["macaddress: bc:24:11:00:00:02", "- 10.1.0.2", "- fd00::5/64", "dhcp4: true"] {
        assert!(netplan.contains(line), "{line}\n{netplan}");
    }
    let interfaces = heard["interfaces"].as_str().unwrap();
    for line in [
        "iface eth0 inet dhcp",
        "iface eth1 inet static\n    address 10.1.0.5/24\n    dns-nameservers 10.1.0.2",
        "gateway 10.1.0.1",
        "iface eth1 inet6 static\n    address fd00::5/64",
        "gateway fd00::1",
    ] {
        assert!(interfaces.contains(line), "{line}\n{interfaces}");
    }
}

// Invariant: a guest is what its user data says, and drover logs in to it all the same; nothing of
// it stays on the storage.

#[test]
fn a_guest_is_called_and_logged_in_to_as_its_user_data_says() {
    let (_dir, sim, site) = world();
    let file = site.config().with_file_name("user-data.yaml");
    let user_data = "#cloud-config\nhostname: build-${vmid}\nuser: ${user}\n\
                     ssh_authorized_keys:\n  - ${sshPublicKey}\n";
    std::fs::write(&file, user_data).unwrap();
    site.write_yaml(&site.yaml(&sim, "    userDataFile: user-data.yaml\n    maxTotalUses: 1\n"));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname; id -un"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let vmid = said.lines().next().and_then(|name| name.strip_prefix("build-"));
    assert!(vmid.is_some_and(|vmid| vmid.parse::<u64>().is_ok()), "{said}");
    events.until("agentGone", |_| true);
    let content = format!("/nodes/{}/storage/local/content?content=iso", sim.fact("node"));
    assert_eq!(sim.call("GET", &content)["data"], serde_json::json!([]));
}

/// A cluster whose card for `own` is known, and on whose storage somebody put a snippet: a drive names it.
const CLUSTER: &str = r#"
name: seeds
nodes: [{name: pve1}]
storages:
  - {name: local, type: dir, content: [iso, snippets]}
  - {name: local-lvm, type: lvmthin, content: [images]}
guests:
  - vmid: 9000
    node: pve1
    template: true
    config:
      name: debian
      memory: "512"
      cores: "1"
      scsi0: "local-lvm:base-9000-disk-0,size=2G"
      ide2: "local-lvm:vm-9000-cloudinit,media=cdrom"
      net0: "virtio=BC:24:11:90:00:00,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "1"
  - {vmid: 100, node: pve1, config: {name: keeper, ide3: "local:snippets/ci.yaml,media=cdrom,size=1K"}}
"#;

// Invariant: meta data, network and values of the YAML's own reach the guest, and snippets are named to it.

#[test]
fn a_guest_has_the_names_the_address_and_the_snippets_that_its_template_gives_it() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let place = format!("{}.9", network());
    let texts = [
        ("user.yaml", "#cloud-config\nuser: ${user}\nruncmd: [\"echo $${team}\"]\n".to_owned()),
        ("meta.yaml", "instance-id: ${instanceId}\nlocal-hostname: ${team}-${vmid}\n".to_owned()),
        (
            "network.yaml",
            format!(
                "version: 2\nethernets:\n  lan:\n    match: {{macaddress: \"${{card}}\"}}\n    \
                 addresses: [{place}/24]\n"
            ),
        ),
    ];
    for (name, text) in texts {
        std::fs::write(site.dir.path().join(name), text).unwrap();
    }
    let own = "instanceCap: 1, maxTotalUses: 1, networks: [{name: lan, mac: \"BC:24:11:00:00:09\"}], \
               userDataFile: user.yaml, metaDataFile: meta.yaml, networkConfigFile: network.yaml, \
               userDataValues: {team: \"blue-${template}\", card: \"bc:24:11:00:00:09\"}, \
               guestNetworks: [127.0.0.0/8]";
    let snippets = "cloudInitCustom: {vendor: \"local:snippets/ci.yaml\"}";
    let missing = "cloudInitCustom: {vendor: \"local:snippets/gone.yaml\"}, breakerThreshold: 100";
    let templates = [("own", own), ("snippets", snippets), ("missing", missing)];
    site.write_yaml(&yaml(&site, &sim, &[], &templates));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    assert!(site.cli(&["provision", "missing"]).status.success());
    let [(lease, agent), (_, other)] = leased(&site, ["own", "snippets"]);
    assert_eq!(agent["ssh"]["host"], place.as_str(), "{agent}");
    let vmid = agent["vmid"].as_u64().unwrap();
    // What the guest calls itself, as its guest agent says it.
    let path = format!("/nodes/pve1/qemu/{vmid}/agent/get-host-name");
    let name = sim.call("GET", &path)["data"]["result"]["host-name"].clone();
    assert_eq!(name, format!("blue-own-{vmid}").as_str());
    let guest = guest_of(&sim, &other);
    assert_eq!(guest["cicustom"], "vendor=local:snippets/ci.yaml", "{guest}");
    let gone = events.until("agentGone", |fact| fact["agent"]["template"] == "lab/missing");
    let detail = gone["agent"]["detail"].as_str().unwrap();
    assert!(detail.contains("volume 'local:snippets/gone.yaml' does not exist"), "{gone}");
    release(&site, &lease);
    events.until("agentGone", |fact| fact["agent"]["id"] == agent["id"]);
    let content = sim.call("GET", "/nodes/pve1/storage/local/content?content=iso")["data"].clone();
    assert_eq!(content, serde_json::json!([]));
}
