//! How soon anyone who holds a machine hears that it was switched off, and what it costs to know.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::figure::{Figure, Report, percentile};
use crate::site::{Cluster, Lanes, Service};

/// Machines that are switched off, one after the other, among so many that live.
const DEATHS: u32 = 8;
const AGENTS: u32 = 20;
/// Between two looks, and the longest that a loss is waited for.
const LOOK: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(120);
/// The span in which the list of a cluster is read once at most.
const SPAN: f64 = 10.0;

/// Leased machines switched off, beside the moment from which the cluster itself shows it.
pub fn report(report: &mut Report) {
    let cluster = Cluster::start(AGENTS, true);
    let service = Service::start(&cluster, Lanes::Wide);
    service.keep(true);
    service.until_ready(AGENTS);
    let leases: Vec<(String, Value)> = (0..DEATHS).map(|_| leased(&service)).collect();
    let mark = cluster.record.mark();
    let (mut shown, mut known) = (Vec::new(), Vec::new());
    for (lease, agent) in &leases {
        let (cluster_shows, drover_knows) = death(&cluster, &service, lease, agent);
        shown.push(cluster_shows);
        known.push(drover_knows);
    }
    let own = u32::try_from(shown.iter().map(|(_, looks)| looks).sum::<usize>()).unwrap();
    let shown: Vec<f64> = shown.iter().map(|(seconds, _)| *seconds).collect();
    let behind: Vec<f64> =
        known.iter().zip(&shown).map(|(known, shown)| (known - shown).max(0.0)).collect();
    report.add(
        Figure::alone("death.known.p50", percentile(&known, 0.5), "s")
            .against("the cluster shows it", percentile(&shown, 0.5)),
    );
    let figure = Figure::alone("death.behind.most", percentile(&behind, 1.0), "s");
    report.add(figure.against("the aim", SPAN));
    let piece = cluster.record.since(mark);
    let lists = piece.calls().get("GET /cluster/resources").copied().unwrap_or_default() - own;
    let each = f64::from(lists) / piece.span() * SPAN;
    report.add(Figure::alone("death.lists", each, "in 10 s").against("the aim", 1.0));
}

/// Switches a machine off: seconds until the list shows it and how often it was read for that, and
/// seconds until those who wait for the end of its lease hear of it.
fn death(cluster: &Cluster, service: &Service, lease: &str, agent: &Value) -> ((f64, usize), f64) {
    let (node, vmid) = (agent["node"].as_str().unwrap(), agent["vmid"].as_u64().unwrap());
    let started = Instant::now();
    cluster.sim.call("POST", &format!("/nodes/{node}/qemu/{vmid}/status/stop"));
    let path = format!("/v1/leases/{lease}");
    let (mut shown, mut known, mut looks) = (None, None, 0);
    while shown.is_none() || known.is_none() {
        assert!(started.elapsed() < LIMIT, "nobody hears of the end of {vmid}");
        if shown.is_none() {
            looks += 1;
            let list = cluster.sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
            let mut rows = list.as_array().unwrap().iter();
            let stopped = rows.any(|row| row["vmid"] == vmid && row["status"] == "stopped");
            shown = stopped.then(|| started.elapsed().as_secs_f64());
        }
        let reported = service.api().get(&path).unwrap();
        if known.is_none() && reported["state"] == "ended" {
            assert_eq!(reported["detail"], "lost: its guest was switched off");
            known = Some(started.elapsed().as_secs_f64());
        }
        std::thread::sleep(LOOK);
    }
    ((shown.unwrap(), looks), known.unwrap())
}

/// A lease that is ready, and its agent.
fn leased(service: &Service) -> (String, Value) {
    let body = json!({ "labels": ["linux"], "ttlSeconds": 3600 });
    let lease = service.api().post("/v1/leases", &body)["id"].as_str().unwrap().to_owned();
    service.api().until("a lease is ready", |api| {
        let reported = api.get(&format!("/v1/leases/{lease}"))?;
        (reported["state"] == "ready").then_some(())
    });
    let agent = service.api().get(&format!("/v1/leases/{lease}")).unwrap()["agent"].clone();
    let all = service.api().get("/v1/agents").unwrap();
    let all = all["agents"].as_array().unwrap();
    (lease, all.iter().find(|one| one["id"] == agent).unwrap().clone())
}
