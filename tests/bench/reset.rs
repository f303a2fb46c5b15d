//! How soon a used machine's owner has a clean one again: put back to its snapshot, beside destroyed
//! and cloned again on the same cluster.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::figure::{Figure, Report, percentile};
use crate::site::{Cluster, Lanes, Service};

/// Machines in use at once, and how often each is given back.
const MACHINES: u32 = 10;
const ROUNDS: usize = 3;
/// Between two looks, and the longest that a lease is waited for.
const LOOK: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(240);

/// What cycles of one kind took, and what they asked of the cluster.
struct Cycles {
    seconds: Vec<f64>,
    calls: f64,
}

/// Cycles by reset, with and without memory, beside those by destroying and cloning.
pub fn report(report: &mut Report) {
    let fresh = cycles(json!({ "singleUse": true }));
    for kind in ["DISK", "MEMORY"] {
        let reset = cycles(json!({ "reset": kind }));
        let name = format!("reset.{}", kind.to_lowercase());
        for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
            let took = percentile(&reset.seconds, share);
            let figure = Figure::alone(format!("{name}.cycle.{word}"), took, "s");
            report.add(figure.against("destroyed and cloned", percentile(&fresh.seconds, share)));
        }
        let figure = Figure::alone(format!("{name}.calls"), reset.calls, "a cycle");
        report.add(figure.against("destroyed and cloned", fresh.calls));
    }
}

/// From the end of a lease until the next one of the same owner is ready, for many at once.
fn cycles(keys: Value) -> Cycles {
    let cluster = Cluster::start(MACHINES, true);
    let service = Service::start_with(&cluster, Lanes::Wide, keys);
    let mut leases: Vec<String> = (0..MACHINES).map(|who| ask(&service, who)).collect();
    leases.iter().for_each(|lease| ready(&service, lease));
    let mut seconds = Vec::new();
    let mark = cluster.record.mark();
    for _ in 0..ROUNDS {
        let mut started = Vec::new();
        for (who, lease) in leases.iter_mut().enumerate() {
            started.push(Instant::now());
            service.api().delete(&format!("/v1/leases/{lease}"));
            *lease = ask(&service, who as u32);
        }
        let mut open: Vec<usize> = (0..leases.len()).collect();
        while !open.is_empty() {
            open.retain(|place| {
                let waits = service.api().get(&format!("/v1/leases/{}", leases[*place]));
                let is_ready = waits.is_some_and(|lease| lease["state"] == "ready");
                if is_ready {
                    seconds.push(started[*place].elapsed().as_secs_f64());
                }
                assert!(started[*place].elapsed() < LIMIT, "a lease is never ready");
                !is_ready
            });
            std::thread::sleep(LOOK);
        }
    }
    let (_, own) = cluster.record.since(mark).shared_and_own();
    Cycles { seconds, calls: f64::from(own) / (f64::from(MACHINES) * ROUNDS as f64) }
}

fn ask(service: &Service, who: u32) -> String {
    let body = json!({ "labels": ["linux"], "ttlSeconds": 3600, "owner": format!("owner {who}") });
    service.api().post("/v1/leases", &body)["id"].as_str().unwrap().to_owned()
}

fn ready(service: &Service, lease: &str) {
    service.api().until("a lease is ready", |api| {
        let lease = api.get(&format!("/v1/leases/{lease}"))?;
        (lease["state"] == "ready").then_some(())
    });
}
