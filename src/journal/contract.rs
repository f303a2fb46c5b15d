//! For tests: what every back end of [`Log`] must do, asked through its own port.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::{Log, LogError};

/// Opens the log once more; what was opened before is closed.
pub type Open<'a> = &'a mut dyn FnMut() -> Box<dyn Log>;

/// All of it.
pub const ALL: [fn(Open<'_>); 5] = [
    what_is_appended_is_read_in_order,
    an_append_at_another_end_is_fenced,
    a_successor_takes_the_place_of_its_log,
    an_empty_log_is_filled,
    an_empty_log_is_filled_with_records_alone,
];

/// A record of a number.
pub fn record(number: u64) -> Vec<u8> {
    format!("{{\"record\":{number}}}").into_bytes()
}

/// Records of numbers.
pub fn records(numbers: std::ops::RangeInclusive<u64>) -> Vec<Vec<u8>> {
    numbers.map(record).collect()
}

/// What is read from a log.
pub fn read(log: &(impl Log + ?Sized), from: u64) -> Vec<(u64, Vec<u8>)> {
    log.read_from(from).unwrap()
}

fn numbered(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, Vec<u8>)> {
    numbers.map(|number| (number, record(number))).collect()
}

/// Records are numbered from 1, and there after the log is opened again.
pub fn what_is_appended_is_read_in_order(open: Open<'_>) {
    let mut log = open();
    assert_eq!((log.snapshot().unwrap(), read(&*log, 0)), (None, Vec::new()));
    assert_eq!(log.append(0, &records(1..=3), true).unwrap(), 3);
    assert_eq!(log.append(3, &records(4..=4), true).unwrap(), 4);
    assert_eq!(log.append(4, &[], true).unwrap(), 4);
    drop(log);
    let mut log = open();
    assert_eq!((read(&*log, 0), read(&*log, 3)), (numbered(1..=4), numbered(3..=4)));
    assert_eq!((read(&*log, 5), read(&*log, 4)), (Vec::new(), numbered(4..=4)));
    assert_eq!(log.last().unwrap(), 4);
    assert_eq!(log.append(4, &records(5..=6), true).unwrap(), 6);
    assert_eq!(read(&*log, 2), numbered(2..=6));
}

/// An append that expects another end changes nothing.
pub fn an_append_at_another_end_is_fenced(open: Open<'_>) {
    let mut log = open();
    log.append(0, &records(1..=2), true).unwrap();
    for expected in [0, 1, 3] {
        let refused = log.append(expected, &records(9..=9), true);
        assert!(matches!(refused, Err(LogError::Fenced { actual: 2, .. })), "{expected}");
    }
    assert_eq!(read(&*log, 0), numbered(1..=2));
}

/// A successor takes the log's place in one step, with what was appended meanwhile.
pub fn a_successor_takes_the_place_of_its_log(open: Open<'_>) {
    let mut log = open();
    log.append(0, &records(1..=5), true).unwrap();
    for (at, last) in [(4, 7), (7, 9)] {
        let mut successor = log.successor(at).unwrap();
        successor.put(b"snapshot ").unwrap();
        successor.put(format!("of {at}").as_bytes()).unwrap();
        let before = last - 2;
        successor.append(&records(at + 1..=before)).unwrap();
        log.append(before, &records(before + 1..=last), true).unwrap();
        successor.ready().unwrap();
        log.succeed(last, &records(before + 1..=last)).unwrap();
        let snapshot = Some((at, format!("snapshot of {at}").into_bytes()));
        assert_eq!(log.snapshot().unwrap(), snapshot);
        assert_eq!(read(&*log, at + 1), numbered(at + 1..=last));
        drop(log);
        log = open();
        assert_eq!(log.last().unwrap(), last, "opened again");
        assert_eq!(log.snapshot().unwrap(), snapshot, "opened again");
        assert_eq!(read(&*log, at + 1), numbered(at + 1..=last), "opened again");
    }
    // One that is never finished leaves the log as it is.
    let mut successor = log.successor(9).unwrap();
    successor.put(b"never").unwrap();
    drop(successor);
    log.append(9, &records(10..=10), true).unwrap();
    assert_eq!(log.snapshot().unwrap(), Some((7, b"snapshot of 7".to_vec())));
    assert!(log.succeed(10, &[]).is_err());
    assert_eq!(read(&*log, 8), numbered(8..=10));
}

/// An empty log takes what another one held.
pub fn an_empty_log_is_filled(open: Open<'_>) {
    let snapshot = vec![7; 700_000];
    let mut log = open();
    log.restore(Some((4, &snapshot)), &records(5..=9)).unwrap();
    drop(log);
    let mut log = open();
    assert_eq!(log.snapshot().unwrap(), Some((4, snapshot)));
    assert_eq!(read(&*log, 5), numbered(5..=9));
    assert_eq!(log.append(9, &records(10..=10), true).unwrap(), 10);
}

/// The same without a snapshot.
pub fn an_empty_log_is_filled_with_records_alone(open: Open<'_>) {
    let mut log = open();
    log.restore(None, &records(1..=3)).unwrap();
    drop(log);
    let log = open();
    assert_eq!((log.snapshot().unwrap(), read(&*log, 1)), (None, numbered(1..=3)));
}
