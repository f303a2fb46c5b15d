//! Every list at 80 and at 200 columns, for a pipe, with many rows and with none.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const LONG: &str = "took too long in Booting: the guest has no address in `10.0.0.0/8` that drover may \
                    use, only 192.168.7.20: set `guestNetworks` to the networks that drover may use";

fn view(width: Option<usize>) -> View {
    let now: Timestamp = "2026-11-21T08:11:02Z".parse().unwrap();
    match width {
        Some(_) => View { width, wide: false, whole: false, utc: false, ..View::complete(now) },
        None => View::complete(now),
    }
}

fn read<T: DeserializeOwned>(all: Value) -> Vec<T> {
    serde_json::from_value(all).unwrap()
}

/// The list at both widths and for a pipe; no line is wider than its terminal.
fn looks<T: Listed>(items: &[T]) -> String {
    let mut all = String::new();
    for (name, width) in [("80 columns", Some(80)), ("200 columns", Some(200)), ("pipe", None)] {
        let mut one = Page::new(&view(width));
        page(items, &mut one);
        let text = one.into_text();
        for line in text.lines() {
            assert!(width.is_none_or(|width| line.chars().count() <= width), "{line}");
        }
        all += &format!("{name}\n{text}\n");
        if let Some(width) = width.filter(|_| !items.is_empty()) {
            paint(items, width);
        }
    }
    all
}

/// Writes the list in colour into the folder `DROVER_DRAWN`, for `tests/draw-lists`.
fn paint<T: Listed>(items: &[T], width: usize) {
    let Some(folder) = std::env::var_os("DROVER_DRAWN") else { return };
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap().trim_end_matches("Out");
    let mut one = Page::new(&View { color: true, ..view(Some(width)) });
    page(items, &mut one);
    let file = std::path::Path::new(&folder).join(format!("{name}-{}-{width}.ansi", items.len()));
    std::fs::write(file, one.into_text()).unwrap();
}

// Invariant: every list is beautiful at 80 and at 200 columns, and complete on a pipe.

fn agent(id: &str, template: &str, state: &str, at: &str, detail: &str) -> Value {
    let ssh =
        json!({ "host": "10.20.0.51", "port": 22, "user": "ci", "hostKey": null, "hostKeys": [] });
    let is_up = matches!(state, "Ready" | "Leased" | "Held");
    let leases = if state == "Leased" { json!(["lease-7dmamjfpe7r26pbz"]) } else { json!([]) };
    json!({
        "id": id, "template": template, "state": state, "since": format!("2026-11-21T{at}Z"),
        "vmid": 10417, "node": "pve1", "ssh": is_up.then_some(ssh), "leases": leases, "uses": 1,
        "detail": detail, "phases": [{ "state": "Cloning", "ms": 5250 }],
    })
}

fn agents() -> Vec<drover_api::AgentOut> {
    read(json!([
        agent("4f8z1c3px9t2vkab", "lab/linux", "Ready", "08:10:50", ""),
        agent("4f8z1c3qx9t2vkab", "lab/linux", "Leased", "07:31:02", "goes after 1 use"),
        agent("9abcdef012345678", "lab/windows-2025-large", "Booting", "08:09:02", LONG),
        agent("kq2w3e4r5t6y7u8i", "office/ビルド機", "InDoubt", "08:11:00", "時間がかかりすぎた"),
        agent("zz9zzzzzzzzzzzzz", "lab/linux", "Stranded", "02:11:02", "`lock: clone` stays"),
    ]))
}

#[test]
fn agents_fit() {
    let many: Vec<_> = (0..40)
        .map(|at| agent(&format!("{at:02}abcdefghijklmn"), "lab/linux", "Ready", "08:10:50", ""))
        .collect();
    let many: Vec<drover_api::AgentOut> = read(many.into());
    insta::assert_snapshot!("agents", looks(&agents()) + &looks::<drover_api::AgentOut>(&[]));
    let first = looks(&many).lines().take(4).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!("many_agents", first);
}

#[test]
fn agents_that_went_fit() {
    let gone: Vec<drover_api::GoneOut> = read(json!([{
        "id": "4f8z1c3px9t2vkab", "template": "lab/linux", "reason": "slow", "detail": LONG,
        "goneAt": "2026-11-21T08:01:02Z", "phases": [{ "state": "Cloning", "ms": 5250 }],
    }]));
    let mut one = Page::new(&view(Some(80)));
    super::gone(&gone, &mut one);
    insta::assert_snapshot!("gone", looks(&gone) + &one.into_text());
}

#[test]
fn leases_fit() {
    let lease = |id: &str, state: &str, agent: Option<&str>, detail: &str| {
        json!({
            "id": id, "state": state, "agent": agent, "owner": "build 4711 of main",
            "principal": "token:ci", "wants": "labels `linux` and `x64`", "detail": detail,
            "askedAt": "2026-11-21T07:59:02Z", "ssh": null,
            "expiresAt": agent.map(|_| "2026-11-21T08:25:10Z"),
        })
    };
    let leases: Vec<drover_api::LeaseOut> = read(json!([
        lease("lease-7dmamjfpe7r26pbz", "ready", Some("4f8z1c3qx9t2vkab"), ""),
        lease(
            "lease-8eabcjfpe7r26pbz",
            "waiting",
            None,
            "every template that fits is full: 6 of 6"
        ),
        lease("lease-9fabcjfpe7r26pbz", "ended", None, "released"),
    ]));
    insta::assert_snapshot!("leases", looks(&leases) + &looks::<drover_api::LeaseOut>(&[]));
    // Two of them are of others, who are named by their principals alone.
    let hidden = leases.into_iter().enumerate().map(|(at, lease)| match at {
        0 => lease,
        _ => drover_api::LeaseOut { owner: String::new(), ..lease },
    });
    insta::assert_snapshot!("leases_of_others", looks(&hidden.collect::<Vec<_>>()));
}

fn templates() -> Vec<drover_api::TemplateOut> {
    read(json!([
        {
            "id": "lab/linux", "labels": ["linux", "x64", "docker"], "states": { "Ready": 2, "Booting": 1 },
            "cap": 6, "minimum": 2, "idleMinimum": 1, "breaker": "flowing",
            "source": "VMID 9000 `debian-13` on node pve1",
            "resets": { "count": 12, "resetMs": 8123, "anewMs": 21040, "detail": "" },
        },
        {
            "id": "lab/windows-2025-large", "labels": ["windows"], "states": {}, "cap": null, "minimum": 0,
            "idleMinimum": 0, "breaker": "tripped", "retryAt": "2026-11-21T08:12:50Z", "cause": LONG,
            "canary": {
                "proven": null, "trying": null, "agent": null,
                "givenUp": [{ "version": "5f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b", "failures": 3, "cause": LONG }],
            },
        },
        {
            "id": "office/mac", "labels": [], "states": { "Leased": 1 }, "cap": 1, "minimum": 0,
            "idleMinimum": 1, "breaker": "probing", "paused": "node pve3 is offline",
        },
    ]))
}

#[test]
fn templates_fit() {
    insta::assert_snapshot!("templates", looks(&templates()));
}

#[test]
fn clouds_and_breakers_fit() {
    let cloud = |id: &str, health: &str, detail: &str| {
        json!({
            "id": id, "cluster": "9f31c0aa52e7d410", "health": health, "version": "8.4.21",
            "detail": detail, "agents": 2, "cap": 10, "toldAt": "2026-11-21T08:11:00Z",
        })
    };
    let clouds: Vec<drover_api::CloudOut> = read(json!([
        cloud("lab", "well", ""),
        cloud(
            "office",
            "degraded",
            "login `drover@pve!ci` is refused by https://pve3.example.com:8006"
        ),
        cloud("far", "connecting", ""),
    ]));
    let breaker = |id: &str, state: &str| {
        json!({
            "id": id, "state": state, "retryAt": "2026-11-21T08:14:00Z", "cause": LONG,
            "template": "lab/linux",
        })
    };
    let breakers: Vec<drover_api::BreakerOut> = read(json!([
        breaker("lab/linux", "tripped"),
        breaker("node:9f31c0aa52e7d410/pve2", "probing"),
    ]));
    insta::assert_snapshot!("clouds", looks(&clouds));
    insta::assert_snapshot!("breakers", looks(&breakers) + &looks::<drover_api::BreakerOut>(&[]));
}

#[test]
fn nodes_and_pools_fit() {
    let node = |name: &str, state: &str, free: i64| {
        json!({
            "cluster": "9f31c0aa52e7d410", "node": name, "state": state, "agents": 3, "guests": 11,
            "room": {
                "memoryMb": 65536, "othersMb": 20480, "reservedMb": 12288, "freeMb": free, "cpus": 32.0,
                "freeCpus": 11.5,
            },
            "refuses": [{ "template": "lab/linux", "why": "64512 MiB are free, 70000 are needed" }],
        })
    };
    let mut drained = node("pve4", "drained", 8192);
    drained["keptOutBy"] = json!({ "by": "token:ops", "at": "2026-11-21T07:40:00Z" });
    let nodes: Vec<drover_api::NodeOut> = read(json!([
        node("pve1", "online", 32768),
        node("pve2", "its breaker is tripped until 2026-11-21T08:14:00Z: no route to host", -256),
        node("pve3", "offline", 0),
        drained,
    ]));
    let pools: Vec<drover_api::AddressPoolOut> = read(json!([{
        "id": "lab", "ranges": ["10.20.0.50-10.20.0.59", "10.20.0.70", "10.21.0.1-10.21.3.254"],
        "size": 1033, "used": 6, "resting": 5, "free": 1022, "nextFreeAt": "2026-11-21T08:12:30Z",
    }]));
    insta::assert_snapshot!("nodes", looks(&nodes));
    insta::assert_snapshot!("pools", looks(&pools));
}

#[test]
fn sources_jobs_and_alarms_fit() {
    let sources: Vec<drover_api::SourceOut> = read(json!([{
        "id": "forge", "kind": "gitea", "waiting": 14, "oldest": "2026-11-21T08:03:00Z", "unoffered": 1,
        "lacks": ["no template has `gpu`"], "ignored": 2, "runners": 3, "running": 3,
        "silentSince": "2026-11-21T08:09:00Z", "detail": LONG,
    }]));
    let job = |id: &str, state: &str, lacks: Option<&str>| {
        json!({
            "source": "forge", "id": id, "name": "build-and-test / ubuntu (stable)", "state": state,
            "lacks": lacks, "wants": "labels `linux` and `x64`", "since": "2026-11-21T08:03:00Z",
            "agent": (state == "running").then_some("4f8z1c3qx9t2vkab"),
        })
    };
    let jobs: Vec<drover_api::JobOut> = read(json!([
        job("4711", "running", None),
        job("4712", "waiting", None),
        job("4713", "unserved", Some("no template has `gpu`; did you mean `gpu-large`?")),
    ]));
    let alarms: Vec<drover_api::AlarmOut> = read(json!([
        {
            "about": "cloud office", "agent": "", "text": "login refused: check the token",
            "command": "drover doctor --cloud office", "since": "2026-11-21T02:11:02Z",
        },
        {
            "about": "another drover", "agent": "", "command": "", "since": null,
            "text": "another drover may own agents: another journal writes; stop one of them",
        },
        {
            "agent": "zz9zzzzzzzzzzzzz", "text": "`lock: clone` stays and no task runs",
            "command": "ssh pve1 qm unlock 10420", "since": "2026-11-21T02:11:02Z",
        },
    ]));
    insta::assert_snapshot!("sources", looks(&sources));
    insta::assert_snapshot!("jobs", looks(&jobs));
    insta::assert_snapshot!("alarms", looks(&alarms));
}

#[test]
fn images_snapshots_and_machines_fit() {
    let versions: Vec<drover_api::ImageVersionOut> = read(json!([
        {
            "image": "lab/debian-13", "version": "20261120-1a2b3c4d5e6f", "node": "pve1", "vmid": 9001,
            "born": "2026-11-20T03:00:00Z", "kept": "templates lab/linux and lab/linux-large clone from it",
        },
        {
            "image": "lab/debian-13", "version": "20261001-0a2b3c4d5e6f", "node": "pve1", "vmid": 9000,
            "born": "2026-10-01T03:00:00Z", "kept": null,
        },
    ]));
    let snapshot = |name: &str, parent: Option<&str>, is_current| {
        json!({
            "name": name, "description": "before the compiler was updated\nby hand", "memory": false,
            "takenAt": "2026-11-20T03:00:00Z", "parent": parent, "current": is_current, "own": false,
            "unfinished": null,
        })
    };
    let snapshots = Snapshot::all(read(json!([
        snapshot("clean", None, false),
        snapshot("compiler", Some("clean"), true),
    ])));
    let machine = |name: &str, state: &str, drift: Value, detail: &str| {
        json!({
            "name": name, "id": null, "cloud": "lab", "node": "pve1", "vmid": 120, "source": 9000,
            "state": state, "since": "2026-11-20T03:00:00Z", "declared": true, "wanted": "running",
            "lastSeenAt": null, "power": "running", "addresses": ["10.20.0.7"], "drift": drift,
            "detail": detail, "corrected": null, "correctedAt": null, "onRemoval": "KEEP",
        })
    };
    let drift = json!([{
        "kind": "SIZE", "what": "memory", "declared": "8192 MiB", "found": "4096 MiB", "stays": null,
    }]);
    let machines: Vec<drover_api::DeclaredMachineOut> = read(json!([
        machine("registry", "kept", json!([]), ""),
        machine("cache", "kept", drift, ""),
        machine(
            "mirror",
            "blocked",
            json!([]),
            "guest 117 on pve2 is called `mirror` and is not drover's"
        ),
    ]));
    let hardware: Vec<drover_api::ConfigOutValue> = read(json!([
        { "key": "cores", "value": "4", "pending": "8", "deleted": false },
        { "key": "net0", "value": "virtio=BC:24:11:2E:8A:01,bridge=vmbr0,firewall=1,tag=120,queues=4",
          "pending": null, "deleted": true },
    ]));
    insta::assert_snapshot!("images", looks(&versions));
    insta::assert_snapshot!("snapshots", looks(&snapshots));
    insta::assert_snapshot!("machines", looks(&machines));
    insta::assert_snapshot!("hardware", looks(&hardware));
}

// Invariant: a form of output that means nothing for a command is refused with what the command has.

#[test]
fn forms_that_mean_nothing_are_refused() {
    use clap::Parser as _;
    let refused = |output, line: &str| {
        let words = ["drover"].into_iter().chain(line.split(' '));
        let cli = crate::cli::Cli::try_parse_from(words).unwrap();
        check(output, &cli.command).is_err()
    };
    assert!(refused(Output::Name, "reload"));
    assert!(refused(Output::Name, "status"));
    assert!(!refused(Output::Name, "agents --gone"));
    assert!(!refused(Output::Name, "machine snapshot list a1"));
    assert!(!refused(Output::Wide, "status"));
    assert!(refused(Output::Wide, "agents set a1 --idle 5"));
    assert!(refused(Output::Yaml, "run"));
    assert!(!refused(Output::Yaml, "reload"));
}

#[test]
fn members_without_a_leader_say_who_led_last_and_since_when_that_one_is_silent() {
    let members = |last: Value| {
        let all =
            json!({ "store": "s", "leader": null, "lastLeader": last, "term": 4, "members": [] });
        let mut page = Page::new(&view(None));
        last_leader(&serde_json::from_value(all).unwrap(), &mut page);
        page.into_text()
    };
    let last = json!({ "name": "a", "silentSince": "2026-11-21T08:11:02Z" });
    assert_eq!(
        members(last),
        "No member leads. Last led by a, silent since 2026-11-21T08:11:02Z\n"
    );
    assert_eq!(members(Value::Null), "");
}

// Invariant: what is short is said once, and what is well or not known is not said.

#[test]
fn a_storage_that_is_nearly_full_is_named_once_where_nodes_share_it() {
    let storage = |name: &str, shared: bool, used: Option<u64>, reached: bool| {
        let space = used.map(|used| json!({ "usedMb": used, "sizeMb": 1000 }));
        json!({ "storage": name, "kind": "rbd", "shared": shared, "reached": reached, "space": space })
    };
    let node = |name: &str| {
        json!({
            "cluster": "9f31c0aa52e7d410", "node": name, "state": "online", "agents": 0, "guests": 0, "room": null,
            "refuses": [],
            "storages": [
                storage("ceph", true, Some(950), true), storage("lvm", false, Some(901), true),
                storage("nfs", true, None, false), storage("san", true, None, true),
                storage("zfs", false, Some(900), true),
            ],
        })
    };
    let nodes: Vec<drover_api::NodeOut> = read(json!([node("pve1"), node("pve2")]));
    let mut page = Page::new(&view(None));
    super::storages(&nodes, &mut page);
    insta::assert_snapshot!(page.into_text(), @r"
    storage ceph is 95 % full: 50 MiB are free
    storage lvm on pve1 is 90 % full: 99 MiB are free
    storage nfs cannot be reached from pve1
    storage lvm on pve2 is 90 % full: 99 MiB are free
    storage nfs cannot be reached from pve2
    ");
}
