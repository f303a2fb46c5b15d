// Invariant (book: proxmox, section 23, item 7): contention on storage locks, answers about slow
// and dead nodes, the 30 s limit of forwarded calls, and the few workers of a node.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::TestCluster;
use super::fakes::{fixed_latency, seconds};
use crate::interfaces::Backend as _;
use crate::world::{
    CallFault, ConnectionFault, Faults, Latency, LockFault, NodeFault, Spread, WorldOptions,
};

fn with_faults(faults: Faults) -> TestCluster {
    TestCluster::with(WorldOptions { latency: fixed_latency(), faults, ..WorldOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn many_linked_clones_wait_for_the_storage_and_the_last_give_up_after_10_s() {
    let cluster = TestCluster::with_fixed_latency();
    let mut upids = Vec::new();
    for newid in 101..109 {
        upids.push(cluster.start_task(9000, "POST", "clone", json!({ "newid": newid })).await);
    }
    let mut ends = Vec::new();
    for upid in &upids {
        ends.push(cluster.task_end(upid).await);
    }
    let text =
        "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
    let lost: Vec<&String> = ends.iter().filter(|end| *end != "OK").collect();
    assert!(!lost.is_empty() && lost.len() < 5, "{ends:?}");
    assert!(lost.iter().all(|end| *end == text), "{ends:?}");
    // The failed clones were rolled back.
    assert_eq!(cluster.control.guests().len(), 3 + 8 - lost.len());
}

#[tokio::test(start_paused = true)]
async fn a_shared_storage_reports_its_own_lock_error() {
    let cluster = TestCluster::instant();
    cluster.control.hold_storage("pve1", "shared", Duration::from_secs(30));
    seconds(1).await;
    let with = json!({ "newid": 101, "full": true, "storage": "shared" });
    let upid = cluster.start_task(9000, "POST", "clone", with).await;
    let text = "clone failed: cfs-lock 'storage-shared' error: got lock request timeout";
    assert_eq!(cluster.task_end(&upid).await, text);
    let log = cluster.log(&upid).await;
    assert!(log.contains(&"trying to acquire cfs lock 'storage-shared' ...".to_owned()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_the_clusters_lock_is_cut_after_60_s() {
    let latency = Latency { allocate: Spread::of(90.0, 90.0), ..Latency::none() };
    let cluster = TestCluster::with(WorldOptions { latency, ..WorldOptions::default() });
    let with = json!({ "newid": 101, "full": true, "storage": "shared" });
    let status = cluster.run_task(9000, "POST", "clone", with).await;
    assert_eq!(status, "clone failed: 'storage-shared'-locked command timed out - aborting");
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_answers_595_and_takes_its_guests_and_tasks_with_it() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let upid = cluster.start_task(9000, "POST", "clone", json!({ "newid": 102 })).await;
    cluster.control.node_down("pve1").await;
    let error = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (595, "No route to host"));
    assert!(cluster.world.hop("pve1").await.is_err() && cluster.world.hop("pve2").await.is_ok());
    cluster.control.node_up("pve1");
    assert_eq!(cluster.task_end(&upid).await, "unexpected status");
    let live = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(live["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn without_quorum_nothing_is_created_started_or_written() {
    let cluster = TestCluster::instant();
    cluster.clone_to(102).await;
    for node in ["pve2", "pve3"] {
        cluster.control.node_down(node).await;
    }
    let error = cluster.vm_call(9000, "POST", "clone", json!({ "newid": 101 })).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (500, "cluster not ready - no quorum?"));
    let error = cluster.vm_call(102, "PUT", "config", json!({ "name": "x" })).await.unwrap_err();
    assert!(error.message.starts_with("unable to open file '/etc/pve/nodes/"), "{error:?}");
    assert!(error.message.ends_with(" - Permission denied"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_over_30_s_is_a_596_whose_work_goes_on() {
    let latency = Latency { config: Spread::of(40.0, 40.0), ..Latency::none() };
    let cluster = TestCluster::with(WorldOptions { latency, ..WorldOptions::default() });
    cluster.clone_to(101).await;
    let started = Instant::now();
    let error = cluster.vm_call(101, "PUT", "config", json!({ "name": "late" })).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (596, "Connection timed out"));
    assert_eq!(started.elapsed().as_secs(), 30);
    seconds(15).await;
    assert_eq!(cluster.control.config(101).unwrap()["name"], "late");
}

#[tokio::test(start_paused = true)]
async fn a_59x_by_rule_hits_before_or_after_the_call_had_its_effect() {
    for done in [false, true] {
        let rule = CallFault {
            route: Some("/clone".into()),
            status: Some(596),
            message: "Connection timed out".into(),
            done,
            times: Some(1),
            ..CallFault::default()
        };
        let cluster = with_faults(Faults { calls: vec![rule], ..Faults::default() });
        let error =
            cluster.vm_call(9000, "POST", "clone", json!({ "newid": 101 })).await.unwrap_err();
        assert_eq!(error.status, 596);
        seconds(10).await;
        assert_eq!(cluster.control.guests().contains(&101), done);
    }
}

#[tokio::test(start_paused = true)]
async fn resets_are_planned_for_the_transport_to_play() {
    let rule = CallFault {
        method: Some("POST".into()),
        reset: true,
        done: true,
        times: Some(1),
        ..CallFault::default()
    };
    let cluster = with_faults(Faults { calls: vec![rule], ..Faults::default() });
    let plan = |method| cluster.world.connection_fault(method, "/nodes/{node}/qemu", Some("pve1"));
    let plans = [plan("GET"), plan("POST"), plan("POST")];
    assert_eq!(plans, [None, Some(ConnectionFault::ResetAfter), None]);
}

#[tokio::test(start_paused = true)]
async fn few_workers_make_calls_wait_for_each_other() {
    let faults = Faults { workers_per_node: 3, ..Faults::default() };
    let latency = Latency { api_call: Spread::of(2.0, 2.0), ..Latency::none() };
    let cluster = TestCluster::with(WorldOptions { latency, faults, ..WorldOptions::default() });
    let started = Instant::now();
    let calls = (0..6).map(|_| cluster.vm_call(9000, "GET", "config", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(started.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_takes_so_many_times_as_long() {
    let slow = NodeFault { node: "pve1".into(), slow: 3.0, ..NodeFault::default() };
    let cluster = with_faults(Faults { nodes: vec![slow], ..Faults::default() });
    let started = Instant::now();
    cluster.clone_to(101).await;
    assert_eq!(started.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_down_and_comes_back_by_its_rule() {
    let rule = NodeFault {
        node: "pve2".into(),
        down_at: Some(5.0),
        up_at: Some(20.0),
        ..NodeFault::default()
    };
    let cluster = with_faults(Faults { nodes: vec![rule], ..Faults::default() });
    let up = || cluster.world.nodes().into_iter().filter(|(_, up)| *up).count();
    let before = up();
    seconds(6).await;
    let down = up();
    seconds(15).await;
    assert_eq!((before, down, up()), (3, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn somebody_else_holds_a_storage_from_time_to_time_until_the_rules_change() {
    let rule = LockFault {
        node: "pve1".into(),
        storage: Some("local-lvm".into()),
        at: 5.0,
        seconds: 20.0,
        every: 60.0,
        ..LockFault::default()
    };
    let cluster = with_faults(Faults { holds: vec![rule], ..Faults::default() });
    cluster.clone_to(101).await;
    for newid in [102, 103] {
        seconds(10).await;
        let status = cluster.run_task(9000, "POST", "clone", json!({ "newid": newid })).await;
        assert!(status.ends_with("got timeout"), "{status}");
        seconds(50 - 10).await;
    }
    cluster.control.set_faults(Faults::default());
    seconds(70).await;
    cluster.clone_to(104).await;
}
