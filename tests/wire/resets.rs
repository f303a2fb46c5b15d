//! Machines that are put back rather than destroyed, failures that are held, doors that are closed:
//! over real HTTP and real SSH.

use serde_json::Value;

use crate::api::{ask, ready, release};
use crate::harness::{Events, Service, Sim, Site, world};

/// The VMID of the only guest.
fn vmid(sim: &Sim) -> u64 {
    let guests = sim.guests();
    assert_eq!(guests.len(), 1, "{guests:?}");
    guests[0]
}

/// What a command says on an agent that is leased for somebody.
fn says(site: &Site, owner: &str, command: &str) -> String {
    let out = site.cli(&["lease", "--template", "linux", "--owner", owner, "--", command]);
    let said = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

// Invariant: the same owner gets the same machine as it was before anybody used it.

fn put_back(kind: &str) {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, &format!("    reset: {kind}\n    readyCommand: \"true\"\n")));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = ask(&site, "linux", "ann");
    ready(&site, &lease);
    let generation = sim.config(sim.fact("node"), vmid(&sim))["vmgenid"].clone();
    release(&site, &lease);
    let first = says(&site, "ann", "echo mine > ~/left; echo x >> ~/.profile; hostname");
    events.until("resets", |fact| fact["resets"]["count"] == 2);
    let second = says(&site, "ann", "ls -a ~ | grep -cE 'left|profile'; hostname");
    assert_eq!(second, format!("0\n{first}"));
    let now = sim.config(sim.fact("node"), vmid(&sim))["vmgenid"].clone();
    assert!(generation.is_string() && now.is_string() && now != generation, "{now}");
    let other = says(&site, "ben", "hostname");
    assert_ne!(other, first);

    let shown = String::from_utf8_lossy(&site.cli(&["templates"]).stdout).into_owned();
    assert!(shown.contains("resets of"), "{shown}");
    events.until("resets", |fact| fact["resets"]["count"] == 4);
    assert!(site.cli(&["reap", "--all"]).status.success());
    for _ in 0..2 {
        events.until("agentGone", |_| true);
    }
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

#[test]
fn a_machine_is_put_back_with_its_disks_for_the_same_owner() {
    put_back("DISK");
}

#[test]
fn a_machine_is_put_back_with_its_memory_for_the_same_owner() {
    put_back("MEMORY");
}

// Invariant: who was in a machine is not there after it was put back, and their key lets nobody in.

#[test]
fn the_session_and_the_key_of_a_lease_are_gone_with_it() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "    reset: DISK\n"));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = ask(&site, "linux", "ann");
    ready(&site, &lease);
    release(&site, &lease);
    events.until("resets", |fact| fact["resets"]["count"] == 1);
    let keys = says(&site, "ann", "grep -c drover-lease- ~/.ssh/authorized_keys");
    assert_eq!(keys, "1", "only its own");
    assert_eq!(sim.guests().len(), 1, "in the same machine");
}

// Invariant: without the rights for it agents are destroyed after their lease, as without resets, and
// what is missing is reported.

#[test]
fn without_the_right_to_take_snapshots_agents_are_destroyed_and_that_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.yaml");
    std::fs::write(&cluster, include_str!("reset_cluster.yaml")).unwrap();
    let options = ["--guests", "process", "--cluster", cluster.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    site.write_secret("token", "11111111-2222-3333-4444-555555555555");
    let own = format!("\"{}\"", sim.fact("tokenId"));
    site.write_yaml(&site.yaml(&sim, "    reset: DISK\n").replace(&own, "\"ci@pve!plain\""));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let mut reported = Vec::new();
    let mut served = Vec::new();
    for _ in 0..2 {
        let lease = ask(&site, "linux", "ann");
        served.push(ready(&site, &lease)["agent"].clone());
        release(&site, &lease);
        events.all_until(|fact| fact["kind"] == "agentGone");
        let resets = site.json(&["templates"])["templates"][0]["resets"].clone();
        reported.push(resets["detail"].as_str().unwrap_or_default().to_owned());
    }
    assert_ne!(served[0], served[1]);
    let clear = "needs the privilege `VM.Snapshot` on `/vms/";
    assert!(reported.iter().all(|text| text.contains(clear)), "{reported:?}");
    let shown = String::from_utf8_lossy(&site.cli(&["templates"]).stdout).into_owned();
    assert_eq!(shown.matches(clear).count(), 1, "reported once: {shown}");
    assert_eq!(site.json(&["templates"])["templates"][0]["breaker"], "flowing");
    let status = site.json(&["status"]);
    assert_eq!(status["alarms"].as_array().map(Vec::len), Some(0), "{status}");
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: the next failure of a template is kept with its cause and a way in, and no other.

#[test]
fn the_next_failure_is_held_with_its_cause_and_a_login() {
    let (_dir, sim, site) = world();
    let ready = "    readyCommand: \"echo no licence >&2; exit 3\"\n    breakerThreshold: 9\n";
    site.write_yaml(&site.yaml(&sim, ready));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let held = site.json(&["hold-next", "linux", "--for", "1h"]);
    assert_eq!((&held["template"], &held["seconds"]), (&"lab/linux".into(), &3600.into()));
    let shown = String::from_utf8_lossy(&site.cli(&["templates"]).stdout).into_owned();
    assert!(shown.contains("lab/linux: the next failure is held for 3600 s"), "{shown}");
    site.cli(&["provision", "linux"]);
    let open = |fact: &Value| {
        let detail = fact["agent"]["detail"].as_str().unwrap_or_default();
        fact["agent"]["state"] == "Held" && detail.ends_with("the login is open")
    };
    let agent = events.until("agent", open)["agent"].clone();
    let detail = agent["detail"].as_str().unwrap();
    assert!(detail.contains("readyCommand") && detail.contains("no licence"), "{detail}");
    site.write_secret("held", held["privateKey"].as_str().unwrap());
    let (host, port) = (agent["ssh"]["host"].as_str().unwrap(), &agent["ssh"]["port"]);
    let out = std::process::Command::new("ssh")
        .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-p", &port.to_string(), "-i"])
        .arg(site.dir.path().join("held"))
        .args([&format!("debian@{host}"), "echo inside"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "inside\n", "{out:?}");

    // It is used up: the next one goes.
    site.cli(&["provision", "linux"]);
    let gone = events.until("agentGone", |_| true);
    assert_ne!(gone["agent"]["id"], agent["id"]);
    assert!(site.cli(&["hold-next", "linux"]).status.success());
    assert!(site.cli(&["hold-next", "linux", "--off"]).status.success());
    let shown = String::from_utf8_lossy(&site.cli(&["templates"]).stdout).into_owned();
    assert!(!shown.contains("next failure"), "{shown}");
    let id = agent["id"].as_str().unwrap();
    assert!(site.cli(&["release-hold", id]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == id);
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: a retirement is as gentle as the template says, and leaves nothing.

/// What the cluster was asked of power and existence while an agent went.
fn asked_while_it_went(keys: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let options = ["--guests", "process", "--record", record.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    site.write_yaml(&site.yaml(&sim, keys));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    says(&site, "ann", "true");
    assert!(site.cli(&["reap", "--all"]).status.success());
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "reaped");
    assert_eq!(sim.guests(), Vec::<u64>::new());
    let text = std::fs::read_to_string(&record).unwrap();
    let words = ["status/shutdown", "status/stop", "DELETE"];
    let reported = |line: &&str| words.into_iter().find(|word| line.contains(word));
    text.lines().filter_map(|line| reported(&line)).map(str::to_owned).collect()
}

#[test]
fn a_guest_is_shut_down_within_a_limit_and_then_destroyed() {
    assert_eq!(asked_while_it_went("    shutdownTimeoutSec: 30\n"), ["status/shutdown", "DELETE"]);
}

#[test]
fn a_guest_whose_ssh_is_closed_off_is_stopped_hard_and_destroyed() {
    let keys = "    closeSshBeforeDelete: true\n    shutdownTimeoutSec: 30\n";
    assert_eq!(asked_while_it_went(keys), ["status/stop", "DELETE"]);
}
