// Invariant: section 23 item 4, the inventory has values of two ages: where a guest is and its
// tags, lock and pool at once; how it is as of the last 10 s cycle, and nothing after 5 minutes.

use serde_json::{Value, json};

use super::Play;
use super::fakes::seconds;

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_guest_is_unknown_and_nameless_until_the_first_cycle() {
    let play = Play::at_once();
    play.side.set_config(9000, "tags", Some("ci"));
    let with = json!({ "newid": 101, "name": "runner", "pool": "ci" });
    play.run(9000, "POST", "clone", with).await;
    let fresh = play.line(101).await.unwrap();
    assert_eq!(keys(&fresh), ["id", "node", "pool", "status", "tags", "type", "vmid"]);
    assert_eq!((&fresh["status"], &fresh["tags"]), (&json!("unknown"), &json!("ci")));
    seconds(10).await;
    let settled = play.line(101).await.unwrap();
    assert_eq!((&settled["status"], &settled["name"]), (&json!("stopped"), &json!("runner")));
    assert_eq!(settled["maxdisk"], 10_u64 << 30);
}

#[tokio::test(start_paused = true)]
async fn status_and_name_lag_behind_while_tags_and_lock_do_not() {
    let play = Play::at_once();
    play.clone_to(101).await;
    seconds(20).await;
    play.run(101, "POST", "status/start", json!({})).await;
    play.on(101, "PUT", "config", json!({ "name": "new", "tags": "B;a" })).await.unwrap();
    play.side.set_config(101, "lock", Some("backup"));
    let line = play.line(101).await.unwrap();
    assert_eq!(
        (&line["status"], &line["name"]),
        (&json!("stopped"), &json!("Copy-of-VM-debian-12"))
    );
    assert_eq!((&line["tags"], &line["lock"]), (&json!("a;b"), &json!("backup")));
    let live = play.on(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!((&live["status"], &live["name"]), (&json!("running"), &json!("new")));
    seconds(10).await;
    let line = play.line(101).await.unwrap();
    assert_eq!((&line["status"], &line["name"]), (&json!("running"), &json!("new")));
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_guest_is_gone_at_once() {
    let play = Play::at_once();
    play.clone_to(101).await;
    seconds(20).await;
    assert_eq!(play.run(101, "DELETE", "", json!({})).await, "OK");
    assert_eq!(play.line(101).await, None);
}

#[tokio::test(start_paused = true)]
async fn guests_of_a_dead_node_keep_their_last_status_for_5_minutes() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    seconds(20).await;
    play.side.node_down("pve1").await;
    seconds(200).await;
    assert_eq!(play.line(101).await.unwrap()["status"], "running");
    seconds(110).await;
    let line = play.line(101).await.unwrap();
    assert_eq!((&line["status"], line.get("name")), (&json!("unknown"), None));
    assert_eq!(line["node"], "pve1");
    let nodes = play.get("/cluster/resources", json!({ "type": "node" })).await;
    assert_eq!(nodes[0]["status"], "offline");
}

#[tokio::test(start_paused = true)]
async fn a_hung_status_daemon_freezes_its_nodes_values() {
    let play = Play::at_once();
    play.clone_to(101).await;
    seconds(20).await;
    play.side.set_stale("pve1", true);
    play.run(101, "POST", "status/start", json!({})).await;
    seconds(60).await;
    assert_eq!(play.line(101).await.unwrap()["status"], "stopped");
    play.side.set_stale("pve1", false);
    assert_eq!(play.line(101).await.unwrap()["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_powers_itself_off_just_becomes_stopped() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    seconds(20).await;
    assert_eq!(play.line(101).await.unwrap()["status"], "running");
    play.side.kill_guest(101).await;
    let live = play.on(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(live["status"], "stopped");
    seconds(10).await;
    assert_eq!(play.line(101).await.unwrap()["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_list_tells_of_a_node_and_of_its_guests_as_of_one_cycle() {
    let play = Play::at_once();
    play.clone_to(101).await;
    seconds(20).await;
    for (list, about) in [("/cluster/resources", json!({ "type": "node" })), ("/nodes", json!({}))]
    {
        let used = async || {
            let lines = play.get(list, about.clone()).await;
            let line = lines.as_array().unwrap().iter().find(|line| line["node"] == "pve1");
            line.unwrap()["mem"].as_u64().unwrap()
        };
        let idle = used().await;
        play.run(101, "POST", "status/start", json!({})).await;
        let running = idle + play.line(101).await.unwrap()["maxmem"].as_u64().unwrap() / 4;
        assert_eq!(used().await, idle, "as its guest is listed as stopped");
        seconds(10).await;
        assert_eq!(used().await, running);
        play.run(101, "POST", "status/stop", json!({})).await;
        assert_eq!(used().await, running, "as its guest is listed as running");
        seconds(10).await;
    }
}
