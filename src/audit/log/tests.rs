#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;

use super::*;
use crate::verify::{Seen, verify};

const AT: Timestamp = Timestamp::UNIX_EPOCH;
const KEEP: u64 = u64::MAX;

fn signal(name: &str) -> (Timestamp, Entry) {
    (AT, Entry::Signal { name: name.to_owned() })
}

/// Appends each entry by itself.
fn append(log: &mut Log, names: &[&str]) {
    for name in names {
        log.append(AT, vec![signal(name)], KEEP).unwrap();
    }
}

fn files(folder: &Path) -> Vec<(String, String)> {
    let parts = folder::parts(folder).unwrap();
    let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    parts.iter().map(|part| (named(&part.path), fs::read_to_string(&part.path).unwrap())).collect()
}

fn seen(folder: &Path) -> Seen {
    verify(folder).unwrap()
}

// Invariant: one chain goes through all files and all starts.

#[test]
fn the_chain_goes_on_over_files_and_starts() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("audit");
    for _ in 0..3 {
        append(&mut Log::new(&folder, 400), &["a", "b", "c"]);
    }
    let files = files(&folder);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "000000000001.jsonl",
            "000000000003.jsonl",
            "000000000005.jsonl",
            "000000000007.jsonl",
            "000000000009.jsonl"
        ]
    );
    let seen = seen(&folder);
    assert_eq!((seen.files, seen.records, seen.first_seq, seen.last_seq), (5, 9, 1, 9));
}

#[test]
fn entries_that_come_together_are_records_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::new(dir.path(), 1 << 20);
    let written = log.append(AT, vec![signal("a"), signal("b")], KEEP).unwrap();
    let seqs: Vec<u64> = written.iter().map(|one| one.head.seq).collect();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(seen(dir.path()).last_hash, written[1].head.hash);
}

#[test]
fn each_record_has_the_time_when_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let now = Timestamp::from_second(100).unwrap();
    let made = [3, 7, 5].map(|second| Timestamp::from_second(second).unwrap());
    let entries = made.map(|made| (made, signal("a").1));
    fs::write(dir.path().join("000000000001.jsonl"), "{\"seq\":1,").unwrap();
    Log::new(dir.path(), 1 << 20).append(now, entries.to_vec(), KEEP).unwrap();
    let wanted = crate::find::Wanted { limit: 10, ..crate::find::Wanted::default() };
    let found = crate::find::find(dir.path(), &wanted).unwrap();
    let times: Vec<Timestamp> = found.iter().map(|record| record.at).collect();
    assert_eq!(times, [&[now][..], &made].concat());
}

#[test]
fn files_and_folder_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("audit");
    append(&mut Log::new(&folder, 1 << 20), &["a"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file = folder.join("000000000001.jsonl");
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
}

// Invariant: wherever a process dies while it writes, the next start closes the piece of a line, and says so.

#[test]
fn a_line_that_was_torn_anywhere_is_closed_by_the_next_record() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000000000001.jsonl");
    append(&mut Log::new(dir.path(), 1 << 20), &["a", "b"]);
    let whole = fs::read(&file).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in first + 1..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let behind = if length == whole.len() - 1 { 0 } else { (length - first) as u64 };
        assert_eq!(seen(dir.path()).bytes_behind, behind);
        append(&mut Log::new(dir.path(), 1 << 20), &["c"]);
        let text = fs::read(&file).unwrap();
        assert!(text.starts_with(&whole[..length]), "what was written stays");
        let seen = seen(dir.path());
        // The end of its line is the last byte of a record, and may be missing.
        let torn = u64::from(length < whole.len() - 1);
        assert_eq!((seen.records, seen.torn_lines, seen.bytes_behind), (3, torn, 0), "{length}");
    }
}

#[test]
fn a_process_that_dies_while_it_closes_a_torn_line_leaves_nothing_that_the_next_cannot_close() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000000000001.jsonl");
    append(&mut Log::new(dir.path(), 1 << 20), &["a"]);
    let mut torn = fs::read(&file).unwrap();
    let begin = torn.len();
    torn.extend_from_slice(b"{\"seq\":2,\"at");
    fs::write(&file, &torn).unwrap();
    append(&mut Log::new(dir.path(), 1 << 20), &["b"]);
    let closed = fs::read(&file).unwrap();
    for length in begin + 1..closed.len() {
        fs::write(&file, &closed[..length]).unwrap();
        append(&mut Log::new(dir.path(), 1 << 20), &["c"]);
        let seen = seen(dir.path());
        assert!(seen.torn_lines >= 1 && seen.bytes_behind == 0, "{length}: {seen:?}");
    }
}

#[test]
fn a_process_that_died_right_after_it_made_a_file_uses_that_file() {
    let dir = tempfile::tempdir().unwrap();
    append(&mut Log::new(dir.path(), 1 << 20), &["a"]);
    for piece in ["", "{\"se"] {
        fs::write(dir.path().join("000000000002.jsonl"), piece).unwrap();
        append(&mut Log::new(dir.path(), 1 << 20), &["b"]);
        let seen = seen(dir.path());
        assert_eq!((seen.files, seen.torn_lines), (2, u64::from(!piece.is_empty())));
    }
}

// Invariant: the files have a bound, and the log itself says what went.

#[test]
fn the_oldest_files_go_after_a_record_that_names_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::new(dir.path(), 400);
    for _ in 0..200 {
        log.append(AT, vec![signal("a")], 2000).unwrap();
    }
    let bytes: u64 = folder::parts(dir.path()).unwrap().iter().map(|part| part.bytes).sum();
    assert!((400..4000).contains(&bytes), "{bytes}");
    let seen = seen(dir.path());
    assert!(seen.first_seq > 100, "{seen:?}");
    let text: String = files(dir.path()).into_iter().map(|(_, text)| text).collect();
    let ends = r#""kind":"removed","file":""#;
    assert!(text.contains(ends), "{text}");
    assert!(text.contains(&format!(r#""lastSeq":{}"#, seen.first_seq - 1)), "{text}");
}

// Invariant: what somebody does to the files while drover runs is seen afterwards.

#[test]
fn a_file_that_is_removed_while_drover_runs_leaves_a_gap_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::new(dir.path(), 1 << 20);
    append(&mut log, &["a", "b", "c"]);
    fs::remove_file(dir.path().join("000000000001.jsonl")).unwrap();
    append(&mut log, &["d"]);
    assert_eq!(files(dir.path())[0].0, "000000000004.jsonl");
    let broken = verify(dir.path()).unwrap_err();
    assert!(broken.to_string().contains("the files before are missing"), "{broken}");
}

#[test]
fn a_folder_whose_last_file_has_no_record_to_go_on_from_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("000000000007.jsonl");
    fs::write(&file, "nothing\n").unwrap();
    let refused = Log::new(dir.path(), 400).append(AT, vec![signal("a")], KEEP).unwrap_err();
    assert!(refused.to_string().contains("Move the folder away"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "nothing\n");
}

#[test]
fn a_folder_that_cannot_be_used_can_be_used_again_later() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("audit");
    fs::write(&folder, "a file").unwrap();
    let mut log = Log::new(&folder, 400);
    log.append(AT, vec![signal("a")], KEEP).unwrap_err();
    fs::remove_file(&folder).unwrap();
    append(&mut log, &["b"]);
    assert_eq!(seen(&folder).last_seq, 1);
}
