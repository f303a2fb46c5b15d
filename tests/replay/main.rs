//! Replays recorded exchanges with Proxmox VE 8.4's own code against the simulator, in order and
//! in virtual time, and holds the agreement: once within this process, and once over HTTPS.
//!
//! Every difference stands in `differences.txt` with its reason; one that is missing there, or one
//! that is gone, fails.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![expect(clippy::print_stdout, reason = "the agreement is what this tier reports")]

mod compare;
mod exchange;
mod fixture;
mod guest;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use pve_sim::api::http::{Request, Response};

use exchange::{Exchange, HostAct, Seen};
use fixture::{Installation, TOKENS};
use wire::Wire;

/// How long a task is waited for, in looks half a second apart.
const LOOKS: u32 = 1_200;

/// The installation, and how requests reach it.
struct Replay {
    installation: Installation,
    /// None for requests within this process.
    wire: Option<Wire>,
}

impl Replay {
    async fn send(&self, request: Request) -> Response {
        match &self.wire {
            None => self.installation.api.serve(request).await,
            Some(wire) => wire.send(request).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_as_the_recorded_installation_did() {
    let installation = fixture::build();
    assert_agreement("in memory", Replay { installation, wire: None }).await;
}

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_over_https_as_the_recorded_installation_did() {
    let installation = fixture::build();
    let wire = Some(Wire::to(std::sync::Arc::clone(&installation.api)));
    assert_agreement("over HTTPS", Replay { installation, wire }).await;
}

/// Replays all exchanges; exactly the listed ones differ.
async fn assert_agreement(how: &str, replay: Replay) {
    let mut seen = Seen::default();
    let (mut compared, mut differing) = (0_u32, BTreeMap::new());
    let exchanges = exchange::load();
    for together in exchanges.chunk_by(|one, next| one.at_once() && one.note == next.note) {
        act_on_host(&replay, &together[0]).await;
        let asked = together.iter().map(|exchange| answer(&replay, exchange, &seen));
        let answers = join_all(asked).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        for (exchange, response) in together.iter().zip(&answers) {
            remember(exchange, response, &mut seen);
            compared += 1;
            let found = compare::differences(exchange, response).join("\n    ");
            if !found.is_empty() {
                let line = format!("{} {}\n    {found}", exchange.method, exchange.path);
                differing.insert(exchange.n, line);
            }
        }
    }
    let agreeing = compared - u32::try_from(differing.len()).unwrap();
    println!("agree {agreeing} of {compared} {how} ({} %)", agreeing * 100 / compared);
    let known = known_differences();
    let mut faults = Vec::new();
    for (n, line) in differing.iter().filter(|(n, _)| !known.contains_key(*n)) {
        faults.push(format!("{n} differs and is not listed: {line}"));
    }
    for n in known.keys().filter(|n| !differing.contains_key(*n)) {
        faults.push(format!("{n} is listed and does not differ, or was not compared"));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert!(agreeing * 100 >= compared * 98, "fewer than 98 in a hundred agree");
}

/// Does what the recorder did on the host before the exchange, and waits for its tasks.
async fn act_on_host(replay: &Replay, exchange: &Exchange) {
    for act in &exchange.host {
        match act {
            HostAct::Set { vmid, key, value } => {
                replay.installation.side.set_config(*vmid, key, value.as_deref());
            }
            HostAct::Plant { volid, size } => {
                replay.installation.side.add_volume("pve1", volid, *size);
            }
            HostAct::Wait(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
            HostAct::Call { method, path, form } => {
                let seen = Seen::default();
                let call = Exchange::unrecorded(method, path, form);
                let answered = answer(replay, &call, &seen).await;
                let body = compare::json(&answered).unwrap();
                assert_eq!(answered.status, 200, "before {}: {body}", exchange.n);
                if let Some(upid) = body["data"].as_str() {
                    let path = format!("/api2/json/nodes/pve1/tasks/{upid}/status");
                    let look = Exchange::unrecorded("GET", &path, &BTreeMap::new());
                    answer(replay, &look, &seen).await;
                }
            }
        }
    }
}

/// Sends the request; where the recorded task had ended, waits until this one has.
async fn answer(replay: &Replay, exchange: &Exchange, seen: &Seen) -> Response {
    let token = TOKENS.iter().find(|(name, _)| *name == exchange.credential);
    let request = exchange.request(seen, token.map(|(_, token)| *token));
    let mut response = replay.send(request.clone()).await;
    for _ in 0..LOOKS {
        let running = compare::json(&response)
            .is_some_and(|body| body["data"]["status"] == "running" && exchange.exit.is_some());
        if !running {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        response = replay.send(request.clone()).await;
    }
    response
}

/// Keeps what later requests refer to.
fn remember(exchange: &Exchange, response: &Response, seen: &mut Seen) {
    let Some(body) = compare::json(response) else { return };
    let data = &body["data"];
    if let (Some(recorded), Some(own)) = (&exchange.upid, data.as_str()) {
        seen.upids.insert(recorded.clone(), own.to_owned());
    }
    if let (Some(recorded), Some(own)) = (exchange.pid, data["pid"].as_u64()) {
        seen.pids.insert(recorded, own);
    }
    if let (Some(recorded), Some(own)) = (&exchange.digest, data["digest"].as_str()) {
        seen.digests.insert(recorded.clone(), own.to_owned());
    }
    if let (Some(ticket), Some(csrf)) =
        (data["ticket"].as_str(), data["CSRFPreventionToken"].as_str())
    {
        seen.ticket = ticket.to_owned();
        seen.csrf = csrf.to_owned();
    }
}

/// The listed differences: number and reason, a line each.
fn known_differences() -> BTreeMap<u32, &'static str> {
    let lines = include_str!("differences.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (n, reason) = line.split_once(' ').unwrap();
            assert!(!reason.trim().is_empty(), "{n} has no reason");
            (n.parse().unwrap(), reason)
        })
        .collect()
}
