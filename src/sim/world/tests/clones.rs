// Invariant: section 23 item 6, what a clone copies, the stages of its configuration, its roll-back
// and the orphan it leaves when it is killed.

use std::time::Duration;

use serde_json::json;

use super::Play;
use super::fakes::{refusal, seconds, steady};
use crate::world::{Spread, WorldOptions};

const MARKS: [(&str, &str); 3] = [("tags", "ci;x"), ("onboot", "1"), ("protection", "1")];

#[tokio::test(start_paused = true)]
async fn a_clone_copies_tags_and_protection_and_gets_its_own_addresses() {
    let play = Play::at_once();
    for (key, value) in MARKS {
        play.side.set_config(9000, key, Some(value));
    }
    let with = json!({ "newid": 101, "description": "mine" });
    assert_eq!(play.run(9000, "POST", "clone", with).await, "OK");
    let (old, new) = (play.config(9000).await, play.config(101).await);
    assert_eq!(
        (&new["tags"], &new["protection"], &new["onboot"]),
        (&json!("ci;x"), &json!(1), &json!(1))
    );
    assert_eq!(
        (&new["name"], &new["description"]),
        (&json!("Copy-of-VM-debian-12"), &json!("mine"))
    );
    for key in ["net0", "smbios1", "vmgenid", "digest"] {
        assert_ne!(old[key], new[key], "{key}");
    }
    assert_eq!((new.get("template"), new.get("lock")), (None, None));
    assert_eq!(new["scsi0"], "local-lvm:vm-101-disk-0,size=10G");
    assert_eq!(new["ide2"], "local-lvm:vm-101-cloudinit,media=cdrom,size=4M");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_a_bare_lock_then_all_of_it_locked_then_unlocked_then_pooled() {
    let latency = crate::world::Latency { allocate: Spread::of(3.0, 3.0), ..steady() };
    let play = Play::with(WorldOptions { latency, ..WorldOptions::default() });
    let upid = play.begin(9000, "POST", "clone", json!({ "newid": 101, "pool": "ci" })).await;
    seconds(1).await;
    let bare = play.side.config(101).unwrap();
    assert_eq!(bare.into_iter().collect::<Vec<_>>(), [("lock".to_owned(), "clone".to_owned())]);
    seconds(3).await;
    let half = play.side.config(101).unwrap();
    assert_eq!((half["lock"].as_str(), half["name"].as_str()), ("clone", "Copy-of-VM-debian-12"));
    assert!(half.contains_key("ide2") && !half.contains_key("scsi0"));
    assert_eq!(play.line(101).await.unwrap().get("pool"), None);
    assert_eq!(play.end_of(&upid).await, "OK");
    assert!(!play.side.config(101).unwrap().contains_key("lock"));
    assert_eq!(play.line(101).await.unwrap()["pool"], "ci");
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_fails_frees_its_volumes_and_its_id() {
    let play = Play::steady();
    play.side.remove_volume("pve1", "local-lvm:base-9000-disk-0");
    let status = play.run(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert_eq!(status, "clone failed: volume 'local-lvm:base-9000-disk-0' does not exist");
    assert!(!play.side.guests().contains(&101));
    assert_eq!(play.side.volumes("pve1", "local-lvm"), ["local-lvm:vm-9000-cloudinit"]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_killed_hard_leaves_its_lock_and_its_volumes() {
    let play = Play::steady();
    let upid = play.begin(9000, "POST", "clone", json!({ "newid": 101, "full": true })).await;
    seconds(5).await;
    play.side.kill_task(&upid);
    assert_eq!(play.end_of(&upid).await, "unexpected status");
    assert_eq!(play.side.config(101).unwrap()["lock"], "clone");
    assert!(play.side.volumes("pve1", "local-lvm").contains(&"local-lvm:vm-101-disk-0".to_owned()));
    // The dead worker's file locks are gone with it.
    let begun = tokio::time::Instant::now();
    let status = play.run(101, "DELETE", "", json!({})).await;
    assert_eq!(status, "VM is locked (clone)");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn linked_clones_refuse_what_they_can_not_do() {
    let play = Play::at_once();
    play.clone_to(101).await;
    let cases = [
        (
            9000,
            json!({ "newid": 102, "storage": "shared" }),
            "parameter 'storage' not allowed for linked clones",
        ),
        (
            9000,
            json!({ "newid": 102, "format": "raw" }),
            "parameter 'format' not allowed for linked clones",
        ),
        (
            101,
            json!({ "newid": 102, "full": false }),
            "Linked clone feature is not supported for 'local-lvm:vm-101-disk-0' (scsi0)",
        ),
        (9000, json!({ "newid": 102, "snapname": "s" }), "snapshot 's' does not exist"),
        (9000, json!({ "newid": 102, "target": "nope" }), "no such cluster node 'nope'"),
        (
            9000,
            json!({ "newid": 102, "target": "pve2" }),
            "can't clone VM to node 'pve2' (VM uses local storage)",
        ),
        (
            9000,
            json!({ "newid": 102, "full": true, "storage": "nope" }),
            "storage 'nope' does not exist",
        ),
        (
            777,
            json!({ "newid": 102 }),
            "unable to find configuration file for VM 777 on node 'pve1'",
        ),
        (
            9000,
            json!({ "newid": 102, "pool": "no" }),
            "Permission check failed (pool 'no' does not exist)",
        ),
    ];
    for (vmid, with, text) in cases {
        assert_eq!(refusal(play.on(vmid, "POST", "clone", with).await), text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_shared_volumes_can_go_to_another_node() {
    let play = Play::at_once();
    let moved = json!({ "newid": 101, "full": true, "storage": "shared" });
    assert_eq!(play.run(9000, "POST", "clone", moved).await, "OK");
    let with = json!({ "newid": 102, "target": "pve2" });
    assert_eq!(play.run(101, "POST", "clone", with).await, "OK");
    assert_eq!(play.line(102).await.unwrap()["node"], "pve2");
    let text = refusal(play.on(102, "GET", "config", json!({})).await);
    assert_eq!(text, "Configuration file 'nodes/pve1/qemu-server/102.conf' does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_full_clone_takes_as_long_as_its_bytes_and_says_how_far_it_is() {
    let play = Play::steady();
    let upid = play.begin(9000, "POST", "clone", json!({ "newid": 101, "full": true })).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(play.end_of(&upid).await, "OK");
    assert_eq!(begun.elapsed().as_secs(), 10);
    let log = play.log(&upid).await;
    assert!(log.contains(&"transferred 0.0 B of 10.0 GiB (0.00%)".to_owned()));
    assert!(log.contains(&"transferred 10.0 GiB of 10.0 GiB (100.00%)".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_clones_are_made_in_no_time() {
    let play = Play::at_once();
    for newid in 10_000..11_000 {
        play.on(9000, "POST", "clone", json!({ "newid": newid })).await.unwrap();
    }
    seconds(9).await;
    assert_eq!(play.side.guests().len(), 1_003);
    let lines = play.get("/cluster/resources", json!({ "type": "vm" })).await;
    assert_eq!(lines.as_array().unwrap().len(), 1_003);
}
