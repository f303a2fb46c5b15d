//! The log in a real S3 server on this machine's loopback, ended by its own pid.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod crashes;
mod stores;
mod wrapped;

use drover_journal::contract::{self, read, record, records};
use drover_journal::{Log as _, LogError};

use super::layout::PARTS;
use super::*;
use crate::testing::{ObjectDoor, ObjectServer};

/// A log beneath a prefix of its own.
fn open(server: &ObjectServer, prefix: &str) -> ObjectLog {
    ObjectLog::open(&server.address(prefix)).unwrap()
}

fn numbers(log: &ObjectLog) -> Vec<u64> {
    read(log, 0).into_iter().map(|(seq, _)| seq).collect()
}

/// The names of a folder.
fn names(log: &ObjectLog, folder: &str) -> Vec<String> {
    log.gateway.list(folder, None).unwrap().into_iter().map(|(name, _)| name).collect()
}

/// A record of so many bytes.
fn large(bytes: usize) -> Vec<u8> {
    vec![b'x'; bytes]
}

/// Takes a snapshot of the log as it is.
fn snapshot(log: &mut ObjectLog, at: u64, bytes: &[u8]) -> Result<(), LogError> {
    let mut successor = log.successor(at)?;
    successor.put(bytes)?;
    successor.ready()?;
    log.succeed(log.seq(), &[]).map(drop)
}

fn is_fenced<T>(result: Result<T, LogError>) -> bool {
    is_fenced_by(&result)
}

fn is_fenced_by<T>(result: &Result<T, LogError>) -> bool {
    matches!(result, Err(LogError::Fenced { .. }))
}

// Invariant: it does what every log does.

#[test]
fn a_log_in_an_object_store_does_what_a_log_must() {
    let Some(server) = ObjectServer::start() else { return };
    for (number, case) in contract::ALL.into_iter().enumerate() {
        case(&mut || Box::new(open(&server, &format!("contract/{number}"))));
    }
}

#[test]
fn prefixes_are_journals_of_their_own() {
    let Some(server) = ObjectServer::start() else { return };
    let (mut one, mut other) = (open(&server, "herd"), open(&server, "herd2"));
    one.append(0, &records(1..=2), true).unwrap();
    other.append(0, &records(1..=5), true).unwrap();
    assert_eq!((numbers(&one).len(), numbers(&other).len()), (2, 5));
}

// Invariant: of two writers at most one goes on.

#[test]
fn the_writer_that_did_not_write_last_is_fenced_for_good() {
    let Some(server) = ObjectServer::start() else { return };
    let mut first = open(&server, "herd");
    first.append(0, &records(1..=2), true).unwrap();
    let mut second = open(&server, "herd");
    second.append(2, &records(3..=3), true).unwrap();
    for _ in 0..2 {
        let refused = first.append(2, &records(3..=4), true);
        assert!(matches!(refused, Err(LogError::Fenced { expected: 2, actual: 3 })));
    }
    second.append(3, &records(4..=4), true).unwrap();
    assert_eq!(numbers(&second), [1, 2, 3, 4]);
}

#[test]
fn a_writer_that_takes_over_fences_the_one_before_at_every_kind_of_write() {
    let Some(server) = ObjectServer::start() else { return };
    type Write = fn(&mut ObjectLog) -> bool;
    let writes: [(&str, Write); 4] = [
        ("append", |log| is_fenced(log.append(3, &records(4..=4), true))),
        ("large", |log| is_fenced(log.append(3, &[large(600_000), large(600_000)], true))),
        ("switch", |log| is_fenced(snapshot(log, 3, b"snapshot"))),
        ("claim", |log| {
            log.claimed = false;
            is_fenced(log.append(3, &records(4..=4), true))
        }),
    ];
    for (name, write) in writes {
        let mut first = open(&server, name);
        first.append(0, &records(1..=3), true).unwrap();
        // The second one begins, and writes nothing else.
        let mut second = open(&server, name);
        second.claim().unwrap();
        for _ in 0..2 {
            assert!(write(&mut first), "{name}");
        }
        second.append(3, &records(4..=4), true).unwrap();
        assert_eq!(numbers(&second), [1, 2, 3, 4], "{name}");
        assert_eq!(second.snapshot().unwrap(), None, "{name}");
    }
}

#[test]
fn of_two_writers_that_find_nothing_one_goes_on() {
    let Some(server) = ObjectServer::start() else { return };
    let (mut first, mut second) = (open(&server, "herd"), open(&server, "herd"));
    first.append(0, &records(1..=1), true).unwrap();
    assert!(is_fenced(second.append(0, &records(1..=1), true)));
    assert!(is_fenced(second.restore(Some((4, b"snapshot")), &records(5..=5))));
    assert_eq!(numbers(&first), [1]);
}

#[test]
fn of_many_writers_that_begin_at_once_one_goes_on() {
    let Some(server) = ObjectServer::start() else { return };
    let mut logs: Vec<_> = (0..8).map(|_| open(&server, "herd")).collect();
    let appended: Vec<_> = std::thread::scope(|scope| {
        let append = |(number, log): (u64, &mut ObjectLog)| log.append(0, &[record(number)], true);
        let all: Vec<_> =
            (0..).zip(&mut logs).map(|one| scope.spawn(move || append(one))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let winners: Vec<u64> =
        (0..).zip(&appended).filter(|(_, one)| one.is_ok()).map(|(number, _)| number).collect();
    let [winner] = winners[..] else { panic!("{appended:?}") };
    assert_eq!(read(&open(&server, "herd"), 0), [(1, record(winner))]);
    assert_eq!(appended.into_iter().filter(is_fenced_by).count(), 7);
}

#[test]
fn a_writer_that_takes_over_amid_appends_has_all_that_was_acknowledged() {
    let Some(server) = ObjectServer::start() else { return };
    for round in 0..5 {
        let prefix = format!("herd/{round}");
        let mut first = open(&server, &prefix);
        first.append(0, &records(1..=1), true).unwrap();
        let (last, mut second) = std::thread::scope(|scope| {
            let appends = scope.spawn(|| {
                // While it appends without a pause, it may be the faster one each time.
                let mut last = 1;
                while last < 100 {
                    match first.append(last, &records(last + 1..=last + 1), true) {
                        Ok(next) => last = next,
                        refused => {
                            assert!(is_fenced_by(&refused));
                            break;
                        }
                    }
                }
                last
            });
            let second = loop {
                let gateway = Gateway::new(&server.address(&prefix)).unwrap();
                let mut second = ObjectLog::over(Arc::new(gateway)).unwrap();
                match second.claim() {
                    Ok(()) => break second,
                    // The first one was faster.
                    refused => assert!(is_fenced_by(&refused)),
                }
            };
            (appends.join().unwrap(), second)
        });
        assert_eq!(second.seq(), last);
        assert!(is_fenced(first.append(last, &records(last + 1..=last + 1), true)));
        second.append(last, &records(last + 1..=last + 1), true).unwrap();
        let wanted: Vec<_> = (1..=last + 1).map(|number| (number, record(number))).collect();
        assert_eq!(read(&second, 0), wanted);
    }
}

// Invariant: a slot that is free again lets nobody go on who knows an old journal.

#[test]
fn a_writer_that_slept_through_snapshots_is_fenced() {
    let Some(server) = ObjectServer::start() else { return };
    let mut sleeper = open(&server, "herd");
    sleeper.append(0, &records(1..=1), true).unwrap();
    let mut second = open(&server, "herd");
    // It knows the journal amid the second one's term, and never wrote.
    let mut idle = None;
    for seq in 1..=6 {
        second.append(seq, &records(seq + 1..=seq + 1), true).unwrap();
        if seq == 3 {
            idle = Some(open(&server, "herd"));
        }
    }
    snapshot(&mut second, 7, b"snapshot").unwrap();
    let mut idle = idle.unwrap();
    assert_eq!(names(&second, LOG).len(), 3, "two seals and the last entry");
    assert!(is_fenced(sleeper.append(1, &records(2..=2), true)));
    assert!(is_fenced(idle.append(4, &records(5..=5), true)), "its slot is free");
    assert_eq!(names(&second, LOG).len(), 4, "what it wrote is litter");
    second.append(7, &records(8..=8), true).unwrap();
    let mut third = open(&server, "herd");
    third.append(8, &records(9..=9), true).unwrap();
    assert_eq!((numbers(&third), names(&third, LOG).len()), (vec![8, 9], 4), "three seals");
}

#[test]
fn the_entry_that_fences_a_writer_stays_when_a_snapshot_takes_its_records() {
    let Some(server) = ObjectServer::start() else { return };
    let mut sleeper = open(&server, "herd");
    sleeper.append(0, &[large(100_000)], true).unwrap();
    let mut second = open(&server, "herd");
    // Its first entry repeats the record, and is named by the second one.
    second.append(1, &[large(100_000)], true).unwrap();
    let seal = sleeper.next.name();
    assert_eq!(second.known.entry.head.chunks[0].name, seal);
    second.append(2, &[large(100_000)], true).unwrap();
    snapshot(&mut second, 3, b"snapshot").unwrap();
    assert!(names(&second, LOG).contains(&seal));
    assert!(is_fenced(sleeper.append(1, &records(2..=2), true)));
}

#[test]
fn a_writer_that_was_stopped_for_long_looks_whether_it_still_counts() {
    let Some(server) = ObjectServer::start() else { return };
    let mut sleeper = open(&server, "herd");
    sleeper.append(0, &records(1..=1), true).unwrap();
    let mut second = open(&server, "herd");
    second.append(1, &records(2..=2), true).unwrap();
    // A month later its seal is gone.
    second.gateway.delete(&[sleeper.next.name()]).unwrap();
    sleeper.sure = (Instant::now(), SystemTime::now() - 31 * 24 * LOOK_AGAIN);
    assert!(is_fenced(sleeper.append(1, &records(2..=2), true)));
    second.sure.1 -= 31 * 24 * LOOK_AGAIN;
    second.append(2, &records(3..=3), true).unwrap();
    assert_eq!(numbers(&second), [1, 2, 3]);
}

// Invariant: a write that was reported as failed is not part of the log.

#[test]
fn an_append_whose_answer_was_lost_once_is_recognised() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    let mut log = ObjectLog::open(&door.address(&server, "herd")).unwrap();
    log.append(0, &records(1..=1), true).unwrap();
    door.swallow_answers_to_writes(2);
    assert_eq!(log.append(1, &records(2..=2), true).unwrap(), 2);
    assert_eq!(log.append(2, &records(3..=3), true).unwrap(), 3);
    assert_eq!(numbers(&log), [1, 2, 3]);
}

#[test]
fn an_append_whose_answer_was_lost_is_undone_before_the_next_one() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    for (prefix, batch) in
        [("small", vec![record(9)]), ("large", vec![large(900_000), large(900_000)])]
    {
        let mut log = ObjectLog::open(&door.address(&server, prefix)).unwrap();
        log.append(0, &records(1..=1), true).unwrap();
        // Of the large one the parts are there, and their answers came.
        let entry = log.with(log.known.entry.again(log.known.at), &batch).unwrap();
        door.swallow_answers(true);
        let failed = log.put(entry).unwrap_err();
        assert!(causes::chain(&failed).contains("may have been written"), "{failed:?}");
        let other = open(&server, prefix);
        assert_eq!(other.seq(), 1 + batch.len() as u64, "it did happen");
        // The claim's answer is lost as well.
        assert!(log.append(1, &records(2..=2), true).is_err());
        door.swallow_answers(false);
        log.append(1, &records(2..=2), true).unwrap();
        assert_eq!(read(&log, 0), [(1, record(1)), (2, record(2))]);
        assert_eq!(read(&open(&server, prefix), 0), [(1, record(1)), (2, record(2))]);
        assert_eq!(names(&log, PARTS), Vec::<String>::new());
    }
}

#[test]
fn a_claim_whose_answer_was_lost_stands() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    let mut log = ObjectLog::open(&door.address(&server, "herd")).unwrap();
    door.swallow_answers(true);
    for _ in 0..2 {
        assert!(log.append(0, &records(1..=1), true).is_err());
    }
    door.swallow_answers(false);
    assert_eq!(log.append(0, &records(1..=1), true).unwrap(), 1);
    assert_eq!((numbers(&log), names(&log, LOG).len()), (vec![1], 2));
}

#[test]
fn a_switch_whose_answer_was_lost_stands() {
    let Some(server) = ObjectServer::start() else { return };
    let door = ObjectDoor::to(&server);
    let mut log = ObjectLog::open(&door.address(&server, "herd")).unwrap();
    log.append(0, &records(1..=3), true).unwrap();
    let mut successor = log.successor(2).unwrap();
    successor.put(b"snapshot").unwrap();
    successor.ready().unwrap();
    door.swallow_answers(true);
    assert!(log.succeed(3, &[]).is_err());
    door.swallow_answers(false);
    assert_eq!(log.append(3, &records(4..=4), true).unwrap(), 4);
    assert_eq!(log.snapshot().unwrap(), Some((2, b"snapshot".to_vec())));
    assert_eq!(read(&log, 3), [(3, record(3)), (4, record(4))]);
}

#[test]
fn an_append_that_may_still_arrive_can_never_count_once_the_next_one_was_made() {
    let Some(server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    log.append(0, &records(1..=1), true).unwrap();
    // It was sent, and is under way.
    let late = log.with(log.known.entry.again(log.known.at), &records(2..=2)).unwrap();
    let at = log.next;
    (log.unsure, log.claimed) = (vec![late.clone()], false);
    log.append(1, &[large(20)], true).unwrap();
    let arrives = log.gateway.create(&at.name(), late.encode()).unwrap();
    assert!(matches!(arrives, Created::Taken));
    assert_eq!(read(&open(&server, "herd"), 2), [(2, large(20))]);
}

#[test]
fn an_append_that_arrives_just_before_the_seal_is_undone_by_it() {
    let Some(server) = ObjectServer::start() else { return };
    let address = server.address("herd");
    open(&server, "herd").append(0, &records(1..=1), true).unwrap();
    let wrapped = wrapped::Wrapped::of(&address);
    let arrives = Arc::clone(&wrapped.late);
    let gateway = Gateway::over(Arc::new(wrapped), &address).unwrap();
    let mut log = ObjectLog::over(Arc::new(gateway)).unwrap();
    log.append(1, &records(2..=2), true).unwrap();
    let late = log.with(log.known.entry.again(log.known.at), &records(3..=5)).unwrap();
    let path = format!("herd/{}", log.next.name());
    // The writer looks for it in vain, and it arrives right then.
    *arrives.lock() = Some((path.into(), late.encode()));
    (log.unsure, log.claimed) = (vec![late], false);
    log.append(2, &records(3..=3), true).unwrap();
    assert!(arrives.lock().is_none());
    assert_eq!((numbers(&log), numbers(&open(&server, "herd"))), (vec![1, 2, 3], vec![1, 2, 3]));
}

// Invariant: the number of objects stays small, and nothing that is needed goes.

#[test]
fn entries_are_deleted_when_later_ones_repeat_their_records() {
    let Some(server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    let count = 2 * DELETE_AT_ONCE as u64 + 10;
    for seq in 0..count {
        log.append(seq, &[large(2_000)], true).unwrap();
    }
    assert_eq!(numbers(&log), (1..=count).collect::<Vec<_>>());
    assert!(log.superseded.len() < DELETE_AT_ONCE);
    drop(log);
    let mut log = open(&server, "herd");
    log.append(count, &[large(2_000)], true).unwrap();
    let kept = log.known.entry.head.chunks.len();
    assert!((5..9).contains(&kept), "820 kB of records in objects of 128 KiB: {kept}");
    assert_eq!(names(&log, LOG).len(), kept + 3, "with two seals and the last one");
    assert_eq!(numbers(&log).len() as u64, count + 1);
}

#[test]
fn a_snapshot_takes_its_records_and_the_snapshot_before_with_it() {
    let Some(server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut seq = 0;
    for round in 1..=2 {
        for _ in 0..20 {
            log.append(seq, &[large(30_000)], true).unwrap();
            seq += 1;
        }
        snapshot(&mut log, seq - 1, &bytes[..bytes.len() - round]).unwrap();
        assert_eq!(names(&log, PARTS).len(), 5, "of one snapshot");
        let entries = names(&log, LOG).len();
        assert!(entries <= 3, "{entries}: the seal, the last entry, and one with the last record");
    }
    let log = open(&server, "herd");
    assert_eq!(log.snapshot().unwrap(), Some((seq - 1, bytes[..bytes.len() - 2].to_vec())));
    assert_eq!(read(&log, seq), [(seq, large(30_000))]);
}

#[test]
fn the_entry_that_ended_a_term_stays_for_a_month() {
    let Some(server) = ObjectServer::start() else { return };
    for writer in 0..3 {
        open(&server, "herd").append(writer, &records(writer + 1..=writer + 1), true).unwrap();
    }
    let mut log = open(&server, "herd");
    let seals: Vec<_> = names(&log, LOG).into_iter().take(3).collect();
    server.make_old(&format!("herd/{}", seals[0]), SEAL_DAYS as u64 + 1);
    server.make_old(&format!("herd/{}", seals[1]), SEAL_DAYS as u64 - 1);
    log.append(3, &records(4..=4), true).unwrap();
    let left = names(&log, LOG);
    assert!(!left.contains(&seals[0]) && left.contains(&seals[1]) && left.contains(&seals[2]));
    assert_eq!(numbers(&log), [1, 2, 3, 4]);
}

#[test]
fn what_a_process_left_of_a_snapshot_goes_with_the_next_writer() {
    let Some(server) = ObjectServer::start() else { return };
    let mut first = open(&server, "herd");
    first.append(0, &records(1..=2), true).unwrap();
    snapshot(&mut first, 1, b"snapshot").unwrap();
    // A process that dies deletes nothing.
    let mut successor = first.successor(2).unwrap();
    successor.put(&large(PART_BYTES + 1)).unwrap();
    std::mem::forget(successor);
    assert_eq!(names(&first, PARTS).len(), 2);
    let mut second = open(&server, "herd");
    second.append(2, &records(3..=3), true).unwrap();
    assert_eq!(names(&second, PARTS).len(), 1);
    assert_eq!(second.snapshot().unwrap(), Some((1, b"snapshot".to_vec())));
}

// Invariant: a large write is there whole or not at all.

#[test]
fn a_write_of_many_megabytes_is_one_write() {
    let Some(server) = ObjectServer::start() else { return };
    let mut log = open(&server, "herd");
    let batch: Vec<Vec<u8>> = (0..9).map(|number| large(300_000 + number)).collect();
    assert_eq!(log.append(0, &batch, true).unwrap(), 9);
    assert_eq!(log.append(9, &[large(3_000_000)], true).unwrap(), 10);
    let found: Vec<_> = read(&log, 0).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(found, [batch, vec![large(3_000_000)]].concat());
    // What is beyond a read is refused, and nothing of it is there.
    let refused = log.append(10, &[record(11), large((32 << 20) + 1)], true).unwrap_err();
    assert!(causes::chain(&refused).contains("record 12 has 33554433 bytes"), "{refused:?}");
    assert_eq!(log.append(10, &records(11..=11), true).unwrap(), 11);
}
