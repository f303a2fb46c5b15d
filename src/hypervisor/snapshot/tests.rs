//! Snapshots through the port's own calls: marks first, and refusals kept apart.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use drover_model::container::GuestType;
use drover_model::id::{CloudId, NodeName, VmId};
use drover_model::ports::VmRef;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Clients as _, Script, Step, marks, token};

fn call(memory: bool) -> SnapshotCall {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    let vm = VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Vm };
    SnapshotCall { vm, marks: marks(), memory, limit: Duration::from_secs(60) }
}

/// The agent's configuration with further keys.
fn config(more: &[(&str, &str)]) -> Value {
    let mut config = json!({ "name": marks().name("ci"), "description": marks().describe("") });
    for (key, value) in more {
        config[*key] = (*value).into();
    }
    config
}

/// A cluster where the guest has this configuration and every write gets this answer.
fn script(config: Value, write: fn() -> Step) -> Script {
    Script::new(
        move |asked| {
            if asked.starts_with("GET") { Step::Data(config.clone()) } else { write() }
        },
    )
}

const UPID: &str = "UPID:pve1:00000001:00000002:65000000:qmsnapshot:101:ci@pve!drover:";

fn accepted() -> Step {
    Step::Data(UPID.into())
}

// Invariant: the marks are read before anything is written, in the same operation.

#[tokio::test]
async fn a_snapshot_is_taken_once_with_memory_only_where_it_is_wanted() {
    for (memory, asked) in [(false, "vmstate=0"), (true, "vmstate=1")] {
        let script = script(config(&[]), accepted);
        let client = script.client(&["pve1"], token());
        assert!(start(&client, &call(memory)).await.unwrap().is_some());
        let path = "pve1 POST /nodes/pve1/qemu/101/snapshot snapname=drover-clean";
        let wanted = ["pve1 GET /nodes/pve1/qemu/101/config".into(), format!("{path} {asked}")];
        assert_eq!(script.seen(), wanted);
    }
    let script = script(config(&[("parent", "drover-clean")]), accepted);
    let client = script.client(&["pve1"], token());
    assert!(start(&client, &call(false)).await.unwrap().is_none());
    assert_eq!(script.seen().len(), 1, "it is there already");
}

#[tokio::test]
async fn nothing_is_put_back_that_is_not_the_agents_or_has_no_snapshot() {
    let mine = [("parent", "drover-clean")];
    let strangers = json!({ "name": "db", "parent": "drover-clean" });
    let locked = config(&[("parent", "drover-clean"), ("lock", "snapshot")]);
    let rows = [
        (strangers, "foreign"),
        (locked, "locked"),
        (config(&[]), "broken"),
        (config(&[("parent", "before-upgrade")]), "broken"),
    ];
    for (config, kind) in rows {
        let script = script(config, accepted);
        let client = script.client(&["pve1"], token());
        let error = roll_back(&client, &call(false)).await.unwrap_err();
        assert_eq!(client.fault(&error).kind.label(), kind);
        assert_eq!(script.seen().len(), 1, "nothing was written");
    }
    let script = script(config(&mine), accepted);
    let client = script.client(&["pve1"], token());
    roll_back(&client, &call(false)).await.unwrap();
    let path = "/nodes/pve1/qemu/101/snapshot/drover-clean/rollback";
    assert_eq!(script.seen()[1], format!("pve1 POST {path} start=1"));
}

// Invariant: a missing privilege, or a storage without snapshots, is not a failure of the agent.

#[tokio::test]
async fn a_missing_right_says_which_and_that_there_can_be_no_snapshot() {
    let refuse = || Step::Refuse(403, "Permission check failed (/vms/101, VM.Snapshot)");
    let script = script(config(&[]), refuse);
    let client = script.client(&["pve1"], token());
    let error = start(&client, &call(false)).await.unwrap_err();
    let Ok(Snapped::Impossible(text)) = or_impossible(client.fault(&error)) else {
        panic!("a fault")
    };
    assert!(text.contains("VM.Snapshot"), "{text}");
}

#[test]
fn what_stays_means_that_there_can_be_none_and_what_passes_is_tried_again() {
    let fault = |kind| Fault::new(kind, Culprit::Guest, "snapshot feature is not available");
    for kind in [FaultKind::Broken, FaultKind::Capacity] {
        assert!(matches!(or_impossible(fault(kind)), Ok(Snapped::Impossible(_))));
    }
    for kind in [FaultKind::Contention, FaultKind::UnknownOutcome, FaultKind::Foreign] {
        assert_eq!(or_impossible(fault(kind.clone())).unwrap_err().kind, kind);
    }
}
