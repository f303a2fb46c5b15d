//! Which wants can be served by which capacity, at most and at once: bipartite matching of kinds
//! of demand with groups of places, by augmenting paths. Who was matched stays matched.

/// Kinds of demand on one side, groups of places on the other.
#[derive(Debug, Clone)]
pub struct Matching {
    /// For each kind, the groups that serve it, most wanted first.
    serves: Vec<Vec<usize>>,
    /// Places left in each group.
    free: Vec<u32>,
    /// Places of each group used by each kind.
    used: Vec<Vec<u32>>,
}

impl Matching {
    /// Kinds with their groups, and the groups' places.
    pub fn new(serves: Vec<Vec<usize>>, places: Vec<u32>) -> Self {
        let used = vec![vec![0; places.len()]; serves.len()];
        Self { serves, free: places, used }
    }

    /// Adds places to a group.
    pub fn widen(&mut self, group: usize, places: u32) {
        if let Some(free) = self.free.get_mut(group) {
            *free = free.saturating_add(places);
        }
    }

    /// Places one more use of a kind, moving others to other groups where that makes room.
    pub fn place(&mut self, kind: usize) -> bool {
        let mut visited = vec![false; self.serves.len()];
        self.augment(kind, &mut visited)
    }

    /// Places at most `count` uses of a kind and says how many could be.
    pub fn place_many(&mut self, kind: usize, count: u32) -> u32 {
        let mut placed = 0;
        for &group in &self.serves[kind].clone() {
            let bulk = self.free[group].min(count - placed);
            self.free[group] -= bulk;
            self.used[kind][group] += bulk;
            placed += bulk;
        }
        while placed < count && self.place(kind) {
            placed += 1;
        }
        placed
    }

    fn augment(&mut self, kind: usize, visited: &mut [bool]) -> bool {
        visited[kind] = true;
        let groups = self.serves[kind].clone();
        if let Some(&group) = groups.iter().find(|group| self.free[**group] > 0) {
            self.free[group] -= 1;
            self.used[kind][group] += 1;
            return true;
        }
        for group in groups {
            for other in 0..self.serves.len() {
                if !visited[other] && self.used[other][group] > 0 && self.augment(other, visited) {
                    self.used[other][group] -= 1;
                    self.used[kind][group] += 1;
                    return true;
                }
            }
        }
        false
    }

    /// Places of each group that a kind uses.
    pub fn used_by(&self, kind: usize) -> &[u32] {
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
        assert_eq!((matching.used_by(0), matching.used_by(1)), (&[0, 1][..], &[1, 0][..]));
        assert!(!matching.place(0) && !matching.place(1));
    }

    #[test]
    fn a_kind_takes_its_most_wanted_group_first() {
        let mut matching = Matching::new(vec![vec![1, 0]], vec![2, 2]);
        assert_eq!(matching.place_many(0, 3), 3);
        assert_eq!(matching.used_by(0), &[1, 2]);
    }

    proptest! {
        #[test]
        fn no_group_is_overfilled_and_nobody_matched_is_dropped(
            serves in prop::collection::vec(prop::collection::vec(0usize..4, 0..4), 1..5),
            places in prop::collection::vec(0u32..4, 4),
            asks in prop::collection::vec(0usize..5, 0..30),
        ) {
            let kinds = serves.len();
            let mut matching = Matching::new(serves, places.clone());
            let mut placed = vec![0u32; kinds];
            for kind in asks.into_iter().filter(|kind| *kind < kinds) {
                placed[kind] += u32::from(matching.place(kind));
            }
            for (kind, count) in placed.iter().enumerate() {
                prop_assert_eq!(matching.used_by(kind).iter().sum::<u32>(), *count);
            }
            for (group, free) in places.iter().enumerate() {
                let used: u32 = (0..kinds).map(|kind| matching.used_by(kind)[group]).sum();
                prop_assert!(used <= *free);
            }
        }
    }
}
