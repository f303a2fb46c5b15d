//! Where nobody takes what a command prints: every command says so and ends with 1.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use drover_stores::testing::ObjectServer;
use serde_json::Value;

use crate::harness::{Events, Kept, Service, Sim, Site, world};
use crate::scripts::{ALONE, ASKING, bare_machine};
use crate::{rights, setup_service, shards, simulate};

/// Commands that may be asked again and again, and change nothing.
const READING: [&str; 15] = [
    "status",
    "agents",
    "templates",
    "breakers",
    "nodes",
    "why",
    "jobs",
    "address-pools",
    "image list",
    "leases",
    "audit",
    "usage",
    "trace",
    "resync",
    "events",
];

/// Runs a command whose output is a full disk: it must say so, and end with 1.
fn on_a_full_disk(mut command: Command, name: &str) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let out = command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let to_people = last.starts_with("drover: cannot write the output: No space left");
    let to_scripts = last.contains("\"text\":\"cannot write the output: No space left");
    assert!(to_people || to_scripts, "{name}: {said}");
    assert_eq!(out.status.code(), Some(1), "{name}: {said}");
}

/// Runs a command whose output is a pipe that nobody reads: it must end with 1 and say nothing.
fn on_a_closed_pipe(mut command: Command, name: &str) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!said.contains("panicked") && !said.contains("cannot write"), "{name}: {said}");
    assert_eq!(out.status.code(), Some(1), "{name}: {said}");
}

fn words<'a>(name: &'a str, more: &'a str) -> Vec<&'a str> {
    name.split(' ').chain(more.split_whitespace()).collect()
}

// Invariant: an output that takes nothing is reported by each command in the same way, and none panics.

#[test]
fn every_command_that_asks_reports_an_output_that_takes_nothing() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let started = site.json(&["provision", "linux", "--count", "2"]);
    let agents = [0_usize, 1].map(|at| started["agents"][at].as_str().unwrap().to_owned());
    let mut coming = BTreeSet::from(agents.clone());
    while !coming.is_empty() {
        let ready = events.until("agent", |fact| fact["agent"]["state"] == "Ready");
        coming.remove(ready["agent"]["id"].as_str().unwrap());
    }
    for name in READING {
        on_a_closed_pipe(site.command(words(name, "")), name);
    }
    for (name, more, code) in ASKING {
        // Those that are refused print nothing.
        if code != 0 {
            continue;
        }
        let is_of_a_lease = matches!(name, "release" | "lease release" | "lease renew");
        let lease = match is_of_a_lease {
            true => site.json(&["leases"])["leases"][0]["id"].as_str().map(str::to_owned),
            false => None,
        };
        let more = more.replace("AGENT1", &agents[0]).replace("AGENT2", &agents[1]);
        let more = match lease {
            Some(lease) => more.replace("LEASE", &lease),
            // What `drover lease` could not name to its caller is over again.
            None if is_of_a_lease => site.json(&["lease", "--template", "linux"])["id"]
                .as_str()
                .map(|id| more.replace("LEASE", id))
                .unwrap(),
            None => more,
        };
        let more = more.replace("--count 2", "--count 1");
        on_a_full_disk(site.command(words(name, &more)), name);
        if name == "hold" {
            events.until("agent", |fact: &Value| fact["agent"]["state"] == "Held");
        }
    }
}

/// The commands about a configuration in a store that has one.
fn shard_config(site: &Site, sim: &Sim, store: &str) -> [(&'static str, String); 4] {
    site.write_secret("cluster.key", shards::KEY);
    let path = |name: &str| site.dir.path().join(name).display().to_string();
    std::fs::write(path("stored.yaml"), shards::yaml(site, sim, 4)).unwrap();
    let of = |words: &str| {
        format!("shard-config {words} --store {store} --cluster-key-file {}", path("cluster.key"))
    };
    let put = of(&format!("put {}", path("stored.yaml")));
    let out = site.command(put.split(' ')).output().unwrap();
    assert!(out.status.success(), "{put}: {}", String::from_utf8_lossy(&out.stderr));
    let other_name = put.replace("shard-config put", "create-shard-config");
    [
        ("shard-config put", put),
        ("create-shard-config", other_name),
        ("shard-config get", of("get")),
        ("shard-config show", of("show")),
    ]
}

#[test]
fn every_command_that_asks_no_service_reports_an_output_that_takes_nothing() {
    let (dir, sim, site) = world();
    let Some(server) = ObjectServer::start() else { return };
    let programs = tempfile::tempdir().unwrap();
    bare_machine(programs.path());
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let (least, inside) = (rights::site(&sim, ""), setup_service::site(&sim));
    let config = |site: &Site| format!("--config {}", site.config().display());
    let password = inside.dir.path().join("admin").display().to_string();
    let (own, least, inside) = (config(&site), config(&least), config(&inside));
    let journal = dir.path().join("journal.redb");
    drop(drover_journal::RedbLog::open(&journal).unwrap());
    let journal = journal.display();
    let init = format!(
        "init --dir {} --node-url {} --fingerprint {} --user root@pam --password-file {password} --dry-run",
        dir.path().join("etc").display(),
        sim.fact("url"),
        sim.fact("fingerprint"),
    );
    let stored = shard_config(&site, &sim, &server.text("herd"));
    let lines = [
        ("demo", "demo --once".to_owned()),
        ("sim", "sim --list-api".to_owned()),
        ("check", format!("{own} check")),
        ("check", format!("{own} check --connect")),
        ("check", format!("{own} --json check")),
        ("simulate", format!("{own} simulate --trace {}", simulate::trace(dir.path()))),
        ("schema", "schema".to_owned()),
        ("completions", "completions fish".to_owned()),
        ("man", "man".to_owned()),
        ("config show", format!("{own} config show")),
        ("config get", format!("{own} config get agentConfigurations.linux.instanceCap")),
        ("config explain", "--json config explain memoryMb".to_owned()),
        ("config age-key", "config age-key".to_owned()),
        ("journal verify", format!("journal verify {journal}")),
        ("journal inspect", format!("journal inspect {journal}")),
        ("audit verify", format!("audit verify {}", dir.path().display())),
        ("init", init),
        ("doctor", format!("{own} doctor")),
        ("template copy", format!("{own} template copy linux other --set labelString=other")),
        ("setup rights", format!("{least} setup rights --dry-run")),
        (
            "setup service",
            format!(
                "{inside} setup service --user root@pam --password-file {password} --program \
                 /bin/true --dry-run"
            ),
        ),
        (
            "setup dhcp",
            "setup dhcp --bridge eth0 --range 127.200.0.50-127.200.0.99 --dry-run".to_owned(),
        ),
        ("setup vip", "setup vip --address 127.200.0.9 --dry-run".to_owned()),
        ("help", "help".to_owned()),
        ("help", "help safety".to_owned()),
        ("help", "--version".to_owned()),
        ("help", "--json lease --help".to_owned()),
    ];
    let lines: Vec<_> = lines.into_iter().chain(stored).collect();
    let tried: BTreeSet<&str> = lines.iter().map(|line| line.0).collect();
    // A service prints nothing there, another one reads a secret first, a copy is made once, and one draws on
    // a terminal alone.
    let others = ["run", "config encrypt", "journal copy", "top"];
    for name in ALONE.into_iter().filter(|name| !others.contains(name)) {
        assert!(tried.contains(name), "`{name}` is not tried here");
    }
    for (_, line) in &lines {
        let command = || {
            let mut command = site.command(line.split(' '));
            command.env("PATH", &path).env("TMPDIR", dir.path());
            command
        };
        on_a_full_disk(command(), line);
        on_a_closed_pipe(command(), line);
    }
}

// Invariant: a reader of events that went away is noticed while nothing happens.

#[test]
fn events_end_with_their_reader_and_where_nobody_follows() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let out = site.cli(&["--json", "events", "--no-follow"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.lines().count() > 0 && said.lines().all(|line| line.starts_with('{')), "{said}");

    let mut command = site.command(["events", "--since", "1h"]);
    let mut follower = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let (mut lines, mut first) = (BufReader::new(follower.0.stdout.take().unwrap()), String::new());
    lines.read_line(&mut first).unwrap();
    drop(lines);
    assert_eq!(follower.wait(), Some(1));
}
