#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;

use jiff::Timestamp;

use super::*;
use crate::log::Log;

/// A folder with two files of three records each, and their names.
fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::new(dir.path(), 600);
    for name in ["a", "b", "c", "d", "e", "f"] {
        let entry = Entry::Signal { name: name.to_owned() };
        let at = Timestamp::UNIX_EPOCH;
        log.append(at, vec![(at, entry)], u64::MAX).unwrap();
    }
    let files = ["000000000001.jsonl", "000000000004.jsonl"].map(|name| dir.path().join(name));
    assert!(files.iter().all(|file| file.exists()));
    let [first, second] = files;
    (dir, first, second)
}

fn lines(file: &Path) -> Vec<String> {
    fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

fn put(file: &Path, lines: &[String]) {
    fs::write(file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

fn broken(path: &Path) -> Broken {
    match verify(path).unwrap_err() {
        VerifyError::Broken(broken) => broken,
        other @ (VerifyError::Lacks { .. } | VerifyError::Unread { .. }) => panic!("{other}"),
    }
}

/// A line made again with this text in place of that one, and with the hash that fits.
fn forged(line: &str, from: &str, to: &str) -> String {
    let open = line.rsplit_once(",\"hash\":").unwrap().0.replace(from, to);
    format!("{open},\"hash\":\"{}\"}}", digest(format!("{open}}}").as_bytes()))
}

// Invariant: whatever was done to a record, the check names the first that is not as it was written, and how.

#[test]
fn a_whole_chain_is_summed_up_with_its_ends() {
    let (dir, first, second) = folder();
    let seen = verify(dir.path()).unwrap();
    assert_eq!((seen.records, seen.first_seq, seen.last_seq, seen.bytes_behind), (6, 1, 6, 0));
    let last = lines(&second).pop().unwrap();
    assert!(last.contains(&seen.last_hash));
    assert_eq!(verify(&second).unwrap().first_seq, 4, "one file begins where it begins");
    assert_eq!(verify(&first).unwrap().last_seq, 3);
    let none = tempfile::tempdir().unwrap();
    assert_eq!(verify(none.path()).unwrap().records, 0);
}

#[test]
fn every_way_to_change_the_files_is_found_at_its_record() {
    type Change = fn(&mut Vec<String>);
    let changes: [(&str, u64, usize, How, Change); 6] = [
        ("a byte is another one", 2, 2, How::Changed, |all| {
            all[1] = all[1].replace("\"b\"", "\"x\"")
        }),
        ("a record has its own hash", 3, 3, How::OtherBefore, |all| {
            all[1] = forged(&all[1], "\"b\"", "\"x\"");
        }),
        ("a record is gone", 2, 2, How::Missing { found: 3 }, |all| drop(all.remove(1))),
        ("two are exchanged", 2, 2, How::Missing { found: 3 }, |all| all.swap(1, 2)),
        ("one is there twice", 3, 3, How::Missing { found: 2 }, |all| {
            all.insert(1, all[1].clone())
        }),
        ("a line is no record", 2, 2, How::NoRecord, |all| all[1] = "nothing".to_owned()),
    ];
    for (what, seq, line, how, change) in changes {
        let (dir, first, _) = folder();
        let mut all = lines(&first);
        change(&mut all);
        put(&first, &all);
        let wanted = Broken { seq, file: first.clone(), line, how };
        assert_eq!(broken(dir.path()), wanted, "{what}");
    }
}

#[test]
fn each_byte_of_a_record_counts() {
    let (dir, first, _) = folder();
    let whole = fs::read(&first).unwrap();
    let second_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in 0..second_line {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&first, bytes).unwrap();
        assert!(verify(dir.path()).is_err(), "byte {at}");
    }
}

#[test]
fn files_that_are_gone_are_missed() {
    let (dir, first, _) = folder();
    fs::remove_file(&first).unwrap();
    assert_eq!((broken(dir.path()).seq, broken(dir.path()).how), (3, How::FilesMissing));
    let (dir, _, second) = folder();
    let mut all = lines(&second);
    all.remove(0);
    put(&second, &all);
    assert_eq!((broken(dir.path()).seq, broken(dir.path()).how), (4, How::Missing { found: 5 }));
}

#[test]
fn a_pipe_in_place_of_a_file_is_named_and_not_waited_for() {
    let (dir, first, _) = folder();
    fs::remove_file(&first).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&first).status().unwrap().success());
    for path in [dir.path(), &first] {
        let VerifyError::Unread { path, source } = verify(path).unwrap_err() else { panic!() };
        assert_eq!((path, source.to_string()), (first.clone(), "it is no regular file".into()));
    }
    let wanted = crate::find::Wanted { limit: 10, ..crate::find::Wanted::default() };
    assert!(crate::find::find(dir.path(), &wanted).is_err());
}

#[test]
fn a_piece_counts_as_torn_only_with_the_record_that_describes_it() {
    let (dir, _, second) = folder();
    let torn = |text: &str| fs::write(&second, text).unwrap();
    let whole = fs::read_to_string(&second).unwrap();
    torn(&format!("{whole}{{\"seq\":7,"));
    assert_eq!(verify(dir.path()).unwrap().bytes_behind, 9);
    let at = Timestamp::UNIX_EPOCH;
    Log::new(dir.path(), 1 << 20).append(at, vec![(at, Entry::Stopped)], 0).unwrap();
    assert_eq!(verify(dir.path()).unwrap().torn_lines, 1);
    let closed = fs::read_to_string(&second).unwrap();
    torn(&closed.replace("{\"seq\":7,\n", "{\"seq\":8,\n"));
    assert_eq!((broken(dir.path()).seq, broken(dir.path()).how), (7, How::OtherPiece));
    torn(&closed.replace("{\"seq\":7,\n", ""));
    assert_eq!(broken(dir.path()).how, How::OtherPiece);
}

#[test]
fn records_at_the_end_that_were_changed_are_no_pieces_of_a_write() {
    let changed: [&dyn Fn(&str) -> String; 5] = [
        &|line| format!("{} ", line.replace("Signal", "evil")),
        &|_| "junk".to_owned(),
        &|line| format!("{line}\r"),
        // Each is the beginning of a record, and a write leaves one such line.
        &|line| line[..40].to_owned(),
        &|line| line[..line.len() - 2].to_owned(),
    ];
    for (number, change) in changed.iter().enumerate() {
        let (dir, _, second) = folder();
        let mut all = lines(&second);
        for line in &mut all[1..] {
            *line = change(line);
        }
        put(&second, &all);
        let found = broken(dir.path());
        let line = if number < 3 { 2 } else { 3 };
        assert_eq!((found.seq, found.line, found.how), (5, line, How::NotTorn), "{number}");
        let wanted = crate::find::Wanted { limit: 10, ..crate::find::Wanted::default() };
        assert_eq!(crate::find::find(dir.path(), &wanted).unwrap().len(), 4, "{number}");
        // A new start closes them, and they stay what they are.
        let at = Timestamp::UNIX_EPOCH;
        Log::new(dir.path(), 1 << 20).append(at, vec![(at, Entry::Stopped)], 0).unwrap();
        assert_eq!(broken(dir.path()).how, How::NotTorn, "{number}");
    }
    // What is no audit log has no torn record, either.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("000000000001.jsonl"), "{\"fact\":1}\n").unwrap();
    assert_eq!(broken(dir.path()).how, How::NotTorn);
    // A disk that lost its power may hold zeros in the place of the rest.
    let (dir, _, second) = folder();
    let whole = fs::read(&second).unwrap();
    fs::write(&second, [&whole[..], b"{\"seq\":7,\"at\0\0\0"].concat()).unwrap();
    assert_eq!(verify(dir.path()).unwrap().bytes_behind, 15);
}

#[test]
fn a_fault_is_one_sentence_with_its_place() {
    let (dir, first, _) = folder();
    let mut all = lines(&first);
    all.remove(1);
    put(&first, &all);
    let text = broken(dir.path()).to_string();
    let place = format!("the chain is broken at record 2, line 2 of `{}`: ", first.display());
    assert_eq!(
        text,
        format!("{place}the next record has the number 3: records are missing, or were moved")
    );
}

// Invariant: somebody who kept a hash finds out that its record is gone, though the chain looks whole.

#[test]
fn a_cut_end_is_found_by_the_hash_that_was_kept() {
    let (dir, first, second) = folder();
    let kept = verify(dir.path()).unwrap().last_hash;
    assert_eq!(verify_with(dir.path(), &kept).unwrap(), verify(dir.path()).unwrap());
    let whole = lines(&second);
    put(&second, &whole[..2]);
    assert_eq!(verify(dir.path()).unwrap().last_seq, 5, "the chain looks whole");
    let error = verify_with(dir.path(), &kept).unwrap_err();
    assert!(
        matches!(&error, VerifyError::Lacks { hash, is_folder: true } if *hash == kept),
        "{error}"
    );
    fs::remove_file(&second).unwrap();
    assert!(matches!(verify_with(dir.path(), &kept), Err(VerifyError::Lacks { .. })));
    let older = verify(&first).unwrap().last_hash;
    assert!(verify_with(dir.path(), &older).is_ok(), "a record in the middle counts, too");
    let error = verify_with(&first, &kept).unwrap_err();
    assert!(error.to_string().contains("check the folder"), "{error}");
}

#[test]
fn the_record_before_the_first_one_of_a_file_counts_as_there() {
    let (dir, first, second) = folder();
    let kept = verify(&first).unwrap().last_hash;
    assert!(verify_with(&second, &kept).is_ok(), "its first record names it");
    let older = lines(&first).remove(0);
    let older = older.rsplit('"').nth(1).unwrap();
    assert!(matches!(verify_with(&second, older), Err(VerifyError::Lacks { .. })));
    drop(dir);
}

#[test]
fn a_chain_that_is_broken_is_called_so_whatever_hash_was_kept() {
    let (dir, first, _) = folder();
    let mut changed = lines(&first);
    changed[1] = changed[1].replace("\"b\"", "\"x\"");
    put(&first, &changed);
    let error = verify_with(dir.path(), &"0".repeat(64)).unwrap_err();
    assert!(matches!(error, VerifyError::Broken(_)), "{error}");
}
