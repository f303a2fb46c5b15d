//! What a snapshot of a large journal costs those who append beside it, its store, and a start; in a file
//! and in each shared store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover::clock::SystemAmbient;
use drover_journal::{Contents, Log, Opened, RedbLog, Writer, WriterOptions};
use drover_model::id::LeaseId;
use drover_model::ports::Journal as _;
use drover_model::record::{Body, LeaseAsk, Want};
use drover_model::time::WallTime;
use drover_stores::testing::{Cluster, ObjectServer};
use drover_stores::{EtcdLog, ObjectLog};

use crate::figure::{Figure, Report};

/// Leases of a day that are kept for those who repeat a request.
const LEASES: u64 = 200_000;
/// Leases that are written at once while the journal is filled.
const AT_ONCE: u64 = 500;
/// How long appends are timed, each time.
const SPAN: Duration = Duration::from_secs(8);
/// Members of the etcd.
const MEMBERS: usize = 3;

/// Fills a journal, and appends to it with and without snapshots.
pub fn report(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut next = 0;
    let opened = open(&path, u64::MAX);
    while next < LEASES {
        let bodies = (next..next + AT_ONCE).flat_map(ended).collect();
        runtime.block_on(opened.writer.append(bodies)).unwrap();
        next += AT_ONCE;
    }
    drop(opened);
    let again = || {
        until_free(&path);
        RedbLog::open(&path).unwrap()
    };
    stalls(report, "snapshot.file", again, &mut next);
    let log = again();
    let records = log.read_from(0).unwrap().iter().map(|(_, record)| record.len()).sum::<usize>();
    let contents = Contents::of(&log).unwrap();
    let live = (log.snapshot().unwrap().map_or(0, |(_, bytes)| bytes.len()) + records) as f64;
    drop(log);
    let file = std::fs::metadata(&path).unwrap().len() as f64;
    report.add(Figure::alone("snapshot.file.size", file, "B").against("what it holds", live));
    let before = memory("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let started = Instant::now();
    drop(open(&path, u64::MAX));
    report.add(Figure::alone("snapshot.file.start", started.elapsed().as_secs_f64(), "s"));
    let held = memory("VmHWM") - before;
    report.add(Figure::alone("snapshot.file.memory", held, "B").against("what it holds", live));
    match Cluster::start(MEMBERS) {
        Some(etcd) => {
            let open = || EtcdLog::open(&etcd.address("bench")).unwrap();
            on(report, "snapshot.etcd", &contents, open, &mut next);
        }
        None => println!("note: snapshot.etcd needs etcd"),
    }
    match ObjectServer::start() {
        Some(server) => {
            let open = || ObjectLog::open(&server.address("bench")).unwrap();
            on(report, "snapshot.objects", &contents, open, &mut next);
        }
        None => println!("note: snapshot.objects needs versitygw"),
    }
}

/// The same in a store: how long the snapshot takes on its way there and back, and what it does to appends.
fn on<L: Log>(
    report: &mut Report,
    name: &str,
    contents: &Contents,
    open: impl Fn() -> L,
    next: &mut u64,
) {
    let started = Instant::now();
    contents.put_into(&mut open()).unwrap();
    let took = started.elapsed().as_secs_f64();
    report.add(Figure::alone(format!("{name}.there-and-back"), took, "s"));
    stalls(report, name, &open, next);
    let started = Instant::now();
    drop(open_with(open(), u64::MAX));
    report.add(Figure::alone(format!("{name}.start"), started.elapsed().as_secs_f64(), "s"));
}

/// The longest append while snapshots follow one another, beside the longest without any.
fn stalls<L: Log>(report: &mut Report, name: &str, open: impl Fn() -> L, next: &mut u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let quiet = runtime.block_on(appends(&open_with(open(), u64::MAX), next)).0;
    let (beside, count) = runtime.block_on(appends(&open_with(open(), 1), next));
    let without = "the longest without one";
    report.add(Figure::alone(format!("{name}.stall"), beside, "ms").against(without, quiet));
    report.add(Figure::alone(format!("{name}.appends"), f64::from(count), "beside"));
}

fn open(path: &Path, snapshot_every: u64) -> Opened {
    open_with(RedbLog::open(path).unwrap(), snapshot_every)
}

fn open_with(log: impl Log, snapshot_every: u64) -> Opened {
    let ambient = Arc::new(SystemAmbient::new().unwrap());
    let options = WriterOptions { threaded: true, snapshot_every };
    Writer::open(log, ambient, options).unwrap()
}

fn until_free(path: &Path) {
    while RedbLog::open(path).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A lease that came and went, with a key that its asker may repeat.
fn ended(number: u64) -> [Body; 2] {
    let lease = LeaseId::new(format!("l{number:07}"));
    let ask = LeaseAsk {
        lease: lease.clone(),
        want: Want::Template("primary/linux".into()),
        principal: "token ci".into(),
        owner: "build".into(),
        ttl_ms: 3_600_000,
        public_key: None,
        key_hash: Some(format!("{number:064x}")),
        body_hash: format!("{number:064x}"),
        asked: WallTime(1_790_000_000_000),
        source: None,
        whole: false,
        user_data: false,
        group: None,
        wait_ms: None,
    };
    [
        Body::LeaseAsked(Box::new(ask)),
        Body::LeaseEnded { lease, why: "released".into(), cause: String::new() },
    ]
}

/// Appends one lease after the other; gives the longest in milliseconds, and how many they were.
async fn appends(opened: &Opened, next: &mut u64) -> (f64, u32) {
    let (started, mut longest, mut count) = (Instant::now(), Duration::ZERO, 0);
    while started.elapsed() < SPAN {
        let one = Instant::now();
        opened.writer.append(ended(*next).into()).await.unwrap();
        longest = longest.max(one.elapsed());
        *next += 1;
        count += 1;
    }
    (longest.as_secs_f64() * 1000.0, count)
}

/// A figure of this process's memory in bytes.
fn memory(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kilobytes: f64 = line.trim_matches([':', '\t', ' ', 'k', 'B']).parse().unwrap();
    kilobytes * 1024.0
}
