//! What a shared store does to the time to ready, and what a member costs that stands by.

use std::time::Duration;

use serde_json::Value;

use crate::figure::{Figure, Report, percentile};
use crate::process::Usage;
use crate::site::{Cluster, Lanes, Service};
use drover_stores::testing::{Cluster as Etcd, ObjectServer};

/// Agents that are provisioned at once.
const AGENTS: u32 = 40;
/// Members of the etcd.
const MEMBERS: usize = 3;
/// How long a standby is watched.
const IDLE: Duration = Duration::from_secs(60);

/// Times to ready with a file of its own, with etcd and with an object store, on the same cluster's delays.
pub fn report(report: &mut Report) {
    let alone = times(&Service::start(&Cluster::start(AGENTS, true), Lanes::Wide));
    add(report, "stores.file", &alone, &alone);
    match Etcd::start(MEMBERS) {
        Some(etcd) => on(report, "stores.etcd", &etcd.text("bench"), &alone),
        None => println!("note: stores.etcd needs etcd"),
    }
    match ObjectServer::start() {
        Some(server) => on(report, "stores.objects", &server.text("bench"), &alone),
        None => println!("note: stores.objects needs versitygw"),
    }
}

fn on(report: &mut Report, name: &str, store: &str, alone: &[f64]) {
    let cluster = Cluster::start(AGENTS, true);
    let service = Service::start_on(&cluster, Lanes::Wide, store);
    add(report, name, &times(&service), alone);
    let standby = service.standby();
    let pid = standby.0.id();
    let before = Usage::of(pid);
    std::thread::sleep(IDLE);
    let after = Usage::of(pid);
    let cpu = after.less(&before).cpu * 60.0 / IDLE.as_secs_f64();
    report.add(Figure::alone(format!("{name}.standby.cpu"), cpu, "s/min"));
    let memory = after.memory / 1024.0 / 1024.0;
    report.add(Figure::alone(format!("{name}.standby.memory"), memory, "MiB"));
}

/// Seconds until ready of each agent.
fn times(service: &Service) -> Vec<f64> {
    service.keep(true);
    service.until_ready(AGENTS);
    let list = service.api().get("/v1/agents").unwrap();
    let before_ready = |agent: &Value| {
        let phases = agent["phases"].as_array().unwrap();
        let phases = phases.iter().take_while(|phase| phase["state"] != "Ready");
        phases.map(|phase| phase["ms"].as_f64().unwrap() / 1000.0).sum()
    };
    list["agents"].as_array().unwrap().iter().map(before_ready).collect()
}

fn add(report: &mut Report, name: &str, took: &[f64], alone: &[f64]) {
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let figure = Figure::alone(format!("{name}.ready.{word}"), percentile(took, share), "s");
        report.add(figure.against("a file of its own", percentile(alone, share)));
    }
}
