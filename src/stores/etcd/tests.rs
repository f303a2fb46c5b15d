//! The log in real etcd: members on this machine's loopback, ended by their own pid.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_journal::contract::{self, read, record, records};
use drover_journal::{Log as _, LogError};

mod certificates;

use super::*;
use crate::testing::{Cluster, Door};

/// A log beneath a prefix of its own.
fn open(cluster: &Cluster, prefix: &str) -> EtcdLog {
    EtcdLog::open(&cluster.address(prefix)).unwrap()
}

fn numbers(log: &EtcdLog) -> Vec<u64> {
    read(log, 0).into_iter().map(|(seq, _)| seq).collect()
}

/// The keys beneath a prefix.
fn keys(log: &EtcdLog, prefix: &str) -> Vec<String> {
    let revision = read_head(&log.gateway, &log.keys).unwrap().at;
    let all = layout::KeyRange(format!("{prefix}/"), format!("{prefix}0"));
    log.gateway.range(&all, revision).unwrap().into_iter().map(|(key, _)| key).collect()
}

/// A record of so many bytes.
fn large(bytes: usize) -> Vec<u8> {
    vec![b'x'; bytes]
}

// Invariant: it does what every log does.

#[test]
fn a_log_in_etcd_does_what_a_log_must() {
    let Some(cluster) = Cluster::start(3) else { return };
    for (number, case) in contract::ALL.into_iter().enumerate() {
        case(&mut || Box::new(open(&cluster, &format!("contract/{number}"))));
    }
}

#[test]
fn what_lies_beside_it_does_what_vaults_and_registers_must() {
    let Some(cluster) = Cluster::start(3) else { return };
    for (number, case) in drover_vault::contract::VAULT.into_iter().enumerate() {
        let address = cluster.address(&format!("vault/{number}"));
        case(&mut || Box::new(EtcdStore::vault(&address).unwrap()));
    }
    for (number, case) in drover_vault::contract::REGISTER.into_iter().enumerate() {
        let address = cluster.address(&format!("entries/{number}"));
        case(&mut || Box::new(EtcdStore::register(&address).unwrap()));
    }
}

#[test]
fn a_list_longer_than_a_page_is_complete() {
    use drover_vault::Vault as _;
    let Some(cluster) = Cluster::start(1) else { return };
    let vault = EtcdStore::vault(&cluster.address("long")).unwrap();
    let names: Vec<String> = (0..1203).map(|number| format!("n{number:04}")).collect();
    for name in &names {
        vault.put(&format!("user-data/{name}"), b"x").unwrap();
    }
    assert_eq!(vault.list("user-data").unwrap(), names);
}

#[test]
fn prefixes_are_journals_of_their_own() {
    let Some(cluster) = Cluster::start(1) else { return };
    let (mut one, mut other) = (open(&cluster, "herd"), open(&cluster, "herd2"));
    one.append(0, &records(1..=2), true).unwrap();
    other.append(0, &records(1..=5), true).unwrap();
    assert_eq!((numbers(&one).len(), numbers(&other).len()), (2, 5));
}

#[test]
fn a_journal_of_many_small_writes_and_some_large_ones_is_read_whole() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut log = open(&cluster, "herd");
    let sizes = [vec![40; 70], vec![1_300_000; 3], vec![40; 70]].concat();
    for (seq, bytes) in (0..).zip(&sizes) {
        log.append(seq, &[large(*bytes)], true).unwrap();
    }
    let found: Vec<usize> = read(&log, 0).into_iter().map(|(_, record)| record.len()).collect();
    assert_eq!(found, sizes);
}

// Invariant: of two writers at most one goes on.

#[test]
fn the_writer_that_did_not_write_last_is_fenced_for_good() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut first = open(&cluster, "herd");
    first.append(0, &records(1..=2), true).unwrap();
    let mut second = open(&cluster, "herd");
    second.append(2, &records(3..=3), true).unwrap();
    for _ in 0..2 {
        let refused = first.append(2, &records(3..=4), true);
        assert!(matches!(refused, Err(LogError::Fenced { expected: 2, actual: 3 })));
    }
    second.append(3, &records(4..=4), true).unwrap();
    assert_eq!(numbers(&second), [1, 2, 3, 4]);
}

#[test]
fn a_writer_that_takes_over_without_a_record_fences_the_one_before_amid_a_large_write() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut first = open(&cluster, "herd");
    first.append(0, &records(1..=1), true).unwrap();
    // The first chunks of a large write are there, and its head is not.
    let chunks = layout::chunks(1, &[large(600_000), large(600_000)]).unwrap();
    let [behind, last] = <[Chunk; 2]>::try_from(chunks).unwrap();
    first.put_behind(behind).unwrap();
    assert_eq!(numbers(&first), [1], "what lies behind the head is no record");
    let mut second = open(&cluster, "herd");
    second.claim().unwrap();
    assert!(matches!(first.put_behind(last), Err(LogError::Fenced { .. })));
    let refused = first.append(1, &records(2..=2), true);
    assert!(matches!(refused, Err(LogError::Fenced { .. })));
    second.append(1, &records(2..=2), true).unwrap();
    assert_eq!(read(&second, 2), [(2, record(2))]);
    assert_eq!(keys(&second, "/herd").len(), 3, "a head and two chunks");
}

#[test]
fn a_switch_of_a_writer_that_is_fenced_changes_nothing() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut first = open(&cluster, "herd");
    first.append(0, &records(1..=3), true).unwrap();
    let mut successor = first.successor(3).unwrap();
    successor.put(b"snapshot").unwrap();
    successor.ready().unwrap();
    let mut second = open(&cluster, "herd");
    second.append(3, &records(4..=4), true).unwrap();
    assert!(matches!(first.succeed(3, &[]), Err(LogError::Fenced { .. })));
    assert_eq!((numbers(&second), second.snapshot().unwrap()), (vec![1, 2, 3, 4], None));
    assert!(!keys(&second, "/herd").iter().any(|key| key.contains("snapshots")));
}

#[test]
fn what_a_process_left_of_a_snapshot_goes_with_the_next_writer() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut first = open(&cluster, "herd");
    first.append(0, &records(1..=2), true).unwrap();
    for (at, is_left) in [(1, false), (2, true)] {
        let mut successor = first.successor(at).unwrap();
        successor.put(b"snapshot").unwrap();
        if is_left {
            // A process that dies deletes nothing.
            std::mem::forget(successor);
        } else {
            successor.ready().unwrap();
            first.succeed(2, &[]).unwrap();
        }
    }
    let pages =
        |log: &EtcdLog| keys(log, "/herd").iter().filter(|key| key.contains("/snapshots/")).count();
    assert_eq!(pages(&first), 2);
    let mut second = open(&cluster, "herd");
    second.append(2, &records(3..=3), true).unwrap();
    assert_eq!(pages(&second), 1);
    assert_eq!(second.snapshot().unwrap(), Some((1, b"snapshot".to_vec())));
}

// Invariant: a large write is there whole or not at all.

#[test]
fn a_write_beyond_a_request_of_etcd_is_one_write() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut log = open(&cluster, "herd");
    let batch: Vec<Vec<u8>> = (0..9).map(|number| large(300_000 + number)).collect();
    assert_eq!(log.append(0, &batch, true).unwrap(), 9);
    let found: Vec<_> = read(&log, 0).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(found, batch);
    // What is beyond etcd is refused, and nothing of it is there.
    let refused = log.append(9, &[record(10), large(1_500_000)], true).unwrap_err();
    assert!(causes::chain(&refused).contains("record 11 has 1500000 bytes"), "{refused:?}");
    assert_eq!(log.append(9, &records(10..=10), true).unwrap(), 10);
}

#[test]
fn a_journal_whose_small_records_are_followed_by_large_ones_is_read_whole() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut log = open(&cluster, "herd");
    // Pages of 4, 8 and so on to 128 keys hold the small ones, so 256 large ones are asked for at once.
    let small = (1..=252).map(record);
    let large = (0..150).map(|_| large(400_000));
    let mut last = 0;
    for one in small.chain(large) {
        last = log.append(last, &[one], true).unwrap();
    }
    assert_eq!((last, read(&log, 0).len()), (402, 402));
}

// Invariant: a write that was reported as failed is not part of the log.

#[test]
fn an_append_whose_answer_was_lost_is_undone_before_the_next_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    let door = Door::to(&cluster);
    let mut log = EtcdLog::open(&door.address("herd")).unwrap();
    log.append(0, &records(1..=1), true).unwrap();
    door.swallow_answers(true);
    let failed = log.append(1, &[large(10), large(20), large(30)], true).unwrap_err();
    assert!(causes::chain(&failed).contains("may have been written"), "{failed:?}");
    let other = open(&cluster, "herd");
    assert_eq!(numbers(&other), [1, 2, 3, 4], "it did happen");
    door.swallow_answers(false);
    log.append(1, &records(2..=2), true).unwrap();
    assert_eq!(read(&log, 0), [(1, record(1)), (2, record(2))]);
    assert_eq!(keys(&log, "/herd").len(), 3);
}

#[test]
fn a_switch_whose_answer_was_lost_stands() {
    let Some(cluster) = Cluster::start(1) else { return };
    let door = Door::to(&cluster);
    let mut log = EtcdLog::open(&door.address("herd")).unwrap();
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

// Invariant: the log goes on while most members do.

#[test]
fn one_member_of_three_may_die_and_with_two_nothing_is_written() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let mut log = open(&cluster, "herd");
    log.append(0, &records(1..=1), true).unwrap();
    let mut seq = 1;
    for member in 0..3 {
        cluster.kill(member);
        // An election may take longer than a call: the caller tries again, as the writer does.
        let appended = (0..20).any(|_| log.append(seq, &records(seq + 1..=seq + 1), true).is_ok());
        assert!(appended, "without member {member}");
        seq += 1;
        cluster.restart(member);
    }
    cluster.kill(0);
    cluster.kill(1);
    assert!(log.append(seq, &records(seq + 1..=seq + 1), true).is_err());
    cluster.restart(0);
    cluster.restart(1);
    assert!((0..20).any(|_| log.append(seq, &records(seq + 1..=seq + 1), true).is_ok()));
    assert_eq!(numbers(&log), (1..=seq + 1).collect::<Vec<_>>());
}

#[test]
fn a_journal_is_read_after_etcd_forgot_its_past() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut log = open(&cluster, "herd");
    log.append(0, &records(1..=3), true).unwrap();
    log.gateway.put("/elsewhere", b"later").unwrap();
    let now = read_head(&log.gateway, &log.keys).unwrap().at;
    log.gateway.administer("kv/compaction", serde_json::json!({ "revision": now.to_string() }));
    assert_eq!(numbers(&open(&cluster, "herd")), [1, 2, 3]);
    log.append(3, &records(4..=4), true).unwrap();
    assert_eq!(numbers(&log), [1, 2, 3, 4]);
}

// Invariant: what is no journal of this drover is refused and left alone.

#[test]
fn a_newer_format_and_what_is_no_head_are_refused() {
    let Some(cluster) = Cluster::start(1) else { return };
    let log = open(&cluster, "herd");
    assert!(matches!(EtcdLog::look(&cluster.address("herd")), Err(LogError::Io { .. })));
    log.gateway.put("/herd/head", br#"{"format":2,"new":true}"#).unwrap();
    let newer = EtcdLog::open(&cluster.address("herd"));
    assert!(matches!(newer, Err(LogError::Newer { found: 2, known: 1, .. })));
    log.gateway.put("/herd/head", b"somebody else's").unwrap();
    assert!(matches!(EtcdLog::open(&cluster.address("herd")), Err(LogError::Corrupt { .. })));
}

#[test]
fn a_chunk_that_is_missing_is_damage() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut log = open(&cluster, "herd");
    for seq in 0..4 {
        log.append(seq, &records(seq + 1..=seq + 1), true).unwrap();
    }
    for missing in [2, 4] {
        log.gateway.delete(&log.keys.records(missing, missing)).unwrap();
        assert!(matches!(log.read_from(1), Err(LogError::Corrupt { .. })), "{missing}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_named_without_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "hush").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&password, mode).unwrap();
    // Nobody listens on port 1.
    let text = format!("etcd://127.0.0.1:1/herd?user=a&passwordFile={}", password.display());
    let error = EtcdLog::open(&text.parse().unwrap()).err().unwrap();
    let text = causes::chain(&error);
    assert!(text.starts_with("the journal `etcd://127.0.0.1:1/herd` could not be read"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}

// Invariant: a login is made once, and again when it does not count any more.

#[test]
fn a_cluster_with_users_takes_the_right_password_alone() {
    let Some(cluster) = Cluster::start(1) else { return };
    cluster.require_login("root", "hush");
    let mut log = EtcdLog::open(&cluster.address_as("herd", "root", "hush")).unwrap();
    log.append(0, &records(1..=1), true).unwrap();
    *log.gateway.token_for_tests() = Some("old".to_owned());
    log.append(1, &records(2..=2), true).unwrap();
    assert_eq!(numbers(&log), [1, 2]);
    let wrong = EtcdLog::open(&cluster.address_as("herd", "root", "wrong")).err().unwrap();
    assert!(causes::chain(&wrong).contains("authentication failed"), "{wrong:?}");
    let none = EtcdLog::open(&cluster.address("herd")).err().unwrap();
    assert!(causes::chain(&none).contains("user name is empty"), "{none:?}");
}
