// Invariant (book: proxmox, section 23, item 3): races for VMIDs. Nothing is reserved; the node
// decides whether the loser gets the error in the request or in the task.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::TestCluster;
use super::fakes::{refusal, seconds};
use crate::world::{Latency, Spread, WorldOptions};

#[tokio::test(start_paused = true)]
async fn the_next_id_is_the_same_for_all_callers_and_not_reserved() {
    let cluster = TestCluster::instant();
    for _ in 0..2 {
        assert_eq!(cluster.get("/cluster/nextid", json!({})).await, "100");
    }
    let taken = cluster.call("GET", "/cluster/nextid", json!({ "vmid": 9001 })).await.unwrap_err();
    assert_eq!(taken.errors["vmid"], "VM 9001 already exists");
    assert_eq!(cluster.get("/cluster/nextid", json!({ "vmid": 500 })).await, "500");
}

#[tokio::test(start_paused = true)]
async fn an_id_taken_on_the_same_node_refuses_the_clone_in_the_request() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let text = refusal(cluster.vm_call(9000, "POST", "clone", json!({ "newid": 101 })).await);
    assert_eq!(text, "unable to create VM 101: config file already exists");
}

#[tokio::test(start_paused = true)]
async fn an_id_taken_on_another_node_fails_the_clone_in_its_task() {
    let cluster = TestCluster::instant();
    let status = cluster.run_task(9000, "POST", "clone", json!({ "newid": 9001 })).await;
    let file = "/etc/pve/nodes/pve1/qemu-server/9001.conf";
    assert_eq!(status, format!("close (rename) atomic file '{file}' failed: File exists"));
    assert_eq!(cluster.control.config(9001).unwrap()["name"], "debian-12");
}

#[tokio::test(start_paused = true)]
async fn two_clones_to_one_id_both_get_a_task_and_the_loser_waits_1_s() {
    let cluster = TestCluster::with_fixed_latency();
    let one = || cluster.start_task(9000, "POST", "clone", json!({ "newid": 140 }));
    let (winner, loser) = tokio::join!(one(), one());
    let started = Instant::now();
    let text = "can't lock file '/var/lock/qemu-server/lock-140.conf' - got timeout";
    assert_eq!(cluster.task_end(&loser).await, text);
    assert_eq!(started.elapsed().as_secs(), 1);
    assert_eq!(cluster.task_end(&winner).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn the_loser_of_a_quick_race_finds_the_file_there() {
    let cluster = TestCluster::instant();
    let one = || cluster.start_task(9000, "POST", "clone", json!({ "newid": 140 }));
    let (winner, loser) = tokio::join!(one(), one());
    assert_eq!(cluster.task_end(&winner).await, "OK");
    let text = "unable to create VM 140: config file already exists";
    assert_eq!(cluster.task_end(&loser).await, text);
}

#[tokio::test(start_paused = true)]
async fn a_create_takes_its_id_in_the_request() {
    let latency = Latency { allocate: Spread::of(1.0, 1.0), ..Latency::none() };
    let cluster = TestCluster::with(WorldOptions { latency, ..WorldOptions::default() });
    let with = json!({ "vmid": 101, "memory": "64", "scsi0": "local-lvm:1" });
    let first = cluster.call("POST", "/nodes/{node}/qemu", with.clone()).await.unwrap();
    assert_eq!(cluster.control.config(101).unwrap()["lock"], "create");
    let second = refusal(cluster.call("POST", "/nodes/{node}/qemu", with).await);
    assert_eq!(second, "unable to create VM 101 - VM 101 already exists on node 'pve1'");
    assert_eq!(cluster.task_end(first.data.as_str().unwrap()).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_free_the_moment_its_guest_is_destroyed() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(100).await;
    assert_eq!(cluster.get("/cluster/nextid", json!({})).await, "101");
    assert_eq!(cluster.run_task(100, "DELETE", "", json!({})).await, "OK");
    assert_eq!(cluster.get("/cluster/nextid", json!({})).await, "100");
    seconds(1).await;
    assert!(tokio::time::timeout(Duration::from_secs(30), cluster.clone_to(100)).await.is_ok());
}
