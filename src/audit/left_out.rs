//! Which calls that changed nothing are recorded, so that nobody who may do nothing fills the files and
//! drives older records out of them.
//!
//! Refused calls change nothing, and neither do those of viewers, such as a plan or a login. A caller has
//! [`BURST`] of them that are recorded, and one more each second. All callers that
//! nobody knows count as one, and all their calls count, such as those that a full service does not take.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::entry::{Call, Entry};

/// Calls of a caller without a change that are recorded at once.
const BURST: i64 = 600;
/// Milliseconds after which one more is recorded.
const EACH_MS: i64 = 1000;
/// Callers that are counted apart; more of them count as nobody.
const CALLERS_MAX: usize = 256;

/// One caller's calls without a change.
#[derive(Default)]
struct Refused {
    /// When the next call would be recorded had the caller made them in an even flow, in milliseconds since
    /// 1970.
    even_ms: i64,
    /// How many were left out since the last that was recorded.
    left_out: u64,
}

/// The calls without a change of all callers.
#[derive(Default)]
pub(crate) struct LeftOut(BTreeMap<Option<String>, Refused>);

impl LeftOut {
    /// What is recorded of an entry: the entry, behind how many were left out before it; nothing where it is
    /// left out itself.
    pub(crate) fn sift(&mut self, entry: Entry, at: Timestamp) -> Vec<Entry> {
        let Entry::Call(call) = &entry else { return vec![entry] };
        if call.principal.is_some() && !call.is_refused() && !call.is_of_viewer() {
            return vec![entry];
        }
        let principal = self.counted_as(call);
        let now_ms = at.as_millisecond();
        let refused = self.0.entry(principal.clone()).or_default();
        // A clock that was ahead is set back: nobody waits until it is there again.
        let even_ms = refused.even_ms.clamp(now_ms - BURST * EACH_MS, now_ms) + EACH_MS;
        if even_ms > now_ms {
            refused.left_out += 1;
            return Vec::new();
        }
        refused.even_ms = even_ms;
        let calls = std::mem::take(&mut refused.left_out);
        let before = (calls > 0).then_some(Entry::LeftOut { principal, calls });
        before.into_iter().chain([entry]).collect()
    }

    fn counted_as(&self, call: &Call) -> Option<String> {
        let principal = call.principal.clone();
        let has_room = self.0.len() < CALLERS_MAX || self.0.contains_key(&principal);
        principal.filter(|_| has_room)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn call(principal: Option<&str>, status: u16) -> Entry {
        let principal = principal.map(str::to_owned);
        Entry::Call(Call { principal, status: Some(status), ..Call::default() })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_795_000_000 + second).unwrap()
    }

    // Invariant: a caller who is refused writes a bounded number of records, and each that is left out is
    // counted in one.

    #[test]
    fn refused_calls_are_recorded_up_to_a_burst_and_then_one_a_second() {
        let mut left_out = LeftOut::default();
        let mut recorded = |seconds: i64| left_out.sift(call(None, 401), at(seconds));
        let first = (0..1000).map(|_| recorded(0)).filter(|entries| !entries.is_empty()).count();
        assert_eq!(first, 600);
        assert_eq!(recorded(0), []);
        let after = recorded(1);
        assert_eq!(after, [Entry::LeftOut { principal: None, calls: 401 }, call(None, 401)]);
        assert_eq!(recorded(1), []);
        let later = (0..1000).map(|_| recorded(10_000)).filter(|all| !all.is_empty()).count();
        assert_eq!(later, 600, "after a rest the burst is there again");
    }

    #[test]
    fn calls_of_viewers_have_the_bound_of_refused_calls_and_those_of_others_have_none() {
        let of = |role: &str| {
            let role = Some(role.to_owned());
            let Entry::Call(call) = call(Some("token:a"), 200) else { panic!("it is a call") };
            Entry::Call(Call { role, ..call })
        };
        for (role, recorded) in [("viewer", 600), ("operator", 1000), ("admin", 1000)] {
            let mut left_out = LeftOut::default();
            let all = (0..1000).filter(|_| !left_out.sift(of(role), at(0)).is_empty());
            assert_eq!(all.count(), recorded, "{role}");
        }
    }

    #[test]
    fn one_callers_refused_calls_take_no_room_from_others_or_from_what_is_done() {
        let mut left_out = LeftOut::default();
        for _ in 0..1000 {
            left_out.sift(call(Some("token:a"), 403), at(0));
        }
        assert_eq!(left_out.sift(call(Some("token:a"), 403), at(0)), []);
        for entry in [call(Some("token:b"), 403), call(None, 401), call(Some("token:a"), 200)] {
            assert_eq!(left_out.sift(entry.clone(), at(0)), [entry]);
        }
        for _ in 0..1000 {
            left_out.sift(call(None, 503), at(0));
        }
        assert_eq!(left_out.sift(call(None, 503), at(0)), [], "nobody fills the log");
        let failed = call(Some("token:a"), 503);
        assert_eq!(left_out.sift(failed.clone(), at(0)), [failed], "it may have been done");
    }

    #[test]
    fn callers_without_end_take_no_memory_without_end() {
        let mut left_out = LeftOut::default();
        for number in 0..10_000 {
            left_out.sift(call(Some(&format!("uid:{number}")), 403), at(0));
        }
        assert_eq!(left_out.0.len(), CALLERS_MAX + 1);
    }
}
