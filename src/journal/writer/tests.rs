//! The writer: durable before acting, compare-and-set, and no overwriting of a journal that is not
//! understood.
#![expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use std::sync::atomic::AtomicI64;

use drover_model::id::{AgentId, CloudId, ClusterId, Installation, VmId};
use drover_model::phase::AgentPhase;
use drover_model::testing;
use drover_model::time::WallTime;

use super::*;
use crate::{MemoryLog, Predecessor, RedbLog, Successor};

mod snapshots;

/// A clock that the test moves.
#[derive(Default)]
struct Hands {
    mono: AtomicU64,
    /// How far the wall clock is set ahead of the monotonic one.
    ahead: AtomicI64,
}

impl Hands {
    fn forward(&self, millis: u64) {
        self.mono.fetch_add(millis, Ordering::Relaxed);
    }

    fn set(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

impl Ambient for Hands {
    fn now(&self) -> Now {
        let mono = Moment(self.mono.load(Ordering::Relaxed));
        let wall = WallTime(1_000 + self.ahead.load(Ordering::Relaxed)) + (mono - Moment(0));
        Now { mono, wall }
    }

    fn draw(&self) -> u64 {
        4
    }
}

/// The wall time of a moment, on a clock that nobody set.
fn at(mono: Moment) -> Now {
    Now { mono, wall: WallTime(1_000) + (mono - Moment(0)) }
}

struct Still;

impl Ambient for Still {
    fn now(&self) -> Now {
        Now { mono: Moment(0), wall: WallTime(1_000) }
    }

    fn draw(&self) -> u64 {
        4
    }
}

fn inline(log: impl Log, every: u64) -> Result<Opened, LogError> {
    let options = WriterOptions { threaded: false, snapshot_every: every };
    Writer::open(log, Arc::new(Still), options)
}

fn takeover() -> Body {
    Body::Takeover { installation: Installation::new("7k2m9qxw") }
}

fn burn(vmid: u32) -> Body {
    Body::IdBurned { cluster: ClusterId::new("9f31c0aa52e7d410"), vmid: VmId(vmid) }
}

// Invariant: what was acknowledged before acting survives a crash.

#[tokio::test]
async fn a_durable_record_survives_a_crash_and_a_later_accepted_one_may_not() {
    let log = MemoryLog::new();
    let opened = inline(log.clone(), 100).unwrap();
    assert_eq!(opened.writer.append(vec![takeover()]).await, Ok(1));
    assert_eq!(opened.writer.append(vec![burn(101)]).await, Ok(2));
    log.crash();
    let again = inline(log, 100).unwrap();
    assert_eq!(again.journal_state.seq, 1);
    assert!(again.journal_state.burned.is_empty());
}

#[tokio::test]
async fn an_accepted_record_is_durable_within_a_second_under_steady_traffic() {
    let (log, clock) = (MemoryLog::new(), Arc::new(Hands::default()));
    let options = WriterOptions { threaded: false, snapshot_every: 100 };
    let opened = Writer::open(log.clone(), clock.clone(), options).unwrap();
    for vmid in 101..=108 {
        opened.writer.append(vec![burn(vmid)]).await.unwrap();
        clock.forward(300);
    }
    // Written at 0, 0.3, 0.6, 0.9 and 1.2 s; then at 1.5, 1.8 and 2.1 s.
    log.crash();
    assert_eq!(inline(log, 100).unwrap().journal_state.seq, 5);
}

#[tokio::test]
async fn a_redb_journal_is_folded_to_the_same_journal_state_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    {
        let opened = inline(RedbLog::open(&path).unwrap(), 100).unwrap();
        let pin = Body::ClusterPinned {
            cloud: CloudId::new("primary"),
            cluster: ClusterId::new("9f31c0aa52e7d410"),
        };
        opened.writer.append(vec![takeover(), pin, burn(7)]).await.unwrap();
        // A later durable write makes the earlier accepted one durable too.
        opened.writer.append(vec![takeover()]).await.unwrap();
    }
    let again = inline(RedbLog::open(&path).unwrap(), 100).unwrap();
    assert_eq!(again.journal_state.seq, 4);
    assert_eq!(again.journal_state.clusters.len(), 1);
    assert_eq!(again.journal_state.burned.values().next().unwrap().len(), 1);
}

#[tokio::test]
async fn a_threaded_writer_answers_each_append_with_its_own_sequence() {
    let options = WriterOptions { threaded: true, snapshot_every: 10 };
    let opened = Writer::open(MemoryLog::new(), Arc::new(Still), options).unwrap();
    let appends = (0..50).map(|vmid| opened.writer.append(vec![burn(vmid), takeover()]));
    let firsts: Vec<u64> =
        futures_util::future::join_all(appends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(firsts, (0..50).map(|n| 1 + 2 * n).collect::<Vec<u64>>());
    assert_eq!(opened.writer.last_seq(), 100);
}

#[tokio::test]
async fn a_flush_makes_what_was_accepted_durable() {
    let log = MemoryLog::new();
    let opened = inline(log.clone(), 100).unwrap();
    opened.writer.append(vec![burn(101)]).await.unwrap();
    opened.writer.flush().await.unwrap();
    log.crash();
    let again = inline(log, 100).unwrap();
    assert_eq!((again.journal_state.seq, again.journal_state.burned.len()), (1, 1));
}

// Invariant: folding a snapshot and the records after it gives the same as folding all records.

#[tokio::test]
async fn snapshots_do_not_change_the_journal_state() {
    let (plain, trimmed) = (MemoryLog::new(), MemoryLog::new());
    for (log, every) in [(plain.clone(), 1_000), (trimmed.clone(), 3)] {
        let opened = inline(log, every).unwrap();
        for vmid in 100..120 {
            opened.writer.append(vec![burn(vmid), takeover()]).await.unwrap();
        }
    }
    let (plain, trimmed_log) = (inline(plain, 1_000).unwrap(), trimmed.clone());
    assert!(trimmed_log.read_from(1).unwrap().len() < 6);
    assert_eq!(plain.journal_state, inline(trimmed, 3).unwrap().journal_state);
}

// Invariant: one writer at a time.

#[tokio::test]
async fn a_second_writer_fences_the_first_for_good() {
    let log = MemoryLog::new();
    let first = inline(log.clone(), 100).unwrap();
    let second = inline(log, 100).unwrap();
    assert!(second.writer.append(vec![takeover()]).await.is_ok());
    assert_eq!(first.writer.append(vec![takeover()]).await, Err(JournalFault::Fenced));
    assert_eq!(first.writer.append(vec![burn(1)]).await, Err(JournalFault::Fenced));
}

#[test]
fn a_file_in_use_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let _held = RedbLog::open(&path).unwrap();
    let refused = RedbLog::open(&path).err().unwrap();
    assert!(matches!(refused, LogError::Busy { .. }), "{refused}");
}

// Invariant: a journal that is not understood stays unchanged.

#[test]
fn a_damaged_file_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let garbage = b"this is no journal, and it is long enough to be mistaken for one".repeat(100);
    std::fs::write(&path, &garbage).unwrap();
    let refused = RedbLog::open(&path).err().unwrap();
    assert!(matches!(refused, LogError::Corrupt { .. }), "{refused:?}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
}

#[test]
fn an_emptied_file_is_refused_rather_than_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    std::fs::write(&path, b"").unwrap();
    let refused = RedbLog::open(&path).err().unwrap();
    assert!(matches!(refused, LogError::Corrupt { .. }), "{refused:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[tokio::test]
async fn a_record_of_a_newer_format_is_refused_with_both_versions() {
    let mut log = MemoryLog::new();
    let newer = br#"{"version":2,"seq":1,"epoch":1,"wallTime":0,"body":{"unheardOf":{}}}"#;
    log.append(0, &[newer.to_vec()], true).unwrap();
    let refused = inline(log, 100).err().unwrap();
    assert!(matches!(refused, LogError::Newer { found: 2, known: 1, .. }), "{refused:?}");
}

#[tokio::test]
async fn a_record_that_does_not_parse_is_refused() {
    let mut log = MemoryLog::new();
    log.append(0, &[b"{\"version\":1".to_vec()], true).unwrap();
    assert!(matches!(inline(log, 100).err().unwrap(), LogError::Corrupt { .. }));
}

#[tokio::test]
async fn a_record_with_an_unknown_phase_is_refused_with_the_word_and_what_to_do() {
    let mut log = MemoryLog::new();
    let agent = AgentId::new("4f8z1c3px9t2vkab");
    let known = Body::Phase { agent, state: AgentPhase::Ready };
    inline(log.clone(), 100).unwrap().writer.append(vec![takeover(), known]).await.unwrap();
    let (_, bytes) = log.read_from(2).unwrap().remove(0);
    let text = String::from_utf8(bytes).unwrap();
    let newer = text.replace("\"Ready\"", "\"Dreaming\"").replace("\"seq\":2", "\"seq\":3");
    log.append(2, &[newer.into_bytes()], true).unwrap();
    let refused = inline(log, 100).err().unwrap();
    assert!(matches!(&refused, LogError::Unknown { part, .. } if part == "record 3"));
    let reported = causes::chain(&refused);
    for part in [
        "record 3 of the journal `memory` holds what drover ",
        "run the drover that wrote it, which is a newer one",
        "unknown agent phase `Dreaming`; drover ",
        " knows Queued, Cloning, InDoubt, Configuring, Booting, Connecting, Preparing, Ready, ",
    ] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
}

#[tokio::test]
async fn a_snapshot_with_an_unknown_phase_is_refused_and_one_that_says_none_is_read() {
    let (id, spec) = (AgentId::new("a1"), testing::template("c/t", &[]));
    let entry = testing::entry("a1", 10_001, spec, AgentPhase::Ready);
    let journal_state =
        JournalState { agents: [(id.clone(), entry)].into(), seq: 1, ..JournalState::default() };
    let spelled = serde_json::to_string(&journal_state).unwrap();
    let opened = |state: &str| {
        let mut log = MemoryLog::new();
        log.append(0, &[serde_json::to_vec(&takeover()).unwrap()], true).unwrap();
        let mut successor = log.successor(1).unwrap();
        let snapshot = spelled.replace("\"state\":\"Ready\"", state).replace(",,", ",");
        assert!(snapshot != spelled || state.contains("Ready"));
        successor.put(snapshot.as_bytes()).unwrap();
        successor.ready().unwrap();
        log.succeed(1, &[]).unwrap();
        inline(log, 100)
    };
    let state = |opened: Opened| opened.journal_state.agents[&id].state;
    assert_eq!(state(opened("\"state\":\"Ready\"").unwrap()), Some(AgentPhase::Ready));
    assert_eq!(state(opened("\"state\":\"\"").unwrap()), None);
    assert_eq!(state(opened("").unwrap()), None);
    let refused = opened("\"state\":\"Dreaming\"").err().unwrap();
    let reported = causes::chain(&refused);
    assert!(
        reported.starts_with("the snapshot of the journal `memory` holds what drover"),
        "{reported}"
    );
    assert!(reported.contains("unknown agent phase `Dreaming`"), "{reported}");
}

#[tokio::test]
async fn a_record_with_a_field_of_a_newer_drover_is_refused_and_names_the_field() {
    let mut log = MemoryLog::new();
    inline(log.clone(), 100).unwrap().writer.append(vec![takeover()]).await.unwrap();
    let (_, bytes) = log.read_from(1).unwrap().remove(0);
    let text = String::from_utf8(bytes).unwrap();
    let newer = text
        .replace("\"seq\":1", "\"seq\":2")
        .replace("\"installation\"", "\"standby\":true,\"installation\"");
    log.append(1, &[newer.into_bytes()], true).unwrap();
    let refused = inline(log, 100).err().unwrap();
    assert!(
        matches!(&refused, LogError::Unknown { part, .. } if part == "record 2"),
        "{refused:?}"
    );
    let reported = causes::chain(&refused);
    assert!(reported.ends_with("before the upgrade: unknown field `body.standby`"), "{reported}");
}

#[tokio::test]
async fn a_snapshot_with_fields_of_a_newer_drover_is_refused_before_anything_is_dropped() {
    let (id, spec) = (AgentId::new("a1"), testing::template("c/t", &[]));
    let entry = testing::entry("a1", 10_001, spec, AgentPhase::Ready);
    let journal_state =
        JournalState { agents: [(id, entry)].into(), seq: 1, ..JournalState::default() };
    let mut log = MemoryLog::new();
    log.append(0, &[serde_json::to_vec(&takeover()).unwrap()], true).unwrap();
    let mut successor = log.successor(1).unwrap();
    let spelled = serde_json::to_string(&journal_state).unwrap();
    let newer = spelled
        .replace("\"state\":\"Ready\"", "\"state\":\"Ready\",\"b\":1,\"c\":2,\"d\":3,\"e\":4");
    successor.put(newer.as_bytes()).unwrap();
    successor.ready().unwrap();
    log.succeed(1, &[]).unwrap();
    let reported = causes::chain(&inline(log, 100).err().unwrap());
    let fields = "unknown fields `agents.a1.b`, `agents.a1.c`, `agents.a1.d`, and 1 more";
    assert!(
        reported.starts_with("the snapshot of the journal") && reported.ends_with(fields),
        "{reported}"
    );
}

#[tokio::test]
async fn facts_about_unknown_agents_fold_to_nothing() {
    let log = MemoryLog::new();
    let opened = inline(log.clone(), 100).unwrap();
    let gone = Body::Phase { agent: AgentId::new("4f8z1c3px9t2vkab"), state: AgentPhase::Ready };
    opened.writer.append(vec![gone, takeover()]).await.unwrap();
    assert!(inline(log, 100).unwrap().journal_state.agents.is_empty());
}

// Invariant: the service learns that its journal will never be written again.

/// A log whose appends fail as the test chooses.
struct Broken(MemoryLog, fn() -> LogError);

impl Log for Broken {
    fn append(&mut self, _: u64, _: &[Vec<u8>], _: bool) -> Result<u64, LogError> {
        Err(self.1())
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        self.0.read_from(seq)
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        self.0.snapshot()
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.0.successor(seq)
    }

    fn succeed(&mut self, at: u64, records: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        self.0.succeed(at, records)
    }
}

fn threaded(outcome: fn() -> LogError) -> Opened {
    let log = Broken(MemoryLog::new(), outcome);
    Writer::open(log, Arc::new(Still), WriterOptions::default()).unwrap()
}

#[tokio::test]
#[expect(clippy::panic, reason = "the panic under test")]
async fn a_writer_that_panics_is_reported_and_answers_no_append() {
    let opened = threaded(|| panic!("a planned panic"));
    let lost = |done: Result<u64, JournalFault>| matches!(done, Err(JournalFault::Failed(_)));
    assert!(lost(opened.writer.append(vec![takeover()]).await));
    assert!(opened.ended.await.is_err());
    assert!(lost(opened.writer.append(vec![takeover()]).await));
}

/// A log whose first write lasts until the test releases it.
struct Hung(MemoryLog, Option<mpsc::Receiver<()>>);

impl Log for Hung {
    fn append(&mut self, at: u64, records: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        if let Some(go) = self.1.take() {
            go.recv().unwrap();
        }
        self.0.append(at, records, durable)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        self.0.read_from(seq)
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        self.0.snapshot()
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.0.successor(seq)
    }

    fn succeed(&mut self, at: u64, records: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        self.0.succeed(at, records)
    }
}

#[tokio::test]
async fn a_write_that_hangs_is_reported_until_it_is_over() {
    let (go, wait) = mpsc::channel();
    let log = Hung(MemoryLog::new(), Some(wait));
    let opened = Writer::open(log, Arc::new(Still), WriterOptions::default()).unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reported);
    opened.writer.watch(move |trouble| heard.lock().push(trouble.map(str::to_owned)));
    let append = opened.writer.append(vec![takeover()]);
    // The write hangs from the moment it reaches the log.
    while opened.writer.in_flight.started_ms.load(Ordering::Acquire) == 0 {
        tokio::task::yield_now().await;
    }
    let started = Moment(opened.writer.in_flight.started_ms.load(Ordering::Acquire));
    opened.writer.check(at(started + Duration::from_secs(9)));
    opened.writer.check(at(started + Duration::from_secs(12)));
    go.send(()).unwrap();
    assert_eq!(append.await, Ok(1));
    let text = "a write has taken 12 s: the disk does not answer".to_owned();
    assert_eq!(*reported.lock(), [Some(text), None]);
    opened.writer.check(at(started + Duration::from_secs(60)));
    assert_eq!(reported.lock().len(), 2, "no write runs");
}

/// A clock that goes on by 30 ms at each look.
#[derive(Default)]
struct Steps(AtomicU64);

impl Ambient for Steps {
    fn now(&self) -> Now {
        let ms = self.0.fetch_add(30, Ordering::Relaxed);
        let wall = WallTime(1_000 + i64::try_from(ms).unwrap());
        Now { mono: Moment(ms), wall }
    }

    fn draw(&self) -> u64 {
        4
    }
}

#[test]
fn each_write_is_timed_from_before_it_until_after_it() {
    let options = WriterOptions { threaded: false, ..WriterOptions::default() };
    let opened = Writer::open(MemoryLog::new(), Arc::new(Steps::default()), options).unwrap();
    let times = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&times);
    opened.writer.time_appends(move |took| heard.lock().push(took));
    for _ in 0..2 {
        let append = opened.writer.append(vec![takeover()]);
        assert!(append.now_or_never().unwrap().is_ok());
    }
    assert_eq!(*times.lock(), [Duration::from_millis(30); 2]);
}

#[tokio::test]
async fn a_writer_that_is_fenced_is_reported_once() {
    let opened = threaded(|| LogError::Fenced { expected: 0, actual: 1 });
    assert_eq!(opened.writer.append(vec![takeover()]).await, Err(JournalFault::Fenced));
    assert_eq!(opened.ended.await, Ok(JournalFault::Fenced));
}

#[tokio::test]
async fn a_write_that_fails_may_succeed_again_and_ends_nothing() {
    let mut opened = threaded(|| LogError::Corrupt { place: "journal".into(), source: "x".into() });
    let done = opened.writer.append(vec![takeover()]).await;
    assert!(matches!(done, Err(JournalFault::Failed(_))));
    assert!(
        opened.ended.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
    );
}

// Invariant: recorded times follow the wall clock as it is, also when it was set meanwhile.

#[tokio::test]
async fn a_clock_that_is_set_while_the_service_runs_is_written_down_before_what_follows() {
    let (log, clock) = (MemoryLog::new(), Arc::new(Hands::default()));
    let options = WriterOptions { threaded: false, snapshot_every: 100 };
    let opened = Writer::open(log.clone(), clock.clone(), options).unwrap();
    assert_eq!(opened.writer.append(vec![burn(101), burn(102)]).await, Ok(1));
    let day = 24 * 3_600_000;
    clock.forward(5_000);
    // A few seconds are not a step.
    clock.set(9_000);
    assert_eq!(opened.writer.append(vec![burn(103)]).await, Ok(3));
    clock.set(day);
    assert_eq!(opened.writer.append(vec![burn(104), burn(105)]).await, Ok(5), "after the clock's");
    clock.set(-day);
    opened.writer.check(clock.now());
    opened.writer.check(clock.now());
    assert_eq!(opened.writer.last_seq(), 7, "once");
    let journal_state = inline(log, 100).unwrap().journal_state;
    let burned = journal_state.burned.values().next().unwrap();
    let ago = |vmid: u32| clock.now().wall.0 - burned[&VmId(vmid)].0;
    assert_eq!([101, 103, 104].map(ago), [5_000, -9_000, 0]);
}

#[tokio::test]
async fn a_clock_that_was_set_is_known_after_a_crash_that_follows_at_once() {
    let (log, clock) = (MemoryLog::new(), Arc::new(Hands::default()));
    let options = WriterOptions { threaded: false, snapshot_every: 100 };
    let opened = Writer::open(log.clone(), clock.clone(), options).unwrap();
    // Nothing is done before this is durable, so it is not.
    opened.writer.append(vec![burn(101)]).await.unwrap();
    log.crash();
    assert!(inline(log.clone(), 100).unwrap().journal_state.burned.is_empty());
    let opened = Writer::open(log.clone(), clock.clone(), options).unwrap();
    clock.set(60_000);
    opened.writer.append(vec![burn(101)]).await.unwrap();
    log.crash();
    assert!(!inline(log, 100).unwrap().journal_state.burned.is_empty());
}
