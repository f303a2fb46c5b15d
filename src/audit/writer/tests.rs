#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::sync::mpsc::channel;

use super::*;
use crate::entry::Call;
use crate::find::{Wanted, find};
use crate::verify::verify;

const HOUR: Duration = Duration::from_secs(3600);
/// A disk that failed is tried again with the next record, and without one after an hour.
const AT_ONCE: Waits = Waits { retry: Duration::ZERO, probe: HOUR, ..WAITS };

/// Records an entry, and waits for what came of it.
fn recorded(audit: &Audit, entry: Entry) -> bool {
    let (done, outcome) = channel();
    audit.record(entry, move |written| done.send(written).unwrap());
    outcome.recv().unwrap()
}

fn by(principal: &str, object: &str) -> Entry {
    let route = Some("/v1/agents/{id}/retire".to_owned());
    let (principal, object) = (Some(principal.to_owned()), Some(object.to_owned()));
    Entry::Call(Call { principal, object, route, ..Call::default() })
}

fn wanted() -> Wanted {
    Wanted { limit: 100, ..Wanted::default() }
}

// Invariant: who waits for a record hears that it is on the disk, or that it is not.

#[test]
fn a_record_is_in_the_file_when_its_caller_hears_so() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::open(dir.path(), Options::default()).unwrap();
    for count in 1..=3 {
        assert!(recorded(&audit, by("token:a", "a1")));
        assert_eq!(verify(audit.folder()).unwrap().records, count);
    }
}

#[test]
fn trouble_is_reported_and_the_records_that_it_cost_are_counted_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FOLDER), "a file").unwrap();
    let audit = Audit::bounded(dir.path(), Options::default(), 500, AT_ONCE).unwrap();
    let (said, hears) = channel();
    audit.watch(move |trouble| said.send(trouble.cloned()).unwrap());
    assert_eq!(hears.recv().unwrap(), None);
    for _ in 0..3 {
        assert!(!recorded(&audit, by("token:a", "a1")));
    }
    assert!(hears.recv().unwrap().is_some());
    fs::remove_file(dir.path().join(FOLDER)).unwrap();
    assert!(recorded(&audit, by("token:a", "a2")));
    assert_eq!(hears.recv().unwrap(), None);
    let seen = verify(audit.folder()).unwrap();
    assert_eq!((seen.records, seen.lost_records), (2, 3));
}

#[test]
fn a_write_that_does_not_end_is_trouble_until_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FOLDER).join("000000000001.jsonl");
    fs::create_dir(dir.path().join(FOLDER)).unwrap();
    // Who opens a FIFO hangs until somebody opens its other end.
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    let waits = Waits { write: Duration::from_millis(1), ..AT_ONCE };
    let audit = Audit::bounded(dir.path(), Options::default(), 500, waits).unwrap();
    let (said, hears) = channel();
    audit.watch(move |trouble| said.send(trouble.cloned()).unwrap());
    assert_eq!(hears.recv().unwrap(), None);
    audit.note(by("token:a", "a1"));
    let trouble = hears.recv().unwrap().unwrap();
    assert!(
        trouble.why.contains("the disk hangs") && trouble.why.contains("/audit`"),
        "{trouble:?}"
    );
    assert_eq!((trouble.command, audit.hangs()), (CHECK_DISK, true));
    // The log is read, and then opened for its record.
    drop(fs::File::options().write(true).open(&file).unwrap());
    let reader = fs::File::open(&file).unwrap();
    let failed = hears.recv().unwrap().unwrap();
    assert_eq!((failed.command, audit.hangs()), (CHECK_FILES, false), "{failed:?}");
    drop(reader);
    fs::remove_file(&file).unwrap();
    assert!(recorded(&audit, by("token:a", "a2")));
    assert_eq!(verify(audit.folder()).unwrap().lost_records, 1);
}

#[test]
fn a_disk_that_works_again_ends_the_trouble_without_another_record() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FOLDER), "a file").unwrap();
    let waits = Waits { probe: Duration::from_millis(1), ..AT_ONCE };
    let audit = Audit::bounded(dir.path(), Options::default(), 500, waits).unwrap();
    let (said, hears) = channel();
    audit.watch(move |trouble| said.send(trouble.is_some()).unwrap());
    assert!(!recorded(&audit, by("token:a", "a1")));
    assert_eq!([hears.recv().unwrap(), hears.recv().unwrap()], [false, true]);
    fs::remove_file(dir.path().join(FOLDER)).unwrap();
    assert!(!hears.recv().unwrap());
    assert_eq!(verify(audit.folder()).unwrap().lost_records, 1);
}

#[test]
fn a_disk_that_failed_is_left_alone_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FOLDER), "a file").unwrap();
    let waits = Waits { retry: HOUR, ..AT_ONCE };
    let audit = Audit::bounded(dir.path(), Options::default(), 500, waits).unwrap();
    assert!(!recorded(&audit, by("token:a", "a1")));
    fs::remove_file(dir.path().join(FOLDER)).unwrap();
    assert!(!recorded(&audit, by("token:a", "a1")));
    let (done, outcome) = channel();
    audit.probe(move |can| done.send(can).unwrap());
    assert!(!outcome.recv().unwrap());
    assert!(!audit.folder().exists());
}

/// The writing thread, without the thread.
fn writer(state: &Path) -> Writer {
    let folder = state.join(FOLDER);
    Writer {
        log: Log::new(&folder, FILE_BYTES_MAX),
        shared: Arc::new(Shared {
            folder,
            options: Mutex::default(),
            lost: AtomicU64::new(0),
            state: Mutex::default(),
        }),
        left_out: LeftOut::default(),
        failed: None,
        waits: AT_ONCE,
        writes: channel().0,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + second).unwrap()
}

/// So many refused calls of nobody.
fn refused(how_many: usize, second: i64) -> Vec<Message> {
    let call = Entry::Call(Call { status: Some(401), ..Call::default() });
    let one = || Message::Entry(at(second), Box::new(call.clone()), Box::new(|_| {}));
    std::iter::repeat_with(one).take(how_many).collect()
}

// Invariant: a record has the time of what it is about, also where the disk was slow.

#[test]
fn records_that_waited_for_the_disk_together_have_their_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let messages = [1, 60, 30].into_iter().flat_map(|second| refused(1, second));
    writer(dir.path()).write(messages.collect());
    let found = find(&dir.path().join(FOLDER), &wanted()).unwrap();
    let times: Vec<Timestamp> = found.iter().map(|record| record.at).collect();
    assert_eq!(times, [1, 60, 30].map(at));
}

// Invariant: each call is in one record: its own, one of `lost`, or one of `leftOut`.

#[test]
fn calls_that_are_left_out_while_the_disk_fails_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(FOLDER);
    let mut writer = writer(dir.path());
    let counts = || {
        let found = find(&folder, &Wanted { limit: 10_000, ..wanted() }).unwrap();
        found.iter().fold((0, 0, 0), |(calls, lost, out), record| match &record.entry {
            Entry::Call(_) => (calls + 1, lost, out),
            Entry::Lost { records, .. } => (calls, lost + records, out),
            Entry::LeftOut { calls: more, .. } => (calls, lost, out + more),
            other @ (Entry::TerminalOpened(_)
            | Entry::TerminalEnded { .. }
            | Entry::ConfigurationApplied { .. }
            | Entry::ConfigurationRefused { .. }
            | Entry::Signal { .. }
            | Entry::Sync(_)
            | Entry::Started { .. }
            | Entry::Stopped
            | Entry::TornLine { .. }
            | Entry::Removed { .. }) => panic!("{other:?}"),
        })
    };
    fs::write(&folder, "a file").unwrap();
    writer.write(refused(1000, 0));
    fs::remove_file(&folder).unwrap();
    writer.write(refused(1, 1));
    assert_eq!(counts(), (1, 600, 400));
    // The record with a count is lost, and the count is not.
    writer.write(refused(10, 1));
    let away = dir.path().join("away");
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, "a file").unwrap();
    writer.write(refused(1, 2));
    fs::remove_file(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    writer.write(refused(1, 3));
    assert_eq!(counts(), (2, 601, 410));
}

/// Keeps the level and the fields of events.
struct Heard(Mutex<Vec<(tracing::Level, String)>>);

impl tracing::Subscriber for Heard {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = String::new();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            fields += &format!("{field}={value:?} ");
        });
        self.0.lock().push((*event.metadata().level(), fields));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

// Invariant: a record that is in no file is a warning in the log, whatever it is about, and is bounded there.

#[test]
fn what_is_in_no_file_is_a_warning_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let object = "x".repeat(10_000);
    let entries = [Entry::Stopped, by("token:a", &object)];
    let heard = Arc::new(Heard(Mutex::default()));
    let messages = entries.map(|entry| Message::Entry(at(0), Box::new(entry), Box::new(|_| {})));
    tracing::subscriber::with_default(Arc::clone(&heard), || {
        writer(dir.path()).shared.fail(messages.into(), "no disk");
    });
    let heard = heard.0.lock();
    let [_, (stopped, text), (call, object)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!([*stopped, *call], [tracing::Level::WARN; 2]);
    assert!(text.contains("in no file") && !text.contains("seq"), "{text}");
    assert!(object.len() < 1000, "{}", object.len());
}

// Invariant: people find records by time, caller and object, the newest ones where there are too many.

#[test]
fn records_are_found_by_caller_object_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::bounded(dir.path(), Options::default(), 500, WAITS).unwrap();
    for (principal, object) in [("token:a", "a1"), ("uid:7", "a1"), ("token:a", "a2")] {
        assert!(recorded(&audit, by(principal, object)));
    }
    let seqs = |wanted: Wanted| {
        let found = find(audit.folder(), &wanted).unwrap();
        found.iter().map(|record| record.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(wanted()), [1, 2, 3]);
    assert_eq!(seqs(Wanted { limit: 2, ..wanted() }), [2, 3]);
    assert_eq!(seqs(Wanted { by: Some("token:a".to_owned()), ..wanted() }), [1, 3]);
    assert_eq!(seqs(Wanted { about: Some("a1".to_owned()), ..wanted() }), [1, 2]);
    assert_eq!(seqs(Wanted { after: Some(1), ..wanted() }), [2, 3]);
    assert_eq!(seqs(Wanted { since: Some(Timestamp::MAX), ..wanted() }), [0; 0]);
    assert_eq!(find(&dir.path().join("none"), &wanted()).unwrap(), []);
}
