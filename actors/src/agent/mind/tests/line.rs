//! The queue for the guest's keys: no later lease passes an earlier one.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::fault::FaultKind;
use drover_model::id::LeaseId;
use drover_model::time::Moment;
use proptest::prelude::*;

use super::keys::{answer, end, ready, spelled, take};
use crate::agent::event::{Call, Effect};
use crate::agent::leases::Stage;
use crate::agent::testing::*;

#[derive(Debug, Clone)]
enum Turn {
    /// A lease whose id starts with this letter.
    Take(char),
    /// The end of one of the leases.
    End(prop::sample::Index),
    /// The running call succeeds.
    Works,
    /// The running call fails, and another try follows.
    Fails,
    /// Twice this many milliseconds pass.
    Wait(u64),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        4 => prop::char::range('a', 'z').prop_map(Turn::Take),
        3 => any::<prop::sample::Index>().prop_map(Turn::End),
        5 => Just(Turn::Works),
        1 => Just(Turn::Fails),
        2 => (1_u64..800).prop_map(Turn::Wait),
    ];
    prop::collection::vec(turn, 1..90)
}

/// The queue as an observer outside the guest sees it.
struct Line {
    drive: Drive,
    seen: usize,
    /// The running call.
    inside: Option<(String, String)>,
    /// For each lease: how many others may still go before it.
    waiting: BTreeMap<String, usize>,
    /// When leases whose call failed come again.
    pausing: BTreeMap<String, Moment>,
    count: usize,
}

impl Line {
    fn joins(&mut self, lease: &str) {
        self.pausing.remove(lease);
        self.waiting.remove(lease);
        self.waiting.insert(lease.into(), self.waiting.len());
    }

    fn stage(&self, lease: &str) -> Option<Stage> {
        self.drive.mind.leases.get(&LeaseId::new(lease)).map(|lease| lease.stage)
    }

    fn play(&mut self, turn: Turn) {
        match turn {
            Turn::Take(letter) => {
                self.count += 1;
                let lease = format!("{letter}{}", self.count);
                take(&mut self.drive, &lease);
                if self.stage(&lease).is_some() {
                    self.joins(&lease);
                }
            }
            Turn::End(which) => {
                let all: Vec<String> =
                    self.drive.mind.leases.all().map(|(id, _)| id.as_str().into()).collect();
                if all.is_empty() {
                    return;
                }
                let lease = which.get(&all);
                if self.stage(lease) != Some(Stage::Expelling) {
                    self.joins(lease);
                    end(&mut self.drive, lease);
                }
            }
            Turn::Works => self.comes_out(Ok(())),
            // At an odd moment, when nothing else happens: no other lease joins when this pause is
            // over.
            Turn::Fails => {
                self.wait(1);
                self.comes_out(Err(FaultKind::Unreachable));
                self.look();
                self.wait(1);
            }
            Turn::Wait(ms) => self.wait(2 * ms),
        }
        self.look();
    }

    fn comes_out(&mut self, result: Result<(), FaultKind>) {
        let Some((call, lease)) = self.inside.take() else { return };
        let tries =
            self.drive.mind.leases.get(&LeaseId::new(lease.as_str())).map_or(0, |l| l.tries);
        let fails = result.is_err() && tries == 0;
        // A lease that ended meanwhile waits in the queue for its end.
        if fails && !self.waiting.contains_key(&lease) {
            self.pausing.insert(lease, self.drive.now.mono + secs(2));
        }
        answer(&mut self.drive, &call, if fails { result } else { Ok(()) });
    }

    fn wait(&mut self, ms: u64) {
        for _ in 0..ms {
            self.drive.wait(Duration::from_millis(1));
            let now = self.drive.now.mono;
            let back: Vec<String> = self
                .pausing
                .iter()
                .filter(|(_, at)| **at <= now)
                .map(|(id, _)| id.clone())
                .collect();
            for lease in back {
                self.joins(&lease);
            }
            self.look();
        }
    }

    /// Checks which lease goes in.
    fn look(&mut self) {
        let effects: Vec<Effect> = self.drive.effects.split_off(self.seen);
        let goes_in = effects.iter().filter_map(|effect| match effect {
            Effect::Ask(_, call @ (Call::Admit(_, lease, _) | Call::Expel(_, lease, ..))) => {
                Some((spelled(call), lease.as_str().to_owned()))
            }
            _ => None,
        });
        let goes_in: Vec<_> = goes_in.collect();
        self.drive.effects.extend(effects);
        self.seen = self.drive.effects.len();
        for (call, lease) in goes_in {
            assert_eq!(self.inside, None, "{call}: one at a time");
            assert!(self.waiting.remove(&lease).is_some(), "{call}: it did not stand in line");
            for (other, before) in &mut self.waiting {
                assert!(*before > 0, "{call} goes before {other}, who came earlier");
                *before -= 1;
            }
            self.inside = Some((call, lease));
        }
        let idle = self.inside.is_none() && !self.waiting.is_empty();
        assert!(!idle, "nobody goes in, but {:?} wait", self.waiting.keys());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    // Invariant: no more key changes come before a lease's own than waited when it joined.

    #[test]
    fn nobody_is_passed_by_anyone_who_came_later(turns in turns()) {
        let drive = ready(40);
        let (waiting, pausing) = (BTreeMap::new(), BTreeMap::new());
        let seen = drive.effects.len();
        let mut line = Line { drive, seen, inside: None, waiting, pausing, count: 0 };
        for turn in turns {
            line.play(turn);
            line.wait(2);
        }
    }
}
