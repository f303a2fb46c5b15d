//! How long a record takes to become durable, in each back end of the journal.

use std::io::Write as _;
use std::time::Instant;

use drover_journal::{Log, RedbLog};
use drover_stores::testing::{Cluster, ObjectServer};
use drover_stores::{EtcdLog, ObjectLog};

use crate::figure::{Figure, Report};

/// Records that are appended, one after another.
const RECORDS: u64 = 500;
/// The bytes of one: a usual record of an agent's life.
const BYTES: usize = 600;
/// Members of the etcd.
const MEMBERS: usize = 3;

/// The medians and the 99th of 100, in seconds, of a file and of each back end.
pub fn report(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let record = vec![b'x'; BYTES];
    let mut file = std::fs::File::create(dir.path().join("file")).unwrap();
    let plain = spread(|_| {
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
    });
    let mut log = RedbLog::open(dir.path().join("journal.redb")).unwrap();
    add(report, "append.file", &mut log, &record, plain);
    // Its members sync to the same disk, one after the other at least.
    match Cluster::start(MEMBERS) {
        Some(etcd) => {
            let mut log = EtcdLog::open(&etcd.address("bench")).unwrap();
            add(report, "append.etcd", &mut log, &record, plain);
        }
        None => println!("note: append.etcd needs etcd"),
    }
    // It syncs nothing: what counts here is the work of a request.
    match ObjectServer::start() {
        Some(server) => {
            let mut log = ObjectLog::open(&server.address("bench")).unwrap();
            add(report, "append.objects", &mut log, &record, plain);
        }
        None => println!("note: append.objects needs versitygw"),
    }
}

fn add(report: &mut Report, name: &str, log: &mut impl Log, record: &[u8], plain: (f64, f64)) {
    let batch = [record.to_vec()];
    let (median, worst) = spread(|seq| {
        log.append(seq, &batch, true).unwrap();
    });
    let against = "a synced write to a file";
    report.add(Figure::alone(format!("{name}.p50"), median, "s").against(against, plain.0));
    report.add(Figure::alone(format!("{name}.p99"), worst, "s").against(against, plain.1));
}

/// The median and the 99th of 100 of as many calls.
fn spread(mut call: impl FnMut(u64)) -> (f64, f64) {
    let mut took: Vec<f64> = (0..RECORDS)
        .map(|number| {
            let started = Instant::now();
            call(number);
            started.elapsed().as_secs_f64()
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.99))
}
