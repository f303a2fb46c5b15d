//! The words of members that were taken: each counts once.

use std::collections::BTreeSet;

use drover_model::time::WallTime;
use parking_lot::Mutex;

/// How far the clocks of two members may differ, with the time on the way.
pub(super) const AGE_MAX_MS: u64 = 60_000;
/// The words that are kept: more than members forward in that time.
const TAKEN_MAX: usize = 200_000;

/// The words that were taken, for as long as they could come again: when each was said, and its number.
#[derive(Debug, Default)]
pub(super) struct Taken(Mutex<BTreeSet<(i64, u64)>>);

impl Taken {
    /// Whether a word comes for the first time. Where more came than are kept, none counts for a while.
    pub(super) fn is_first(&self, word: (i64, u64), now: WallTime) -> bool {
        let mut taken = self.0.lock();
        let oldest = now.0.saturating_sub(i64::try_from(AGE_MAX_MS).unwrap_or(i64::MAX));
        *taken = taken.split_off(&(oldest, 0));
        taken.len() < TAKEN_MAX && taken.insert(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a word counts once, and is kept no longer than it could come again.

    #[test]
    fn a_word_comes_once_and_old_ones_are_forgotten() {
        let taken = Taken::default();
        assert!(taken.is_first((1000, 7), WallTime(1000)));
        assert!(!taken.is_first((1000, 7), WallTime(50_000)));
        assert!(taken.is_first((1000, 8), WallTime(50_000)));
        assert!(taken.is_first((90_000, 7), WallTime(90_000)));
        assert_eq!(taken.0.lock().len(), 1);
    }
}
