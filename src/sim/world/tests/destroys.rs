// Invariant: section 23 item 9, destroying with warnings and leftovers, bases in use, protection.

use serde_json::json;

use super::Play;
use super::fakes::refusal;
use crate::world::{Faults, FreeFault};

#[tokio::test(start_paused = true)]
async fn a_running_or_protected_guest_is_refused_in_the_request() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    let destroy = async || play.on(101, "DELETE", "", json!({})).await;
    assert_eq!(refusal(destroy().await), "VM 101 is running - destroy failed");
    play.run(101, "POST", "status/stop", json!({})).await;
    play.side.set_config(101, "protection", Some("1"));
    assert_eq!(refusal(destroy().await), "can't remove VM 101 - protection mode enabled");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_can_not_be_freed_is_a_warning_and_stays_behind() {
    let play = Play::at_once();
    play.clone_to(101).await;
    let volid = "local-lvm:vm-101-disk-0";
    play.side.jam_volume("pve1", volid, "lvremove 'pve/vm-101-disk-0' error: in use");
    let upid = play.begin(101, "DELETE", "", json!({ "purge": true })).await;
    assert_eq!(play.end_of(&upid).await, "WARNINGS: 1");
    let log = play.log(&upid).await;
    assert!(log.iter().any(|line| {
        line.contains("Could not remove disk 'local-lvm:vm-101-disk-0', check manually: ")
    }));
    assert!(log.contains(&"purging VM 101 from related configurations..".to_owned()));
    assert_eq!(log.last().unwrap(), "TASK WARNINGS: 1");
    assert!(play.side.volumes("pve1", "local-lvm").contains(&volid.to_owned()));
    assert!(!play.side.guests().contains(&101));
    let with = json!({ "storage": "local-lvm", "vmid": 101 });
    let left = play.get("/nodes/{node}/storage/{storage}/content", with).await;
    assert_eq!(left[0]["volid"], volid);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_out_of_reach_for_a_moment_stays_behind_and_can_be_freed_later() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.clone_to(102).await;
    let error = "storage 'local-lvm' is not online".to_owned();
    let (storage, times) = (Some("local-lvm".to_owned()), Some(1));
    let free = FreeFault { storage, chance: 1.0, skip: 0, times, error };
    play.side.set_faults(Faults { frees: vec![free], ..Faults::default() });
    assert_eq!(play.run(101, "DELETE", "", json!({})).await, "WARNINGS: 1");
    assert_eq!(play.run(102, "DELETE", "", json!({})).await, "OK");
    assert!(!play.side.guests().contains(&101));
    let left = play.side.volumes_of(101);
    assert_eq!((left.len(), play.side.volumes_of(102).len()), (1, 0));
    assert!(play.side.remove_volume("pve1", &left[0]));
}

#[tokio::test(start_paused = true)]
async fn a_template_with_linked_clones_stays_where_the_link_is_seen() {
    let play = Play::at_once();
    let shared = json!({ "newid": 100, "full": true, "storage": "shared" });
    play.run(9000, "POST", "clone", shared).await;
    assert_eq!(play.run(100, "POST", "template", json!({})).await, "OK");
    assert_eq!(play.run(100, "POST", "clone", json!({ "newid": 101 })).await, "OK");
    let status = play.run(100, "DELETE", "", json!({})).await;
    assert_eq!(
        status,
        "base volume 'shared:100/base-100-disk-0.raw' is still in use by linked cloned"
    );
    assert_eq!(play.run(101, "DELETE", "", json!({})).await, "OK");
    assert_eq!(play.run(100, "DELETE", "", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_template_on_lvm_thin_is_destroyed_under_its_clones_which_go_on() {
    let play = Play::at_once();
    play.clone_to(101).await;
    assert_eq!(play.run(9000, "DELETE", "", json!({})).await, "OK");
    assert_eq!(play.run(101, "POST", "status/start", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn unreferenced_disks_go_only_when_that_is_asked_for() {
    for (asked, left) in [(false, 1), (true, 0)] {
        let play = Play::at_once();
        play.clone_to(101).await;
        play.side.plant_volume("pve1", "local-lvm:vm-101-disk-7", 1 << 30);
        let with = json!({ "destroy-unreferenced-disks": asked });
        assert_eq!(play.run(101, "DELETE", "", with).await, "OK");
        let volumes = play.side.volumes("pve1", "local-lvm");
        assert_eq!(volumes.iter().filter(|volid| volid.contains("-101-")).count(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_destroy_finds_nothing() {
    let play = Play::at_once();
    play.clone_to(101).await;
    assert_eq!(play.run(101, "DELETE", "", json!({})).await, "OK");
    let text = refusal(play.on(101, "DELETE", "", json!({})).await);
    assert_eq!(text, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist");
}
