//! Copies of journals: what arrives is what was there, or nothing arrives.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use drover_model::ports::Journal as _;

use super::*;
use crate::testing::{Still, burn};
use crate::{RedbLog, Writer, WriterOptions, contract};

/// A journal with a snapshot and some records after it.
async fn journal(path: &Path) {
    let options = WriterOptions { threaded: false, snapshot_every: 5 };
    let opened = Writer::open(RedbLog::open(path).unwrap(), Arc::new(Still), options).unwrap();
    for vmid in 101..=108 {
        opened.writer.append(vec![burn(vmid)]).await.unwrap();
    }
}

// Invariant: every back end does what the port says.

#[test]
fn a_log_in_a_file_and_one_in_memory_do_what_a_log_must() {
    for case in contract::ALL {
        let dir = tempfile::tempdir().unwrap();
        case(&mut || Box::new(RedbLog::open(dir.path().join("journal.redb")).unwrap()));
        let log = MemoryLog::new();
        case(&mut || Box::new(log.clone()));
    }
}

// Invariant: a copy holds what its journal held.

#[tokio::test]
async fn a_journal_is_the_same_after_a_way_through_text() {
    let dir = tempfile::tempdir().unwrap();
    let (from, text) = (dir.path().join("from.redb"), dir.path().join("journal.jsonl"));
    journal(&from).await;
    let contents = Contents::of(&RedbLog::look(&from).unwrap()).unwrap();
    assert_eq!((contents.last(), contents.records() > 0), (8, true));
    contents.write_text(&text).unwrap();
    assert_eq!(fs::metadata(&text).unwrap().permissions().mode() & 0o777, 0o600);
    let read = Contents::read_text(&text).unwrap();
    assert_eq!(read, contents);
    let to = dir.path().join("to.redb");
    read.put_into(&mut RedbLog::open(&to).unwrap()).unwrap();
    assert_eq!(Contents::of(&RedbLog::look(&to).unwrap()).unwrap(), contents);
}

// Invariant: nothing is overwritten, and no half of a journal passes for one.

#[tokio::test]
async fn a_log_that_holds_records_takes_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (from, text) = (dir.path().join("from.redb"), dir.path().join("journal.jsonl"));
    journal(&from).await;
    let contents = Contents::of(&RedbLog::look(&from).unwrap()).unwrap();
    let mut log = RedbLog::open(&from).unwrap();
    let refused = contents.put_into(&mut log);
    assert!(matches!(refused, Err(CopyError::NotEmpty { last: 8, .. })), "{refused:?}");
    fs::write(&text, "somebody's").unwrap();
    let refused = contents.write_text(&text);
    assert!(matches!(refused, Err(CopyError::Exists { .. })), "{refused:?}");
    assert_eq!(fs::read(&text).unwrap(), b"somebody's");
}

#[tokio::test]
async fn a_text_that_is_cut_or_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (from, path) = (dir.path().join("from.redb"), dir.path().join("journal.jsonl"));
    journal(&from).await;
    Contents::of(&RedbLog::look(&from).unwrap()).unwrap().write_text(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(Contents::read_text(&path).is_err(), "cut after {length} bytes");
    }
    let text = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for without in 0..lines.len() {
        let left = lines.iter().enumerate().filter(|(at, _)| *at != without);
        let left: String = left.map(|(_, line)| format!("{line}\n")).collect();
        fs::write(&path, left).unwrap();
        assert!(Contents::read_text(&path).is_err(), "without line {}", without + 1);
    }
    fs::write(&path, text.replace("\"droverJournal\":1", "\"droverJournal\":2")).unwrap();
    let newer = Contents::read_text(&path);
    assert!(matches!(newer, Err(CopyError::Log(LogError::Newer { found: 2, .. }))), "{newer:?}");
}
