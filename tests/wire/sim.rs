//! `drover sim` as a product of its own.

use std::path::Path;
use std::process::Command;

use crate::harness::{Kept, Lines, Sim, drover};

// Invariant: any Proxmox client can use the simulator.

/// Runs a foreign client's life of a machine on a fresh simulator.
fn drive(program: impl FnOnce(&Path) -> Command) {
    let said = run(program);
    assert!(said.contains("steps ok"), "{said}");
}

/// Runs a foreign client on a fresh simulator, and gives what it said.
fn run(program: impl FnOnce(&Path) -> Command) -> String {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let facts = dir.path().join("facts.json");
    std::fs::write(&facts, sim.facts.to_string()).unwrap();
    let out = program(&facts).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// The code of the book's page that stands in a fence of this language.
fn snippet(fence: &str) -> &'static str {
    let page = include_str!("../../src/book/simulator.md");
    let (_, rest) = page.split_once(&format!("```{fence}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

fn python() -> Command {
    Command::new(std::env::var("DROVER_TEST_PYTHON").unwrap_or_else(|_| "python3".into()))
}

fn go(dir: &Path) -> Command {
    let mut command = Command::new(std::env::var("DROVER_TEST_GO").unwrap_or_else(|_| "go".into()));
    command.args(["run", "."]).current_dir(dir);
    command.env("GOFLAGS", "-buildvcs=false").env("GOTOOLCHAIN", "local");
    command
}

#[test]
fn proxmoxer_drives_a_virtual_machines_whole_life() {
    drive(|facts| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/proxmoxer_life.py");
        let mut command = python();
        command.arg(script).arg(facts);
        command
    });
}

// Invariant: an answer reaches its client, also one that is still sending the body.

#[test]
fn a_refusal_of_an_unread_body_reaches_pythons_client() {
    drive(|facts| {
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/refused_bodies.py"));
        command.arg(facts);
        command
    });
}

#[test]
fn go_proxmox_drives_a_virtual_machines_and_a_containers_whole_life() {
    drive(|facts| {
        let mut command = go(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/go")));
        command.arg(facts);
        command
    });
}

// Invariant: what the book shows of other clients runs as it stands there.

#[test]
fn the_books_snippet_for_proxmoxer_clones_a_machine() {
    let said = run(|facts| {
        let mut command = python();
        command.arg("-c").arg(snippet("python proxmoxer")).arg(facts);
        command
    });
    assert!(said.starts_with("UPID:pve1:") && said.contains(":qmclone:9000:"), "{said}");
}

#[test]
fn the_books_snippet_for_go_lists_the_nodes() {
    let module = tempfile::tempdir().unwrap();
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/go"));
    for file in ["go.mod", "go.sum"] {
        std::fs::copy(own.join(file), module.path().join(file)).unwrap();
    }
    std::fs::write(module.path().join("main.go"), snippet("go go-proxmox")).unwrap();
    let said = run(|facts| {
        let mut command = go(module.path());
        command.arg(facts);
        command
    });
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["pve1 online", "pve2 online", "pve3 online"]);
}

#[test]
fn the_first_line_says_a_script_all_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none", "--pve", "9.2"]);
    for name in [
        "url",
        "fingerprint",
        "caFile",
        "tokenId",
        "tokenSecret",
        "adminUser",
        "adminPassword",
        "node",
    ] {
        assert!(!sim.fact(name).is_empty(), "{name}");
    }
    assert_eq!(sim.call("GET", "/version")["data"]["release"], "9.2");
    let guests = sim.call("GET", "/cluster/resources?type=vm");
    let mut templates: Vec<u64> = guests["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|guest| guest["vmid"].as_u64().unwrap())
        .collect();
    templates.sort_unstable();
    assert_eq!(templates, [9000, 9001, 9002]);
}

// Invariant: what is served can be looked up.

#[test]
fn the_list_of_what_is_served_is_of_its_version_and_may_be_read_in_part() {
    let list = |version: &str| {
        let out = drover().args(["sim", "--list-api", "--pve", version]).output().unwrap();
        assert_eq!(out.status.code(), Some(0));
        String::from_utf8(out.stdout).unwrap()
    };
    let (eight, nine) = (list("8.4"), list("9.2"));
    assert!(eight.lines().any(|line| line == "POST   /nodes/{node}/vzdump"), "{eight}");
    assert!(!eight.contains("/cluster/ha/rules") && nine.contains("GET    /cluster/ha/rules\n"));
    // As in `drover sim --list-api | head -1`: nobody reads the pipe.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = drover();
    command.args(["sim", "--list-api"]).stdout(writer).stderr(std::process::Stdio::piped());
    let out = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((out.status.code(), &*String::from_utf8_lossy(&out.stderr)), (Some(1), ""));
}

// Invariant: what cannot be served is refused with the reason.

#[test]
fn emulated_guests_without_images_are_refused_with_what_they_need() {
    let mut command = drover();
    command.args(["sim", "--listen", "127.0.0.1:0", "--guests", "qemu"]);
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("`--guests qemu` needs `--images DIR`"), "{said}");
}

#[test]
fn an_address_beyond_this_machine_is_refused() {
    let out = drover().args(["sim", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("loopback"));
}

// Invariant: the simulator ends with what holds it, and takes its guests along.

#[test]
fn a_terminated_simulator_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut sim = Sim::start(dir.path());
    sim.child.signal("TERM");
    assert_eq!(sim.child.wait(), Some(0));
}

/// Keeps the helpers of the harness honest about children that end at once.
#[test]
fn a_child_that_ends_at_once_is_noticed() {
    let mut command = Command::new("true");
    command.stdout(std::process::Stdio::piped());
    let mut child = Kept(command.spawn().unwrap());
    let stdout = child.0.stdout.take().unwrap();
    assert_eq!(Lines::of("true", stdout).rest(), "");
    assert_eq!(child.wait(), Some(0));
}
