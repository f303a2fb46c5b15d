//! The embedded log after failed writes, before and after its successor.
#![expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use super::*;

mod files;

fn record(text: &str) -> Vec<Vec<u8>> {
    vec![text.as_bytes().to_vec()]
}

fn with_one_record() -> (tempfile::TempDir, PathBuf, RedbLog) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let mut log = RedbLog::open(&path).unwrap();
    log.append(0, &record("one"), true).unwrap();
    (dir, path, log)
}

fn texts(log: &RedbLog) -> Vec<String> {
    let all = log.read_from(1).unwrap().into_iter();
    all.map(|(seq, bytes)| format!("{seq} {}", String::from_utf8(bytes).unwrap())).collect()
}

/// A log whose file is set back to an earlier state and opened again at the next write, as after a
/// full disk.
fn set_back(log: &mut RedbLog, file: &[u8]) {
    log.database = None;
    std::fs::write(&log.path, file).unwrap();
}

// Invariant: only the owner may read the journal.

#[test]
fn a_new_file_can_be_read_by_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, path, _log) = with_one_record();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

// Invariant: after a failed write the log holds everything that was accepted, and nothing that was
// refused.

#[test]
fn what_was_accepted_before_a_failed_write_is_written_with_the_next_one() {
    let (_dir, path, mut log) = with_one_record();
    let file = std::fs::read(&path).unwrap();
    log.append(1, &record("two"), false).unwrap();
    log.append(2, &record("three"), false).unwrap();
    set_back(&mut log, &file);
    assert_eq!(log.append(3, &record("four"), true).unwrap(), 4);
    assert_eq!(texts(&log), ["1 one", "2 two", "3 three", "4 four"]);
}

#[test]
fn what_was_refused_and_reached_the_file_all_the_same_is_taken_out() {
    let (_dir, _, mut log) = with_one_record();
    log.append(1, &record("refused"), true).unwrap();
    log.refused = record("refused");
    log.database = None;
    assert_eq!(log.append(1, &record("two"), true).unwrap(), 2);
    assert_eq!(texts(&log), ["1 one", "2 two"]);
}

#[test]
fn somebody_elses_records_fence_it_after_a_failed_write_too() {
    let (_dir, _, mut log) = with_one_record();
    log.append(1, &record("another's"), true).unwrap();
    log.refused = record("refused");
    log.database = None;
    let fenced = log.append(1, &record("two"), true);
    assert!(matches!(fenced, Err(LogError::Fenced { expected: 1, actual: 2 })), "{fenced:?}");
}

// Invariant: a file of the first format is read, and its next snapshot makes it a file of the
// second format.

#[test]
fn a_snapshot_in_one_piece_is_read_until_a_successor_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let database = Database::create(&path).unwrap();
    commit(&database, Durability::Immediate, |transaction| {
        // As files were written before snapshots had parts.
        transaction.open_table(META)?.insert("format", 1)?;
        transaction.open_table(SNAPSHOT)?.insert(7, b"old".as_slice())?;
        transaction.open_table(RECORDS)?.insert(8, b"eight".as_slice())?;
        Ok(Ok(()))
    })
    .unwrap()
    .unwrap();
    drop(database);
    let mut log = RedbLog::open(&path).unwrap();
    assert_eq!(log.snapshot().unwrap(), Some((7, b"old".to_vec())));
    assert_eq!(log.append(8, &record("nine"), true).unwrap(), 9);
    let mut next = log.successor(8).unwrap();
    next.put(b"ne").unwrap();
    next.put(b"w!").unwrap();
    next.ready().unwrap();
    assert_eq!(log.snapshot().unwrap(), Some((7, b"old".to_vec())), "not switched yet");
    log.succeed(9, &record("nine")).unwrap();
    assert_eq!(log.snapshot().unwrap(), Some((8, b"new!".to_vec())));
    drop(log);
    let mut log = RedbLog::open(&path).unwrap();
    assert_eq!(log.snapshot().unwrap(), Some((8, b"new!".to_vec())));
    assert_eq!(log.append(9, &record("ten"), true).unwrap(), 10);
    assert_eq!(texts(&log), ["9 nine", "10 ten"]);
}

#[test]
fn a_successor_from_before_a_failed_write_takes_no_place() {
    let (_dir, path, mut log) = with_one_record();
    let mut next = log.successor(1).unwrap();
    next.put(b"a").unwrap();
    let failed =
        log.write(Durability::None, |_| Err(redb::Error::Io(ErrorKind::StorageFull.into())));
    assert!(failed.is_err());
    assert!(next.put(b"b").is_err());
    assert!(!successor_path(&path).exists(), "its room is given back at once");
    assert!(next.ready().is_err());
    assert!(log.succeed(1, &[]).is_err());
    assert_eq!(log.append(1, &record("two"), true).unwrap(), 2);
    assert_eq!(texts(&log), ["1 one", "2 two"]);
}

#[test]
fn a_file_is_locked_under_its_name_after_a_switch_too() {
    let (_dir, path, mut log) = with_one_record();
    let mut next = log.successor(1).unwrap();
    next.put(b"a").unwrap();
    next.ready().unwrap();
    let before = log.succeed(1, &[]).unwrap();
    assert!(matches!(RedbLog::open(&path), Err(LogError::Busy { .. })));
    drop(before);
    assert!(matches!(RedbLog::open(&path), Err(LogError::Busy { .. })));
    drop(log);
    assert!(RedbLog::open(&path).is_ok());
}

#[test]
fn a_file_of_a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let mut log = RedbLog::open(&path).unwrap();
    log.write(Durability::Immediate, |transaction| {
        transaction.open_table(META)?.insert("format", FORMAT + 1)?;
        Ok(Ok(()))
    })
    .unwrap();
    drop(log);
    let refused = RedbLog::open(&path).err().unwrap();
    assert!(matches!(refused, LogError::Newer { found: 3, known: 2, .. }), "{refused}");
}
