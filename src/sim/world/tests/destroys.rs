// Invariant (book: proxmox, section 23, item 9): a destroy with warnings and leftovers, bases in
// use, and protection.

use serde_json::json;

use super::TestCluster;
use super::fakes::refusal;
use crate::world::{Faults, FreeFault};

#[tokio::test(start_paused = true)]
async fn a_running_or_protected_guest_is_refused_in_the_request() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let destroy = async || cluster.vm_call(101, "DELETE", "", json!({})).await;
    assert_eq!(refusal(destroy().await), "VM 101 is running - destroy failed");
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    cluster.control.set_config(101, "protection", Some("1"));
    assert_eq!(refusal(destroy().await), "can't remove VM 101 - protection mode enabled");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_cannot_be_freed_is_a_warning_and_stays_behind() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let volid = "local-lvm:vm-101-disk-0";
    cluster.control.block_volume_removal(
        "pve1",
        volid,
        "lvremove 'pve/vm-101-disk-0' error: in use",
    );
    let upid = cluster.start_task(101, "DELETE", "", json!({ "purge": true })).await;
    assert_eq!(cluster.task_end(&upid).await, "WARNINGS: 1");
    let log = cluster.log(&upid).await;
    assert!(log.iter().any(|line| {
        line.contains("Could not remove disk 'local-lvm:vm-101-disk-0', check manually: ")
    }));
    assert!(log.contains(&"purging VM 101 from related configurations..".to_owned()));
    assert_eq!(log.last().unwrap(), "TASK WARNINGS: 1");
    assert!(cluster.control.volumes("pve1", "local-lvm").contains(&volid.to_owned()));
    assert!(!cluster.control.guests().contains(&101));
    let with = json!({ "storage": "local-lvm", "vmid": 101 });
    let left = cluster.get("/nodes/{node}/storage/{storage}/content", with).await;
    assert_eq!(left[0]["volid"], volid);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_out_of_reach_for_a_moment_stays_behind_and_can_be_freed_later() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.clone_to(102).await;
    let error = "storage 'local-lvm' is not online".to_owned();
    let (storage, times) = (Some("local-lvm".to_owned()), Some(1));
    let free = FreeFault { storage, chance: 1.0, skip: 0, times, error };
    cluster.control.set_faults(Faults { frees: vec![free], ..Faults::default() });
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({})).await, "WARNINGS: 1");
    assert_eq!(cluster.run_task(102, "DELETE", "", json!({})).await, "OK");
    assert!(!cluster.control.guests().contains(&101));
    let left = cluster.control.volumes_of(101);
    assert_eq!((left.len(), cluster.control.volumes_of(102).len()), (1, 0));
    assert!(cluster.control.remove_volume("pve1", &left[0]));
}

#[tokio::test(start_paused = true)]
async fn a_template_with_linked_clones_is_kept_where_the_storage_knows_the_link() {
    let cluster = TestCluster::instant();
    let shared = json!({ "newid": 100, "full": true, "storage": "shared" });
    cluster.run_task(9000, "POST", "clone", shared).await;
    assert_eq!(cluster.run_task(100, "POST", "template", json!({})).await, "OK");
    assert_eq!(cluster.run_task(100, "POST", "clone", json!({ "newid": 101 })).await, "OK");
    let status = cluster.run_task(100, "DELETE", "", json!({})).await;
    assert_eq!(
        status,
        "base volume 'shared:100/base-100-disk-0.raw' is still in use by linked cloned"
    );
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({})).await, "OK");
    assert_eq!(cluster.run_task(100, "DELETE", "", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_template_on_lvm_thin_is_destroyed_although_its_clones_run() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    assert_eq!(cluster.run_task(9000, "DELETE", "", json!({})).await, "OK");
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn unreferenced_disks_go_only_when_that_is_asked_for() {
    for (asked, left) in [(false, 1), (true, 0)] {
        let cluster = TestCluster::instant();
        cluster.clone_to(101).await;
        cluster.control.add_volume("pve1", "local-lvm:vm-101-disk-7", 1 << 30);
        let with = json!({ "destroy-unreferenced-disks": asked });
        assert_eq!(cluster.run_task(101, "DELETE", "", with).await, "OK");
        let volumes = cluster.control.volumes("pve1", "local-lvm");
        assert_eq!(volumes.iter().filter(|volid| volid.contains("-101-")).count(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_destroy_finds_nothing() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({})).await, "OK");
    let text = refusal(cluster.vm_call(101, "DELETE", "", json!({})).await);
    assert_eq!(text, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist");
}
