//! Bounded amounts that many share: bytes of bodies under way, streams that are open.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// An amount of which each holder may have a part.
pub(super) struct Shared<K: Ord + Clone> {
    all: usize,
    each: usize,
    held: Mutex<Held<K>>,
}

struct Held<K> {
    all: usize,
    of: BTreeMap<K, usize>,
}

/// The part of one holder in one thing; it is free again when this is dropped.
pub(super) struct Share<K: Ord + Clone> {
    of: Arc<Shared<K>>,
    holder: K,
    amount: usize,
}

/// There is not so much left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsedUp;

impl<K: Ord + Clone> Shared<K> {
    /// So much in all, and so much for each holder.
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        let held = Mutex::new(Held { all: 0, of: BTreeMap::new() });
        Arc::new(Self { all, each, held })
    }

    fn held(&self) -> MutexGuard<'_, Held<K>> {
        self.held.lock()
    }

    /// A share of nothing yet.
    pub(super) fn share(self: &Arc<Self>, holder: K) -> Share<K> {
        Share { of: Arc::clone(self), holder, amount: 0 }
    }
}

impl<K: Ord + Clone> Share<K> {
    /// Takes more, as far as its holder has not more than `each`.
    pub(super) fn take(&mut self, more: usize, each: usize) -> Result<(), UsedUp> {
        let mut held = self.of.held();
        let own = held.of.get(&self.holder).copied().unwrap_or(0);
        if held.all + more > self.of.all || own + more > self.of.each.min(each) {
            return Err(UsedUp);
        }
        held.all += more;
        held.of.insert(self.holder.clone(), own + more);
        self.amount += more;
        Ok(())
    }
}

impl<K: Ord + Clone> Drop for Share<K> {
    fn drop(&mut self) {
        let mut held = self.of.held();
        held.all -= self.amount;
        let own = held.of.get(&self.holder).copied().unwrap_or(0);
        if own > self.amount {
            held.of.insert(self.holder.clone(), own - self.amount);
        } else {
            held.of.remove(&self.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: no holder has more than its part, all together no more than there is, and what is
    // given back is there again.

    #[test]
    fn nobody_has_more_than_a_part_and_all_no_more_than_there_is() {
        let shared = Shared::new(10, 6);
        let (mut one, mut same) = (shared.share("a"), shared.share("a"));
        let mut other = shared.share("b");
        assert_eq!(one.take(4, 6), Ok(()));
        assert_eq!(same.take(3, 6), Err(UsedUp), "its holder has 4 of 6");
        assert_eq!(same.take(2, 5), Err(UsedUp), "less is allowed now");
        assert_eq!(same.take(2, 6), Ok(()));
        assert_eq!(other.take(5, 6), Err(UsedUp), "6 of 10 are taken");
        drop(one);
        assert_eq!(other.take(5, 6), Ok(()));
        drop((same, other));
        let held = shared.held();
        assert_eq!((held.all, held.of.len()), (0, 0));
    }
}
