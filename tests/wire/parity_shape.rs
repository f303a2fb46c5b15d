//! What a guest is made of beyond the plugin's keys, how it is found, and what it leaves behind.

use serde_json::Value;

use crate::api::{ask, ready, release};
use crate::harness::{Events, Service, Sim, Site, world, world_of};
use crate::parity::{agents, yaml};

/// A cluster whose template has a network card with a firewall, no guest agent, and notes.
const CLUSTER: &str = "name: shapes\nnodes: [{name: pve1}]\n\
    storages: [{name: local-lvm, type: lvmthin, content: [images]}]\nguests:\n\
    - {vmid: 9000, node: pve1, template: true, config: {name: t, memory: \"512\", cores: \"1\", \
    scsi0: \"local-lvm:base-9000-disk-0,size=4G\", ide2: \"local-lvm:vm-9000-cloudinit,media=cdrom\", \
    boot: \"order=scsi0\", net0: \"e1000=BC:24:11:00:00:01,bridge=vmbr0,firewall=1\"}}\n";

fn configured(site: &Site, sim: &Sim, template: &str) -> (u64, Value) {
    let agent = ready(site, &ask(site, template, "wire"))["agent"].clone();
    let agent = agents(site, template).into_iter().find(|one| one["id"] == agent).unwrap();
    let vmid = agent["vmid"].as_u64().unwrap();
    (vmid, sim.config("pve1", vmid))
}

// Invariant: a guest has what the YAML says and keeps the rest of its template.

#[test]
fn network_cards_cloud_init_and_notes_are_as_the_yaml_says() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let keys = "bridge: vmbr0, vlan: 7, onBoot: true, ciUpgrade: true, ipConfigs: [\"ip=10.9.0.7/24\"], \
                description: \"Ask the build team.\"";
    site.write_yaml(&yaml(&site, &sim, &[], &[("shaped", keys), ("plain", "")]));
    let _service = Service::start(&site);
    let (vmid, guest) = configured(&site, &sim, "shaped");
    let text = |guest: &Value, key: &str| guest[key].to_string().trim_matches('"').to_owned();
    let card = text(&guest, "net0");
    assert!(
        card.starts_with("e1000=") && card.contains("firewall=1") && card.contains("tag=7"),
        "{card}"
    );
    let (onboot, upgrade, second) =
        (text(&guest, "onboot"), text(&guest, "ciupgrade"), text(&guest, "ipconfig1"));
    assert_eq!((onboot.as_str(), upgrade.as_str(), second.as_str()), ("1", "1", "ip=10.9.0.7/24"));
    assert!(text(&guest, "agent").contains('1'), "{guest}");
    let notes = guest["description"].as_str().unwrap().to_owned();
    assert!(notes.starts_with("Ask the build team.") && notes.contains("```drover-1"), "{notes}");

    // What people write around the marks stays theirs, and the agent drover's.
    let written = format!("Kept for Ann.\n{notes}\nSince Monday.");
    let path = format!("/nodes/pve1/qemu/{vmid}/config");
    sim.send("PUT", &path, &[("description", &written)]);
    let mut events = Events::follow(&site);
    let agent = agents(&site, "shaped")[0].clone();
    let out = site.cli(&["resync"]);
    assert!(out.status.success(), "{out:?}");
    let noted = sim.config("pve1", vmid)["description"].as_str().unwrap().to_owned();
    assert!(
        noted.starts_with("Kept for Ann.") && noted.trim_end().ends_with("Since Monday."),
        "{noted}"
    );
    release(&site, agent["leases"][0].as_str().unwrap());
    assert!(site.cli(&["retire", agent["id"].as_str().unwrap()]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == agent["id"]);
    assert_eq!(sim.guests(), Vec::<u64>::new());

    let (_, guest) = configured(&site, &sim, "plain");
    assert_eq!(text(&guest, "ciupgrade"), "0", "{guest}");
    assert!(guest["onboot"].is_null() || text(&guest, "onboot") == "0", "{guest}");
    let card = text(&guest, "net0");
    assert!(card.contains("firewall=1") && !card.contains("tag="), "{card}");
}

// Invariant: a guest that does not shut down in its time is stopped, then destroyed.

#[test]
fn a_guest_that_does_not_shut_down_is_stopped_and_destroyed() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let faults = dir.path().join("faults.yaml");
    let error = "VM quit/powerdown failed - got timeout";
    std::fs::write(&faults, format!("tasks: [{{kind: qmshutdown, error: \"{error}\"}}]\n"))
        .unwrap();
    let options = ["--guests", "process", "--record", record.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "shutdownTimeoutSec: 30")]));
    let _service = Service::start(&site);
    sim.order(&format!("faults {}", faults.display()));
    let lease = ask(&site, "linux", "wire");
    ready(&site, &lease);
    release(&site, &lease);
    let mut events = Events::follow(&site);
    assert!(site.cli(&["reap", "--all"]).status.success());
    events.until("agentGone", |_| true);
    let said = std::fs::read_to_string(&record).unwrap();
    let words = ["status/shutdown", "status/stop", "DELETE"];
    let asked: Vec<&str> = said
        .lines()
        .filter_map(|line| words.into_iter().find(|word| line.contains(word)))
        .collect();
    assert_eq!(asked, words);
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: a machine that is held is counted against the cap until its hold is over.

#[test]
fn a_held_agent_counts_against_the_cap_until_its_hold_runs_out() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "instanceCap: 1")]));
    let _service = Service::start(&site);
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    release(&site, &lease);
    let mut events = Events::follow(&site);
    let held = site.json(&["hold", &agent, "--for", "3s"]);
    assert!(held["privateKey"].as_str().is_some_and(|key| key.contains("PRIVATE KEY")), "{held}");
    let next = ask(&site, "linux", "wire");
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["id"], agent.as_str());
    assert_ne!(ready(&site, &next)["agent"], agent.as_str());
}

// Invariant: a volume that a destroy leaves behind is found, and removed when it was the guest's.

#[test]
fn a_volume_that_a_destroy_left_behind_is_removed() {
    let (dir, sim, site) = world();
    let faults = dir.path().join("faults.yaml");
    std::fs::write(&faults, "frees: [{times: 1, error: device is busy}]\n").unwrap();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "")]));
    let _service = Service::start(&site);
    let lease = ask(&site, "linux", "wire");
    ready(&site, &lease);
    let vmid = agents(&site, "linux")[0]["vmid"].as_u64().unwrap();
    let volumes = || {
        let path = format!("/nodes/pve1/storage/local-lvm/content?vmid={vmid}");
        sim.call("GET", &path)["data"].as_array().unwrap().len()
    };
    assert!(volumes() > 0);
    release(&site, &lease);
    sim.order(&format!("faults {}", faults.display()));
    let mut events = Events::follow(&site);
    assert!(site.cli(&["reap", "--all"]).status.success());
    events.until("agentGone", |_| true);
    assert_eq!(volumes(), 0);
    let log = sim.call("GET", "/nodes/pve1/tasks?typefilter=imgdel")["data"].clone();
    assert_eq!(log.as_array().unwrap().len(), 1, "it did stay behind: {log}");
}
