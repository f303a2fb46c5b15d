//! Which calls that changed nothing are recorded, so that nobody who may do nothing fills the files and
//! drives older records out of them.
//!
//! Refused calls change nothing, and neither do those of viewers, such as a plan or a login. Webhooks and guests
//! have no role: they only hurry drover to what it does by itself. A caller has [`BURST`] of all these that are
//! recorded, and one more each second. All callers that nobody knows count as one, and all their calls count,
//! such as those that a full service does not take.
//!
//! Each call that is left out is counted in one record: before the next of its caller that is recorded, once
//! the caller was quiet for so long that it has its burst again, or before the service stops.

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

impl Refused {
    /// The record of those that were left out, where some were; after that none are.
    fn count(&mut self, principal: Option<&str>) -> Option<Entry> {
        let calls = std::mem::take(&mut self.left_out);
        (calls > 0).then(|| Entry::LeftOut { principal: principal.map(str::to_owned), calls })
    }
}

/// What is recorded of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sifted {
    /// How many were left out before it, such as in [`Entry::LeftOut`].
    pub(crate) counts: Vec<Entry>,
    /// Whether the entry is recorded, behind these.
    pub(crate) is_recorded: bool,
}

/// The calls without a change of all callers.
#[derive(Default)]
pub(crate) struct LeftOut(BTreeMap<Option<String>, Refused>);

impl LeftOut {
    pub(crate) fn sift(&mut self, entry: &Entry, at: Timestamp) -> Sifted {
        let now_ms = at.as_millisecond();
        let mut counts = self.rested(now_ms);
        if *entry == Entry::Stopped {
            counts.extend(self.0.iter_mut().filter_map(|(who, one)| one.count(who.as_deref())));
        }
        let Entry::Call(call) = entry else { return Sifted { counts, is_recorded: true } };
        if !call.changes_nothing() {
            return Sifted { counts, is_recorded: true };
        }
        let principal = self.counted_as(call);
        let refused = self.0.entry(principal.clone()).or_default();
        // A clock that was ahead is set back: nobody waits until it is there again.
        let even_ms = refused.even_ms.clamp(now_ms - BURST * EACH_MS, now_ms) + EACH_MS;
        if even_ms > now_ms {
            refused.left_out += 1;
            return Sifted { counts, is_recorded: false };
        }
        refused.even_ms = even_ms;
        counts.extend(refused.count(principal.as_deref()));
        Sifted { counts, is_recorded: true }
    }

    /// Counts again what these records have, which could not be written.
    pub(crate) fn give_back(&mut self, counts: Vec<Entry>) {
        for entry in counts {
            if let Entry::LeftOut { principal, calls } = entry {
                self.0.entry(principal).or_default().left_out += calls;
            }
        }
    }

    /// Forgets callers who have their whole burst again, as those who never called have it.
    fn rested(&mut self, now_ms: i64) -> Vec<Entry> {
        let is_rested = |one: &Refused| one.even_ms <= now_ms - BURST * EACH_MS;
        let rested = self.0.extract_if(.., |_, one| is_rested(one));
        rested.filter_map(|(who, mut one)| one.count(who.as_deref())).collect()
    }

    fn counted_as(&self, call: &Call) -> Option<String> {
        let principal = call.principal.clone();
        let has_room = self.0.len() < CALLERS_MAX || self.0.contains_key(&principal);
        principal.filter(|_| has_room)
    }
}

#[cfg(test)]
mod tests;
