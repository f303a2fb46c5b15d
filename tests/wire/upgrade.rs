//! An upgrade: the program is replaced and started again while agents live and commands run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_journal::{Log as _, RedbLog};
use serde_json::{Value, json};

use crate::api::Board;
use crate::harness::{Kept, Lines, Service, Site, drover, world};
use crate::parity::yaml;

/// Agents that live, and commands that run on some of them, while the program is replaced.
const AGENTS: usize = 50;
const COMMANDS: usize = 10;
/// A command that says that it runs, and goes on once it hears a line.
const COMMAND: &str = "echo runs; read line; echo $line; exit 7";

/// A command on a leased agent.
struct Running {
    child: Kept,
    said: Lines,
}

impl Running {
    fn start(site: &Site) -> Self {
        let mut command = site.command(["lease", "--template", "linux", "--", COMMAND]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = Lines::of("drover lease", child.stdout.take().unwrap());
        Self { child: Kept(child), said }
    }
}

/// The program of the tests under a name of its own, as an installed one.
fn install(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    let program = drover().get_program().to_owned();
    // A running program's file cannot be written to, so a package puts a new file in its place.
    let fresh = dir.join(".new");
    std::fs::copy(program, &fresh).unwrap();
    std::fs::rename(&fresh, &path).unwrap();
    path
}

fn start(program: &Path, site: &Site) -> Service {
    let mut command = Command::new(program);
    command.arg("--config").arg(site.config()).arg("run");
    let mut service = Service::launch(command);
    service.hear("READY=1");
    service.drain();
    service
}

/// The VMID of each agent.
fn machines(site: &Site) -> BTreeMap<String, u64> {
    let agents = site.json(&["agents"])["agents"].clone();
    let vmid =
        |one: &Value| (one["id"].as_str().unwrap().to_owned(), one["vmid"].as_u64().unwrap());
    agents.as_array().unwrap().iter().map(vmid).collect()
}

fn state_file(site: &Site) -> PathBuf {
    site.dir.path().join("state/layout.json")
}

fn says(site: &Site) -> Value {
    serde_json::from_slice(&std::fs::read(state_file(site)).unwrap()).unwrap()
}

// Invariant: an upgrade loses no agent and no command.

#[test]
fn fifty_agents_and_ten_running_commands_live_through_an_upgrade() {
    let (dir, sim, site) = world();
    let cap = format!("instanceCap: {AGENTS}, memoryMb: 512");
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", &cap)]));
    let program = install(dir.path(), "installed");
    let mut service = start(&program, &site);
    let mut board = Board::open(&site);
    let count = AGENTS.to_string();
    assert!(site.cli(&["provision", "linux", "--count", &count]).status.success());
    while board.in_state("Ready") < AGENTS {
        board.next(&site);
    }
    let mut commands: Vec<Running> = (0..COMMANDS).map(|_| Running::start(&site)).collect();
    for command in &mut commands {
        command.said.until(|line| line == "runs");
    }
    let before = machines(&site);
    assert_eq!(before.len(), AGENTS);

    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    // As if another version had been here.
    std::fs::write(state_file(&site), r#"{"layout":1,"drover":"0.0.9"}"#).unwrap();
    let program = install(dir.path(), "installed");
    let _service = start(&program, &site);
    assert_eq!(says(&site)["drover"], env!("CARGO_PKG_VERSION"));

    assert_eq!(machines(&site), before, "an agent was lost, or another one was made");
    assert_eq!(sim.guests().len(), AGENTS);
    let leases = site.json(&["leases"])["leases"].clone();
    let states = leases.as_array().unwrap().iter().map(|lease| lease["state"].as_str().unwrap());
    assert_eq!(states.collect::<Vec<_>>(), ["ready"; COMMANDS]);
    for command in &mut commands {
        writeln!(command.child.0.stdin.take().unwrap(), "goes on").unwrap();
        command.said.until(|line| line == "goes on");
        assert_eq!(command.child.wait(), Some(7));
    }
    assert_eq!(site.json(&["leases"])["leases"], json!([]));
}

// Invariant: the book names everything that lies in a state directory.

#[test]
fn nothing_lies_in_the_state_directory_that_its_page_does_not_name() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    site.json(&["lease", "--labels", "linux"]);
    let page = include_str!("../../src/book/state.md");
    let files = std::fs::read_dir(site.dir.path().join("state")).unwrap();
    let names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.contains(&"layout.json".to_owned()), "{names:?}");
    for name in names {
        assert!(page.contains(&format!("\n| `{name}` |")), "{name} is not on the page");
    }
}

// Invariant: a program that cannot read what a newer one wrote says which one can, and changes nothing.

/// How a start ends that is refused: its code, and what it says.
fn refused(site: &Site) -> (Option<i32>, String) {
    let out = drover().arg("--config").arg(site.config()).arg("run").output().unwrap();
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn a_downgrade_is_refused_with_the_version_to_install_and_leaves_the_journal_as_it_is() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    assert_eq!(says(&site), json!({"layout": 1, "drover": env!("CARGO_PKG_VERSION")}));
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let journal = site.dir.path().join("state/journal.redb");
    let before = records(&journal);

    // One that lays out its directory otherwise.
    std::fs::write(state_file(&site), r#"{"layout":2,"drover":"9.0.0"}"#).unwrap();
    let (code, reported) = refused(&site);
    assert_eq!(code, Some(2), "{reported}");
    assert!(reported.contains("has layout 2, and drover "), "{reported}");
    assert!(reported.contains("Install drover 9.0.0, which used it last"), "{reported}");
    assert_eq!(records(&journal), before);

    // One that wrote a record of a newer format.
    std::fs::write(state_file(&site), r#"{"layout":1,"drover":"9.0.0"}"#).unwrap();
    append_newer(&journal);
    let before = records(&journal);
    let (code, reported) = refused(&site);
    assert_eq!(code, Some(2), "{reported}");
    assert!(reported.contains("drover 9.0.0 used this state directory last"), "{reported}");
    assert!(reported.contains("has format 2, and this drover reads up to 1"), "{reported}");
    assert_eq!(records(&journal), before);
    assert_eq!(says(&site)["drover"], "9.0.0");
}

fn records(journal: &Path) -> Vec<(u64, Vec<u8>)> {
    RedbLog::open(journal).unwrap().read_from(1).unwrap()
}

/// Adds a record that only a newer drover knows.
fn append_newer(journal: &Path) {
    let mut log = RedbLog::open(journal).unwrap();
    let last = log.read_from(1).unwrap().last().unwrap().0;
    let record = json!({"version": 2, "seq": last + 1, "epoch": 9, "wallTime": 0, "body": {"shardMoved": {}}});
    log.append(last, &[serde_json::to_vec(&record).unwrap()], true).unwrap();
}
