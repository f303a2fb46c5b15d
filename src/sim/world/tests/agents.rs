// Invariant: section 23 item 8, the three ways in which an agent is not there, late answers, and
// errors inside a 200.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::Play;
use super::fakes::{Manners, refusal, seconds};
use crate::world::AgentHealth;

const NOT_RUNNING: &str = "QEMU guest agent is not running";

async fn started() -> Play {
    let play = Play::at_once();
    play.clone_to(101).await;
    assert_eq!(play.run(101, "POST", "status/start", json!({})).await, "OK");
    play
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_not_configured_before_the_guest_is_not_running_before_it_does_not_answer() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.guests.behave(Manners { shutdown: None, agent: Duration::from_secs(30) });
    let ping = async || refusal(play.on(101, "POST", "agent/ping", json!({})).await);
    assert_eq!(ping().await, "VM 101 is not running");
    play.side.set_config(101, "agent", Some("0"));
    assert_eq!(ping().await, "No QEMU guest agent configured");
    play.side.set_config(101, "agent", Some("1"));
    play.run(101, "POST", "status/start", json!({})).await;
    let begun = Instant::now();
    assert_eq!(ping().await, NOT_RUNNING);
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    seconds(30).await;
    let answer = play.on(101, "POST", "agent/ping", json!({})).await.unwrap();
    assert_eq!(answer.data, json!({ "result": {} }));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_comes_up_while_the_ping_waits_answers_it() {
    let play = Play::at_once();
    play.clone_to(101).await;
    play.guests.behave(Manners { shutdown: None, agent: Duration::from_secs(2) });
    play.run(101, "POST", "status/start", json!({})).await;
    let begun = Instant::now();
    let answer = play.on(101, "POST", "agent/ping", json!({})).await.unwrap();
    assert_eq!(answer.data, json!({ "result": {} }));
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_simple_commands_error_comes_inside_a_200_and_a_files_as_a_500() {
    let play = started().await;
    let simple = play.on(101, "GET", "agent/get-users", json!({})).await.unwrap().data;
    assert_eq!(simple["result"]["error"]["class"], "CommandNotFound");
    let file = play.on(101, "GET", "agent/file-read", json!({ "file": "/none" })).await;
    assert_eq!(refusal(file), "Agent error: no such file");
}

#[tokio::test(start_paused = true)]
async fn output_comes_decoded_a_character_for_each_byte() {
    let play = started().await;
    let exec = json!({ "command": ["sh", "-c", "x"] });
    assert_eq!(play.on(101, "POST", "agent/exec", exec).await.unwrap().data, json!({ "pid": 7 }));
    let status = play.on(101, "GET", "agent/exec-status", json!({ "pid": 7 })).await.unwrap();
    let told = json!({ "exited": 1, "exitcode": 3, "out-data": "o\u{ff}k", "out-truncated": 0 });
    assert_eq!(status.data, told);
}

#[tokio::test(start_paused = true)]
async fn a_paused_guests_agent_does_not_answer() {
    let play = started().await;
    assert_eq!(play.run(101, "POST", "status/suspend", json!({})).await, "OK");
    let paused = play.on(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!((&paused["status"], &paused["qmpstatus"]), (&json!("running"), &json!("paused")));
    assert_eq!(refusal(play.on(101, "POST", "agent/ping", json!({})).await), NOT_RUNNING);
    assert_eq!(play.run(101, "POST", "status/resume", json!({})).await, "OK");
    assert!(play.on(101, "POST", "agent/ping", json!({})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn agents_can_be_dead_stuck_or_lying() {
    let play = started().await;
    let interfaces = async || play.on(101, "GET", "agent/network-get-interfaces", json!({})).await;
    play.side.set_agent(101, AgentHealth::Dead);
    assert_eq!(refusal(interfaces().await), NOT_RUNNING);
    play.side.set_agent(101, AgentHealth::Stuck);
    let text = "VM 101 qga command 'guest-network-get-interfaces' failed - got timeout";
    assert_eq!(refusal(interfaces().await), text);
    play.side.set_agent(101, AgentHealth::Lying);
    let told = interfaces().await.unwrap().data;
    assert_eq!(told["result"][0]["ip-addresses"][0]["ip-address"], "198.51.100.1");
    play.side.set_agent(101, AgentHealth::Well);
    let told = interfaces().await.unwrap().data;
    assert_eq!(told["result"][0]["ip-addresses"][0]["ip-address"], "10.0.0.5");
}

// Invariant: section 1, a handler keeps its worker busy for as long as it runs, and no other one.

/// A started guest whose agent never answers, and so many questions to it at once: when each of
/// them came back, in seconds, and with which status.
async fn questions(count: usize) -> (Play, Vec<(u64, u16)>) {
    let play = started().await;
    play.side.set_agent(101, AgentHealth::Dead);
    let begun = Instant::now();
    let question = async || {
        let refused = play.on(101, "POST", "agent/ping", json!({})).await.unwrap_err();
        (begun.elapsed().as_secs(), refused.status)
    };
    let ends = futures_util::future::join_all((0..count).map(|_| question())).await;
    (play, ends)
}

#[tokio::test(start_paused = true)]
async fn a_question_to_a_silent_agent_holds_one_of_three_workers_of_pvedaemon() {
    let (_play, ends) = questions(7).await;
    let ends: Vec<u64> = ends.into_iter().map(|(end, _)| end).collect();
    assert_eq!(ends, [3, 3, 3, 6, 6, 6, 9]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_pvedaemon_longer_than_the_inner_hop_is_a_596() {
    let (_play, ends) = questions(40).await;
    assert!(ends[..27].iter().all(|(end, status)| *end < 30 && *status == 500), "{ends:?}");
    assert_eq!(ends[30..], [(30, 596); 10]);
}

#[tokio::test(start_paused = true)]
async fn pveproxy_and_other_nodes_answer_while_pvedaemon_is_busy() {
    let play = started().await;
    play.side.set_agent(101, AgentHealth::Dead);
    let begun = Instant::now();
    let busy = (0..3).map(|_| play.on(101, "POST", "agent/ping", json!({})));
    let others = async {
        play.get("/nodes/{node}/qemu/{vmid}/config", json!({ "vmid": 101 })).await;
        play.call(
            "POST",
            "/nodes/{node}/qemu/{vmid}/status/stop",
            json!({ "node": "pve2", "vmid": 9001 }),
        )
        .await
        .ok();
        begun.elapsed()
    };
    let (_, others) = tokio::join!(futures_util::future::join_all(busy), others);
    assert_eq!(others, Duration::ZERO);
}
