//! A process that dies between two writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::layout::PARTS;
use super::wrapped::Wrapped;
use super::*;

/// A log whose process dies after so many writes, and how many are left.
fn mortal(server: &ObjectServer, prefix: &str, writes: usize) -> (ObjectLog, Arc<AtomicUsize>) {
    let address = server.address(prefix);
    let left = Arc::new(AtomicUsize::new(writes));
    let store = Wrapped { left: Arc::clone(&left), ..Wrapped::of(&address) };
    let gateway = Gateway::over(Arc::new(store), &address).unwrap();
    (ObjectLog::over(Arc::new(gateway)).unwrap(), left)
}

/// What is there beside what the journal needs.
fn litter(log: &ObjectLog) -> usize {
    let head = &log.known.entry.head;
    let parts = head.snapshot.as_ref().map_or(0, |mark| mark.parts as usize)
        + head.chunks.iter().filter(|chunk| chunk.name.starts_with(PARTS)).count();
    names(log, PARTS).len() - parts
}

// Invariant: a crash at any point leaves a log that opens, and its litter goes with the next writer.

#[test]
fn a_crash_between_any_two_writes_of_a_switch_leaves_the_old_snapshot_or_the_new_one() {
    let Some(server) = ObjectServer::start() else { return };
    let (old, new) = (large(PART_BYTES + 5), large(2 * PART_BYTES + 7));
    for writes in 0.. {
        let prefix = format!("switch/{writes}");
        let mut log = open(&server, &prefix);
        log.append(0, &records(1..=2), true).unwrap();
        snapshot(&mut log, 2, &old).unwrap();
        log.append(2, &[large(200_000), large(200_000)], true).unwrap();
        drop(log);
        let (mut log, left) = mortal(&server, &prefix, writes);
        let done = (|| {
            log.append(4, &records(5..=6), true)?;
            snapshot(&mut log, 5, &new)?;
            log.append(6, &records(7..=7), true)
        })();
        let lives = left.load(Ordering::Acquire) > 0;
        std::mem::forget(log);

        let mut log = open(&server, &prefix);
        let last = log.seq();
        assert!(done.is_err() || last == 7, "{writes}");
        let (at, bytes) = log.snapshot().unwrap().unwrap();
        assert!((at, bytes.len()) == (2, old.len()) || (at, bytes.len()) == (5, new.len()));
        let found = read(&log, at + 1);
        let expected: Vec<_> = (at + 1..=last)
            .map(|seq| (seq, if seq <= 4 { large(200_000) } else { record(seq) }))
            .collect();
        assert_eq!(found, expected, "{writes}");
        log.append(last, &records(last + 1..=last + 1), true).unwrap();
        assert_eq!(litter(&log), 0, "{writes}");
        let entries = names(&log, LOG).len();
        assert!(entries <= 6, "{writes}: {entries}: up to three seals, a chunk, two entries");
        if done.is_ok() && lives {
            assert!(writes > 8, "{writes}");
            return;
        }
    }
}

#[test]
fn a_crash_between_any_two_writes_of_a_restore_leaves_nothing_or_all() {
    let Some(server) = ObjectServer::start() else { return };
    let bytes = large(2 * PART_BYTES + 7);
    let batch: Vec<_> = (0..4).map(|number| large(600_000 + number)).collect();
    for writes in 0.. {
        let prefix = format!("restore/{writes}");
        let (mut log, _) = mortal(&server, &prefix, writes);
        let done = log.restore(Some((9, &bytes)), &batch);
        std::mem::forget(log);
        let mut log = open(&server, &prefix);
        if done.is_ok() {
            assert_eq!(log.snapshot().unwrap(), Some((9, bytes.clone())));
            let found: Vec<_> = read(&log, 10).into_iter().map(|(_, record)| record).collect();
            assert_eq!(found, batch);
            assert!(writes > 7, "{writes}: a claim, three parts, four records, the entry");
            return;
        }
        assert_eq!((log.snapshot().unwrap(), numbers(&log)), (None, Vec::new()), "{writes}");
        log.restore(Some((9, b"snapshot")), &records(10..=10)).unwrap();
        assert_eq!(litter(&log), 0, "{writes}");
        assert_eq!(numbers(&log), [10]);
    }
}
