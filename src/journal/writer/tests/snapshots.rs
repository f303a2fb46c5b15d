//! Snapshots beside appends: no append waits for a snapshot, a snapshot loses nothing, and the file
//! is as large as what it must hold.
#![expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use std::path::Path;

use drover_model::id::{CloudId, ClusterId, Installation, TemplateId, VmId};
use drover_model::record::Hold;
use drover_model::time::{Moment, Now, WallTime};

use super::*;
use crate::testing::{DiskFailure, FaultyDisk};
use crate::{MemoryLog, Predecessor, RedbLog, Successor};

const PATH: &str = "state/journal.redb";

struct Still;

impl Ambient for Still {
    fn now(&self) -> Now {
        Now { mono: Moment(0), wall: WallTime(1_000) }
    }

    fn draw(&self) -> u64 {
        4
    }
}

fn hold(template: u64, bytes: usize) -> Body {
    let hold = Hold { span_ms: 1, public_key: "k".repeat(bytes), owner: None };
    Body::HoldNextSet {
        template: TemplateId::new(CloudId::new("c"), format!("t{template}")),
        hold: Some(Box::new(hold)),
    }
}

/// The body of the record with this sequence: large ones, so that a snapshot has several parts;
/// some durable at once, some only accepted.
fn body(seq: u64) -> Body {
    match seq % 4 {
        0 => hold(seq % 3, 100_000),
        1 => Body::Takeover { installation: Installation::new("7k2m9qxw") },
        _ => Body::IdBurned {
            cluster: ClusterId::new("9f31c0aa52e7d410"),
            vmid: VmId(u32::try_from(seq).unwrap()),
        },
    }
}

/// The fold of all records up to this one.
fn expected(seq: u64, epoch: u64) -> JournalState {
    let mut journal_state = JournalState::default();
    for seq in 1..=seq {
        let (version, wall_time) = (RECORD_VERSION, WallTime(1_000));
        journal_state.apply(&Record { version, seq, epoch, wall_time, body: body(seq) });
    }
    journal_state.epoch = epoch;
    journal_state
}

const EVERY: u64 = 6;
const RECORDS: u64 = 14;

fn open(disk: &FaultyDisk) -> Result<Opened, LogError> {
    let options = WriterOptions { threaded: false, snapshot_every: EVERY };
    let log = RedbLog::open_on(disk.clone(), PATH)?;
    Writer::open(log, Arc::new(Still), options)
}

/// Appends up to `RECORDS`; returns the last sequence that was confirmed as durable.
async fn fill(opened: &Opened) -> (u64, Result<(), JournalFault>) {
    let mut durable = 0;
    while opened.writer.last_seq() < RECORDS {
        let body = body(opened.writer.last_seq() + 1);
        let before_acting = body.before_acting();
        match opened.writer.append(vec![body]).await {
            Ok(seq) if before_acting => durable = seq,
            Ok(_) => {}
            Err(fault) => return (durable, Err(fault)),
        }
    }
    (durable, Ok(()))
}

// Invariant: a crash at any step of an append, of a snapshot or of the switch to it loses nothing
// that was confirmed as durable.

#[tokio::test]
async fn power_cut_at_any_step_leaves_a_journal_with_all_that_was_answered() {
    for step in 1.. {
        let disk = FaultyDisk::default();
        disk.plan(step, DiskFailure::PowerCut);
        let durable = match open(&disk) {
            Ok(opened) => fill(&opened).await.0,
            Err(_) => 0,
        };
        if !disk.was_reached() {
            assert!(step > 150, "{step} steps: what is cut?");

            return;
        }
        disk.restart(step);
        let again = open(&disk).unwrap_or_else(|error| panic!("cut at step {step}: {error:?}"));
        let (seq, epoch) = (again.journal_state.seq, again.journal_state.epoch);
        assert!((durable..=RECORDS).contains(&seq), "cut at step {step}: {seq} of {durable}");
        assert_eq!(again.journal_state, expected(seq, epoch), "cut at step {step}");
        // The log goes on from there, with snapshots, and leaves no file beside it.
        fill(&again).await.1.unwrap();
        drop(again);
        disk.restart(step);
        let last = open(&disk).unwrap();
        assert!(
            last.journal_state.seq >= RECORDS - 2,
            "cut at step {step}: {}",
            last.journal_state.seq
        );
        assert_eq!(disk.names(), [Path::new(PATH)], "cut at step {step}");
    }
}

#[tokio::test]
async fn a_write_that_fails_or_is_cut_short_at_any_step_leaves_the_old_journal_in_force() {
    for step in 1.. {
        let disk = FaultyDisk::default();
        disk.plan(step, DiskFailure::Full);
        let opened = match open(&disk) {
            Ok(opened) => opened,
            // A start that fails is tried again.
            Err(_) => open(&disk).unwrap_or_else(|error| panic!("step {step}: {error:?}")),
        };
        let (_, first) = fill(&opened).await;
        if first.is_err() {
            fill(&opened).await.1.unwrap_or_else(|fault| panic!("step {step}: {fault:?}"));
        }
        if opened.writer.flush().await.is_err() {
            opened.writer.flush().await.unwrap_or_else(|fault| panic!("step {step}: {fault:?}"));
        }
        if !disk.was_reached() {
            assert!(step > 150, "{step} steps: what fails?");
            return;
        }
        drop(opened);
        disk.restart(step);
        let again = open(&disk).unwrap();
        assert_eq!(
            again.journal_state,
            expected(RECORDS, again.journal_state.epoch),
            "failed at step {step}"
        );
    }
}

#[tokio::test]
async fn no_snapshot_is_started_without_room_for_it() {
    let disk = FaultyDisk::default();
    disk.set_room(Some(1_000));
    let opened = open(&disk).unwrap();
    fill(&opened).await.1.unwrap();
    drop(opened);
    let log = RedbLog::open_on(disk.clone(), PATH).unwrap();
    assert_eq!(log.snapshot().unwrap(), None);
    drop(log);
    disk.set_room(None);
    let opened = open(&disk).unwrap();
    opened.writer.append(vec![body(RECORDS + 1)]).await.unwrap();
    drop(opened);
    let log = RedbLog::open_on(disk, PATH).unwrap();
    assert_eq!(log.snapshot().unwrap().map(|(seq, _)| seq), Some(RECORDS + 1));
}

// Invariant: no append waits for a snapshot.

/// A log whose successors wait at a gate.
struct Gated {
    log: MemoryLog,
    entered: mpsc::Sender<()>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Log for Gated {
    fn append(&mut self, at: u64, records: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        self.log.append(at, records, durable)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        self.log.read_from(seq)
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        self.log.snapshot()
    }

    fn place(&self) -> String {
        self.log.place()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        let (inner, entered) = (self.log.successor(seq)?, self.entered.clone());
        Ok(Box::new(Waiting { inner, entered, gate: Arc::clone(&self.gate) }))
    }

    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        self.log.succeed(expected, behind)
    }
}

struct Waiting {
    inner: Box<dyn Successor>,
    entered: mpsc::Sender<()>,
    gate: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Successor for Waiting {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.entered.send(()).unwrap();
        // At the end nobody opens the gate any more.
        let _ = self.gate.lock().recv();
        self.inner.put(bytes)
    }

    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        self.inner.append(records)
    }

    fn ready(self: Box<Self>) -> Result<(), LogError> {
        self.inner.ready()
    }
}

#[tokio::test]
async fn appends_are_answered_while_a_snapshot_is_made() {
    let log = MemoryLog::new();
    let (entered, at_gate) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let gated = Gated { log: log.clone(), entered, gate: Arc::new(Mutex::new(gate)) };
    let options = WriterOptions { threaded: true, snapshot_every: 50 };
    let opened = Writer::open(gated, Arc::new(Still), options).unwrap();
    let mut seq = 0;
    while seq < 50 {
        seq = opened.writer.append(vec![body(4 * seq + 1)]).await.unwrap();
    }
    at_gate.recv().unwrap();
    // The snapshot lasts as long as the gate is closed, and no second one starts.
    for _ in 0..400 {
        seq = opened.writer.append(vec![body(4 * seq + 2)]).await.unwrap();
    }
    assert_eq!(log.snapshot().unwrap(), None);
    go.send(()).unwrap();
    // So much was written that the next snapshot is due at once: it waits at the gate.
    while log.snapshot().unwrap().is_none() {
        seq = opened.writer.append(vec![body(4 * seq + 2)]).await.unwrap();
    }
    assert_eq!(log.snapshot().unwrap().unwrap().0, 50);
    let records = log.read_from(1).unwrap();
    assert_eq!((records[0].0, records.len() as u64), (51, log.read_from(51).unwrap().len() as u64));
    let folded = inline(log).journal_state;
    assert_eq!((folded.seq, burned(&folded) as u64), (seq, seq - 50));
}

fn inline(log: MemoryLog) -> Opened {
    let options = WriterOptions { threaded: false, snapshot_every: 1_000_000 };
    Writer::open(log, Arc::new(Still), options).unwrap()
}

fn burned(journal_state: &JournalState) -> usize {
    journal_state.burned.values().map(std::collections::BTreeMap::len).sum()
}

// Invariant: the file stays as large as what it must hold, however long it is written.

#[tokio::test]
async fn the_file_does_not_grow_with_the_number_of_snapshots_and_shrinks_with_what_lives() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let options = WriterOptions { threaded: false, snapshot_every: 50 };
    let length = || std::fs::metadata(&path).unwrap().len();
    let log = RedbLog::open(&path).unwrap();
    let opened = Writer::open(log, Arc::new(Still), options).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..8 {
        for n in 0..200 {
            opened.writer.append(vec![hold(n, 20_000)]).await.unwrap();
        }
        sizes.push(length());
    }
    assert!(sizes.iter().all(|size| *size <= sizes[0]), "{sizes:?}");
    assert!(sizes[0] < 6 * 200 * 20_000, "{sizes:?}");
    for n in 0..200 {
        let template = TemplateId::new(CloudId::new("c"), format!("t{n}"));
        opened.writer.append(vec![Body::HoldNextSet { template, hold: None }]).await.unwrap();
    }
    assert!(length() < sizes[0] / 2, "{} of {sizes:?}", length());
    drop(opened);
    let log = RedbLog::open(&path).unwrap();
    let again = Writer::open(log, Arc::new(Still), options).unwrap();
    assert_eq!((again.journal_state.seq, again.journal_state.hold_next.len()), (9 * 200, 0));
}

#[tokio::test]
async fn a_service_that_restarts_often_takes_its_snapshots_too() {
    let disk = FaultyDisk::default();
    for seq in 1..=EVERY {
        let opened = open(&disk).unwrap();
        assert_eq!(opened.writer.append(vec![body(seq)]).await, Ok(seq));
        opened.writer.flush().await.unwrap();
    }
    let log = RedbLog::open_on(disk, PATH).unwrap();
    assert_eq!(log.snapshot().unwrap().map(|(seq, _)| seq), Some(EVERY));
}
