//! What scripts read: the JSON of every command, its errors too.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use clap::CommandFactory as _;
use serde_json::{Value, json};

use crate::harness::{Events, Kept, Lines, Service, world};
use crate::{rights, setup_service, simulate};

/// Commands that ask the service, in an order in which they can be asked: what stands behind them, and
/// the code that they end with.
pub const ASKING: [(&str, &str, i32); 75] = [
    ("doctor template", "linux", 0),
    ("provision", "linux --count 2", 0),
    ("status", "", 0),
    ("agents", "", 0),
    ("agents set", "AGENT1 --idle 5", 0),
    ("templates", "", 0),
    ("templates set", "linux --idle-min 0", 0),
    ("clouds set", "lab --instance-cap 0", 0),
    // No repository is configured.
    ("sync", "", 1),
    ("plan", "--git", 1),
    ("breakers", "", 0),
    ("breakers reset", "linux", 0),
    // It is the same cluster as before, which nobody has to confirm.
    ("cluster confirm", "lab", 1),
    ("nodes", "", 0),
    ("node drain", "pve3", 0),
    ("cordon", "pve3", 0),
    ("uncordon", "pve3", 0),
    ("drain", "pve3", 0),
    ("clouds", "", 0),
    ("sources", "", 0),
    ("alarms", "", 0),
    ("images", "", 0),
    ("machines", "", 0),
    ("get", "templates", 0),
    ("show", "cloud lab", 0),
    ("ssh", "nope", 1),
    ("cp", "nope:/etc/hostname here", 1),
    ("logs", "nope", 1),
    ("blackbox", "nope", 1),
    ("why", "", 0),
    ("jobs", "", 0),
    ("address-pools", "", 0),
    // One that stands alone has none.
    ("members", "", 1),
    ("members forget", "nope", 1),
    ("transfer-leadership", "", 1),
    ("image list", "", 0),
    ("image build", "nope", 1),
    ("image cancel", "nope", 1),
    ("image prune", "", 0),
    ("image import", "9000 --as nope", 1),
    ("lease", "--template linux", 0),
    ("leases", "", 0),
    ("lease renew", "LEASE --ttl 20m", 0),
    ("lease release", "LEASE", 0),
    ("release", "LEASE", 0),
    ("hold", "AGENT1", 0),
    ("machine list", "", 0),
    ("machine delete", "nope", 1),
    ("machine forget", "nope", 1),
    ("machine adopt", "nope", 1),
    ("machine show", "AGENT1", 0),
    ("machine suspend", "AGENT1", 0),
    ("machine resume", "AGENT1", 0),
    ("machine snapshot create", "AGENT1 before --description words", 0),
    ("machine snapshot list", "AGENT1", 0),
    ("machine snapshot revert", "AGENT1 before", 0),
    ("machine snapshot delete", "AGENT1 before", 0),
    ("machine resize", "AGENT1 --cores 2", 0),
    ("machine reboot", "AGENT1", 0),
    ("machine reset", "AGENT1", 0),
    ("machine shutdown", "AGENT1", 0),
    ("machine start", "AGENT1", 0),
    ("machine stop", "AGENT1", 0),
    ("machine clone", "AGENT1", 0),
    ("release-hold", "AGENT1", 0),
    ("hold-next", "linux", 0),
    ("retire", "AGENT2", 0),
    ("reap", "", 0),
    ("resync", "", 0),
    ("reload", "", 0),
    ("audit", "", 0),
    ("usage", "--by owner", 0),
    ("trace", "--file /dev/null", 0),
    // No channel is configured.
    ("notify test", "", 1),
    ("events", "--after 0", 0),
];

/// Commands that ask no service.
pub const ALONE: [&str; 29] = [
    "run",
    "demo",
    "sim",
    "check",
    "simulate",
    "schema",
    "completions",
    "man",
    "config show",
    "config get",
    "config explain",
    "config encrypt",
    "config age-key",
    "journal verify",
    "journal inspect",
    "journal copy",
    "audit verify",
    "shard-config put",
    "shard-config get",
    "shard-config show",
    "create-shard-config",
    "doctor",
    "template copy",
    "init",
    "setup rights",
    "setup service",
    "setup dhcp",
    "setup vip",
    // It has no output for scripts.
    "top",
];

/// The names of all commands that do something, each with those that it stands below.
fn leaves(command: &clap::Command, before: &str, found: &mut Vec<String>) {
    for one in command.get_subcommands() {
        let name = format!("{before}{}", one.get_name());
        leaves(one, &format!("{name} "), found);
        if !one.is_subcommand_required_set() {
            found.push(name);
        }
    }
}

/// What a command said to a script.
#[derive(Debug)]
struct Said {
    line: String,
    code: Option<i32>,
    out: Vec<Value>,
    err: Vec<Value>,
}

impl Said {
    /// Reads what a command line said; all of it must be JSON.
    fn of(words: &[&str], ended: &Output) -> Self {
        let line = words.join(" ");
        let out = serde_json::Deserializer::from_slice(&ended.stdout).into_iter::<Value>();
        let out: Result<Vec<Value>, _> = out.collect();
        let beside = String::from_utf8_lossy(&ended.stderr).into_owned();
        let err: Result<Vec<Value>, _> = beside.lines().map(serde_json::from_str).collect();
        let (Ok(out), Ok(err)) = (out, err) else {
            panic!("{line}: {}{beside}", String::from_utf8_lossy(&ended.stdout));
        };
        Self { line, code: ended.status.code(), out, err }
    }

    /// The one answer.
    fn answer(&self) -> Value {
        assert_eq!(self.out.len(), 1, "{}: {self:?}", self.line);
        assert!(self.err.iter().all(|line| line["error"].is_null()), "{self:?}");
        self.out[0].clone()
    }

    /// The error, which ended the command with this code.
    fn fault(&self, code: i32) -> Value {
        let error = self.err.last().map(|line| line["error"].clone()).unwrap_or_default();
        assert_eq!((self.code, &error["code"]), (Some(code), &json!(code)), "{self:?}");
        assert!(error["text"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        error
    }
}

fn last_line(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"))
}

// Invariant: with `--json` every command answers in JSON and fails in JSON, and on standard error each
// line is an object of its own.

#[test]
fn every_command_answers_and_fails_in_json() {
    let (dir, _sim, site) = world();
    let ask = |name: &str, more: &str| {
        let words = ["--json"].into_iter().chain(name.split(' ')).chain(more.split_whitespace());
        let words: Vec<&str> = words.collect();
        Said::of(&words, &site.cli(&words))
    };
    let mut names = Vec::new();
    leaves(&drover::cli::Cli::command(), "", &mut names);
    for name in &names {
        let asking = ASKING.iter().any(|(known, ..)| known == name);
        assert!(asking || ALONE.contains(&name.as_str()), "`{name}` is not tried here");
        ask(name, "--nope").fault(2);
    }
    // What stands behind `--` is another program's.
    let out = site.cli(&["lease", "--nope", "--", "make", "--json"]);
    assert!(out.status.code() == Some(2) && out.stderr.starts_with(b"error: "), "{out:?}");
    let help = ask("lease", "--help").answer();
    assert!(help["help"].as_str().unwrap().starts_with("Lease an agent"), "{help}");
    assert_eq!(ask("help", "safety").answer()["topic"], "safety");
    assert_eq!(ask("--version", "").answer()["version"], env!("CARGO_PKG_VERSION"));
    for (name, more, _) in ASKING {
        ask(name, more).fault(69);
    }

    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let (mut agents, mut lease) = ([String::new(), String::new()], String::new());
    for (name, more, code) in ASKING.into_iter().filter(|(name, ..)| *name != "events") {
        let more = more.replace("AGENT1", &agents[0]).replace("AGENT2", &agents[1]);
        let said = ask(name, &more.replace("LEASE", &lease));
        if code != 0 {
            said.fault(code);
            continue;
        }
        assert_eq!(said.code, Some(0), "{said:?}");
        let answer = said.answer();
        assert!(said.err.iter().all(|line| line["progress"]["text"].is_string()), "{said:?}");
        match name {
            "provision" => {
                agents =
                    [0_usize, 1].map(|index| answer["agents"][index].as_str().unwrap().to_owned());
                let mut coming = BTreeSet::from(agents.clone());
                while !coming.is_empty() {
                    let ready = events.until("agent", |fact| fact["agent"]["state"] == "Ready");
                    coming.remove(ready["agent"]["id"].as_str().unwrap());
                }
            }
            "lease" => lease = answer["id"].as_str().unwrap().to_owned(),
            "hold" => {
                let held = |fact: &Value| fact["agent"]["state"] == "Held";
                events.until("agent", held);
            }
            _ => {}
        }
    }
    let mut command = site.command(["--json", "events", "--after", "0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut follower = Kept(command.spawn().unwrap());
    let mut reported = Lines::of("its answer", follower.0.stdout.take().unwrap());
    let mut beside = Lines::of("what is beside it", follower.0.stderr.take().unwrap());
    let read = |line: String| serde_json::from_str::<Value>(&line).unwrap();
    assert!(read(reported.until(|_| true))["kind"].is_string());
    assert!(read(beside.until(|_| true))["progress"]["text"].is_string());

    let said = ask("release", "nope nor");
    said.fault(1);
    assert_eq!(said.out[0]["released"], json!([]), "{said:?}");
    assert_eq!(said.out[0]["failed"][1]["lease"], "nor", "{said:?}");
    let command = "printf 'no end' >&2; exit 3";
    let out = site.cli(&["--json", "lease", "--template", "linux", "--", command]);
    assert_eq!((out.status.code(), &last_line(&out)["exit"]), (Some(3), &json!(3)), "{out:?}");
    // The socket is in use, which is reported after the log, and the log is JSON.
    let mut command = site.command(["--json", "run", "--config"]);
    command.arg(site.config()).arg("--state-dir").arg(dir.path().join("state"));
    let out = command.env("LOG_LEVEL", "debug").output().unwrap();
    let said = Said::of(&["--json", "run"], &out);
    said.fault(1);
    assert!(said.err.len() > 1 && said.err[0]["level"].is_string(), "{said:?}");
}

/// Programs in place of this machine's own: it has one address, and nothing else.
pub fn bare_machine(folder: &Path) {
    let address = "echo '2: eth0    inet 127.200.0.2/24 brd 127.200.0.255 scope global eth0'";
    let nothing = ["cat", "curl", "ss", "systemctl"].map(|name| (name, "exit 1"));
    for (name, does) in nothing.into_iter().chain([("ip", address)]) {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn commands_that_ask_no_service_answer_and_fail_in_json_too() {
    let (dir, sim, site) = world();
    let programs = tempfile::tempdir().unwrap();
    bare_machine(programs.path());
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let run = |words: &[&str]| {
        let words: Vec<&str> = ["--json"].iter().chain(words).copied().collect();
        Said::of(&words, &site.command(&words).env("PATH", &path).output().unwrap())
    };
    let (least, inside) = (rights::site(&sim, ""), setup_service::site(&sim));
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, site.yaml(&sim, "    instnaceMin: 1\n")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let stored = dir.path().join("stored.yaml");
    let lines = std::fs::read_to_string(&broken).unwrap().replace("  stateDirectory:", "  # ");
    std::fs::write(&stored, lines).unwrap();
    let stored = text(&stored);
    let (good, broken) = (text(&site.config()), text(&broken));
    let (least_yaml, inside_yaml) = (text(&least.config()), text(&inside.config()));
    let password = text(&inside.dir.path().join("admin"));
    let journal = dir.path().join("journal.redb");
    drop(drover_journal::RedbLog::open(&journal).unwrap());
    let journal = text(&journal);
    let copy = text(&dir.path().join("copy.jsonl"));
    let trace = simulate::trace(dir.path());

    let line = |yaml: &str, words: &str| {
        let words = words.replace("YAML", yaml).replace("PASSWORD", &password);
        words.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let say = |words: &[String]| run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let setup = "--config YAML setup";
    let admin = "--user root@pam --password-file PASSWORD";
    let node = format!("--node-url {} --fingerprint {}", sim.fact("url"), sim.fact("fingerprint"));
    let init = format!("init --dir YAML {node} {admin} --dry-run");
    let range = "--range 127.200.0.50-127.200.0.99";
    let sdn = "--sdn ci --subnet 127.200.0.0/24 --gateway 127.200.0.1";
    let answers = [
        ("check", line(&good, "check YAML"), "/ok"),
        (
            "simulate",
            line(&good, &format!("--config YAML simulate --trace {trace}")),
            "/configurations/0/report/all/wait/p95Ms",
        ),
        ("schema", line("", "schema"), "/properties"),
        ("completions", line("", "completions bash"), "/script"),
        ("man", line("", "man"), "/text"),
        ("config show", line(&good, "--config YAML config show"), "/values"),
        (
            "config get",
            line(&good, "--config YAML config get agentConfigurations.linux.instanceCap"),
            "/value",
        ),
        ("config explain", line("", "config explain memoryMb"), "/keys"),
        ("config age-key", line("", "config age-key"), "/recipient"),
        ("journal verify", line(&journal, "journal verify YAML"), "/sizeBytes"),
        ("journal inspect", line(&journal, "journal inspect YAML"), "/records"),
        ("journal copy", line(&journal, &format!("journal copy YAML {copy}")), "/records"),
        ("doctor", line(&good, "--config YAML doctor"), "/clouds/0/lines"),
        ("sim", line("", "sim --list-api"), "/served/0/method"),
        (
            "template copy",
            line(&good, "--config YAML template copy linux other --set labelString=other"),
            "/yaml",
        ),
        ("init", line(&dir.path().join("etc").display().to_string(), &init), "/files/0/text"),
        ("setup rights", line(&least_yaml, &format!("{setup} rights --dry-run")), "/planned/0"),
        (
            "setup service",
            line(&inside_yaml, &format!("{setup} service {admin} --program /bin/true --dry-run")),
            "/planned/0",
        ),
        (
            "setup dhcp",
            line("", &format!("setup dhcp --bridge eth0 {range} --dry-run")),
            "/files/0/text",
        ),
        ("setup vip", line("", "setup vip --address 127.200.0.9 --dry-run"), "/files/0/text"),
    ];
    for (name, words, there) in &answers {
        let said = say(words);
        // The doctor may find something everywhere.
        assert!(said.code == Some(0) || *name == "doctor", "{said:?}");
        let answer = said.answer();
        assert!(answer.pointer(there).is_some_and(|found| !found.is_null()), "{said:?}");
    }

    let faulty = [
        ("run", line(&broken, "--config YAML run")),
        ("simulate", line(&broken, &format!("--config YAML simulate --trace {trace}"))),
        ("doctor", line(&broken, "--config YAML doctor")),
        (
            "template copy",
            line(&broken, "--config YAML template copy linux other --set labelString=other"),
        ),
        ("shard-config put", line(&stored, "shard-config put YAML")),
        ("create-shard-config", line(&stored, "create-shard-config YAML")),
        ("setup rights", line(&broken, &format!("{setup} rights --dry-run"))),
        ("setup service", line(&broken, &format!("{setup} service --dry-run"))),
        ("setup dhcp", line(&broken, &format!("{setup} dhcp {sdn} {range}"))),
    ];
    for (_, words) in &faulty {
        let said = say(words);
        let fault = said.fault(2)["faults"][0].clone();
        let what = fault["what"].as_str().unwrap_or_default();
        assert!(what.contains("instnaceMin") && fault["line"].is_u64(), "{said:?}");
    }
    let refused = [
        ("journal verify", line("", "journal verify /nowhere.redb"), 1),
        ("journal inspect", line("", "journal inspect /nowhere.redb"), 1),
        ("journal copy", line("", "journal copy /nowhere.redb /nowhere.jsonl"), 1),
        ("shard-config put", line(&good, "shard-config put YAML"), 2),
        ("shard-config get", line(&good, "--config YAML shard-config get"), 2),
        ("shard-config show", line(&good, "--config YAML shard-config show"), 2),
        ("config encrypt", line("", "config encrypt --recipient nobody"), 2),
        ("simulate", line(&good, "--config YAML simulate --trace /nowhere.jsonl"), 2),
        ("demo", line("", "demo --once"), 2),
        ("init", line("", "init"), 2),
        ("sim", line("", "sim --cluster /nowhere.yaml"), 2),
        ("doctor", line(&good, "--config YAML doctor --cloud nope"), 2),
        ("doctor", line(&good, "--config YAML doctor --source nope"), 2),
        ("template copy", line(&good, "--config YAML template copy nope other"), 2),
        ("setup vip", line("", "setup vip --address 10.0.0.9 --dry-run"), 1),
        ("top", line("", "top"), 2),
        ("audit verify", line("", "audit verify /nowhere"), 1),
    ];
    for (_, words, code) in &refused {
        say(words).fault(*code);
    }
    let mut tried: BTreeSet<&str> = answers.iter().map(|row| row.0).collect();
    tried.extend(faulty.iter().map(|row| row.0));
    tried.extend(refused.iter().map(|row| row.0));
    assert_eq!(tried, BTreeSet::from(ALONE));

    let said = say(&line(&least_yaml, &format!("{setup} rights {admin}")));
    let done = said.answer();
    assert!(done["did"][0].is_string() && done["outcome"].is_string(), "{said:?}");
    assert_eq!((&done["planned"], &done["files"]), (&json!([]), &json!([])), "{said:?}");
    let into = "--config YAML template copy linux other --set labelString=other --into YAML";
    let copied = json!({"template": "other", "copyOf": "linux", "file": good});
    assert_eq!(say(&line(&good, into)).answer(), copied);
}
