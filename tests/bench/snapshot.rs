//! What a snapshot of a large journal costs those who append beside it, its disk, and a start.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover::clock::SystemAmbient;
use drover_journal::{Log as _, Opened, RedbLog, Writer, WriterOptions};
use drover_model::id::LeaseId;
use drover_model::ports::Journal as _;
use drover_model::record::{Body, LeaseAsk, Want};
use drover_model::time::WallTime;

use crate::figure::{Figure, Report};

/// Leases of a day that are kept for those who repeat a request.
const LEASES: u64 = 150_000;
/// Leases that are written at once while the journal is filled.
const AT_ONCE: u64 = 500;
/// How long appends are timed, each time.
const SPAN: Duration = Duration::from_secs(8);

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
    let (quiet, _) = runtime.block_on(appends(&opened, &mut next));
    drop(opened);
    // A snapshot follows the other.
    let opened = open_again(&path, 1);
    let (beside, count) = runtime.block_on(appends(&opened, &mut next));
    drop(opened);
    let name = |what: &str| format!("snapshot.{what}");
    let without = "the longest without one";
    report.add(Figure::alone(name("stall"), beside, "ms").against(without, quiet));
    report.add(Figure::alone(name("appends"), f64::from(count), "beside"));
    until_free(&path);
    let log = RedbLog::open(&path).unwrap();
    let records = log.read_from(0).unwrap().iter().map(|(_, record)| record.len()).sum::<usize>();
    let live = (log.snapshot().unwrap().map_or(0, |(_, bytes)| bytes.len()) + records) as f64;
    drop(log);
    let file = std::fs::metadata(&path).unwrap().len() as f64;
    report.add(Figure::alone(name("file"), file, "B").against("what it holds", live));
    let before = memory("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let started = Instant::now();
    drop(open(&path, u64::MAX));
    report.add(Figure::alone(name("start"), started.elapsed().as_secs_f64(), "s"));
    let held = memory("VmHWM") - before;
    report.add(Figure::alone(name("memory"), held, "B").against("what it holds", live));
}

fn open(path: &Path, snapshot_every: u64) -> Opened {
    let ambient = Arc::new(SystemAmbient::new().unwrap());
    let options = WriterOptions { threaded: true, snapshot_every };
    Writer::open(RedbLog::open(path).unwrap(), ambient, options).unwrap()
}

/// The same, once the writer before has ended.
fn open_again(path: &Path, snapshot_every: u64) -> Opened {
    until_free(path);
    open(path, snapshot_every)
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
