//! VMIDs of one cluster: the lowest free one of drover's range. What is free here is only a
//! proposal; the cluster is asked before it is granted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::VmId;
use crate::time::WallTime;

/// How long an id rests after use.
pub const REST: Duration = Duration::from_secs(60 * 60);

/// Ids in use, resting and burned.
#[derive(Debug, Clone, Default)]
pub struct Allocator {
    held: BTreeSet<VmId>,
    seen: BTreeSet<VmId>,
    resting: BTreeMap<VmId, WallTime>,
    burned: BTreeSet<VmId>,
    /// The burned id that was looked at last.
    inspected: Option<VmId>,
}

impl Allocator {
    /// What the journal knows: ids of living agents, resting ids with the time of their freeing,
    /// burned ids.
    pub fn restore(
        held: impl IntoIterator<Item = VmId>,
        resting: BTreeMap<VmId, WallTime>,
        burned: impl IntoIterator<Item = VmId>,
    ) -> Self {
        Self {
            held: held.into_iter().collect(),
            seen: BTreeSet::new(),
            resting,
            burned: burned.into_iter().collect(),
            inspected: None,
        }
    }

    /// Notes an id as an agent's.
    pub fn hold(&mut self, vmid: VmId) {
        self.held.insert(vmid);
    }

    /// A list of all guests was read.
    pub fn surveyed(&mut self, seen: impl IntoIterator<Item = VmId>) {
        self.seen = seen.into_iter().collect();
    }

    /// The cluster says that an id is taken, by a guest that no list showed.
    pub fn taken(&mut self, vmid: VmId) {
        self.held.remove(&vmid);
        self.seen.insert(vmid);
    }

    /// Takes the lowest free id at or above the floor and below the ceiling.
    pub fn propose(&mut self, floor: VmId, ceiling: VmId, now: WallTime) -> Option<VmId> {
        self.resting.retain(|_, since| now - *since < REST);
        let free = |vmid: &VmId| {
            !self.held.contains(vmid)
                && !self.seen.contains(vmid)
                && !self.resting.contains_key(vmid)
                && !self.burned.contains(vmid)
        };
        let vmid = (floor.0..ceiling.0).map(VmId).find(free)?;
        self.held.insert(vmid);
        Some(vmid)
    }

    /// A proposed id was not used after all.
    pub fn withdraw(&mut self, vmid: VmId) {
        self.held.remove(&vmid);
    }

    /// A burned id that no guest carries any more, one after the other: its volumes may be
    /// listed.
    pub fn inspect(&mut self) -> Option<VmId> {
        let clear = |vmid: &&VmId| !self.seen.contains(vmid) && !self.held.contains(vmid);
        let after = self.inspected.map_or(VmId(0), |last| VmId(last.0.saturating_add(1)));
        let mut turn = self.burned.range(after..).chain(self.burned.range(..after));
        self.inspected = turn.find(clear).copied();
        self.inspected
    }

    /// A burned id's volumes were listed empty.
    pub fn clear(&mut self, vmid: VmId) {
        self.burned.remove(&vmid);
    }

    /// An agent gives its id back: it rests, or is burned.
    pub fn give_back(&mut self, vmid: VmId, burned: bool, now: WallTime) {
        self.held.remove(&vmid);
        if burned {
            self.burned.insert(vmid);
        } else {
            self.resting.insert(vmid, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOOR: VmId = VmId(100);
    const CEILING: VmId = VmId(104);

    fn hours(n: i64) -> WallTime {
        WallTime(1_000_000_000_000 + n * 60 * 60 * 1000)
    }

    // Invariant: the lowest id that nobody has, that does not rest and is not burned.

    #[test]
    fn ids_are_handed_out_from_the_floor_until_none_is_left() {
        let mut ids = Allocator::default();
        ids.surveyed([VmId(101)]);
        let got: Vec<Option<VmId>> =
            (0..4).map(|_| ids.propose(FLOOR, CEILING, hours(0))).collect();
        assert_eq!(got, [Some(VmId(100)), Some(VmId(102)), Some(VmId(103)), None]);
    }

    #[test]
    fn an_id_rests_for_an_hour_after_use() {
        let mut ids = Allocator::default();
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(100)));
        ids.give_back(VmId(100), false, hours(0));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(101)));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(1)), Some(VmId(100)));
    }

    #[test]
    fn a_burned_id_stays_burned() {
        let mut ids = Allocator::restore([], BTreeMap::new(), [VmId(100)]);
        ids.give_back(VmId(101), true, hours(0));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(50)), Some(VmId(102)));
    }

    #[test]
    fn burned_ids_without_a_guest_are_inspected_in_turn_until_they_are_clear() {
        let mut ids = Allocator::restore([], BTreeMap::new(), [100, 101, 103].map(VmId));
        ids.surveyed([VmId(101)]);
        let turn: Vec<Option<VmId>> = (0..3).map(|_| ids.inspect()).collect();
        assert_eq!(turn, [Some(VmId(100)), Some(VmId(103)), Some(VmId(100))]);
        ids.clear(VmId(100));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(100)));
    }

    #[test]
    fn what_the_journal_holds_is_not_handed_out_before_the_first_list() {
        let resting = BTreeMap::from([(VmId(101), hours(0))]);
        let mut ids = Allocator::restore([VmId(100)], resting, []);
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(102)));
    }

    #[test]
    fn an_id_that_a_stranger_has_is_passed_over() {
        let mut ids = Allocator::default();
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(100)));
        ids.taken(VmId(100));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(101)));
    }

    proptest! {
        #[test]
        fn no_id_is_ever_held_twice(
            steps in prop::collection::vec((0u8..4, 0usize..4, any::<bool>()), 1..100)
        ) {
            let mut ids = Allocator::default();
            let mut held: Vec<VmId> = Vec::new();
            for (hour, (what, pick, burned)) in steps.into_iter().enumerate() {
                let now = hours(i64::try_from(hour).unwrap_or(0) / 4);
                match what {
                    0 | 1 => {
                        if let Some(vmid) = ids.propose(FLOOR, CEILING, now) {
                            prop_assert!(!held.contains(&vmid));
                            held.push(vmid);
                        }
                    }
                    2 if pick < held.len() => ids.give_back(held.remove(pick), burned, now),
                    _ => ids.surveyed([VmId(100)]),
                }
            }
        }
    }
}
