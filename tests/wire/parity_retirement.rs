//! How agents end: by their uses, by idling, gracefully; and that nobody else's guest ends with them.

use serde_json::Value;

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Events, Service, Sim, Site, world};
use crate::parity::{agents, listed, take_away, yaml};

// Invariant: uses are counted lease by lease, whatever shares the agent, and the last one ends it.

#[test]
fn uses_are_counted_over_executors_and_the_last_one_ends_the_agent_at_once() {
    let (_dir, sim, site) = world();
    let keys = "numExecutors: 2, maxTotalUses: 3, instanceCap: 1";
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", keys)]));
    let _service = Service::start(&site);
    let shown = |agent: &Value| {
        let path = format!("/v1/agents/{}", agent.as_str().unwrap());
        call(&site, "GET", &path, None).1
    };
    let first = ask(&site, "linux", "first");
    let second = ask(&site, "linux", "second");
    let agent = ready(&site, &first)["agent"].clone();
    assert_eq!(ready(&site, &second)["agent"], agent, "two executors, one agent");
    assert_eq!(shown(&agent)["uses"], 2);
    release(&site, &first);
    let third = ask(&site, "linux", "third");
    assert_eq!(ready(&site, &third)["agent"], agent);
    release(&site, &second);
    // It has room for one more at the same time, but no use is left.
    let fourth = ask(&site, "linux", "fourth");
    let waits = call(&site, "GET", &format!("/v1/leases/{fourth}?waitSeconds=1"), None).1;
    assert_eq!(waits["state"], "waiting", "{waits}");
    assert_eq!(shown(&agent)["uses"], 3);
    let mut events = Events::follow(&site);
    release(&site, &third);
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent);
    assert_eq!(gone["agent"]["reason"], "used-up");
    assert_ne!(ready(&site, &fourth)["agent"], agent);
}

// Invariant: an agent goes once it has idled as long as its template, or what was set for it, says;
// never where that is 0, and never below the warm minimum.

#[test]
fn idle_agents_go_after_their_time_and_neither_those_of_zero_nor_the_warm_ones() {
    let (_dir, sim, site) = world();
    let warm = "idleTerminationMinutes: 1, instanceMin: 1";
    let rest = [
        ("never", "idleTerminationMinutes: 0"),
        ("own", "idleTerminationMinutes: 1"),
        ("shorter", "idleTerminationMinutes: 0"),
        ("short", "idleTerminationMinutes: 1"),
    ];
    let text = |warm: &str| yaml(&site, &sim, &[], &[&[("warm", warm)][..], &rest].concat());
    site.write_yaml(&text(warm));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let ready_of = |board: &Board, name: &str| {
        let id = format!("lab/{name}");
        let mut all = board.agents.values();
        all.find(|one| one["template"] == *id && one["state"] == "Ready")
            .map(|one| one["id"].clone())
    };
    for name in ["never", "own", "shorter", "warm"] {
        if name != "warm" {
            assert!(site.cli(&["provision", name]).status.success());
        }
        board.until(&site, name, |board| ready_of(board, name).is_some());
    }
    for (name, idle) in [("own", "0"), ("shorter", "1")] {
        let agent = ready_of(&board, name).unwrap();
        let out = site.cli(&["agents", "set", agent.as_str().unwrap(), "--idle", idle]);
        assert!(out.status.success(), "{out:?}");
    }
    // The last to be ready is the last whose minute is over.
    assert!(site.cli(&["provision", "short"]).status.success());
    let mut gone = Vec::new();
    while !gone.contains(&("lab/short".to_owned(), "idle".to_owned())) {
        let event = board.next(&site);
        if event["kind"] == "agentGone" {
            let word = |key: &str| event["agent"][key].as_str().unwrap_or_default().to_owned();
            gone.push((word("template"), word("reason")));
        }
    }
    gone.sort();
    let idle = |name: &str| (format!("lab/{name}"), "idle".to_owned());
    assert_eq!(gone, [idle("short"), idle("shorter")]);
    for name in ["never", "own", "warm"] {
        assert_eq!(agents(&site, name).len(), 1, "{name}");
    }
    // What an operator reaps is everything idle but the warm minimum.
    let mut events = Events::follow(&site);
    assert!(site.cli(&["reap"]).status.success());
    for _ in 0..2 {
        let gone = events.until("agentGone", |_| true);
        assert_eq!(gone["agent"]["reason"], "reaped", "{gone}");
    }
    assert_eq!(agents(&site, "warm").len(), 1);
    // Lowering the minimum retires nobody by itself: the surplus goes because it has idled enough.
    site.write_yaml(&text("idleTerminationMinutes: 1, instanceMin: 0"));
    let gone = events.until("agentGone", |fact| fact["agent"]["template"] == "lab/warm");
    assert_eq!(gone["agent"]["reason"], "idle");
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: a guest is shut down before it is destroyed, within the time of the YAML.

/// What the cluster was asked about a guest, in order, as far as it ends one.
fn endings(record: &str, vmid: u64) -> Vec<String> {
    let calls = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls = calls.filter(|one| one["what"] == "call" && one["guest"] == vmid);
    let ends = calls.filter_map(|one| {
        let call = one["call"].as_str()?.to_owned();
        let word = ["shutdown", "stop"]
            .into_iter()
            .find(|word| call.ends_with(&format!("/status/{word}")));
        let destroys = call.starts_with("DELETE ") && call.ends_with("/qemu/{vmid}");
        word.or(destroys.then_some("destroy")).map(str::to_owned)
    });
    ends.collect()
}

#[test]
fn a_guest_is_shut_down_then_destroyed_and_stopped_at_once_where_no_time_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let options = ["--guests", "process", "--record", record.to_str().unwrap()];
    let sim = Sim::start_with(dir.path(), &options);
    let site = Site::new(&sim);
    let templates = [("polite", ""), ("hasty", "shutdownTimeoutSec: 0")];
    site.write_yaml(&yaml(&site, &sim, &[], &templates));
    let _service = Service::start(&site);
    for (template, wanted) in [("polite", ["shutdown", "destroy"]), ("hasty", ["stop", "destroy"])]
    {
        ready(&site, &ask(&site, template, "wire"));
        let agent = agents(&site, template)[0].clone();
        let mut events = Events::follow(&site);
        let lease = agent["leases"][0].as_str().unwrap().to_owned();
        release(&site, &lease);
        assert!(site.cli(&["retire", agent["id"].as_str().unwrap()]).status.success());
        events.until("agentGone", |fact| fact["agent"]["id"] == agent["id"]);
        let said = std::fs::read_to_string(&record).unwrap();
        assert_eq!(endings(&said, agent["vmid"].as_u64().unwrap()), wanted, "{template}");
    }
}

// Invariant: a VMID that came to be somebody else's is theirs.

#[test]
fn a_guest_that_took_an_agents_vmid_is_never_touched() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(
        &site,
        &sim,
        &["cleanupOrphanedAgents: true", "orphanCleanupGracePeriodSeconds: 0"],
        &[("linux", "")],
    ));
    let _service = Service::start(&site);
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].clone();
    let number = agents(&site, "linux")[0]["vmid"].as_u64().unwrap();
    let vmid = number.to_string();
    take_away(&sim, "pve1", number);
    let made = sim.send("POST", "/nodes/pve1/qemu", &[("vmid", &vmid), ("name", "somebody-else")]);
    assert!(made["data"].is_string(), "{made}");
    listed(&sim, number, "name", "somebody-else");
    listed(&sim, number, "status", "stopped");
    let before = sim.config("pve1", number);
    let mut events = Events::follow(&site);
    let out = site.cli(&["resync"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("is called `somebody-else`: renamed, or somebody else's"), "{said}");
    // Whose it is nobody can say for sure: somebody may have wiped its marks.
    // The alarm follows the state, once the record of both is durable.
    events.until("alarm", |fact| fact["alarm"]["agent"] == agent);
    let status = site.json(&["status"]);
    assert_eq!(status["agents"][0]["state"], "Stranded", "{status}");
    assert_eq!(status["alarms"][0]["agent"], agent, "{status}");
    assert!(site.cli(&["resync"]).status.success());
    assert_eq!(sim.config("pve1", number), before);
    // Its id is not taken for another agent, and when it is free again the agent is gone.
    let more = ask(&site, "linux", "more");
    let other = ready(&site, &more)["agent"].clone();
    let other = agents(&site, "linux").into_iter().find(|one| one["id"] == other).unwrap();
    assert_ne!(other["vmid"], number);
    assert_eq!(sim.config("pve1", number), before);
    take_away(&sim, "pve1", number);
    assert!(site.cli(&["resync"]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == agent);
}
