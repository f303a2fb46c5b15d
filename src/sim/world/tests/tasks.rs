// Invariant (book: proxmox, section 23, item 1): tasks are forked at once, fail later, have logs in
// pages, belong to their caller, and stop on DELETE.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::TestCluster;
use super::fakes::{FakeGuestBehaviour, seconds};
use crate::call::Caller;
use crate::world::task::Upid;
use crate::world::{Faults, Latency, TaskFault, WorldOptions};

const LOG: &str = "/nodes/{node}/tasks/{upid}/log";
const STATUS: &str = "/nodes/{node}/tasks/{upid}/status";
const TASK: &str = "/nodes/{node}/tasks/{upid}";
const TASKS: &str = "/nodes/{node}/tasks";

#[tokio::test(start_paused = true)]
async fn a_call_on_a_missing_guest_gets_a_upid_and_its_task_fails() {
    let cluster = TestCluster::instant();
    let upid = cluster.start_task(777, "POST", "status/start", json!({})).await;
    assert_eq!(Upid::parse(&upid).unwrap().user, "root@pam!drover");
    let text = "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist";
    assert_eq!(cluster.task_end(&upid).await, text);
    assert_eq!(cluster.log(&upid).await, [format!("TASK ERROR: {text}")]);
    let stopped = cluster.run_task(777, "POST", "status/stop", json!({})).await;
    assert_eq!(stopped, "unable to find configuration file for VM 777 on node 'pve1'");
}

#[tokio::test(start_paused = true)]
async fn a_running_task_is_running_and_an_ended_one_has_an_exit_status() {
    let cluster = TestCluster::with_fixed_latency();
    let upid = cluster.start_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    let running = cluster.task(&upid).await;
    assert_eq!((&running["status"], running.get("exitstatus")), (&json!("running"), None));
    assert_eq!((&running["user"], &running["tokenid"]), (&json!("root@pam"), &json!("drover")));
    assert_eq!(running["id"], "9000");
    seconds(5).await;
    assert_eq!(cluster.task(&upid).await["exitstatus"], "OK");
    assert_eq!(cluster.log(&upid).await.last().unwrap(), "TASK OK");
}

#[tokio::test(start_paused = true)]
async fn a_log_is_read_in_pages() {
    let cluster = TestCluster::instant();
    let upid = cluster.start_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    cluster.task_end(&upid).await;
    let all = cluster.log(&upid).await;
    let page = json!({ "upid": upid, "start": 1, "limit": 1 });
    let page = cluster.call("GET", LOG, page).await.unwrap();
    assert_eq!(page.total, Some(all.len() as u64));
    assert_eq!(page.data, json!([{ "n": 2, "t": all[1] }]));
    let past = cluster.get(LOG, json!({ "upid": upid, "start": 99 })).await;
    assert_eq!(past, json!([]));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_and_an_invalid_upid_get_different_errors() {
    let cluster = TestCluster::instant();
    let missing = "UPID:pve1:00000001:00000001:00000001:qmstart:100:root@pam:";
    for (upid, text) in [(missing, "no such task"), ("nope", "unable to parse worker upid")] {
        let error = cluster.call("GET", STATUS, json!({ "upid": upid })).await.unwrap_err();
        assert_eq!((error.status, error.errors["upid"].as_str()), (400, text));
    }
    let log = cluster.get(LOG, json!({ "upid": missing })).await;
    assert_eq!(log, json!({ "n": 1, "t": "unable to open file - No such file or directory" }));
}

#[tokio::test(start_paused = true)]
async fn only_the_owner_or_an_auditor_sees_and_stops_a_task() {
    let cluster = TestCluster::instant();
    let upid = cluster.start_task(777, "POST", "status/start", json!({})).await;
    cluster.task_end(&upid).await;
    let none = Caller { userid: "none@pve".into(), token: None };
    let visible = cluster.call_as(&none, "GET", STATUS, json!({ "upid": upid })).await.unwrap_err();
    assert_eq!(
        (visible.status, visible.message.as_str()),
        (403, "Permission check failed (/nodes/pve1, Sys.Audit)")
    );
    let stop = cluster.call_as(&none, "DELETE", TASK, json!({ "upid": upid })).await.unwrap_err();
    assert_eq!(stop.message, "Permission check failed (/nodes/pve1, Sys.Modify)");
    let list = cluster.call_as(&none, "GET", TASKS, json!({})).await.unwrap();
    assert_eq!((list.data, list.total), (json!([]), None));
}

#[tokio::test(start_paused = true)]
async fn a_token_without_audit_rights_does_not_find_its_own_tasks_in_the_clusters_list() {
    let cluster = TestCluster::instant();
    let token = Caller { userid: "none@pve".into(), token: Some("t".into()) };
    let user = Caller { userid: "none@pve".into(), token: None };
    let route = "/nodes/{node}/qemu/{vmid}/status/start";
    cluster.call_as(&token, "POST", route, json!({ "vmid": 777 })).await.unwrap();
    seconds(1).await;
    let of = async |caller: &Caller| {
        let list =
            cluster.call_as(caller, "GET", "/cluster/tasks", json!({})).await.unwrap().value();
        list.as_array().unwrap().len()
    };
    assert_eq!((of(&token).await, of(&user).await), (0, 1));
    let own = cluster.call_as(&token, "GET", TASKS, json!({})).await.unwrap();
    assert_eq!(own.total, Some(1));
}

#[tokio::test(start_paused = true)]
async fn lists_say_running_tasks_from_ended_ones() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.run_task(777, "POST", "status/start", json!({})).await;
    let upid = cluster.start_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    let active = cluster.get(TASKS, json!({ "source": "active" })).await;
    assert_eq!((&active[0]["upid"], &active[0]["status"]), (&json!(upid), &json!("RUNNING")));
    let archive = cluster.call("GET", TASKS, json!({})).await.unwrap();
    assert_eq!((archive.total, archive.data[0]["type"].as_str()), (Some(1), Some("qmstart")));
    let errors =
        cluster.call("GET", TASKS, json!({ "errors": true, "source": "all" })).await.unwrap();
    assert_eq!(errors.total, Some(1));
    let cluster = cluster.get("/cluster/tasks", json!({})).await;
    let running = cluster.as_array().unwrap().iter().find(|task| task["upid"] == upid).unwrap();
    assert_eq!(running.get("status"), None);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_clone_cleans_up_and_names_the_signal() {
    let cluster = TestCluster::with_fixed_latency();
    let full = json!({ "newid": 101, "full": true });
    let upid = cluster.start_task(9000, "POST", "clone", full).await;
    seconds(4).await;
    assert!(cluster.control.guests().contains(&101));
    assert!(cluster.call("DELETE", TASK, json!({ "upid": upid })).await.unwrap().data.is_null());
    let status = cluster.task_end(&upid).await;
    assert!(status.starts_with("clone failed: copy failed: "), "{status}");
    assert!(status.ends_with("interrupted by signal"), "{status}");
    assert!(!cluster.control.guests().contains(&101));
    let left = cluster.control.volumes("pve1", "local-lvm");
    assert!(!left.iter().any(|volid| volid.contains("vm-101-")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_stopped_while_it_pings_takes_no_notice_and_is_killed_after_5_s() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    let never = FakeGuestBehaviour { shutdown: None, agent: Duration::from_secs(3600) };
    cluster.guests.set_behaviour(never);
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    let upid = cluster.start_task(101, "POST", "status/shutdown", json!({ "timeout": 60 })).await;
    seconds(1).await;
    let started = Instant::now();
    cluster.call("DELETE", TASK, json!({ "upid": upid })).await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert_eq!(cluster.task_end(&upid).await, "unexpected status");
    assert_eq!(cluster.log(&upid).await, ["QEMU Guest Agent is not running - received interrupt"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_dies_has_an_unexpected_status_and_leaves_an_orphan() {
    let death = TaskFault { kind: Some("qmclone".into()), after: 1.0, ..TaskFault::default() };
    let cluster = TestCluster::with(WorldOptions {
        latency: super::fakes::fixed_latency(),
        faults: Faults { tasks: vec![death], ..Faults::default() },
        ..WorldOptions::default()
    });
    let status = cluster.run_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert_eq!(status, "unexpected status");
    assert_eq!(cluster.control.config(101).unwrap()["lock"], "clone");
    let destroyed = cluster.run_task(101, "DELETE", "", json!({})).await;
    assert_eq!(destroyed, "VM is locked (clone)");
}

#[tokio::test(start_paused = true)]
async fn a_world_repeats_itself_under_one_seed() {
    let story = async |seed: u64| {
        let options = WorldOptions { seed, latency: Latency::default(), ..WorldOptions::default() };
        let cluster = TestCluster::with(options);
        for newid in [101, 102] {
            cluster.clone_to(newid).await;
        }
        (cluster.config(102).await, cluster.world.unix_time())
    };
    let (first, again, other) = (story(7).await, story(7).await, story(8).await);
    assert_eq!(first, again);
    assert_ne!(first.0["net0"], other.0["net0"]);
}

#[tokio::test(start_paused = true)]
async fn a_running_task_shows_its_whole_user_and_that_it_is_not_archived() {
    let cluster = TestCluster::with_fixed_latency();
    let upid = cluster.start_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    let active = cluster.get("/nodes/{node}/tasks", json!({ "source": "active" })).await;
    assert_eq!((&active[0]["user"], &active[0]["saved"]), (&json!("root@pam!drover"), &json!("0")));
    assert_eq!((active[0].get("tokenid"), &active[0]["status"]), (None, &json!("RUNNING")));
    let keys = async || {
        let lines = cluster.get("/cluster/tasks", json!({})).await;
        (lines[0].get("pid").is_some(), lines[0].get("pstart").is_some())
    };
    assert_eq!(keys().await, (true, false));
    cluster.task_end(&upid).await;
    assert_eq!(keys().await, (false, false));
    let archived = cluster.get("/nodes/{node}/tasks", json!({})).await;
    assert_eq!(
        (&archived[0]["user"], &archived[0]["tokenid"]),
        (&json!("root@pam"), &json!("drover"))
    );
}
