// Invariant (book: proxmox, section 23, item 6): what a clone copies, the stages of its
// configuration, its rollback, and the orphan that a killed clone leaves.

use std::time::Duration;

use serde_json::json;

use super::TestCluster;
use super::fakes::{fixed_latency, refusal, seconds};
use crate::world::{Spread, WorldOptions};

const MARKS: [(&str, &str); 3] = [("tags", "ci;x"), ("onboot", "1"), ("protection", "1")];

#[tokio::test(start_paused = true)]
async fn a_clone_copies_tags_and_protection_and_gets_its_own_addresses() {
    let cluster = TestCluster::instant();
    for (key, value) in MARKS {
        cluster.control.set_config(9000, key, Some(value));
    }
    let with = json!({ "newid": 101, "description": "mine" });
    assert_eq!(cluster.run_task(9000, "POST", "clone", with).await, "OK");
    let (old, new) = (cluster.config(9000).await, cluster.config(101).await);
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
    let latency = crate::world::Latency { allocate: Spread::of(3.0, 3.0), ..fixed_latency() };
    let cluster = TestCluster::with(WorldOptions { latency, ..WorldOptions::default() });
    let upid =
        cluster.start_task(9000, "POST", "clone", json!({ "newid": 101, "pool": "ci" })).await;
    seconds(1).await;
    let bare = cluster.control.config(101).unwrap();
    assert_eq!(bare.into_iter().collect::<Vec<_>>(), [("lock".to_owned(), "clone".to_owned())]);
    seconds(3).await;
    let half = cluster.control.config(101).unwrap();
    assert_eq!((half["lock"].as_str(), half["name"].as_str()), ("clone", "Copy-of-VM-debian-12"));
    assert!(half.contains_key("ide2") && !half.contains_key("scsi0"));
    assert_eq!(cluster.inventory_entry(101).await.unwrap().get("pool"), None);
    assert_eq!(cluster.task_end(&upid).await, "OK");
    assert!(!cluster.control.config(101).unwrap().contains_key("lock"));
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["pool"], "ci");
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_fails_frees_its_volumes_and_its_id() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.control.remove_volume("pve1", "local-lvm:base-9000-disk-0");
    let status = cluster.run_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert_eq!(status, "clone failed: volume 'local-lvm:base-9000-disk-0' does not exist");
    assert!(!cluster.control.guests().contains(&101));
    assert_eq!(cluster.control.volumes("pve1", "local-lvm"), ["local-lvm:vm-9000-cloudinit"]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_clone_leaves_its_lock_and_its_volumes() {
    let cluster = TestCluster::with_fixed_latency();
    let upid =
        cluster.start_task(9000, "POST", "clone", json!({ "newid": 101, "full": true })).await;
    seconds(5).await;
    cluster.control.kill_task(&upid);
    assert_eq!(cluster.task_end(&upid).await, "unexpected status");
    assert_eq!(cluster.control.config(101).unwrap()["lock"], "clone");
    assert!(
        cluster
            .control
            .volumes("pve1", "local-lvm")
            .contains(&"local-lvm:vm-101-disk-0".to_owned())
    );
    // The file locks of the killed worker are released.
    let started = tokio::time::Instant::now();
    let status = cluster.run_task(101, "DELETE", "", json!({})).await;
    assert_eq!(status, "VM is locked (clone)");
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn linked_clones_refuse_what_they_cannot_do() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
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
        assert_eq!(refusal(cluster.vm_call(vmid, "POST", "clone", with).await), text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_shared_volumes_can_go_to_another_node() {
    let cluster = TestCluster::instant();
    let moved = json!({ "newid": 101, "full": true, "storage": "shared" });
    assert_eq!(cluster.run_task(9000, "POST", "clone", moved).await, "OK");
    let with = json!({ "newid": 102, "target": "pve2" });
    assert_eq!(cluster.run_task(101, "POST", "clone", with).await, "OK");
    assert_eq!(cluster.inventory_entry(102).await.unwrap()["node"], "pve2");
    let text = refusal(cluster.vm_call(102, "GET", "config", json!({})).await);
    assert_eq!(text, "Configuration file 'nodes/pve1/qemu-server/102.conf' does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_full_clone_takes_as_long_as_its_bytes_and_says_how_far_it_is() {
    let cluster = TestCluster::with_fixed_latency();
    let upid =
        cluster.start_task(9000, "POST", "clone", json!({ "newid": 101, "full": true })).await;
    let started = tokio::time::Instant::now();
    assert_eq!(cluster.task_end(&upid).await, "OK");
    assert_eq!(started.elapsed().as_secs(), 10);
    let log = cluster.log(&upid).await;
    assert!(log.contains(&"transferred 0.0 B of 10.0 GiB (0.00%)".to_owned()));
    assert!(log.contains(&"transferred 10.0 GiB of 10.0 GiB (100.00%)".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_clones_take_no_virtual_time() {
    let cluster = TestCluster::instant();
    for newid in 10_000..11_000 {
        cluster.vm_call(9000, "POST", "clone", json!({ "newid": newid })).await.unwrap();
    }
    seconds(9).await;
    assert_eq!(cluster.control.guests().len(), 1_003);
    let lines = cluster.get("/cluster/resources", json!({ "type": "vm" })).await;
    assert_eq!(lines.as_array().unwrap().len(), 1_003);
}
