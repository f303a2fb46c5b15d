//! How soon a lease on a warm agent is ready.

use std::io::Write as _;
use std::time::{Duration, Instant};

use drover_ssh::{HostKeyPolicy, Keep, Limits, Target, connect};
use serde_json::{Value, json};

use crate::figure::{Figure, Report, percentile};
use crate::site::{Cluster, Lanes, Service};

/// Warm agents, and leases taken one after another.
const AGENTS: u32 = 20;
const LEASES: usize = 200;

const LIMIT: Duration = Duration::from_secs(10);

/// Leases one after another, beside an empty request and a command over SSH.
pub fn report(report: &mut Report) {
    let cluster = Cluster::start(AGENTS, false);
    let service = Service::start(&cluster, Lanes::Wide);
    service.keep(true);
    service.until_ready(AGENTS);
    let (mut leases, mut bounds) = (Vec::new(), Vec::new());
    for _ in 0..LEASES {
        let (seconds, agent) = lease(&service);
        leases.push(seconds);
        bounds.push(bound(&service, &agent));
    }
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let figure =
            Figure::alone(format!("lease-warm.{word}"), percentile(&leases, share) * 1e3, "ms");
        let bound = percentile(&bounds, share) * 1e3;
        report.add(figure.against("GET /healthz, one sync to disk, one SSH exec", bound));
    }
}

/// From the request to ready; and the agent.
fn lease(service: &Service) -> (f64, Value) {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB0pWOLUZqVnR7cyPq7c3cKBtF1hpx9IbjrJJw0bsqxW x";
    let body = json!({ "labels": ["linux"], "ttlSeconds": 60, "sshPublicKey": key });
    let started = Instant::now();
    let mut lease = service.api().post("/v1/leases", &body);
    let path = format!("/v1/leases/{}", lease["id"].as_str().unwrap());
    while lease["state"] != "ready" {
        assert!(started.elapsed() < LIMIT, "{lease}");
        lease = service.api().get(&format!("{path}?waitSeconds=5")).unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    service.api().delete(&path);
    (seconds, lease["ssh"].clone())
}

/// One empty request, one small write that is durable, one login and one command.
fn bound(service: &Service, ssh: &Value) -> f64 {
    let target = Target {
        host: ssh["host"].as_str().unwrap().parse().unwrap(),
        port: ssh["port"].as_u64().unwrap() as u16,
        user: ssh["user"].as_str().unwrap().to_owned(),
    };
    let policy = HostKeyPolicy::Pinned(vec![ssh["hostKey"].as_str().unwrap().to_owned()]);
    let key = Service::key();
    let started = Instant::now();
    service.api().get("/healthz").unwrap();
    let mut file = std::fs::File::create(service.journal().with_extension("beside")).unwrap();
    file.write_all(&[0; 4096]).unwrap();
    file.sync_data().unwrap();
    service.api().wait(async {
        let session = connect(&target, &key, &policy, LIMIT).await.unwrap();
        let limits = Limits { time: LIMIT, output_bytes_max: 1000, keep: Keep::First };
        session.exec("true", None, limits, None).await.unwrap();
        session.close().await;
    });
    started.elapsed().as_secs_f64()
}
