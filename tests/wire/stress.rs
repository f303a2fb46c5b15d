//! Two hundred real guests under a service that is killed again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Kept, Lines, Service, Sim, Site, note};

/// Leases that are held through all of it.
const HELD: usize = 60;
/// Agents kept ready.
const WARM: usize = 60;
/// Agents that are used once, at most at the same time.
const CHURN: usize = 80;

/// Delays that let every phase be met, and hold a storage's lock so shortly that on a slow machine
/// too nobody waits ten seconds for it: a destroy that does leaves volumes to an administrator.
const LATENCY: &str = "\
cloneLinked: {low: 0.02, high: 0.08}
start: {low: 0.2, high: 0.8}
stop: {low: 0.1, high: 0.4}
destroy: {low: 0.2, high: 0.6}
apiCall: {low: 0, high: 0}
hop: {low: 0, high: 0}
allocate: {low: 0, high: 0}
free: {low: 0, high: 0}
config: {low: 0, high: 0}
";

fn yaml(site: &Site, sim: &Sim) -> String {
    let plain = site.yaml(sim, "");
    let (head, _) = plain.split_once("agentConfigurations:").unwrap();
    let head = head.replace(
        "startVmId: 10000",
        "startVmId: 10000\n    instanceCap: 200\n    operationsPerNode: 12",
    );
    let agent = |name: &str, node: u32, more: &str| {
        format!(
            "  {name}: {{cloudIds: [lab], name: {name}, node: pve{node}, templateVmId: {vmid}, \
             labelString: {name}, cloneStrategy: LINKED, credentialsId: agents, ciUser: debian, \
             ipConfig: \"ip=dhcp\", sshPort: 2222, guestNetworks: [\"127.77.0.0/16\"], \
             startupWaitSeconds: 600, idleTerminationMinutes: 0, {more}}}\n",
            vmid = 8999 + node
        )
    };
    format!(
        "{head}agentConfigurations:\n{}{}{}",
        agent("held", 1, &format!("instanceCap: {}", HELD + JOBS)),
        agent("warm", 2, &format!("instanceCap: {WARM}, instanceMin: {WARM}")),
        agent("churn", 3, &format!("instanceCap: {}, maxTotalUses: 1", CHURN - JOBS)),
    )
}

/// Commands that run in leased agents all the time.
const JOBS: usize = 4;

/// A command in a leased agent, which goes on until it is asked to end.
struct Job {
    child: Kept,
    out: Lines,
    hostname: String,
}

impl Job {
    fn start(site: &Site) -> Self {
        let script = "hostname; until [ -e /tmp/go ]; do sleep 0.5; done; hostname";
        let mut command = site.command(["lease", "--template", "held", "--", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Kept(command.spawn().unwrap());
        let mut out = Lines::of("a job", child.0.stdout.take().unwrap());
        let hostname = out.until(|_| true);
        Self { child, out, hostname }
    }

    /// Lets it end: it must still be on the guest it began on.
    fn finish(mut self, disk: &Path) {
        std::fs::write(disk.join("tmp/go"), "").unwrap();
        assert_eq!(self.out.until(|_| true), self.hostname);
        assert_eq!(self.child.wait(), Some(0));
    }
}

/// The folder that a guest has as its disk.
fn disk(dir: &Path, vmid: u64) -> PathBuf {
    let mut found = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let folder = found.find(|path| path.join("guests").is_dir()).unwrap();
    folder.join("guests").join(vmid.to_string()).join("disk")
}

/// What other people have: each guest's configuration and whether it runs.
fn foreign(sim: &Sim, all: &[(&str, u64)]) -> Vec<Value> {
    let state = |node: &str, vmid: u64| {
        let path = format!("/nodes/{node}/qemu/{vmid}/status/current");
        sim.call("GET", &path)["data"]["status"].clone()
    };
    all.iter().flat_map(|(node, vmid)| [sim.config(node, *vmid), state(node, *vmid)]).collect()
}

/// The names of drover's guests by VMID, of which no two may speak of one agent.
fn names(sim: &Sim, strangers: &[(&str, u64)]) -> BTreeMap<u64, String> {
    let answer = sim.call("GET", "/cluster/resources?type=vm");
    let all = answer["data"].as_array().unwrap();
    let ours = all.iter().filter_map(|guest| {
        let vmid = guest["vmid"].as_u64()?;
        let other = guest["template"] == 1 || strangers.iter().any(|(_, other)| *other == vmid);
        (!other).then(|| (vmid, guest["name"].as_str().unwrap_or_default().to_owned()))
    });
    let names: BTreeMap<u64, String> = ours.collect();
    // A copy under way has no name of its own yet in the list.
    let names: BTreeMap<u64, String> =
        names.into_iter().filter(|(_, name)| name.matches('-').count() > 1).collect();
    let agents: BTreeSet<&str> =
        names.values().filter_map(|name| name.rsplit('-').next()).collect();
    assert_eq!(agents.len(), names.len(), "an agent has two guests: {names:?}");
    names
}

/// How often the start of each guest was accepted. No id is given to a second agent here: ids rest
/// longer than this test takes.
fn starts(record: &Path) -> BTreeMap<u64, usize> {
    let mut starts = BTreeMap::new();
    let text = std::fs::read_to_string(record).unwrap();
    // The last line may be in the middle of being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        let is_start = call["call"].as_str().is_some_and(|call| call.ends_with("/status/start"));
        if is_start && call["status"] == 200 {
            *starts.entry(call["guest"].as_u64().unwrap()).or_default() += 1;
        }
    }
    starts
}

/// How many of a guest's starts worked. A start that is sent again, since the service was killed between
/// the call and its answer, is accepted, and its task finds the guest running.
fn worked(sim: &Sim, vmid: u64) -> usize {
    let nodes = ["pve1", "pve2", "pve3"].into_iter();
    let tasks = nodes.flat_map(|node| {
        let what = format!("vmid={vmid}&typefilter=qmstart&source=all&limit=100");
        let answer = sim.call("GET", &format!("/nodes/{node}/tasks?{what}"));
        answer["data"].as_array().unwrap().clone()
    });
    tasks.filter(|task| task["status"] == "OK").count()
}

/// Keeps the churn going: each lease that is ready ends, and another one is asked for.
struct Churn {
    open: BTreeSet<String>,
    used: usize,
}

impl Churn {
    fn turn(&mut self, site: &Site, board: &mut Board, target: usize) {
        let reported: Vec<String> =
            self.open.iter().filter(|id| over(board, id)).cloned().collect();
        for id in reported {
            release(site, &id);
            self.open.remove(&id);
            self.used += 1;
        }
        while self.open.len() < target {
            self.open.insert(ask(site, "churn", "churn"));
        }
        board.next(site);
    }
}

fn over(board: &Board, lease: &str) -> bool {
    board.leases.get(lease).is_some_and(|lease| lease["state"] == "ready")
}

/// Whether a service has something to lose in every phase of an agent's life.
fn everything_at_once(board: &Board) -> bool {
    let some = |states: &[&str]| states.iter().any(|state| board.in_state(state) > 0);
    board.in_state("Leased") >= HELD
        && some(&["Cloning"])
        && some(&["Configuring", "Booting"])
        && some(&["Connecting", "Preparing"])
        && some(&["Ready"])
        && some(&["Retiring"])
}

// Invariant: killed at any moment with every phase under way, it loses, doubles and harms nothing, and
// starts no guest a second time.

#[test]
fn two_hundred_agents_in_all_phases_survive_kill_9_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, latency) = (dir.path().join("cluster.yaml"), dir.path().join("latency.yaml"));
    std::fs::write(&cluster, include_str!("stress.yaml")).unwrap();
    std::fs::write(&latency, LATENCY).unwrap();
    let record = dir.path().join("record.jsonl");
    let options = ["--guests", "process", "--cluster", cluster.to_str().unwrap(), "--latency"];
    let files = [latency.to_str().unwrap(), "--record", record.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &[&options[..], &files].concat());
    let site = Site::new(&sim);
    site.write_yaml(&yaml(&site, &sim));
    let began = Instant::now();
    let mut service = Service::start(&site);

    let jobs: Vec<Job> = (0..JOBS).map(|_| Job::start(&site)).collect();
    let held: Vec<String> = (0..HELD).map(|_| ask(&site, "held", "held")).collect();
    // Only now: who reads nothing of the stream for half a minute is cut off, and jobs take long to start
    // where the machine is busy.
    let mut board = Board::open(&site);
    let mut churn = Churn { open: BTreeSet::new(), used: 0 };

    // Somebody copies an agent by hand, marks and all, once into drover's range and once beside it.
    board.until(&site, "a first agent", |board| board.in_state("Ready") > 0);
    let (vmid, name) = names(&sim, &[("", 10003), ("", 10017)]).into_iter().next().unwrap();
    let node = sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
    let node = node.as_array().unwrap().iter().find(|guest| guest["vmid"] == vmid).unwrap().clone();
    let marks = sim.config(node["node"].as_str().unwrap(), vmid);
    for copy in ["10900", "500"] {
        let description = marks["description"].as_str().unwrap();
        let tags = marks["tags"].as_str().unwrap_or("drover");
        let params =
            [("vmid", copy), ("name", &name), ("description", description), ("tags", tags)];
        let made = sim.send("POST", "/nodes/pve2/qemu", &params);
        assert!(made["data"].is_string(), "{made}");
    }
    let strangers = [("pve1", 10003), ("pve2", 10017), ("pve2", 10900), ("pve2", 500)];
    let before = foreign(&sim, &strangers);

    let mut holders: BTreeMap<String, Value> = BTreeMap::new();
    let mut times = Vec::new();
    for (round, least) in [30, HELD, HELD].into_iter().enumerate() {
        while !(everything_at_once(&board) || round == 0 && board.in_state("Leased") >= least) {
            churn.turn(&site, &mut board, CHURN / 2);
        }
        let counts = board.counts();
        for id in &held {
            let lease = &board.leases[id];
            if lease["state"] == "ready" {
                holders.insert(id.clone(), lease["agent"].clone());
            }
        }
        let known: Vec<String> = board.agents.keys().cloned().collect();
        service.child.signal("KILL");
        service.child.wait();

        let start = Instant::now();
        service = Service::spawn(&site, &[]);
        if round == 2 {
            // Once more in the middle of finding everything again.
            service.hear("READY=1");
            service.child.signal("KILL");
            service.child.wait();
            service = Service::spawn(&site, &[]);
        }
        service.hear("READY=1");
        board = Board::open(&site);
        let (_, all) = call(&site, "GET", "/v1/agents", None);
        let reported = |list: &str| {
            let all = all[list].as_array().unwrap().clone();
            all.into_iter().map(|agent| agent["id"].as_str().unwrap().to_owned())
        };
        let found: BTreeSet<String> = reported("agents").chain(reported("gone")).collect();
        for (id, agent) in &holders {
            let lease = ready(&site, id);
            assert_eq!(lease["agent"], *agent, "the lease changed hands: {lease}");
        }
        let recovery = start.elapsed();
        times.push(format!("{:.1} s", recovery.as_secs_f64()));
        let lost: Vec<&String> = known.iter().filter(|id| !found.contains(*id)).collect();
        note(&format!("round {round}: killed with {counts}; unseen afterwards: {lost:?}"));
        // Leases of the churn that did not outlive the agent they were on are over.
        churn.open.retain(|id| board.leases.contains_key(id));
        names(&sim, &strangers);
    }
    board.until(&site, "everything stands", |board| {
        let leased = held.iter().filter(|id| over(board, id)).count();
        leased == HELD && board.in_state("Ready") >= WARM
    });
    for (job, agent) in jobs.into_iter().map(|job| {
        let vmid = names(&sim, &strangers).into_iter().find(|(_, name)| *name == job.hostname);
        (job, vmid.unwrap().0)
    }) {
        job.finish(&disk(dir.path(), agent));
    }
    assert_eq!(foreign(&sim, &strangers), before, "somebody else's guest was touched");

    for id in held.iter().chain(&churn.open) {
        release(&site, id);
    }
    site.write_yaml(&yaml(&site, &sim).replace(&format!("instanceMin: {WARM}"), "instanceMin: 0"));
    assert!(site.cli(&["reload"]).status.success());
    // What was still starting is reaped once it is ready. A clone that was perhaps never sent stays
    // in doubt until every wait of Proxmox is over; it has no guest.
    let mut reap = true;
    while !board.agents.values().all(|agent| agent["state"] == "InDoubt") {
        if reap {
            assert_eq!(call(&site, "POST", "/v1/reap", Some(&json!({"all": true}))).0, 200);
        }
        reap = board.next(&site)["agent"]["state"] == "Ready";
    }
    assert!(names(&sim, &strangers).is_empty());
    assert_eq!(foreign(&sim, &strangers), before, "somebody else's guest was touched");
    assert!(board.restarts.is_empty(), "{:?}", board.restarts);
    let starts = starts(&record);
    let twice = starts.iter().filter(|(_, count)| **count > 1);
    let again: Vec<_> = twice.filter(|(vmid, _)| worked(&sim, **vmid) != 1).collect();
    assert!(again.is_empty(), "of {} guests these were started again: {again:?}", starts.len());
    let any = *starts.keys().next().unwrap();
    assert_eq!(worked(&sim, any), 1, "the tasks of guest {any} are not known");
    assert!(starts.len() >= HELD + WARM, "{} starts were written down", starts.len());
    note(&format!(
        "recovery after kill -9 with up to 200 agents: {}; {} used once; {:.0} s in all",
        times.join(", "),
        churn.used,
        began.elapsed().as_secs_f64()
    ));
}
