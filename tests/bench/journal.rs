//! What an agent's life leaves in the journal, and how long the journal takes to read.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use drover_journal::{Log as _, RedbLog};

use crate::figure::{Figure, Report};
use crate::site::{Cluster, Lanes, Service};

/// Lives that are lived.
const AGENTS: u32 = 200;

/// Reads a journal that nobody has open, as a start does before it folds it; seconds.
pub fn time_to_read(path: &Path) -> f64 {
    let started = Instant::now();
    let log = RedbLog::open(path).unwrap();
    let records = log.read_from(0).unwrap();
    assert!(!records.is_empty());
    started.elapsed().as_secs_f64()
}

/// Whole lives with the usual delays: records, bytes and syncs of one.
pub fn report(report: &mut Report) {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("note: journal.* needs strace");
        return;
    }
    let cluster = Cluster::start(AGENTS, true);
    let trace = cluster.folder().join("trace");
    let mut service = Service::start_traced(&cluster, Lanes::Wide, &trace);
    let before = service.usage();
    service.keep(true);
    service.until_ready(AGENTS);
    service.empty();
    let used = service.usage().less(&before);
    service.child.signal("KILL");
    service.child.wait();
    let syncs = service.api().until("the tracer reported all", |_| count(&trace));
    let records = RedbLog::open(service.journal()).unwrap().read_from(0).unwrap();
    let bytes: usize = records.iter().map(|(_, record)| record.len()).sum();
    let agents = f64::from(AGENTS);
    let bytes = bytes as f64 / agents;
    report.add(Figure::alone("journal.records", records.len() as f64 / agents, "a life"));
    report.add(Figure::alone("journal.bytes", bytes, "B a life"));
    let disk = used.disk / agents;
    report.add(Figure::alone("journal.disk", disk, "B a life").against("its records", bytes));
    let syncs = syncs as f64 / agents;
    let durable = "one for each durable record";
    report.add(Figure::alone("journal.syncs", syncs, "a life").against(durable, 2.0));
}

/// Syncs of a service that has ended, those of its start included; none while the tracer may have
/// more to say.
fn count(trace: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    text.contains("+++ killed by SIGKILL +++")
        .then(|| text.lines().filter(|line| line.contains("sync(")).count())
}
