//! Which wants can be served by which capacity, at most and at once: bipartite matching of kinds
//! of demand with groups of places, by augmenting paths. Who was matched stays matched.
//!
//! A search that finds no way marks all kinds it passed as full: no later one passes them before
//! places are added, so that all searches without a result cost what one does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::effort;

/// Kinds of demand on one side, groups of places on the other.
#[derive(Debug, Clone)]
pub struct Matching {
    /// For each kind, the groups that serve it, most wanted first.
    serves: Vec<Vec<usize>>,
    /// For each group, the kinds it serves, and its place in their order.
    served: Vec<Vec<(usize, usize)>>,
    /// Places left in each group.
    free: Vec<u32>,
    /// Places of groups used by each kind.
    used: Vec<BTreeMap<usize, u32>>,
    /// Kinds that use places of each group.
    users: Vec<BTreeSet<usize>>,
    /// For each kind, how many of its groups, from the first, have no place left.
    passed: Vec<usize>,
    /// Kinds of which no more can be placed, whatever is moved.
    full: Vec<bool>,
}

/// How a search reached a kind: by one that wants a group which this kind uses.
type Way = BTreeMap<usize, (usize, usize)>;

impl Matching {
    /// Kinds with their groups, and the groups' places.
    pub fn new(serves: Vec<Vec<usize>>, places: Vec<u32>) -> Self {
        let mut served = vec![Vec::new(); places.len()];
        for (kind, groups) in serves.iter().enumerate() {
            effort::spend(groups.len());
            groups.iter().enumerate().for_each(|(at, group)| served[*group].push((kind, at)));
        }
        Self {
            used: vec![BTreeMap::new(); serves.len()],
            users: vec![BTreeSet::new(); places.len()],
            passed: vec![0; serves.len()],
            full: vec![false; serves.len()],
            serves,
            served,
            free: places,
        }
    }

    /// Adds a group of places for one use of a kind that no place was found for; what is left of
    /// it others may have.
    pub fn widen(&mut self, kind: usize, group: usize, places: u32) {
        let Some(left) = places.checked_sub(1) else { return };
        self.take(kind, group);
        self.add(group, left);
    }

    fn add(&mut self, group: usize, places: u32) {
        if places == 0 {
            return;
        }
        self.free[group] = self.free[group].saturating_add(places);
        for (kind, at) in &self.served[group] {
            self.passed[*kind] = self.passed[*kind].min(*at);
        }
        // A use that can be placed there now, at once or by moving others, is not full any more.
        let mut groups = vec![group];
        while let Some(group) = groups.pop() {
            for (kind, _) in &self.served[group] {
                effort::spend(1);
                if std::mem::take(&mut self.full[*kind]) {
                    groups.extend(self.used[*kind].keys());
                }
            }
        }
    }

    /// Takes places away from a group if all uses still find one; says whether it did.
    pub fn shrink(&mut self, group: usize, places: u32) -> bool {
        let mut taken = 0;
        while taken < places {
            if self.free[group] > 0 {
                self.free[group] -= 1;
            } else if let Some(kind) = self.users[group].first().copied() {
                self.leave(kind, group);
                if !self.place(kind) {
                    self.take(kind, group);
                    self.add(group, taken);
                    return false;
                }
            } else {
                break;
            }
            taken += 1;
        }
        true
    }

    /// Places one more use of a kind, moving others to other groups where that makes room.
    pub fn place(&mut self, kind: usize) -> bool {
        effort::spend(1);
        if self.full[kind] {
            return false;
        }
        let mut ways = Way::new();
        let mut met = vec![kind];
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let mut next = VecDeque::from([kind]);
        while let Some(one) = next.pop_front() {
            if let Some(group) = self.first_free(one) {
                self.free[group] -= 1;
                self.move_along(&ways, kind, one, group);
                return true;
            }
            for &group in &self.serves[one] {
                effort::spend(1);
                if !reached.insert(group) {
                    continue;
                }
                for &other in &self.users[group] {
                    if other != kind && !self.full[other] && !ways.contains_key(&other) {
                        ways.insert(other, (one, group));
                        met.push(other);
                        next.push_back(other);
                    }
                }
            }
        }
        met.into_iter().for_each(|kind| self.full[kind] = true);
        false
    }

    /// The first of a kind's groups that has a place left.
    fn first_free(&mut self, kind: usize) -> Option<usize> {
        let groups = &self.serves[kind];
        let at = &mut self.passed[kind];
        while *at < groups.len() {
            effort::spend(1);
            if self.free[groups[*at]] > 0 {
                return Some(groups[*at]);
            }
            *at += 1;
        }
        None
    }

    /// The last kind of a way takes a free place, and each before it that of the one behind.
    fn move_along(&mut self, ways: &Way, first: usize, last: usize, free: usize) {
        let (mut kind, mut group) = (last, free);
        loop {
            self.take(kind, group);
            if kind == first {
                return;
            }
            let Some((before, left)) = ways.get(&kind).copied() else { return };
            self.leave(kind, left);
            (kind, group) = (before, left);
        }
    }

    fn take(&mut self, kind: usize, group: usize) {
        *self.used[kind].entry(group).or_default() += 1;
        self.users[group].insert(kind);
    }

    fn leave(&mut self, kind: usize, group: usize) {
        let Some(count) = self.used[kind].get_mut(&group) else { return };
        *count -= 1;
        if *count == 0 {
            self.used[kind].remove(&group);
            self.users[group].remove(&kind);
        }
    }

    /// Places at most `count` uses of a kind and says how many could be.
    pub fn place_many(&mut self, kind: usize, count: u32) -> u32 {
        let mut placed = 0;
        while placed < count
            && let Some(group) = self.first_free(kind)
        {
            let bulk = self.free[group].min(count - placed);
            self.free[group] -= bulk;
            *self.used[kind].entry(group).or_default() += bulk;
            self.users[group].insert(kind);
            placed += bulk;
        }
        while placed < count && self.place(kind) {
            placed += 1;
        }
        placed
    }

    /// Places of groups that a kind uses.
    pub fn used_by(&self, kind: usize) -> &BTreeMap<usize, u32> {
        &self.used[kind]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Invariant: as many are served as can be, whatever the order of asking.

    #[test]
    fn a_choosy_kind_gets_its_group_although_an_easy_one_came_first() {
        let mut matching = Matching::new(vec![vec![0, 1], vec![0]], vec![1, 1]);
        assert!(matching.place(0) && matching.place(1));
        assert_eq!(matching.used_by(0), &BTreeMap::from([(1, 1)]));
        assert_eq!(matching.used_by(1), &BTreeMap::from([(0, 1)]));
        assert!(!matching.place(0) && !matching.place(1));
    }

    #[test]
    fn a_kind_takes_its_most_wanted_group_first() {
        let mut matching = Matching::new(vec![vec![1, 0]], vec![2, 2]);
        assert_eq!(matching.place_many(0, 3), 3);
        assert_eq!(matching.used_by(0), &BTreeMap::from([(0, 1), (1, 2)]));
    }

    // Invariant: what it costs grows as kinds and groups do, whether places are found or not.

    #[test]
    fn ten_times_the_kinds_cost_ten_times_the_looks() {
        let cost = |kinds: usize| {
            let groups = kinds / 4;
            let serves = (0..kinds).map(|kind| vec![kind % groups, (kind + 1) % groups]).collect();
            effort::of(|| {
                let mut matching = Matching::new(serves, vec![1; groups]);
                let placed = (0..kinds).filter(|kind| matching.place(*kind)).count();
                assert_eq!(placed, groups);
            })
        };
        let (few, many) = (cost(100), cost(1000));
        assert!(many <= 12 * few, "{few} looks for 100 kinds, {many} for 1,000");
    }

    /// How many uses can be placed at most: tries all, a kind's uses one by one.
    fn most(serves: &[Vec<usize>], free: &mut [u32], asks: &[usize]) -> u32 {
        let Some((kind, rest)) = asks.split_first() else { return 0 };
        let mut best = most(serves, free, rest);
        for &group in &serves[*kind] {
            if free[group] > 0 {
                free[group] -= 1;
                best = best.max(1 + most(serves, free, rest));
                free[group] += 1;
            }
        }
        best
    }

    fn holds(matching: &Matching, places: &[u32]) -> bool {
        places.iter().enumerate().all(|(group, places)| {
            let used = matching.used.iter().filter_map(|used| used.get(&group)).sum::<u32>();
            used + matching.free[group] == *places
        })
    }

    fn serving() -> impl Strategy<Value = Vec<Vec<usize>>> {
        let groups = prop::collection::btree_set(0usize..4, 0..4);
        let groups = groups.prop_map(|groups| groups.into_iter().collect::<Vec<_>>());
        prop::collection::vec(groups.prop_shuffle(), 1..5)
    }

    proptest! {
        #[test]
        fn as_many_are_placed_as_can_be_and_nobody_matched_is_dropped(
            serves in serving(),
            places in prop::collection::vec(0u32..3, 4),
            asks in prop::collection::vec(0usize..5, 0..7),
            more in prop::collection::vec((0usize..4, 1u32..3), 0..3),
            less in prop::collection::vec((0usize..4, 1u32..3), 0..3),
        ) {
            let mut places = places;
            let kinds = serves.len();
            let asks: Vec<usize> = asks.into_iter().filter(|kind| *kind < kinds).collect();
            let mut matching = Matching::new(serves.clone(), places.clone());
            let mut placed = vec![0u32; kinds];
            let mut left = Vec::new();
            for kind in &asks {
                let done = matching.place(*kind);
                placed[*kind] += u32::from(done);
                left.extend((!done).then_some(*kind));
            }
            for (group, count) in more {
                matching.add(group, count);
                places[group] += count;
                left.retain(|kind| {
                    let done = matching.place(*kind);
                    placed[*kind] += u32::from(done);
                    !done
                });
            }
            let all: u32 = placed.iter().sum();
            prop_assert_eq!(all, most(&serves, &mut places.clone(), &asks));
            prop_assert!(holds(&matching, &places));
            let done: Vec<usize> = (0..kinds)
                .flat_map(|kind| std::iter::repeat_n(kind, placed[kind] as usize))
                .collect();
            for (group, count) in less {
                let count = count.min(places[group]);
                let mut fewer = places.clone();
                fewer[group] -= count;
                let can = most(&serves, &mut fewer.clone(), &done) == all;
                prop_assert_eq!(matching.shrink(group, count), can);
                places = if can { fewer } else { places };
                prop_assert!(holds(&matching, &places));
            }
            for (kind, count) in placed.iter().enumerate() {
                prop_assert_eq!(matching.used_by(kind).values().sum::<u32>(), *count);
            }
        }
    }
}
