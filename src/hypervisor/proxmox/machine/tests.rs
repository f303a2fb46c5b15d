//! Orders through the port's own calls: marks first, what is refused before any write, and what counts
//! as done already.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use drover_model::container::GuestType;
use drover_model::id::{CloudId, NodeName, OrderId};
use drover_model::order::TakenSnapshots;
use drover_model::ports::Hypervisor as _;
use drover_model::size::Size;
use serde_json::{Value, json};

use super::super::{Proxmox, TASK_POLL_INTERVAL};
use super::*;
use crate::testing::{Script, Step, connection, marks, token};

fn call(work: Work, repeated: bool) -> OrderCall {
    let (cloud, node) = (CloudId::new("primary"), NodeName::new("pve1"));
    let vm = VmRef { cloud, node, vmid: VmId(101), guest: GuestType::Vm };
    let (shutdown, limit) = (Duration::from_secs(60), Duration::from_secs(120));
    let mut snapshots = TakenSnapshots::default();
    snapshots.insert("one", Some(1));
    let order = Some(OrderId::new("order-1"));
    OrderCall { vm, marks: marks(), work, order, snapshots, repeated, shutdown, limit }
}

/// A guest in this state with these further keys, its snapshots, and what it answers to writes: every
/// task ends well.
fn guest(status: &'static str, qmp: &'static str, keys: Value, snapshots: Value) -> Script {
    let snapshots = Mutex::new(snapshots);
    Script::new(move |asked| {
        if asked.starts_with("POST") && asked.contains("/snapshot snapname=one ") {
            let (_, description) = asked.split_once("description=").unwrap();
            let row =
                json!({"name": "one", "snaptime": 8, "description": format!("{description}\n")});
            snapshots.lock().unwrap().as_array_mut().unwrap().push(row);
        }
        if asked.ends_with("/config") {
            let mut config = json!({
                "name": marks().name("ci"),
                "description": marks().describe("x"),
                "digest": "abc",
            });
            config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
            return Step::Data(config);
        }
        match asked.split(' ').nth(1).unwrap() {
            path if path.ends_with("/status/current") => {
                Step::Data(json!({"status": status, "qmpstatus": qmp, "pid": 7}))
            }
            path if path.ends_with("/snapshot") && asked.starts_with("GET") => {
                Step::Data(snapshots.lock().unwrap().clone())
            }
            path if path.ends_with("/pending") => {
                Step::Data(json!([{"key": "cores", "value": 2, "pending": 4}]))
            }
            path if path.contains("/tasks/") && path.ends_with("/status") => {
                Step::Data(json!({"status": "stopped", "exitstatus": "OK"}))
            }
            path if path.ends_with("/tasks") => Step::Data(json!([])),
            path if path.ends_with("/config") => Step::Data(Value::Null),
            _ => Step::Data(UPID.into()),
        }
    })
}

const UPID: &str = "UPID:pve1:00000001:00000002:65000000:qmorder:101:ci@pve!drover:";

async fn carry_out(script: &Script, call: OrderCall) -> (Carried, Vec<String>) {
    let port = Proxmox::new(None, Arc::new(script.clone()), TASK_POLL_INTERVAL);
    port.set_cloud(CloudId::new("primary"), &connection(&["pve1"], token())).unwrap();
    let carried = port.carry_out(call).await.unwrap();
    let writes = script.seen().into_iter().filter(|asked| !asked.starts_with("pve1 GET"));
    let short = |asked: String| asked.replace("pve1 ", "").replace("/nodes/pve1/qemu/101", "");
    (carried, writes.map(short).collect())
}

fn none() -> Value {
    json!([{"name": "current", "running": 1}])
}

// Invariant: each order makes its one call where the guest is not yet what was ordered, and none else.

#[tokio::test(start_paused = true)]
async fn each_verb_makes_its_call_and_what_holds_already_makes_none() {
    let (running, paused, stopped) =
        (("running", "running"), ("running", "paused"), ("stopped", "stopped"));
    for (work, (status, qmp), wanted) in [
        (Work::Start, stopped, Ok(Some("POST /status/start"))),
        (Work::Start, running, Ok(None)),
        (Work::Start, paused, Err("resume it instead")),
        (Work::Stop, running, Ok(Some("POST /status/stop overrule-shutdown=1"))),
        (Work::Stop, paused, Ok(Some("POST /status/stop overrule-shutdown=1"))),
        (Work::Stop, stopped, Ok(None)),
        (Work::Shutdown, running, Ok(Some("POST /status/shutdown timeout=60"))),
        (Work::Shutdown, paused, Err("resume it first, or stop it")),
        (Work::Shutdown, stopped, Ok(None)),
        (Work::Reset, running, Ok(Some("POST /status/reset"))),
        (Work::Reset, stopped, Err("start it instead")),
        (Work::Reboot, paused, Err("resume it first, or reset it")),
        (Work::Reboot, stopped, Err("start it instead")),
        (Work::Suspend, running, Ok(Some("POST /status/suspend"))),
        (Work::Suspend, paused, Ok(None)),
        (Work::Suspend, stopped, Err("start it instead")),
        (Work::Resume, paused, Ok(Some("POST /status/resume"))),
        (Work::Resume, running, Ok(None)),
        (Work::Resume, stopped, Err("start it instead")),
    ] {
        let script = guest(status, qmp, json!({}), none());
        let (carried, writes) = carry_out(&script, call(work.clone(), false)).await;
        match wanted {
            Ok(write) => {
                assert!(carried.outcome.is_ok(), "{work} {qmp}: {carried:?}");
                assert_eq!(writes, write.into_iter().collect::<Vec<_>>(), "{work} {qmp}");
            }
            Err(text) => {
                let fault = carried.outcome.unwrap_err();
                assert!(fault.text.contains(text) && writes.is_empty(), "{work} {qmp}: {fault}");
            }
        }
        let current = serde_json::from_value(json!({"status": status, "qmpstatus": qmp})).unwrap();
        let (power, _) = crate::describe::power_of(&current);
        assert_eq!(carried.power, power, "as it was read at the end");
    }
}

// Invariant: nothing is written to a guest that is not the agent's, or that Proxmox itself has locked.

#[tokio::test(start_paused = true)]
async fn strangers_and_locked_guests_are_left_alone() {
    for (keys, kind) in [
        (json!({"description": "somebody else's"}), "foreign"),
        (json!({"lock": "backup"}), "locked"),
    ] {
        for work in [Work::Stop, Work::Revert { name: "ab".into() }] {
            let script = guest("running", "running", keys.clone(), none());
            let (carried, writes) = carry_out(&script, call(work, false)).await;
            let fault = carried.outcome.unwrap_err();
            assert_eq!((fault.kind.label(), writes.len()), (kind, 0), "{fault}");
        }
    }
}

// Invariant: a snapshot is taken once, and what is not there is neither gone back to nor deleted.

#[tokio::test(start_paused = true)]
async fn snapshots_that_are_there_are_not_taken_twice() {
    let work = || Work::Snapshot { name: "one".into(), description: "d".into(), memory: true };
    let there = json!([
        {"name": "one", "snaptime": 1, "description": "d\ndrover order order-1\n"}, {"name": "current"}
    ]);
    let (carried, writes) =
        carry_out(&guest("running", "running", json!({}), none()), call(work(), false)).await;
    assert_eq!((carried.outcome, carried.snapshot_taken), (Ok(String::new()), Some(8)));
    let said = "POST /snapshot snapname=one vmstate=1 description=d\ndrover order order-1";
    assert_eq!(writes, [said]);
    let taken = || guest("running", "running", json!({"parent": "one"}), there.clone());
    let (carried, writes) = carry_out(&taken(), call(work(), true)).await;
    assert!(carried.outcome.is_ok() && writes.is_empty(), "an earlier try took it");
    assert_eq!(carried.snapshot_taken, Some(1), "the time that was not durable yet");
    let next = OrderCall { order: Some(OrderId::new("order-2")), ..call(work(), true) };
    let (carried, writes) = carry_out(&taken(), next).await;
    assert!(carried.outcome.is_err() && writes.is_empty(), "its name is taken");
    let (carried, writes) =
        carry_out(&taken(), call(Work::Revert { name: "one".into() }, false)).await;
    assert!(carried.outcome.is_ok());
    assert_eq!(writes, ["POST /snapshot/one/rollback start=1"]);
    let other = || Work::DeleteSnapshot { name: "two".into() };
    let (carried, writes) = carry_out(&taken(), call(other(), false)).await;
    let text = carried.outcome.unwrap_err().text;
    let said = "no snapshot `two` that an order took; known: `one`";
    assert!(text.contains(said) && writes.is_empty(), "{text}");
    let (carried, _) = carry_out(&taken(), call(other(), true)).await;
    assert!(carried.outcome.is_ok(), "an earlier try deleted it");
    let most: Vec<Value> = (0..16).map(|n| json!({"name": format!("s{n}")})).collect();
    let full = guest("running", "running", json!({}), json!(most));
    let (carried, writes) = carry_out(&full, call(work(), false)).await;
    assert!(carried.outcome.is_err() && writes.is_empty(), "there are as many as may be");
}

// Invariant: a snapshot by hand that has the name of an order's is left alone, and so is one whose time
// drover does not know.

#[tokio::test(start_paused = true)]
async fn a_namesake_of_an_orders_snapshot_is_neither_gone_back_to_nor_deleted() {
    let machine = |snaptime: u32| {
        let there = json!([{"name": "one", "snaptime": snaptime}, {"name": "current"}]);
        guest("running", "running", json!({"parent": "one"}), there)
    };
    let both =
        || [Work::Revert { name: "one".into() }, Work::DeleteSnapshot { name: "one".into() }];
    for work in both() {
        let (carried, writes) = carry_out(&machine(2), call(work.clone(), false)).await;
        let text = carried.outcome.unwrap_err().text;
        let said = "the order's is of 1970-01-01T00:00:01Z, and this one was taken \
                    1970-01-01T00:00:02Z by hand";
        assert!(text.contains(said) && writes.is_empty(), "{work}: {text} {writes:?}");
        let mut untimed = call(work.clone(), false);
        untimed.snapshots.insert("one", None);
        let (carried, writes) = carry_out(&machine(1), untimed).await;
        let text = carried.outcome.unwrap_err().text;
        assert!(text.contains("did not keep its time") && writes.is_empty(), "{work}: {text}");
        let (carried, writes) = carry_out(&machine(1), call(work.clone(), false)).await;
        assert!(carried.outcome.is_ok() && writes.len() == 1, "{work}: {carried:?}");
    }
}

// Invariant: a snapshot that no order of the present use took is nobody's: it may show files of another.

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_somebody_took_by_hand_is_left_alone() {
    let there = json!([
        {"name": "hand", "snaptime": 1}, {"name": "torn", "snapstate": "prepare"}, {"name": "current"}
    ]);
    let (hand, torn) = (|| "hand".to_owned(), || "torn".to_owned());
    let machine = || guest("running", "running", json!({"parent": "drover-clean"}), there.clone());
    let again = Work::Snapshot { name: hand(), description: String::new(), memory: false };
    for (work, repeated, text) in [
        (Work::Revert { name: hand() }, false, "no snapshot `hand` that an order took"),
        (Work::DeleteSnapshot { name: hand() }, false, "no snapshot `hand` that an order took"),
        (Work::Revert { name: torn() }, false, "was started and not finished"),
        (again, true, "has a snapshot `hand` already"),
    ] {
        let (carried, writes) = carry_out(&machine(), call(work.clone(), repeated)).await;
        let fault = carried.outcome.unwrap_err();
        assert!(fault.text.contains(text) && writes.is_empty(), "{work}: {fault} {writes:?}");
    }
    let delete = Work::DeleteSnapshot { name: torn() };
    let (carried, writes) = carry_out(&machine(), call(delete, false)).await;
    assert!(carried.outcome.is_ok(), "only its deletion helps: {carried:?}");
    assert_eq!(writes, ["DELETE /snapshot/torn"]);
}

// Invariant: sizes are written once, with the digest that was read; a smaller disk is refused first. The
// order says of each size whether it holds, also where a part was refused.

/// A guest of two cores, 2 GiB and 20 GiB that keeps what is written to it. Cores wait for its start;
/// `refuses` names what it refuses, `memory` or `disk`.
fn sized(refuses: &'static str) -> Script {
    let has = Mutex::new((2, 2048, 20));
    Script::new(move |asked| {
        let mut has = has.lock().unwrap();
        let number = |key: &str| {
            let value = asked.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            value.and_then(|text| text.trim_end_matches('G').parse::<u32>().ok())
        };
        if asked.starts_with("PUT") && asked.contains("/config") {
            has.0 = number("cores").unwrap_or(has.0);
            if let Some(memory) = number("memory") {
                if refuses == "memory" {
                    return Step::Errors(json!({"memory": "hotplug problem - no slot is free"}));
                }
                has.1 = memory;
            }
            return Step::Data(Value::Null);
        }
        if asked.contains("/resize") {
            if refuses == "disk" {
                return Step::Refuse(500, "storage is full");
            }
            has.2 = number("size").unwrap_or(has.2);
            return Step::Data(UPID.into());
        }
        match asked.split(' ').nth(1).unwrap() {
            path if path.ends_with("/config") => Step::Data(json!({
                "name": marks().name("ci"), "description": marks().describe("x"), "digest": "abc",
                "cores": has.0, "memory": has.1.to_string(),
                "scsi0": format!("local:vm-101-disk-0,size={}G", has.2),
            })),
            path if path.ends_with("/pending") => match has.0 {
                2 => Step::Data(json!([{"key": "cores", "value": 2}])),
                cores => Step::Data(json!([{"key": "cores", "value": 2, "pending": cores}])),
            },
            path if path.ends_with("/status/current") => {
                Step::Data(json!({"status": "running", "qmpstatus": "running", "pid": 7}))
            }
            path if path.contains("/tasks/") && path.ends_with("/status") => {
                Step::Data(json!({"status": "stopped", "exitstatus": "OK"}))
            }
            _ => Step::Data(json!([])),
        }
    })
}

fn resize(memory_mb: u32, disk_gb: Option<u32>) -> OrderCall {
    call(Work::Resize(Size { cores: Some(4), memory_mb: Some(memory_mb), disk_gb }), false)
}

#[tokio::test(start_paused = true)]
async fn a_smaller_disk_is_refused_before_anything_is_written() {
    let (carried, writes) = carry_out(&sized(""), resize(2048, Some(19))).await;
    let text = carried.outcome.unwrap_err().text;
    assert!(text.contains("cannot shrink to 19 GiB") && writes.is_empty(), "{text} {writes:?}");
    let (carried, writes) = carry_out(&sized(""), resize(2048, Some(30))).await;
    let said = "4 cores: pending until the machine restarts, 2 until then; 2048 MiB: applied; 30 GiB of disk: applied";
    assert_eq!(carried.outcome, Ok(said.to_owned()));
    assert_eq!(writes, ["PUT /config cores=4 digest=abc", "PUT /resize disk=scsi0 size=30G"]);
    let (_, writes) = carry_out(&sized(""), resize(2048, Some(20))).await;
    assert_eq!(writes, ["PUT /config cores=4 digest=abc"], "it has that size");
}

#[tokio::test(start_paused = true)]
async fn sizes_that_were_refused_half_way_are_said_one_by_one() {
    let (carried, _) = carry_out(&sized("memory"), resize(4096, Some(30))).await;
    let text = carried.outcome.unwrap_err().text;
    let said = "; 4 cores: pending until the machine restarts, 2 until then; 4096 MiB: not done, it has 2048; 30 \
                GiB of disk: not done, it has 20 GiB";
    assert!(text.contains("no slot is free") && text.ends_with(said), "{text}");
    let (carried, _) = carry_out(&sized("disk"), resize(4096, Some(30))).await;
    let text = carried.outcome.unwrap_err().text;
    let said = "; 4 cores: pending until the machine restarts, 2 until then; 4096 MiB: applied; 30 GiB of disk: \
                not done, it has 20 GiB";
    assert!(text.contains("storage is full") && text.ends_with(said), "{text}");
}
