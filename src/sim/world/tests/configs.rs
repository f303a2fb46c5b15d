// Invariant: configurations change as recorded: at once or when the VM stops; with digests, tags as
// a set, keys that only root may set, and snapshots that restore everything.

use std::time::Duration;

use serde_json::json;

use super::TestCluster;
use super::fakes::{FakeGuestBehaviour, refusal, seconds};

#[tokio::test(start_paused = true)]
async fn tags_are_a_set_on_change_and_kept_as_sent_on_create() {
    let cluster = TestCluster::instant();
    let create = json!({ "vmid": 101, "tags": "Zeta;alpha;alpha" });
    let made = cluster.call("POST", "/nodes/{node}/qemu", create).await.unwrap();
    cluster.task_end(made.data.as_str().unwrap()).await;
    assert_eq!(cluster.config(101).await["tags"], "Zeta;alpha;alpha");
    cluster.vm_call(101, "PUT", "config", json!({ "tags": "B;b;A" })).await.unwrap();
    assert_eq!(cluster.config(101).await["tags"], "a;b");
}

#[tokio::test(start_paused = true)]
async fn a_stale_digest_is_refused() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let digest = cluster.config(101).await["digest"].clone();
    let put = async |name: &str| {
        cluster.vm_call(101, "PUT", "config", json!({ "digest": digest, "name": name })).await
    };
    assert!(put("one").await.is_ok());
    assert_eq!(refusal(put("two").await), "checksum mismatch (file change by other user?)");
}

#[tokio::test(start_paused = true)]
async fn memory_waits_for_a_stop_and_a_description_does_not() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let change = json!({ "memory": "4096", "description": "hot" });
    cluster.vm_call(101, "PUT", "config", change).await.unwrap();
    let current =
        cluster.vm_call(101, "GET", "config", json!({ "current": true })).await.unwrap().data;
    assert_eq!((&current["memory"], &current["description"]), (&json!("2048"), &json!("hot")));
    assert_eq!(cluster.config(101).await["memory"], "4096");
    let pending = cluster.vm_call(101, "GET", "pending", json!({})).await.unwrap().data;
    let memory = pending.as_array().unwrap().iter().find(|entry| entry["key"] == "memory");
    assert_eq!(memory.unwrap(), &json!({ "key": "memory", "value": "2048", "pending": "4096" }));
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    assert_eq!(cluster.control.config(101).unwrap()["memory"], "4096");
}

#[tokio::test(start_paused = true)]
async fn the_boot_disk_of_a_running_guest_is_refused_and_yet_pending() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let error =
        cluster.vm_call(101, "PUT", "config", json!({ "delete": "scsi0" })).await.unwrap_err();
    let text = "hotplug problem - can't unplug bootdisk 'scsi0'\n";
    assert_eq!((error.status, error.errors["scsi0"].as_str()), (400, text));
    let pending = cluster.vm_call(101, "GET", "pending", json!({})).await.unwrap().data;
    let entry = |key: &str| {
        pending.as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap().clone()
    };
    assert_eq!(entry("scsi0")["delete"], 1);
    assert_eq!(entry("boot")["pending"], "order=ide2;net0");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_answer_does_not_give_up_its_network_device() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let dead = FakeGuestBehaviour { shutdown: None, agent: Duration::from_secs(3600) };
    cluster.guests.set_behaviour(dead);
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let error =
        cluster.vm_call(101, "PUT", "config", json!({ "delete": "net0" })).await.unwrap_err();
    let text = "hotplug problem - error on hot-unplugging device 'net0'\n";
    assert_eq!(error.errors["net0"], text);
    assert!(cluster.control.config(101).unwrap().contains_key("net0"));
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    assert!(!cluster.control.config(101).unwrap().contains_key("net0"));
}

#[tokio::test(start_paused = true)]
async fn a_bulk_action_switches_many_guests_with_one_task() {
    let cluster = TestCluster::instant();
    for vmid in [101, 102] {
        cluster.clone_to(vmid).await;
    }
    for (route, left) in [
        ("/cluster/bulk-action/guest/start", "running"),
        ("/cluster/bulk-action/guest/shutdown", "stopped"),
    ] {
        let task = cluster.call("POST", route, json!({ "vms": [101, 102] })).await.unwrap().data;
        assert_eq!(cluster.task_end(task.as_str().unwrap()).await, "OK");
        for vmid in [101, 102] {
            let live =
                cluster.vm_call(vmid, "GET", "status/current", json!({})).await.unwrap().data;
            assert_eq!(live["status"], left);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn roots_own_keys_are_refused_to_a_token_of_root() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let cases = [
        (json!({ "args": "-S" }), "only root can set 'args' config"),
        (json!({ "lock": "clone" }), "only root can set 'lock' config"),
        (json!({ "delete": "lock" }), "only root can set 'lock' config"),
        (
            json!({ "serial1": "/dev/ttyS0" }),
            "only root can modify 'serial1' config for real devices",
        ),
        (json!({ "usb0": "host=1:2" }), "only root can set 'usb0' config for real devices"),
        (json!({}), "no options specified"),
        (
            json!({ "balloon": 8192 }),
            "balloon value too large (must be smaller than assigned memory)",
        ),
        (
            json!({ "scsi1": "local-lvm:vm-101-disk-9" }),
            "volume 'local-lvm:vm-101-disk-9' does not exist",
        ),
    ];
    for (with, text) in cases {
        assert_eq!(refusal(cluster.vm_call(101, "PUT", "config", with).await), text);
    }
    let skip = cluster.vm_call(101, "DELETE", "", json!({ "skiplock": true })).await.unwrap_err();
    assert_eq!(skip.errors["skiplock"], "Only root may use this option.");
}

#[tokio::test(start_paused = true)]
async fn disks_grow_and_never_shrink() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let resize = async |disk: &str, size: &str| {
        cluster.run_task(101, "PUT", "resize", json!({ "disk": disk, "size": size })).await
    };
    assert_eq!(resize("scsi0", "+2G").await, "OK");
    assert_eq!(resize("scsi0", "12G").await, "OK");
    assert_eq!(cluster.config(101).await["scsi0"], "local-lvm:vm-101-disk-0,size=12G");
    assert_eq!(resize("scsi0", "1G").await, "shrinking disks is not supported");
    assert_eq!(resize("scsi9", "1G").await, "disk 'scsi9' does not exist");
    assert_eq!(resize("ide2", "+1G").await, "you can't resize a cdrom");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_memory_brings_back_config_and_a_running_guest() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let take = json!({ "snapname": "s1", "vmstate": true, "description": "first" });
    assert_eq!(cluster.run_task(101, "POST", "snapshot", take).await, "OK");
    cluster.vm_call(101, "PUT", "config", json!({ "name": "later", "tags": "x" })).await.unwrap();
    let list = cluster.vm_call(101, "GET", "snapshot", json!({})).await.unwrap().data;
    assert_eq!((&list[0]["vmstate"], &list[1]["parent"]), (&json!(1), &json!("s1")));
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    let back =
        cluster.run_task(101, "POST", "snapshot/{snapname}/rollback", json!({ "snapname": "s1" }));
    assert_eq!(back.await, "OK");
    assert_eq!(cluster.config(101).await["name"], "Copy-of-VM-debian-12");
    let live = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(live["status"], "running");
    // The memory was restored, so the disk has not booted again.
    assert_eq!(cluster.guests.boots.lock().unwrap().last().unwrap().boot, 1);
    let drop =
        cluster.run_task(101, "DELETE", "snapshot/{snapname}", json!({ "snapname": "s1" })).await;
    assert_eq!(drop, "OK");
    assert!(
        !cluster.control.volumes("pve1", "local-lvm").iter().any(|volid| volid.contains("state"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_rolled_back_gets_a_new_generation_id() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let generation = async || cluster.config(101).await["vmgenid"].as_str().map(str::to_owned);
    cluster.control.set_config(101, "vmgenid", Some("a7f2e3c0-51f8-4f0c-9a55-0a2b7e9f1c3d"));
    let first = generation().await.unwrap();
    assert_eq!(first.len(), 36, "{first}");
    let name = json!({ "snapname": "s1" });
    assert_eq!(cluster.run_task(101, "POST", "snapshot", name.clone()).await, "OK");
    let back =
        async || cluster.run_task(101, "POST", "snapshot/{snapname}/rollback", name.clone()).await;
    assert_eq!(back().await, "OK");
    let second = generation().await.unwrap();
    assert_eq!(back().await, "OK");
    let third = generation().await.unwrap();
    assert!(first != second && second != third && first != third);
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_a_generation_gets_none_by_being_put_back() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.control.set_config(101, "vmgenid", Some("0"));
    let name = json!({ "snapname": "s1" });
    assert_eq!(cluster.run_task(101, "POST", "snapshot", name.clone()).await, "OK");
    assert_eq!(cluster.run_task(101, "POST", "snapshot/{snapname}/rollback", name).await, "OK");
    assert_eq!(cluster.config(101).await["vmgenid"], "0");
}

#[tokio::test(start_paused = true)]
async fn a_reboot_ends_its_task_before_the_guest_is_back() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    assert_eq!(cluster.run_task(101, "POST", "status/reboot", json!({})).await, "OK");
    let status = async || {
        cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data["status"]
            .clone()
    };
    assert_eq!(status().await, "stopped");
    seconds(2).await;
    assert_eq!(status().await, "running");
    assert_eq!(cluster.guests.boots.lock().unwrap().last().unwrap().boot, 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_bridge_or_too_much_memory_fails_the_start() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    for change in [json!({ "net0": "virtio,bridge=nope" }), json!({ "memory": "99999999" })] {
        cluster.vm_call(101, "PUT", "config", change).await.unwrap();
        let status = cluster.run_task(101, "POST", "status/start", json!({})).await;
        assert_eq!(status, "start failed: QEMU exited with code 1");
        cluster
            .vm_call(101, "PUT", "config", json!({ "net0": "virtio,bridge=vmbr0" }))
            .await
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_comma_too_many_neither_empties_a_drive_nor_takes_it_off() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.vm_call(101, "PUT", "config", json!({ "delete": "ide2" })).await.unwrap();
    let disk =
        cluster.config(101).await["scsi0"].as_str().unwrap().split(',').next().unwrap().to_owned();
    let change = json!({
        "ide2": "file=local-lvm:cloudinit,", "scsi5": "local-lvm:1,,discard=on",
        "scsi0": format!("file={disk},"), "net1": "virtio,bridge=vmbr0,",
    });
    cluster.vm_call(101, "PUT", "config", change).await.unwrap();
    let config = cluster.config(101).await;
    assert_eq!(config["ide2"], "local-lvm:vm-101-cloudinit,media=cdrom");
    assert_eq!(config["scsi5"], "local-lvm:vm-101-disk-1,discard=on,size=1G");
    assert_eq!(config["scsi0"], format!("{disk},size=10G"));
    assert!(config["net1"].as_str().unwrap().starts_with("virtio=BC:24:11:"), "{config}");
    assert_eq!(config.get("unused0"), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_option_is_not_deleted() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let put = async |with| cluster.vm_call(101, "PUT", "config", with).await.unwrap_err();
    let unknown = put(json!({ "delete": "name,nope" })).await;
    assert_eq!((unknown.status, &*unknown.errors["delete"]), (400, "unknown option 'nope'"));
    let unknown = put(json!({ "revert": "net99" })).await;
    assert_eq!(unknown.errors["revert"], "unknown option 'net99'");
    assert_eq!(cluster.config(101).await["name"], "Copy-of-VM-debian-12");
    cluster.vm_call(101, "PUT", "config", json!({ "delete": "cdrom" })).await.unwrap();
    assert_eq!(cluster.config(101).await.get("ide2"), None);
}

#[tokio::test(start_paused = true)]
async fn a_description_loses_the_blanks_at_its_end_and_an_empty_one_goes() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let put = async |text: &str| {
        cluster.vm_call(101, "PUT", "config", json!({ "description": text })).await.unwrap();
        cluster.config(101).await.get("description").cloned()
    };
    assert_eq!(put("one\ntwo\n\n").await, Some(json!("one\ntwo")));
    assert_eq!(put("").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_guest_that_is_not_there_is_refused_at_once() {
    let cluster = TestCluster::instant();
    let missing =
        cluster.vm_call(777, "POST", "snapshot", json!({ "snapname": "s1" })).await.unwrap_err();
    let text = "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist";
    assert_eq!((missing.status, missing.message.as_str()), (500, text));
}

#[tokio::test(start_paused = true)]
async fn the_cloud_init_image_shows_what_is_in_it() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let with = json!({ "ciuser": "ci", "cipassword": "secret" });
    cluster.vm_call(101, "PUT", "config", with).await.unwrap();
    let lines = cluster.vm_call(101, "GET", "cloudinit", json!({})).await.unwrap().data;
    let lines = lines.as_array().unwrap();
    assert!(lines.contains(&json!({ "key": "ciuser", "value": "ci" })), "{lines:?}");
    assert!(lines.contains(&json!({ "key": "cipassword", "value": "**********" })));
    assert!(lines.contains(&json!({ "key": "ipconfig0", "value": "ip=dhcp" })));
}
