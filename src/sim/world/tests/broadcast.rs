// Invariant (book: proxmox, section 23, item 4): the inventory has values of two ages. Node, tags,
// lock and pool of a guest are current; its status is as of the last 10 s cycle, and disappears
// after 5 minutes.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::seconds;

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_guest_is_unknown_and_nameless_until_the_first_cycle() {
    let cluster = TestCluster::instant();
    cluster.control.set_config(9000, "tags", Some("ci"));
    let with = json!({ "newid": 101, "name": "runner", "pool": "ci" });
    cluster.run_task(9000, "POST", "clone", with).await;
    let fresh = cluster.inventory_entry(101).await.unwrap();
    assert_eq!(keys(&fresh), ["id", "node", "pool", "status", "tags", "type", "vmid"]);
    assert_eq!((&fresh["status"], &fresh["tags"]), (&json!("unknown"), &json!("ci")));
    seconds(10).await;
    let settled = cluster.inventory_entry(101).await.unwrap();
    assert_eq!((&settled["status"], &settled["name"]), (&json!("stopped"), &json!("runner")));
    assert_eq!(settled["maxdisk"], 10_u64 << 30);
}

#[tokio::test(start_paused = true)]
async fn status_and_name_lag_behind_while_tags_and_lock_do_not() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    seconds(20).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    cluster.vm_call(101, "PUT", "config", json!({ "name": "new", "tags": "B;a" })).await.unwrap();
    cluster.control.set_config(101, "lock", Some("backup"));
    let line = cluster.inventory_entry(101).await.unwrap();
    assert_eq!(
        (&line["status"], &line["name"]),
        (&json!("stopped"), &json!("Copy-of-VM-debian-12"))
    );
    assert_eq!((&line["tags"], &line["lock"]), (&json!("a;b"), &json!("backup")));
    let live = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!((&live["status"], &live["name"]), (&json!("running"), &json!("new")));
    seconds(10).await;
    let line = cluster.inventory_entry(101).await.unwrap();
    assert_eq!((&line["status"], &line["name"]), (&json!("running"), &json!("new")));
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_guest_is_gone_at_once() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    seconds(20).await;
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({})).await, "OK");
    assert_eq!(cluster.inventory_entry(101).await, None);
}

#[tokio::test(start_paused = true)]
async fn guests_of_a_dead_node_keep_their_last_status_for_5_minutes() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    seconds(20).await;
    cluster.control.node_down("pve1").await;
    seconds(200).await;
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["status"], "running");
    seconds(110).await;
    let line = cluster.inventory_entry(101).await.unwrap();
    assert_eq!((&line["status"], line.get("name")), (&json!("unknown"), None));
    assert_eq!(line["node"], "pve1");
    let nodes = cluster.get("/cluster/resources", json!({ "type": "node" })).await;
    assert_eq!(nodes[0]["status"], "offline");
}

#[tokio::test(start_paused = true)]
async fn a_hung_status_daemon_freezes_its_nodes_values() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    seconds(20).await;
    cluster.control.set_stale("pve1", true);
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    seconds(60).await;
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["status"], "stopped");
    cluster.control.set_stale("pve1", false);
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_powers_itself_off_just_becomes_stopped() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    seconds(20).await;
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["status"], "running");
    cluster.control.kill_guest(101).await;
    let live = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(live["status"], "stopped");
    seconds(10).await;
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_a_node_and_its_guests_as_of_the_same_cycle() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    seconds(20).await;
    for (list, about) in [("/cluster/resources", json!({ "type": "node" })), ("/nodes", json!({}))]
    {
        let used = async || {
            let lines = cluster.get(list, about.clone()).await;
            let line = lines.as_array().unwrap().iter().find(|line| line["node"] == "pve1");
            line.unwrap()["mem"].as_u64().unwrap()
        };
        let idle = used().await;
        cluster.run_task(101, "POST", "status/start", json!({})).await;
        let running =
            idle + cluster.inventory_entry(101).await.unwrap()["maxmem"].as_u64().unwrap() / 4;
        assert_eq!(used().await, idle, "as its guest is listed as stopped");
        seconds(10).await;
        assert_eq!(used().await, running);
        cluster.run_task(101, "POST", "status/stop", json!({})).await;
        assert_eq!(used().await, running, "as its guest is listed as running");
        seconds(10).await;
    }
}
