//! What it costs that many people watch a large herd: how long a fact takes to all of them, beside one
//! alone, and what memory they take.
//!
//! Agents are reported to the read side of a served API, in this process. Each watcher has a stream of
//! events and the page of the herd open, which it fetches again as the page's script does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drover_model::fact::What;
use drover_model::phase::AgentPhase;
use drover_model::status::AgentStatus;
use drover_server::testing::{Served, agent, empty_template, reported};
use futures_util::StreamExt as _;
use tokio::sync::{Barrier, mpsc};

use crate::figure::{Figure, Report};

const AGENTS: usize = 5000;
const WATCHERS: usize = 200;
/// Facts that are reported, and the time between two.
const FACTS: u64 = 250;
const PAUSE: Duration = Duration::from_millis(20);
/// The soonest that the page's script looks again, and how many times as long as the last look took.
const SOONEST: Duration = Duration::from_secs(1);
const TIMES: u32 = 5;
/// What the agents of the herd do, one after the other: the page has each kind of row.
const PHASES: [AgentPhase; 10] = [
    AgentPhase::Ready,
    AgentPhase::Leased,
    AgentPhase::Leased,
    AgentPhase::Leased,
    AgentPhase::Connecting,
    AgentPhase::Held,
    AgentPhase::Draining,
    AgentPhase::Retiring,
    AgentPhase::InDoubt,
    AgentPhase::Stranded,
];
/// What a watched fact has as its detail, before its number.
const STAMP: &str = "stamp ";

/// Fan-out at one watcher and at many, with and without their pages.
pub fn report(report: &mut Report) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let served = Served::default();
        reported(&served.view, empty_template());
        for (number, phase) in (0..AGENTS).zip(PHASES.into_iter().cycle()) {
            let status = agent(&format!("agent-{number:05}"), phase);
            reported(&served.view, What::Agent(Arc::new(status)));
        }
        let (one, _) = fan_out(&served, "admin", 1, false).await;
        let before = resident();
        let (many, _) = fan_out(&served, "operator", WATCHERS, false).await;
        let (paged, looks) = fan_out(&served, "viewer", WATCHERS, true).await;
        let grown = resident().saturating_sub(before);
        let against = "one watcher";
        for (name, all) in [("streams", &many), ("pages", &paged)] {
            for (part, hundredth) in [("p50", 50), ("p99", 99)] {
                let figure =
                    Figure::alone(format!("watchers.{name}.{part}"), at(all, hundredth), "s");
                report.add(figure.against(against, at(&one, hundredth)));
            }
        }
        report.add(Figure::alone("watchers.look.p50", at(&looks, 50), "s"));
        report.add(Figure::alone("watchers.look.p99", at(&looks, 99), "s"));
        report.add(Figure::alone("watchers.looks", looks.len() as f64, ""));
        report.add(Figure::alone("watchers.memory", grown as f64 / 1024.0, "MiB"));
        served.stop().await;
    });
}

/// How long each fact took to each watcher, and each look at the page, in seconds.
///
/// Each round has a role of its own: the server learns of a stream that nobody reads any more when it writes
/// to it.
async fn fan_out(
    served: &Served,
    role: &str,
    watchers: usize,
    with_pages: bool,
) -> (Vec<f64>, Vec<f64>) {
    let token = format!("{role}-token");
    let start = Instant::now();
    let sent: Arc<Vec<AtomicU64>> = Arc::new((0..FACTS).map(|_| AtomicU64::new(0)).collect());
    let ready = Arc::new(Barrier::new(watchers + 1));
    let (took, mut all) = mpsc::unbounded_channel();
    let (looked, mut looks) = mpsc::unbounded_channel();
    let mut pages = Vec::new();
    for _ in 0..watchers {
        let (sent, ready, took) = (Arc::clone(&sent), Arc::clone(&ready), took.clone());
        let http = crate::client(None);
        let (base, token) = (served.base.clone(), token.clone());
        if with_pages {
            let (http, base, looked) = (http.clone(), base.clone(), looked.clone());
            let token = token.clone();
            pages.push(tokio::spawn(async move {
                loop {
                    let begin = Instant::now();
                    let page = http.get(format!("{base}/")).bearer_auth(&token).send().await;
                    let text = page.unwrap().text().await.unwrap();
                    assert!(text.contains("The herd at a glance"), "{text}");
                    let span = begin.elapsed();
                    looked.send(span.as_secs_f64()).unwrap();
                    tokio::time::sleep(SOONEST.max(TIMES * span)).await;
                }
            }));
        }
        tokio::spawn(async move {
            let request = http.get(format!("{base}/v1/events")).bearer_auth(token);
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200);
            let mut parts = answer.bytes_stream();
            parts.next().await.unwrap().unwrap();
            ready.wait().await;
            let (mut text, mut count) = (String::new(), 0);
            while count < FACTS {
                let part = parts.next().await.unwrap().unwrap();
                text.push_str(&String::from_utf8_lossy(&part));
                while let Some(end) = text.find("\n\n") {
                    let event: String = text.drain(..end + 2).collect();
                    let Some((_, rest)) = event.split_once(STAMP) else { continue };
                    let number = rest.split('"').next().unwrap().parse::<usize>().unwrap();
                    let at = sent[number].load(Ordering::Acquire);
                    let span = start.elapsed().as_nanos() as u64 - at;
                    took.send(Duration::from_nanos(span).as_secs_f64()).unwrap();
                    count += 1;
                }
            }
        });
    }
    drop((took, looked));
    ready.wait().await;
    for number in 0..FACTS {
        let status = AgentStatus {
            detail: format!("{STAMP}{number}"),
            ..agent(&format!("agent-{number:05}"), AgentPhase::Preparing)
        };
        sent[number as usize].store(start.elapsed().as_nanos() as u64, Ordering::Release);
        reported(&served.view, What::Agent(Arc::new(status)));
        tokio::time::sleep(PAUSE).await;
    }
    let (mut spans, mut seen) = (Vec::new(), Vec::new());
    while let Some(span) = all.recv().await {
        spans.push(span);
    }
    for page in pages {
        page.abort();
    }
    while let Ok(span) = looks.try_recv() {
        seen.push(span);
    }
    assert_eq!(spans.len(), watchers * FACTS as usize);
    (spans, seen)
}

/// The value that so many of a hundred are not above.
fn at(all: &[f64], hundredth: usize) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * hundredth / 100).min(sorted.len() - 1)]
}

/// The resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
