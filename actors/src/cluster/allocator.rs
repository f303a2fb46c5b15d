//! VMIDs of one cluster: the lowest free one of drover's range.
//!
//! ```text
//! free ── proposed ──▶ held ── given back ──▶ resting ── an hour ──▶ free
//!                       │ └── withdrawn ─────────────────────────────▶ free
//!                       └──── its volumes remain ──▶ burned ── cleared ──▶ free
//! ```
//!
//! An id that a guest of the last list carries is in use, whatever else is known of it. What is free
//! here is only a proposal: unless a complete list was read, the cluster is asked before it is
//! granted.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::VmId;
use drover_model::journal_state::REST;
use drover_model::state_machine::{StateMachine, Timed, Turn};
use drover_model::time::{Moment, Now, WallTime};

use crate::effort;

/// What can happen to the ids.
#[derive(Debug, Clone)]
pub enum Event {
    /// The actor is a new one, which has read no list.
    Unlisted,
    /// An agent is known to have this id.
    Held(VmId),
    /// A list of all guests was read, which carry these ids.
    Surveyed(BTreeSet<VmId>),
    /// An agent needs an id at or above the floor and below the ceiling.
    Wanted { floor: VmId, ceiling: VmId },
    /// A guest that no list showed has this id.
    Taken(VmId),
    /// A proposed id was not used after all.
    Withdrawn(VmId),
    /// An agent gives its id back: it rests, or is burned since volumes of it remain.
    GivenBack { vmid: VmId, burned: bool },
    /// One burned id can be inspected.
    Inspect,
    /// The volumes of a burned id were listed empty.
    Cleared(VmId),
}

impl Timed for Event {
    fn needs_time(&self) -> bool {
        match self {
            Self::Wanted { .. } | Self::GivenBack { .. } => true,
            Self::Unlisted
            | Self::Held(_)
            | Self::Surveyed(_)
            | Self::Taken(_)
            | Self::Withdrawn(_)
            | Self::Inspect
            | Self::Cleared(_) => false,
        }
    }
}

/// What the body is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Grant this id; ask the cluster first unless it is `listed` as free.
    Propose { vmid: VmId, listed: bool },
    /// Refuse: no id of the range is free.
    Exhausted,
    /// List the volumes of this burned id.
    Inspect(VmId),
    /// Record that this id is burned.
    RecordBurned(VmId),
    /// Record that this id is not burned any more.
    RecordCleared(VmId),
}

/// Ids in use, resting and burned.
#[derive(Debug, Clone, Default)]
pub struct Allocator {
    held: BTreeSet<VmId>,
    seen: BTreeSet<VmId>,
    /// Until when ids rest. Only the journal knows of wall time, which may be set.
    resting: BTreeMap<VmId, Moment>,
    rests: BTreeSet<(Moment, VmId)>,
    /// By floor, an id that none is free below.
    lowest: BTreeMap<VmId, VmId>,
    burned: BTreeSet<VmId>,
    /// Whether the last list of all guests was read, and nothing has shown since that it misses
    /// some: then an id that is not in it is granted without another question.
    listed: bool,
    /// The burned id that was inspected last.
    inspected: Option<VmId>,
}

impl Allocator {
    /// What the journal knows: ids of living agents, resting ids with the time of their freeing,
    /// burned ids.
    pub fn restore(
        held: impl IntoIterator<Item = VmId>,
        resting: &BTreeMap<VmId, WallTime>,
        burned: impl IntoIterator<Item = VmId>,
        now: Now,
    ) -> Self {
        let mut ids = Self {
            held: held.into_iter().collect(),
            burned: burned.into_iter().collect(),
            ..Self::default()
        };
        for (vmid, since) in resting {
            // Never for longer than a whole rest, however the clock was set.
            ids.rest(*vmid, now.mono + REST.saturating_sub(now.wall - *since));
        }
        ids
    }

    fn rest(&mut self, vmid: VmId, until: Moment) {
        if let Some(before) = self.resting.insert(vmid, until) {
            self.rests.remove(&(before, vmid));
        }
        self.rests.insert((until, vmid));
    }

    /// An id may be free now.
    fn freed(&mut self, vmid: VmId) {
        for lowest in self.lowest.values_mut() {
            *lowest = (*lowest).min(vmid);
        }
    }

    fn surveyed(&mut self, seen: impl IntoIterator<Item = VmId>) {
        self.listed = true;
        self.seen = seen.into_iter().collect();
        self.lowest.clear();
    }

    fn taken(&mut self, vmid: VmId) {
        self.listed = false;
        self.held.remove(&vmid);
        self.seen.insert(vmid);
    }

    /// Takes the lowest free id at or above the floor and below the ceiling.
    fn propose(&mut self, floor: VmId, ceiling: VmId, now: Moment) -> Option<VmId> {
        while let Some((until, vmid)) = self.rests.first().copied().filter(|(at, _)| *at <= now) {
            self.rests.remove(&(until, vmid));
            self.resting.remove(&vmid);
            self.freed(vmid);
        }
        let free = |vmid: &VmId| {
            effort::spend(1);
            !self.held.contains(vmid)
                && !self.seen.contains(vmid)
                && !self.resting.contains_key(vmid)
                && !self.burned.contains(vmid)
        };
        let from = self.lowest.get(&floor).copied().unwrap_or(floor);
        let found = (from.0..ceiling.0).map(VmId).find(free);
        let lowest = found.map_or(ceiling, |vmid| VmId(vmid.0.saturating_add(1)));
        self.lowest.insert(floor, lowest.max(from));
        self.held.extend(found);
        found
    }

    fn withdraw(&mut self, vmid: VmId) {
        self.held.remove(&vmid);
        self.freed(vmid);
    }

    /// The next burned id that no guest carries any more.
    fn inspect(&mut self) -> Option<VmId> {
        let clear = |vmid: &&VmId| !self.seen.contains(vmid) && !self.held.contains(vmid);
        let after = self.inspected.map_or(VmId(0), |last| VmId(last.0.saturating_add(1)));
        let mut turn = self.burned.range(after..).chain(self.burned.range(..after));
        self.inspected = turn.find(clear).copied();
        self.inspected
    }

    fn clear(&mut self, vmid: VmId) {
        self.burned.remove(&vmid);
        self.freed(vmid);
    }

    fn give_back(&mut self, vmid: VmId, burned: bool, now: Moment) {
        self.held.remove(&vmid);
        if burned {
            self.listed = false;
            self.burned.insert(vmid);
        } else {
            self.rest(vmid, now + REST);
        }
    }
}

impl StateMachine for Allocator {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        match event {
            Event::Unlisted => self.listed = false,
            Event::Held(vmid) => {
                self.held.insert(vmid);
            }
            Event::Surveyed(seen) => self.surveyed(seen),
            Event::Wanted { floor, ceiling } => {
                let listed = self.listed;
                turn.push(match self.propose(floor, ceiling, now.mono) {
                    Some(vmid) => Effect::Propose { vmid, listed },
                    None => Effect::Exhausted,
                });
            }
            Event::Taken(vmid) => self.taken(vmid),
            Event::Withdrawn(vmid) => self.withdraw(vmid),
            Event::GivenBack { vmid, burned } => {
                self.give_back(vmid, burned, now.mono);
                if burned {
                    turn.push(Effect::RecordBurned(vmid));
                }
            }
            Event::Inspect => {
                if let Some(vmid) = self.inspect() {
                    turn.push(Effect::Inspect(vmid));
                }
            }
            Event::Cleared(vmid) => {
                self.clear(vmid);
                turn.push(Effect::RecordCleared(vmid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_model::state_machine::{Row, table};
    use proptest::prelude::*;

    use super::*;

    const FLOOR: VmId = VmId(100);
    const CEILING: VmId = VmId(104);

    fn hours(n: u64) -> Moment {
        Moment(n * 60 * 60 * 1000)
    }

    /// A start of the service, with the wall clock so many hours ahead of where it was at zero.
    fn start(ahead: i64) -> Now {
        Now { mono: hours(0), wall: wall(ahead) }
    }

    fn wall(hours: i64) -> WallTime {
        WallTime(1_000_000_000_000 + hours * 60 * 60 * 1000)
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
        let mut ids = Allocator::restore([], &BTreeMap::new(), [VmId(100)], start(0));
        ids.give_back(VmId(101), true, hours(0));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(50)), Some(VmId(102)));
    }

    #[test]
    fn burned_ids_without_a_guest_are_inspected_in_turn_until_they_are_clear() {
        let mut ids = Allocator::restore([], &BTreeMap::new(), [100, 101, 103].map(VmId), start(0));
        ids.surveyed([VmId(101)]);
        let turn: Vec<Option<VmId>> = (0..3).map(|_| ids.inspect()).collect();
        assert_eq!(turn, [Some(VmId(100)), Some(VmId(103)), Some(VmId(100))]);
        ids.clear(VmId(100));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(100)));
    }

    #[test]
    fn what_the_journal_holds_is_not_handed_out_before_the_first_list() {
        let resting = BTreeMap::from([(VmId(101), wall(0))]);
        let mut ids = Allocator::restore([VmId(100)], &resting, [], start(0));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(102)));
    }

    #[test]
    fn an_id_that_a_stranger_has_is_passed_over() {
        let mut ids = Allocator::default();
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(100)));
        ids.taken(VmId(100));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), Some(VmId(101)));
    }

    // Invariant: nothing rests longer than its span, however the clock is set.

    #[test]
    fn an_id_freed_while_the_clock_was_years_ahead_is_free_an_hour_after_the_start() {
        let resting = (100..104).map(|vmid| (VmId(vmid), wall(4 * 365 * 24))).collect();
        let mut ids = Allocator::restore([], &resting, [], start(0));
        assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), None);
        assert_eq!(ids.propose(FLOOR, CEILING, hours(1)), Some(VmId(100)));
    }

    // Invariant: what it costs grows as the ids that are asked for.

    #[test]
    fn ten_times_the_ids_cost_ten_times_the_looks() {
        let cost = |count: u32| {
            let mut ids = Allocator::default();
            effort::of(|| {
                for n in 0..count {
                    let vmid = ids.propose(FLOOR, VmId(100_000), hours(0)).unwrap_or(VmId(0));
                    if n % 3 == 0 {
                        ids.give_back(vmid, false, hours(0));
                    }
                }
            })
        };
        let (few, many) = (cost(100), cost(1000));
        assert!(many <= 12 * few, "{few} looks for 100 ids, {many} for 1,000");
    }

    // Invariant: the table of transitions of an id is the agreed one.

    /// What is known of the id 100.
    fn state(ids: &Allocator) -> String {
        let (vmid, mut known) = (VmId(100), Vec::new());
        for (name, there) in [
            ("held", ids.held.contains(&vmid)),
            ("seen", ids.seen.contains(&vmid)),
            ("resting", ids.resting.contains_key(&vmid)),
            ("burned", ids.burned.contains(&vmid)),
        ] {
            if there {
                known.push(name);
            }
        }
        if known.is_empty() { "free".into() } else { known.join("+") }
    }

    fn in_state(wanted: &str) -> Allocator {
        let mut ids = Allocator::default();
        ids.surveyed([VmId(101)]);
        match wanted {
            "held" => drop(ids.propose(FLOOR, CEILING, hours(0))),
            "resting" => ids.give_back(VmId(100), false, hours(0)),
            "burned" => ids.give_back(VmId(100), true, hours(0)),
            "held+seen" => {
                ids.propose(FLOOR, CEILING, hours(0));
                ids.surveyed([VmId(100)]);
            }
            "seen" => ids.surveyed([VmId(100)]),
            "seen+burned" => {
                ids.give_back(VmId(100), true, hours(0));
                ids.surveyed([VmId(100)]);
            }
            _ => {}
        }
        assert_eq!(state(&ids), wanted);
        ids
    }

    #[test]
    fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
        let vmid = VmId(100);
        let wanted = Event::Wanted { floor: FLOOR, ceiling: VmId(101) };
        let events = [
            ("Held", 0, Event::Held(vmid)),
            ("Surveyed: with it", 0, Event::Surveyed([vmid].into())),
            ("Surveyed: without it", 0, Event::Surveyed(BTreeSet::new())),
            ("Wanted", 0, wanted.clone()),
            ("Wanted: an hour later", 1, wanted),
            ("Taken", 0, Event::Taken(vmid)),
            ("Withdrawn", 0, Event::Withdrawn(vmid)),
            ("GivenBack", 0, Event::GivenBack { vmid, burned: false }),
            ("GivenBack: burned", 0, Event::GivenBack { vmid, burned: true }),
            ("Inspect", 0, Event::Inspect),
            ("Cleared", 0, Event::Cleared(vmid)),
        ];
        // Events that only some states can see: who holds an id gives it back.
        let fits = |state: &str, event: &str| match event {
            "Withdrawn" | "GivenBack" | "GivenBack: burned" | "Taken" => state.contains("held"),
            "Held" => !state.contains("burned"),
            "Cleared" => state.contains("burned"),
            _ => true,
        };
        let mut rows = Vec::new();
        for before in ["free", "held", "held+seen", "seen", "resting", "burned", "seen+burned"] {
            for (name, hour, event) in events.iter().filter(|(name, ..)| fits(before, name)) {
                let mut ids = in_state(before);
                let now = Now { mono: hours(*hour), ..start(0) };
                let effects = ids.effects_of(event.clone(), now, 0);
                let effects = effects.iter().map(|effect| match effect {
                    Effect::Propose { listed: true, .. } => "Propose as listed".to_owned(),
                    Effect::Propose { listed: false, .. } => "Propose".to_owned(),
                    Effect::Exhausted => "Exhausted".to_owned(),
                    Effect::Inspect(_) => "Inspect".to_owned(),
                    Effect::RecordBurned(_) => "RecordBurned".to_owned(),
                    Effect::RecordCleared(_) => "RecordCleared".to_owned(),
                });
                rows.push(Row {
                    before: before.to_owned(),
                    event: (*name).to_owned(),
                    effects: effects.collect(),
                    after: state(&ids),
                });
            }
        }
        let drawn = table(&rows);
        assert!(drawn == include_str!("transitions.txt"), "the table moved; it is:\n{drawn}");
    }

    proptest! {
        #[test]
        fn the_lowest_free_id_is_proposed_and_nothing_rests_longer_than_an_hour_after_a_start(
            ahead in -50_000i64..50_000,
            steps in prop::collection::vec((0u8..5, 0u32..4), 0..40),
        ) {
            let resting = BTreeMap::from([(VmId(102), wall(ahead))]);
            let mut ids = Allocator::restore([], &resting, [], start(0));
            for (what, vmid) in steps {
                let vmid = VmId(100 + vmid);
                match what {
                    0 if ids.held.contains(&vmid) => ids.give_back(vmid, false, hours(0)),
                    1 if ids.held.contains(&vmid) => ids.withdraw(vmid),
                    2 => ids.surveyed([vmid]),
                    3 => ids.taken(vmid),
                    _ => {
                        let free = |vmid: &VmId| {
                            !ids.held.contains(vmid)
                                && !ids.seen.contains(vmid)
                                && ids.resting.get(vmid).is_none_or(|until| *until <= hours(0))
                        };
                        let lowest = (100..104).map(VmId).find(free);
                        prop_assert_eq!(ids.propose(FLOOR, CEILING, hours(0)), lowest);
                    }
                }
            }
            ids.surveyed([]);
            ids.propose(FLOOR, VmId(0), hours(1));
            prop_assert!(ids.resting.is_empty() && ids.rests.is_empty(), "{:?}", ids);
        }

        #[test]
        fn no_id_is_ever_held_twice(
            steps in prop::collection::vec((0u8..4, 0usize..4, any::<bool>()), 1..100)
        ) {
            let mut ids = Allocator::default();
            let mut held: Vec<VmId> = Vec::new();
            for (hour, (what, pick, burned)) in steps.into_iter().enumerate() {
                let now = hours(hour as u64 / 4);
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
