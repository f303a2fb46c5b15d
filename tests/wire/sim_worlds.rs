//! Named worlds, resets, and troubles of guests of `drover sim`, over HTTPS and SSH.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Sim, drover};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Starts a task and gives how it ended.
fn run(sim: &Sim, path: &str, params: &[(&str, &str)]) -> String {
    let started = sim.send("POST", path, params);
    let upid = started["data"].as_str().unwrap_or_else(|| panic!("{path}: {started}")).to_owned();
    let node = path.split('/').nth(2).unwrap();
    let upid = upid.replace('@', "%40").replace('!', "%21");
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let status = sim.call("GET", &format!("/nodes/{node}/tasks/{upid}/status"));
        if status["data"]["status"] == "stopped" {
            return status["data"]["exitstatus"].as_str().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "{path}: {status}");
    }
}

/// Clones a template to VM 101 and starts that.
fn start_clone(sim: &Sim, template: u32) {
    let clone = format!("/nodes/pve1/qemu/{template}/clone");
    assert_eq!(run(sim, &clone, &[("newid", "101"), ("name", "one")]), "OK");
    assert_eq!(run(sim, "/nodes/pve1/qemu/101/status/start", &[]), "OK");
}

fn destroy(sim: &Sim) {
    assert_eq!(run(sim, "/nodes/pve1/qemu/101/status/stop", &[]), "OK");
    let gone = sim.call("DELETE", "/nodes/pve1/qemu/101");
    assert!(gone["data"].is_string(), "{gone}");
    let deadline = Instant::now() + WAIT_LIMIT;
    while sim.guests().contains(&101) {
        assert!(Instant::now() < deadline, "the guest stays");
    }
}

fn interfaces(sim: &Sim) -> Value {
    sim.call("GET", "/nodes/pve1/qemu/101/agent/network-get-interfaces")
}

/// The address that the agent reports, once it does.
fn address(sim: &Sim) -> String {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let found = interfaces(sim);
        if let Some(ip) = found["data"]["result"][1]["ip-addresses"][0]["ip-address"].as_str() {
            return ip.to_owned();
        }
        assert!(Instant::now() < deadline, "{found}");
    }
}

/// The message of the last answer of the agent's address, once it is as wanted.
fn refused(sim: &Sim, wanted: &str) {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        let found = interfaces(sim);
        if found["message"].as_str().is_some_and(|text| text.contains(wanted)) {
            return;
        }
        assert!(Instant::now() < deadline, "`{wanted}` in {found}");
    }
}

fn shutdown(sim: &Sim) -> String {
    run(sim, "/nodes/pve1/qemu/101/status/shutdown", &[("timeout", "1")])
}

// Invariant: every trouble of guests is there by a tag that clones inherit, and by an order.

#[test]
fn each_trouble_comes_by_the_tag_of_a_template() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--world", "troubles", "--guests", "greeter"]);
    let silent = "QEMU guest agent is not running";
    let stays = "VM quit/powerdown failed - got timeout";
    start_clone(&sim, 9001);
    refused(&sim, silent);
    assert_eq!(shutdown(&sim), stays, "never-boots");
    destroy(&sim);
    start_clone(&sim, 9002);
    assert_eq!(shutdown(&sim), stays, "hangs");
    refused(&sim, silent);
    destroy(&sim);
    start_clone(&sim, 9003);
    refused(&sim, silent);
    destroy(&sim);
    start_clone(&sim, 9004);
    let deadline = Instant::now() + WAIT_LIMIT;
    let card = loop {
        let card = interfaces(&sim)["data"]["result"][1].clone();
        if card.is_object() {
            break card;
        }
        assert!(Instant::now() < deadline, "no answer");
    };
    assert_eq!((&card["name"], card.get("ip-addresses")), (&json!("eth0"), None), "no-address");
    destroy(&sim);
    start_clone(&sim, 9005);
    address(&sim);
    assert_eq!(shutdown(&sim), stays, "ignores-shutdown");
}

#[test]
fn a_running_guest_hangs_by_an_order_and_goes_on_by_another() {
    let dir = tempfile::tempdir().unwrap();
    for guests in ["greeter", "process"] {
        let home = dir.path().join(guests);
        std::fs::create_dir(&home).unwrap();
        let sim = Sim::start_with(&home, &["--guests", guests]);
        start_clone(&sim, 9000);
        let address = address(&sim);
        sim.order("trouble 101 hangs");
        let mut ssh = TcpStream::connect((address.as_str(), 2222)).unwrap();
        refused(&sim, "QEMU guest agent is not running");
        ssh.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut greeting = [0; 8];
        assert!(ssh.read_exact(&mut greeting).is_err(), "{guests}: it greets");
        sim.order("trouble 101 none");
        ssh.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        ssh.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"SSH-2.0-");
        assert!(interfaces(&sim)["data"].is_object());
        sim.order("power-off 101");
        let current = sim.call("GET", "/nodes/pve1/qemu/101/status/current");
        assert_eq!(current["data"]["status"], "stopped", "{guests}");
    }
}

// Invariant: a reset gives the world as it began, to the same clients.

#[test]
fn a_reset_ends_guests_and_tasks_and_keeps_address_authority_and_token() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--all-nodes"]);
    start_clone(&sim, 9000);
    let address = address(&sim);
    let answer = sim.order("reset");
    for key in ["url", "urls", "caFile", "fingerprint", "node", "nodes", "templateVmId"] {
        assert_eq!(answer[key], sim.facts[key], "{key}");
    }
    assert_eq!(answer.get("tokenSecret"), None);
    assert_eq!(sim.guests(), Vec::<u64>::new());
    assert!(TcpStream::connect((address.as_str(), 2222)).is_err(), "its guest lives");
    start_clone(&sim, 9000);
    assert_eq!(sim.guests(), [101]);
}

#[test]
fn a_named_world_starts_and_another_follows_by_an_order() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--world", "lone", "--guests", "none"]);
    assert_eq!(sim.facts["nodes"], json!(["pve"]));
    let answer = sim.order("world full-storage");
    assert_eq!((&answer["url"], &answer["caFile"]), (&sim.facts["url"], &sim.facts["caFile"]));
    assert_eq!(answer["nodes"], json!(["pve1"]));
    let clone = run(&sim, "/nodes/pve1/qemu/9000/clone", &[("newid", "101"), ("full", "1")]);
    assert!(clone.contains("insufficient free space"), "{clone}");
    let answer = sim.order("world big");
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 16);
    assert_eq!(sim.guests().len(), 48);
    let answer = sim.order("world lone");
    assert_eq!(answer["node"], "pve");
}

#[test]
fn the_list_of_worlds_names_those_that_can_start() {
    let out = drover().args(["sim", "--list-worlds"]).output().unwrap();
    let list = String::from_utf8(out.stdout).unwrap();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["three-nodes", "lone", "full-storage", "troubles", "big", "old"]);
    let out =
        drover().args(["sim", "--listen", "127.0.0.1:0", "--world", "moon"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("unknown world `moon`; the worlds are three-nodes, lone"), "{said}");
}
