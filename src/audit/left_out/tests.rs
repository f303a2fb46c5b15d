#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

/// A call of somebody with this role.
fn of(principal: Option<&str>, role: Option<&str>, status: u16) -> Entry {
    let [principal, role] = [principal, role].map(|text| text.map(str::to_owned));
    Entry::Call(Call { principal, role, status: Some(status), ..Call::default() })
}

/// A call of nobody, or of an operator.
fn call(principal: Option<&str>, status: u16) -> Entry {
    of(principal, principal.map(|_| "operator"), status)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + second).unwrap()
}

fn counted(principal: Option<&str>, calls: u64) -> Entry {
    Entry::LeftOut { principal: principal.map(str::to_owned), calls }
}

/// How many of 1000 calls are recorded.
fn recorded_of_1000(left_out: &mut LeftOut, entry: &Entry, second: i64) -> usize {
    (0..1000).filter(|_| left_out.sift(entry, at(second)).is_recorded).count()
}

// Invariant: a caller who is refused writes a bounded number of records, and each that is left out is
// counted in one.

#[test]
fn refused_calls_are_recorded_up_to_a_burst_and_then_one_a_second() {
    let mut left_out = LeftOut::default();
    let refused = call(None, 401);
    assert_eq!(recorded_of_1000(&mut left_out, &refused, 0), 600);
    let mut sift = |second| left_out.sift(&refused, at(second));
    assert_eq!(sift(0), Sifted { counts: Vec::new(), is_recorded: false });
    assert_eq!(sift(1), Sifted { counts: vec![counted(None, 401)], is_recorded: true });
    assert_eq!(sift(1), Sifted { counts: Vec::new(), is_recorded: false });
    let later = recorded_of_1000(&mut left_out, &refused, 10_000);
    assert_eq!(later, 600, "after a rest the burst is there again");
}

#[test]
fn calls_of_viewers_webhooks_and_guests_have_the_bound_of_refused_calls_and_those_of_others_have_none()
 {
    for (principal, role, recorded) in [
        ("token:a", Some("viewer"), 600),
        ("source:git", None, 600),
        ("agent:a1", None, 600),
        ("token:a", Some("operator"), 1000),
        ("token:a", Some("admin"), 1000),
    ] {
        let entry = of(Some(principal), role, 202);
        let all = recorded_of_1000(&mut LeftOut::default(), &entry, 0);
        assert_eq!(all, recorded, "{principal} {role:?}");
    }
}

#[test]
fn one_callers_refused_calls_take_no_room_from_others_or_from_what_is_done() {
    let mut left_out = LeftOut::default();
    recorded_of_1000(&mut left_out, &call(Some("token:a"), 403), 0);
    let mut is_recorded = |entry: &Entry| left_out.sift(entry, at(0)).is_recorded;
    assert!(!is_recorded(&call(Some("token:a"), 403)));
    for entry in [call(Some("token:b"), 403), call(None, 401), call(Some("token:a"), 200)] {
        assert!(is_recorded(&entry), "{entry:?}");
    }
    recorded_of_1000(&mut left_out, &call(None, 503), 0);
    let mut is_recorded = |entry: &Entry| left_out.sift(entry, at(0)).is_recorded;
    assert!(!is_recorded(&call(None, 503)), "nobody fills the log");
    assert!(is_recorded(&call(Some("token:a"), 503)), "it may have been done");
}

#[test]
fn what_was_left_out_is_counted_at_a_stop_and_when_a_flood_ended() {
    let mut left_out = LeftOut::default();
    recorded_of_1000(&mut left_out, &call(None, 401), 0);
    recorded_of_1000(&mut left_out, &call(Some("token:a"), 403), 0);
    assert_eq!(
        left_out.sift(&Entry::Stopped, at(1)).counts,
        [counted(None, 400), counted(Some("token:a"), 400)]
    );
    recorded_of_1000(&mut left_out, &call(None, 401), 1);
    let other = call(Some("token:b"), 200);
    assert_eq!(left_out.sift(&other, at(600)).counts, []);
    assert_eq!(left_out.sift(&other, at(602)).counts, [counted(None, 999)]);
    assert_eq!(left_out.sift(&Entry::Stopped, at(602)).counts, []);
}

#[test]
fn a_count_that_could_not_be_written_is_in_the_next() {
    let mut left_out = LeftOut::default();
    recorded_of_1000(&mut left_out, &call(None, 401), 0);
    let Sifted { counts, .. } = left_out.sift(&call(None, 401), at(1));
    left_out.give_back(counts);
    assert_eq!(left_out.sift(&call(None, 401), at(2)).counts, [counted(None, 400)]);
}

#[test]
fn callers_without_end_take_no_memory_without_end_and_no_room_from_those_who_come_later() {
    let mut left_out = LeftOut::default();
    for number in 0..10_000 {
        left_out.sift(&call(Some(&format!("uid:{number}")), 403), at(0));
    }
    assert_eq!(left_out.0.len(), CALLERS_MAX + 1);
    let (anonymous, other) = (call(None, 401), call(Some("token:new"), 403));
    recorded_of_1000(&mut left_out, &anonymous, 10);
    assert!(left_out.sift(&other, at(10)).is_recorded);
    recorded_of_1000(&mut left_out, &anonymous, 10);
    assert!(left_out.sift(&other, at(10)).is_recorded, "it is counted apart from nobody");
}
