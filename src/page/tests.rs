//! The main pages of a herd with troubles, as golden texts: what an operator and a viewer read.

use drover_api::{KeptOutBy, Role, WhySubjectOut};
use serde_json::{Value, json};

use crate::testing::{frame, out};
use crate::{
    AgentPage, AuditPage, ConfigurationPage, EventRow, HeldAgent, HerdAsides, HerdPage, JobPage,
    KeptOutNode, LeaseCounts, LeasePage, NodeDown, NodeOffline, NodesPage, UsagePage, ValuesShown,
    Written, standing_alarms,
};

const AT: &str = "2026-11-29T02:00:00Z";
const CLUSTER: &str = "9f31c0aa52e7d410";
const FULL: &str = "task `qmclone` on node `pve1` failed: lvcreate: Insufficient free space; once the cause is repaired, `drover breakers reset \
                    lab/linux` tries at once";

/// The content of a page, without what surrounds each.
fn content(page: &impl Written) -> String {
    let text = page.written();
    let start = text.find("<main").unwrap_or_default();
    let end = text.find("</main>").unwrap_or(text.len());
    text.get(start..end).unwrap_or_default().to_owned()
}

fn kinds() -> Value {
    json!([{
        "wants": "template `linux`", "count": 2, "since": AT, "open": 0, "ahead": 0,
        "serve": [{
            "template": "lab/linux", "live": 1, "cap": 4, "coming": 0, "free": 0, "busy": 1, "room": 0,
            "obstacle": format!("lab/linux: {FULL}"), "readySeconds": 20, "useSeconds": null,
        }],
        "others": [{ "template": "lab/windows", "why": "the request names another template" }],
        "why": format!("lab/linux: {FULL}"), "estimateSeconds": null,
        "estimate": "not known: its agents failed; drover tries one at 2026-11-29T03:00:00Z",
    }])
}

fn account() -> Value {
    json!({ "source": "leases", "weight": 1, "weights": 1, "priority": 0, "cap": null, "has": 1, "all": 1,
            "kinds": kinds() })
}

fn status() -> Value {
    let refusal = "  × agentConfigurations.linux.instanceCap: expected a whole number, found text\n    \
                   ╭─[/etc/drover/drover.yaml:32:18]\n 31 │     sshPort: 22\n 32 │     instanceCap: many\n    \
                   ·                  ──┬─\n    ·                    ╰── here\n    ╰────\n  help: give a number \
                   from 0 to 1000000\n";
    json!({
        "version": "0.1.0", "ready": true,
        "config": { "generation": 3, "appliedAt": AT, "refusedAt": AT, "refusal": refusal,
                    "faults": drover_api::faults_of(refusal), "path": "/etc/drover/drover.yaml" },
        "clouds": [{ "id": "lab", "cluster": CLUSTER, "health": "degraded", "version": "9.2",
                     "detail": "cloud lab: no usable endpoint; check `apiUrl`", "agents": 1, "cap": 8,
                     "toldAt": AT }],
        "templates": [{ "id": "lab/linux", "labels": ["linux", "x64"], "states": { "Queued": 1, "Booting": 1, "Leased": 1, "Draining": 1, "Held": 1 }, "cap": 4,
                        "minimum": 1, "idleMinimum": 1, "breaker": "tripped",
                        "retryAt": "2026-11-29T03:00:00Z", "cause": "lvcreate: Insufficient free space" }],
        "agents": [], "leases": [], "addressPools": [],
        "alarms": [
            { "about": "cloud lab", "agent": "", "text": "no usable endpoint; check `apiUrl`",
              "command": "drover doctor --cloud lab", "since": AT },
            { "about": "agent a7", "agent": "a7", "text": "`lock: clone` stays", "command": "qm unlock 10420",
              "since": null },
            { "about": "configuration", "agent": "", "text": "refused", "command": "drover check",
              "since": AT },
        ],
        "breakers": [
            { "id": "lab/linux", "state": "tripped", "retryAt": AT, "cause": "lvcreate", "template": "lab/linux" },
            { "id": "storage:local-lvm", "state": "tripped", "retryAt": AT, "cause": "<b>full</b>",
              "template": "lab/linux" },
            { "id": "cloud:lab", "state": "probing", "retryAt": null, "cause": null, "template": "lab/linux" },
            { "id": "lab/win:11", "state": "tripped", "retryAt": AT, "cause": "lower `memoryMb`: <b>no</b> room",
              "template": "lab/win:11" },
        ],
        "sources": [{ "id": "git", "kind": "gitea", "configured": true, "waiting": 2, "oldest": AT,
                      "unoffered": 0, "lacks": [], "ignored": 0, "runners": 0, "running": 0, "unserved": 0,
                      "refusedSince": null, "refusal": null, "silentSince": AT,
                      "detail": "source `git` does not answer" }],
        "reconciled": [{ "cluster": CLUSTER, "findings": ["destroy orphan 10417"], "unread": null, "at": AT }],
        "restarts": [],
    })
}

fn herd(role: Role) -> String {
    let status: drover_api::StatusOut = out(status());
    let offline =
        NodeOffline { cluster: CLUSTER.to_owned(), node: "pve2".to_owned(), since: AT.to_owned() };
    let asides = HerdAsides {
        alarms: standing_alarms(status.alarms.clone(), &status.sources),
        down: vec![NodeDown { at: offline.clone(), agents: vec![out(agent())], count: 1 }],
        held: vec![HeldAgent {
            agent: out(json!({
                "id": "a9", "template": "lab/linux", "state": "Held", "since": AT, "vmid": 10419, "node": "pve1",
                "leases": [], "uses": 0, "phases": [], "heldUntil": "2026-11-29T04:00:00Z",
                "detail": "held instead of retired: Connecting failed",
            })),
            by: Some("token:ops".to_owned()),
        }],
        let_go: [("lab/linux".to_owned(), 1)].into(),
        untried: [(
            "lab/linux".to_owned(),
            vec![out(json!({ "node": "pve3", "why": "the template has `node: pve1`" }))],
        )]
        .into(),
        more_looks: 2,
        leases: LeaseCounts { waiting: 2, granted: 1 },
        waits: vec![out(account())],
        kept_out: vec![KeptOutNode {
            cluster: CLUSTER.to_owned(),
            node: "pve3".to_owned(),
            is_drained: false,
            by: Some(KeptOutBy { by: "token:ops".to_owned(), at: AT.to_owned() }),
        }],
        offline: vec![offline],
        stuck: vec![out(json!({
            "id": "a7", "template": "lab/linux", "state": "Retiring", "since": AT, "vmid": 10418, "node": "pve1",
            "leases": [], "uses": 1, "phases": [],
            "detail": "guest 10418 is locked by Proxmox (backup); when no task needs this lock any more, run \
                       `qm unlock 10418` on its node",
        }))],
        lost_leases: vec![out(json!({
            "id": "l9", "state": "ended", "agent": "a8", "owner": "ci", "principal": "uid:0", "wants": "template `linux`",
            "askedAt": AT, "expiresAt": null, "endedAt": AT, "ssh": null,
            "detail": "lost: node pve2 is offline, and its SSH does not answer",
        }))],
    };
    let gone = json!([{ "id": "a5", "template": "lab/linux", "reason": "failed", "phases": [],
                        "detail": "Booting failed (unreachable): node pve2 is offline", "goneAt": AT }]);
    content(&HerdPage::new(frame(role), status, asides, out(gone)))
}

fn agent() -> Value {
    json!({ "id": "a1", "template": "lab/linux", "state": "Leased", "since": AT, "vmid": 10417,
            "node": "pve1", "leases": ["l1"], "uses": 1, "detail": "serves lease l1",
            "ssh": { "host": "10.0.0.7", "port": 22, "user": "debian", "hostKey": null, "hostKeys": [] },
            "phases": [{ "state": "Cloning", "ms": 2000 }, { "state": "Ready", "ms": 1000 }] })
}

fn why() -> WhySubjectOut {
    out(json!({
        "subject": "source leases", "state": null, "account": account(),
        "templates": [{ "template": "lab/linux", "waits": FULL, "next": null, "refused": "no node takes one",
            "nodes": [
                { "node": "pve1", "refused": "it is drained: `drover uncordon pve1` lets it be used again" },
                { "node": "pve2", "refused": null },
            ],
            "untried": [{ "node": "pve3", "why": "the template has `nodes: pve1, pve2`" }],
            "keys": ["memoryMb"], "failed": { "at": AT, "why": "lvcreate: Insufficient free space" } }],
    }))
}

// Invariant: the first page has each trouble with its cause, a way to it and what helps: a button for those
// who may, and the command for others.

#[test]
fn the_herd_with_troubles() {
    insta::assert_snapshot!("herd_of_an_admin", herd(Role::Admin));
    let viewer = herd(Role::Viewer);
    assert!(!viewer.contains("data-do"), "{viewer}");
    assert!(!viewer.contains("href=\"/why"), "{viewer}");
    assert!(viewer.contains("<code>drover uncordon pve3</code>"), "{viewer}");
    insta::assert_snapshot!("herd_of_a_viewer", viewer);
}

#[test]
fn what_waits_and_why() {
    insta::assert_snapshot!("why", content(&JobPage::new(frame(Role::Admin), why())));
    let lease = json!({ "id": "l2", "state": "waiting", "agent": null, "owner": "ci", "principal": "token:ci",
                        "wants": "template `linux`", "askedAt": AT, "expiresAt": null, "detail": FULL,
                        "ssh": null });
    let page = LeasePage::new(frame(Role::Operator), out(lease.clone()), Some(why()));
    insta::assert_snapshot!("lease_that_waits", content(&page));
    let mut lost = lease;
    lost["state"] = "ended".into();
    lost["detail"] = "lost: node pve2 is offline".into();
    lost["endedAt"] = AT.into();
    let page = LeasePage::new(frame(Role::Viewer), out(lost), None);
    insta::assert_snapshot!("lease_that_was_lost", content(&page));
}

#[test]
fn an_agent() {
    let events = vec![EventRow {
        id: "3-17".to_owned(),
        at: AT.to_owned(),
        kind: "agent",
        text: "agent a1 is Ready".to_owned(),
        log: None,
    }];
    let page = AgentPage::new(frame(Role::Operator), out(agent()), true, events, 5000);
    insta::assert_snapshot!("agent", content(&page));
}

#[test]
fn the_nodes_with_what_is_free_and_what_is_in_use() {
    let node = |name: &str, state: &str, room: Value| {
        json!({ "cluster": CLUSTER, "node": name, "state": state, "agents": 1, "guests": 2, "room": room,
                "storages": [
                    { "storage": "local-lvm", "kind": "lvmthin", "shared": false, "reached": true,
                      "space": { "usedMb": 48_128, "sizeMb": 51_200 } },
                    { "storage": "nfs", "kind": "nfs", "shared": true, "reached": false, "space": null },
                    { "storage": "san", "kind": "iscsi", "shared": true, "reached": true, "space": null },
                ],
                "refuses": [{ "template": "lab/linux", "why": "it is in maintenance" }] })
    };
    let room = json!({ "memoryMb": 65536, "othersMb": 8192, "reservedMb": 4096, "freeMb": 53248,
                       "usedMb": 16384, "cpus": 16.0, "busyCpus": 4.0, "freeCpus": 10.0 });
    let nodes = json!({
        "nodes": [node("pve1", "online", room), node("pve3", "cordoned", Value::Null)],
        "unread": [{ "cluster": "unknown", "cloud": "office", "why": "no usable endpoint" }],
    });
    let status: drover_api::StatusOut = out(status());
    let page = NodesPage::new(frame(Role::Admin), out(nodes), &[out(agent())], &status.clouds);
    insta::assert_snapshot!("nodes", content(&page));
}

#[test]
fn the_configuration_with_a_newer_one_that_is_refused() {
    let config = out(status()["config"].clone());
    let values = json!([{ "path": "service.logLevel", "value": "debug", "origin": "$LOG_LEVEL" }]);
    let values: Vec<drover_api::ValueOut> = out(values);
    let values = Some(ValuesShown::of(&values, ""));
    let page = ConfigurationPage::new(frame(Role::Admin), config, None, None, values);
    insta::assert_snapshot!("configuration", content(&page));
}

#[test]
fn the_audit_log() {
    let records = json!({ "trouble": null, "records": [
        { "seq": 1, "at": AT, "kind": "call", "principal": "token:ci", "role": "operator", "peer": "10.0.0.9",
          "member": null, "method": "POST", "route": "/v1/leases", "object": null, "status": 403,
          "request": null, "detail": null, "prev": "", "hash": "" },
        { "seq": 2, "at": AT, "kind": "configuration", "principal": null, "role": null, "peer": null,
          "member": null, "method": null, "route": null, "object": null, "status": null, "request": null,
          "detail": "generation 3 is in force", "prev": "", "hash": "" },
    ]});
    insta::assert_snapshot!(
        "audit",
        content(&AuditPage::new(frame(Role::Admin), out(records), ""))
    );
}

#[test]
fn the_usage_of_a_day() {
    let row = |name: &str| {
        json!({ "name": name, "agents": 3, "vmHours": 1.5, "coreHours": 6.0, "gibHours": 12.25, "leases": 2,
                "jobs": 0, "waitP50Seconds": 1.5, "waitP95Seconds": null, "failures": 1, "unsizedHours": 0.0,
                "price": 0.125 })
    };
    let usage = json!({ "from": AT, "to": "2026-11-30T00:00:00Z", "by": "template", "currency": "EUR",
                        "rows": [row("lab/linux")], "total": row("total"),
                        "notes": ["the history begins at `2026-11-28`"] });
    let page = UsagePage::new(frame(Role::Operator), out(usage), "by=template");
    insta::assert_snapshot!("usage", content(&page));
}
