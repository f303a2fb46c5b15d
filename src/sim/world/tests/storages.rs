// Invariant: section 23 item 7, contention on storage locks, answers of the inner hop from slow and
// dead nodes, its 30 s, and the few workers of a node.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Play;
use super::fakes::{seconds, steady};
use crate::interfaces::Backend as _;
use crate::world::{
    CallFault, Faults, HoldFault, Latency, NodeFault, Spread, WireFault, WorldOptions,
};

fn with_faults(faults: Faults) -> Play {
    Play::with(WorldOptions { latency: steady(), faults, ..WorldOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn many_linked_clones_wait_for_the_storage_and_the_last_give_up_after_10_s() {
    let play = Play::steady();
    let mut upids = Vec::new();
    for newid in 101..109 {
        upids.push(play.begin(9000, "POST", "clone", json!({ "newid": newid })).await);
    }
    let mut ends = Vec::new();
    for upid in &upids {
        ends.push(play.end_of(upid).await);
    }
    let text =
        "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
    let lost: Vec<&String> = ends.iter().filter(|end| *end != "OK").collect();
    assert!(!lost.is_empty() && lost.len() < 5, "{ends:?}");
    assert!(lost.iter().all(|end| *end == text), "{ends:?}");
    // What was lost was rolled back.
    assert_eq!(play.side.guests().len(), 3 + 8 - lost.len());
}

#[tokio::test(start_paused = true)]
async fn a_shared_storage_says_it_in_its_own_words() {
    let play = Play::at_once();
    play.side.hold_storage("pve1", "shared", Duration::from_secs(30));
    seconds(1).await;
    let with = json!({ "newid": 101, "full": true, "storage": "shared" });
    let upid = play.begin(9000, "POST", "clone", with).await;
    let text = "clone failed: cfs-lock 'storage-shared' error: got lock request timeout";
    assert_eq!(play.end_of(&upid).await, text);
    let log = play.log(&upid).await;
    assert!(log.contains(&"trying to acquire cfs lock 'storage-shared' ...".to_owned()), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_the_clusters_lock_is_cut_after_60_s() {
    let latency = Latency { allocate: Spread::of(90.0, 90.0), ..Latency::none() };
    let play = Play::with(WorldOptions { latency, ..WorldOptions::default() });
    let with = json!({ "newid": 101, "full": true, "storage": "shared" });
    let status = play.run(9000, "POST", "clone", with).await;
    assert_eq!(status, "clone failed: 'storage-shared'-locked command timed out - aborting");
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_answers_595_and_takes_its_guests_and_tasks_with_it() {
    let play = Play::steady();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    let upid = play.begin(9000, "POST", "clone", json!({ "newid": 102 })).await;
    play.side.node_down("pve1").await;
    let error = play.on(101, "GET", "status/current", json!({})).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (595, "No route to host"));
    assert!(play.world.hop("pve1").await.is_err() && play.world.hop("pve2").await.is_ok());
    play.side.node_up("pve1");
    assert_eq!(play.end_of(&upid).await, "unexpected status");
    let live = play.on(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(live["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn without_quorum_nothing_is_created_or_started() {
    let play = Play::at_once();
    for node in ["pve2", "pve3"] {
        play.side.node_down(node).await;
    }
    let error = play.on(9000, "POST", "clone", json!({ "newid": 101 })).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (500, "cluster not ready - no quorum?"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_over_30_s_is_a_596_whose_work_goes_on() {
    let latency = Latency { config: Spread::of(40.0, 40.0), ..Latency::none() };
    let play = Play::with(WorldOptions { latency, ..WorldOptions::default() });
    play.clone_to(101).await;
    let begun = Instant::now();
    let error = play.on(101, "PUT", "config", json!({ "name": "late" })).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (596, "Connection timed out"));
    assert_eq!(begun.elapsed().as_secs(), 30);
    seconds(15).await;
    assert_eq!(play.side.config(101).unwrap()["name"], "late");
}

#[tokio::test(start_paused = true)]
async fn a_59x_by_rule_strikes_before_or_after_the_call_had_its_effect() {
    for done in [false, true] {
        let rule = CallFault {
            route: Some("/clone".into()),
            status: Some(596),
            message: "Connection timed out".into(),
            done,
            times: Some(1),
            ..CallFault::default()
        };
        let play = with_faults(Faults { calls: vec![rule], ..Faults::default() });
        let error = play.on(9000, "POST", "clone", json!({ "newid": 101 })).await.unwrap_err();
        assert_eq!(error.status, 596);
        seconds(10).await;
        assert_eq!(play.side.guests().contains(&101), done);
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
    let play = with_faults(Faults { calls: vec![rule], ..Faults::default() });
    let plan = |method| play.world.plan_of_call(method, "/nodes/{node}/qemu", Some("pve1"));
    let plans = [plan("GET"), plan("POST"), plan("POST")];
    assert_eq!(plans, [None, Some(WireFault::ResetAfter), None]);
}

#[tokio::test(start_paused = true)]
async fn few_workers_make_calls_wait_for_each_other() {
    let faults = Faults { workers_per_node: 3, ..Faults::default() };
    let latency = Latency { api_call: Spread::of(2.0, 2.0), ..Latency::none() };
    let play = Play::with(WorldOptions { latency, faults, ..WorldOptions::default() });
    let begun = Instant::now();
    let calls = (0..6).map(|_| play.on(9000, "GET", "config", json!({})));
    futures_util::future::join_all(calls).await;
    assert_eq!(begun.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_slow_node_takes_so_many_times_as_long() {
    let slow = NodeFault { node: "pve1".into(), slow: 3.0, ..NodeFault::default() };
    let play = with_faults(Faults { nodes: vec![slow], ..Faults::default() });
    let begun = Instant::now();
    play.clone_to(101).await;
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_down_and_comes_back_by_its_rule() {
    let rule = NodeFault {
        node: "pve2".into(),
        down_at: Some(5.0),
        up_at: Some(20.0),
        ..NodeFault::default()
    };
    let play = with_faults(Faults { nodes: vec![rule], ..Faults::default() });
    let up = || play.world.nodes().into_iter().filter(|(_, up)| *up).count();
    let before = up();
    seconds(6).await;
    let down = up();
    seconds(15).await;
    assert_eq!((before, down, up()), (3, 2, 3));
}

#[tokio::test(start_paused = true)]
async fn somebody_else_holds_a_storage_from_time_to_time_until_the_rules_change() {
    let rule = HoldFault {
        node: "pve1".into(),
        storage: Some("local-lvm".into()),
        at: 5.0,
        seconds: 20.0,
        every: 60.0,
        ..HoldFault::default()
    };
    let play = with_faults(Faults { holds: vec![rule], ..Faults::default() });
    play.clone_to(101).await;
    for newid in [102, 103] {
        seconds(10).await;
        let status = play.run(9000, "POST", "clone", json!({ "newid": newid })).await;
        assert!(status.ends_with("got timeout"), "{status}");
        seconds(50 - 10).await;
    }
    play.side.set_faults(Faults::default());
    seconds(70).await;
    play.clone_to(104).await;
}
