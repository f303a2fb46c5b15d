// Invariant: section 23 item 2, the three layers of locks with their waits and texts.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Play;
use super::fakes::{Manners, refusal, seconds};

fn busy(vmid: u32) -> String {
    format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
}

#[tokio::test(start_paused = true)]
async fn a_clone_holds_its_new_id_to_the_end_of_the_copy() {
    let play = Play::steady();
    let slow = json!({ "newid": 101, "full": true, "bwlimit": 1024 });
    let upid = play.begin(9000, "POST", "clone", slow).await;
    seconds(3).await;
    let start = play.begin(101, "POST", "status/start", json!({})).await;
    let destroy = play.begin(101, "DELETE", "", json!({})).await;
    let begun = Instant::now();
    let put = refusal(play.on(101, "PUT", "config", json!({ "name": "x" })).await);
    assert_eq!((put, begun.elapsed().as_secs()), (busy(101), 10));
    assert_eq!(play.end_of(&start).await, busy(101));
    assert_eq!(play.end_of(&destroy).await, busy(101));
    assert_eq!(play.log(&start).await[0], "trying to acquire lock...");
    assert_eq!(play.task(&upid).await["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_stopped_template_share_it_and_a_change_of_it_waits_10_s() {
    let play = Play::steady();
    let slow = |newid: u32| json!({ "newid": newid, "full": true, "bwlimit": 1024 });
    let one = play.begin(9000, "POST", "clone", slow(101)).await;
    let two = play.begin(9000, "POST", "clone", slow(102)).await;
    seconds(5).await;
    for upid in [&one, &two] {
        assert_eq!(play.task(upid).await["status"], "running");
    }
    let begun = Instant::now();
    let put = refusal(play.on(9000, "PUT", "config", json!({ "description": "x" })).await);
    assert_eq!((put, begun.elapsed().as_secs()), (busy(9000), 10));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_template_makes_a_clone_fail_after_1_s() {
    let play = Play::steady();
    play.side.hold_guest("pve1", 9000, Duration::from_secs(30));
    seconds(1).await;
    let begun = Instant::now();
    let status = play.run(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert_eq!((status, begun.elapsed().as_secs()), (busy(9000), 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_holds_the_lock_until_the_guest_is_gone() {
    let play = Play::steady();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    play.guests.behave(Manners { shutdown: None, agent: Duration::ZERO });
    let down = play.begin(101, "POST", "status/shutdown", json!({ "timeout": 25 })).await;
    seconds(1).await;
    let begun = Instant::now();
    let put = refusal(play.on(101, "PUT", "config", json!({ "description": "x" })).await);
    assert_eq!((put, begun.elapsed().as_secs()), (busy(101), 10));
    let stop = play.begin(101, "POST", "status/stop", json!({ "overrule-shutdown": true })).await;
    assert_eq!(play.end_of(&stop).await, "OK");
    assert_eq!(play.log(&stop).await[0], format!("overruled qmshutdown tasks: {down}"));
    assert_eq!(play.end_of(&down).await, "received interrupt");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_ignored_fails_or_kills_as_it_was_told() {
    let play = Play::steady();
    play.clone_to(101).await;
    play.run(101, "POST", "status/start", json!({})).await;
    play.guests.behave(Manners { shutdown: None, agent: Duration::from_secs(3600) });
    let status = play.run(101, "POST", "status/shutdown", json!({ "timeout": 3 })).await;
    assert_eq!(status, "VM quit/powerdown failed - got timeout");
    let forced = json!({ "timeout": 2, "forceStop": true });
    let upid = play.begin(101, "POST", "status/shutdown", forced).await;
    assert_eq!(play.end_of(&upid).await, "OK");
    let log = play.log(&upid).await;
    assert_eq!(log[1], "VM still running - terminating now with SIGTERM");
}

#[tokio::test(start_paused = true)]
async fn the_lock_key_refuses_at_once_and_is_told_in_the_request_or_the_task() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.side.set_config(101, "lock", Some("backup"));
    let text = "VM is locked (backup)";
    assert_eq!(refusal(play.on(101, "PUT", "config", json!({ "name": "y" })).await), text);
    assert_eq!(refusal(play.on(101, "POST", "clone", json!({ "newid": 170 })).await), text);
    assert_eq!(refusal(play.on(101, "POST", "template", json!({})).await), text);
    let size = json!({ "disk": "scsi0", "size": "+1G" });
    assert_eq!(play.run(101, "PUT", "resize", size).await, text);
    assert_eq!(play.run(101, "POST", "status/start", json!({})).await, text);
    assert_eq!(play.run(101, "DELETE", "", json!({})).await, text);
    assert_eq!(play.run(101, "POST", "status/stop", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn two_starts_at_once_leave_one_running_and_one_refused() {
    let play = Play::steady();
    play.clone_to(101).await;
    let one = play.begin(101, "POST", "status/start", json!({})).await;
    let two = play.begin(101, "POST", "status/start", json!({})).await;
    assert_eq!(play.end_of(&one).await, "OK");
    assert_eq!(play.end_of(&two).await, "VM 101 already running");
    assert_eq!(play.log(&two).await[..2], ["trying to acquire lock...", " OK"]);
}
