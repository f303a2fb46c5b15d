#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::sync::mpsc::channel;

use super::*;
use crate::entry::Call;
use crate::find::{Wanted, find};
use crate::verify::verify;

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
    let audit =
        Audit::bounded(dir.path(), Options::default(), 500, (Duration::ZERO, WRITE_LIMIT)).unwrap();
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
    let limits = (Duration::ZERO, Duration::from_millis(1));
    let audit = Audit::bounded(dir.path(), Options::default(), 500, limits).unwrap();
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
fn a_disk_that_failed_is_left_alone_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FOLDER), "a file").unwrap();
    let hour = Duration::from_secs(3600);
    let audit = Audit::bounded(dir.path(), Options::default(), 500, (hour, WRITE_LIMIT)).unwrap();
    assert!(!recorded(&audit, by("token:a", "a1")));
    fs::remove_file(dir.path().join(FOLDER)).unwrap();
    assert!(!recorded(&audit, by("token:a", "a1")));
    let (done, outcome) = channel();
    audit.probe(move |can| done.send(can).unwrap());
    assert!(!outcome.recv().unwrap());
    assert!(!audit.folder().exists());
}

// Invariant: people find records by time, caller and object, the newest ones where there are too many.

#[test]
fn records_are_found_by_caller_object_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let audit =
        Audit::bounded(dir.path(), Options::default(), 500, (RETRY_INTERVAL, WRITE_LIMIT)).unwrap();
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
