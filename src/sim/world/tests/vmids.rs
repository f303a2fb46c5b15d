// Invariant: section 23 item 3, races for ids: nothing is reserved, and where the loser hears of it
// depends on the node.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Play;
use super::fakes::{refusal, seconds};
use crate::world::{Latency, Spread, WorldOptions};

#[tokio::test(start_paused = true)]
async fn the_next_id_is_told_to_everybody_and_reserved_for_nobody() {
    let play = Play::at_once();
    for _ in 0..2 {
        assert_eq!(play.get("/cluster/nextid", json!({})).await, "100");
    }
    let taken = play.call("GET", "/cluster/nextid", json!({ "vmid": 9001 })).await.unwrap_err();
    assert_eq!(taken.errors["vmid"], "VM 9001 already exists");
    assert_eq!(play.get("/cluster/nextid", json!({ "vmid": 500 })).await, "500");
}

#[tokio::test(start_paused = true)]
async fn an_id_taken_on_the_same_node_refuses_the_clone_in_the_request() {
    let play = Play::at_once();
    play.clone_to(101).await;
    let text = refusal(play.on(9000, "POST", "clone", json!({ "newid": 101 })).await);
    assert_eq!(text, "unable to create VM 101: config file already exists");
}

#[tokio::test(start_paused = true)]
async fn an_id_taken_on_another_node_fails_the_clone_in_its_task() {
    let play = Play::at_once();
    let status = play.run(9000, "POST", "clone", json!({ "newid": 9001 })).await;
    let file = "/etc/pve/nodes/pve1/qemu-server/9001.conf";
    assert_eq!(status, format!("close (rename) atomic file '{file}' failed: File exists"));
    assert_eq!(play.side.config(9001).unwrap()["name"], "debian-12");
}

#[tokio::test(start_paused = true)]
async fn two_clones_to_one_id_both_get_a_task_and_the_loser_waits_1_s() {
    let play = Play::steady();
    let one = || play.begin(9000, "POST", "clone", json!({ "newid": 140 }));
    let (winner, loser) = tokio::join!(one(), one());
    let begun = Instant::now();
    let text = "can't lock file '/var/lock/qemu-server/lock-140.conf' - got timeout";
    assert_eq!(play.end_of(&loser).await, text);
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(play.end_of(&winner).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn the_loser_of_a_quick_race_finds_the_file_there() {
    let play = Play::at_once();
    let one = || play.begin(9000, "POST", "clone", json!({ "newid": 140 }));
    let (winner, loser) = tokio::join!(one(), one());
    assert_eq!(play.end_of(&winner).await, "OK");
    let text = "unable to create VM 140: config file already exists";
    assert_eq!(play.end_of(&loser).await, text);
}

#[tokio::test(start_paused = true)]
async fn a_create_takes_its_id_in_the_request() {
    let latency = Latency { allocate: Spread::of(1.0, 1.0), ..Latency::none() };
    let play = Play::with(WorldOptions { latency, ..WorldOptions::default() });
    let with = json!({ "vmid": 101, "memory": "64", "scsi0": "local-lvm:1" });
    let first = play.call("POST", "/nodes/{node}/qemu", with.clone()).await.unwrap();
    assert_eq!(play.side.config(101).unwrap()["lock"], "create");
    let second = refusal(play.call("POST", "/nodes/{node}/qemu", with).await);
    assert_eq!(second, "unable to create VM 101 - VM 101 already exists on node 'pve1'");
    assert_eq!(play.end_of(first.data.as_str().unwrap()).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_free_the_moment_its_guest_is_destroyed() {
    let play = Play::steady();
    play.clone_to(100).await;
    assert_eq!(play.get("/cluster/nextid", json!({})).await, "101");
    assert_eq!(play.run(100, "DELETE", "", json!({})).await, "OK");
    assert_eq!(play.get("/cluster/nextid", json!({})).await, "100");
    seconds(1).await;
    assert!(tokio::time::timeout(Duration::from_secs(30), play.clone_to(100)).await.is_ok());
}
