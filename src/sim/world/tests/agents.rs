// Invariant (book: proxmox, section 23, item 8): the three ways in which an agent is unavailable,
// late answers, and errors inside a 200.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::TestCluster;
use super::fakes::{FakeGuestBehaviour, refusal, seconds};
use crate::world::AgentHealth;

const NOT_RUNNING: &str = "QEMU guest agent is not running";

async fn started_vm() -> TestCluster {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
    cluster
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_not_configured_before_the_guest_is_not_running_before_it_does_not_answer() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster
        .guests
        .set_behaviour(FakeGuestBehaviour { shutdown: None, agent: Duration::from_secs(30) });
    let ping = async || refusal(cluster.vm_call(101, "POST", "agent/ping", json!({})).await);
    assert_eq!(ping().await, "VM 101 is not running");
    cluster.control.set_config(101, "agent", Some("0"));
    assert_eq!(ping().await, "No QEMU guest agent configured");
    cluster.control.set_config(101, "agent", Some("1"));
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let started = Instant::now();
    assert_eq!(ping().await, NOT_RUNNING);
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    seconds(30).await;
    let answer = cluster.vm_call(101, "POST", "agent/ping", json!({})).await.unwrap();
    assert_eq!(answer.data, json!({ "result": {} }));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_up_while_the_ping_waits_answers_it() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster
        .guests
        .set_behaviour(FakeGuestBehaviour { shutdown: None, agent: Duration::from_secs(2) });
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let started = Instant::now();
    let answer = cluster.vm_call(101, "POST", "agent/ping", json!({})).await.unwrap();
    assert_eq!(answer.data, json!({ "result": {} }));
    assert_eq!(started.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_simple_commands_error_comes_inside_a_200_and_a_files_as_a_500() {
    let cluster = started_vm().await;
    let simple = cluster.vm_call(101, "GET", "agent/get-users", json!({})).await.unwrap().data;
    assert_eq!(simple["result"]["error"]["class"], "CommandNotFound");
    let file = cluster.vm_call(101, "GET", "agent/file-read", json!({ "file": "/none" })).await;
    assert_eq!(refusal(file), "Agent error: no such file");
}

#[tokio::test(start_paused = true)]
async fn output_comes_decoded_a_character_for_each_byte() {
    let cluster = started_vm().await;
    let exec = json!({ "command": ["sh", "-c", "x"] });
    assert_eq!(
        cluster.vm_call(101, "POST", "agent/exec", exec).await.unwrap().data,
        json!({ "pid": 7 })
    );
    let status =
        cluster.vm_call(101, "GET", "agent/exec-status", json!({ "pid": 7 })).await.unwrap();
    let reported =
        json!({ "exited": 1, "exitcode": 3, "out-data": "o\u{ff}k", "out-truncated": 0 });
    assert_eq!(status.data, reported);
}

#[tokio::test(start_paused = true)]
async fn a_paused_guests_agent_does_not_answer() {
    let cluster = started_vm().await;
    assert_eq!(cluster.run_task(101, "POST", "status/suspend", json!({})).await, "OK");
    let paused = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!((&paused["status"], &paused["qmpstatus"]), (&json!("running"), &json!("paused")));
    assert_eq!(refusal(cluster.vm_call(101, "POST", "agent/ping", json!({})).await), NOT_RUNNING);
    assert_eq!(cluster.run_task(101, "POST", "status/resume", json!({})).await, "OK");
    assert!(cluster.vm_call(101, "POST", "agent/ping", json!({})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn agents_can_be_dead_stuck_or_lying() {
    let cluster = started_vm().await;
    let interfaces =
        async || cluster.vm_call(101, "GET", "agent/network-get-interfaces", json!({})).await;
    cluster.control.set_agent(101, AgentHealth::Dead);
    assert_eq!(refusal(interfaces().await), NOT_RUNNING);
    cluster.control.set_agent(101, AgentHealth::Stuck);
    let text = "VM 101 qga command 'guest-network-get-interfaces' failed - got timeout";
    assert_eq!(refusal(interfaces().await), text);
    cluster.control.set_agent(101, AgentHealth::Lying);
    let reported = interfaces().await.unwrap().data;
    assert_eq!(reported["result"][0]["ip-addresses"][0]["ip-address"], "198.51.100.1");
    cluster.control.set_agent(101, AgentHealth::Well);
    let reported = interfaces().await.unwrap().data;
    assert_eq!(reported["result"][0]["ip-addresses"][0]["ip-address"], "10.0.0.5");
}

// Invariant (book: proxmox, section 1): a handler occupies its worker while it runs, and no other.

/// Sends this many pings at once to an agent that never answers; returns the second and the status
/// of each answer.
async fn pings(count: usize) -> (TestCluster, Vec<(u64, u16)>) {
    let cluster = started_vm().await;
    cluster.control.set_agent(101, AgentHealth::Dead);
    let started = Instant::now();
    let ping = async || {
        let refused = cluster.vm_call(101, "POST", "agent/ping", json!({})).await.unwrap_err();
        (started.elapsed().as_secs(), refused.status)
    };
    let ends = futures_util::future::join_all((0..count).map(|_| ping())).await;
    (cluster, ends)
}

#[tokio::test(start_paused = true)]
async fn a_ping_of_a_silent_agent_occupies_one_of_three_workers_of_pvedaemon() {
    let (_cluster, ends) = pings(7).await;
    let ends: Vec<u64> = ends.into_iter().map(|(end, _)| end).collect();
    assert_eq!(ends, [3, 3, 3, 6, 6, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_pvedaemon_for_30_s_gets_596() {
    let (_cluster, ends) = pings(40).await;
    assert!(ends[..27].iter().all(|(end, status)| *end < 30 && *status == 500), "{ends:?}");
    assert_eq!(ends[30..], [(30, 596); 10]);
}

#[tokio::test(start_paused = true)]
async fn pveproxy_and_other_nodes_answer_while_pvedaemon_is_busy() {
    let cluster = started_vm().await;
    cluster.control.set_agent(101, AgentHealth::Dead);
    let started = Instant::now();
    let busy = (0..3).map(|_| cluster.vm_call(101, "POST", "agent/ping", json!({})));
    let others = async {
        cluster.get("/nodes/{node}/qemu/{vmid}/config", json!({ "vmid": 101 })).await;
        cluster
            .call(
                "POST",
                "/nodes/{node}/qemu/{vmid}/status/stop",
                json!({ "node": "pve2", "vmid": 9001 }),
            )
            .await
            .ok();
        started.elapsed()
    };
    let (_, others) = tokio::join!(futures_util::future::join_all(busy), others);
    assert_eq!(others, Duration::ZERO);
}
