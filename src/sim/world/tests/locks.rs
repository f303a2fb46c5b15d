// Invariant (book: proxmox, section 23, item 2): the three layers of locks, with their timeouts and
// texts.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::TestCluster;
use super::fakes::{FakeGuestBehaviour, refusal, seconds};

fn busy(vmid: u32) -> String {
    format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
}

#[tokio::test(start_paused = true)]
async fn a_clone_holds_its_new_id_to_the_end_of_the_copy() {
    let cluster = TestCluster::with_fixed_latency();
    let slow = json!({ "newid": 101, "full": true, "bwlimit": 1024 });
    let upid = cluster.start_task(9000, "POST", "clone", slow).await;
    seconds(3).await;
    let start = cluster.start_task(101, "POST", "status/start", json!({})).await;
    let destroy = cluster.start_task(101, "DELETE", "", json!({})).await;
    let started = Instant::now();
    let put = refusal(cluster.vm_call(101, "PUT", "config", json!({ "name": "x" })).await);
    assert_eq!((put, started.elapsed().as_secs()), (busy(101), 10));
    assert_eq!(cluster.task_end(&start).await, busy(101));
    assert_eq!(cluster.task_end(&destroy).await, busy(101));
    assert_eq!(cluster.log(&start).await[0], "trying to acquire lock...");
    assert_eq!(cluster.task(&upid).await["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_stopped_template_share_it_and_a_change_of_it_waits_10_s() {
    let cluster = TestCluster::with_fixed_latency();
    let slow = |newid: u32| json!({ "newid": newid, "full": true, "bwlimit": 1024 });
    let one = cluster.start_task(9000, "POST", "clone", slow(101)).await;
    let two = cluster.start_task(9000, "POST", "clone", slow(102)).await;
    seconds(5).await;
    for upid in [&one, &two] {
        assert_eq!(cluster.task(upid).await["status"], "running");
    }
    let started = Instant::now();
    let put = refusal(cluster.vm_call(9000, "PUT", "config", json!({ "description": "x" })).await);
    assert_eq!((put, started.elapsed().as_secs()), (busy(9000), 10));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_template_makes_a_clone_fail_after_1_s() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.control.hold_guest("pve1", 9000, Duration::from_secs(30));
    seconds(1).await;
    let started = Instant::now();
    let status = cluster.run_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert_eq!((status, started.elapsed().as_secs()), (busy(9000), 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_holds_the_lock_until_the_guest_is_gone() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    cluster.guests.set_behaviour(FakeGuestBehaviour { shutdown: None, agent: Duration::ZERO });
    let down = cluster.start_task(101, "POST", "status/shutdown", json!({ "timeout": 25 })).await;
    seconds(1).await;
    let started = Instant::now();
    let put = refusal(cluster.vm_call(101, "PUT", "config", json!({ "description": "x" })).await);
    assert_eq!((put, started.elapsed().as_secs()), (busy(101), 10));
    let stop =
        cluster.start_task(101, "POST", "status/stop", json!({ "overrule-shutdown": true })).await;
    assert_eq!(cluster.task_end(&stop).await, "OK");
    assert_eq!(cluster.log(&stop).await[0], format!("overruled qmshutdown tasks: {down}"));
    assert_eq!(cluster.task_end(&down).await, "received interrupt");
}

#[tokio::test(start_paused = true)]
async fn an_ignored_shutdown_fails_or_kills_as_force_stop_says() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    cluster
        .guests
        .set_behaviour(FakeGuestBehaviour { shutdown: None, agent: Duration::from_secs(3600) });
    let status = cluster.run_task(101, "POST", "status/shutdown", json!({ "timeout": 3 })).await;
    assert_eq!(status, "VM quit/powerdown failed - got timeout");
    let forced = json!({ "timeout": 2, "forceStop": true });
    let upid = cluster.start_task(101, "POST", "status/shutdown", forced).await;
    assert_eq!(cluster.task_end(&upid).await, "OK");
    let log = cluster.log(&upid).await;
    assert_eq!(log[1], "VM still running - terminating now with SIGTERM");
}

#[tokio::test(start_paused = true)]
async fn the_lock_key_refuses_at_once_in_the_request_or_in_the_task() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.control.set_config(101, "lock", Some("backup"));
    let text = "VM is locked (backup)";
    assert_eq!(refusal(cluster.vm_call(101, "PUT", "config", json!({ "name": "y" })).await), text);
    assert_eq!(refusal(cluster.vm_call(101, "POST", "clone", json!({ "newid": 170 })).await), text);
    assert_eq!(refusal(cluster.vm_call(101, "POST", "template", json!({})).await), text);
    let size = json!({ "disk": "scsi0", "size": "+1G" });
    assert_eq!(cluster.run_task(101, "PUT", "resize", size).await, text);
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, text);
    assert_eq!(cluster.run_task(101, "DELETE", "", json!({})).await, text);
    assert_eq!(cluster.run_task(101, "POST", "status/stop", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn two_starts_at_once_leave_one_running_and_one_refused() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    let one = cluster.start_task(101, "POST", "status/start", json!({})).await;
    let two = cluster.start_task(101, "POST", "status/start", json!({})).await;
    assert_eq!(cluster.task_end(&one).await, "OK");
    assert_eq!(cluster.task_end(&two).await, "VM 101 already running");
    assert_eq!(cluster.log(&two).await[..2], ["trying to acquire lock...", " OK"]);
}
