//! Weighted fair shares of machines that are short: whose use is next.
//!
//! A use of a higher priority goes first; of equals the one whose source has the least for its
//! weight. What a source does not want others borrow, and as their jobs end it is the first to be
//! served again: it waits for what it lent no longer than one job (start-time fair queueing over
//! what is in use; Goyal, Vin and Cheng 1996).

use std::time::Duration;

use drover_model::demand::spec::ShareSpec;
use drover_model::time::WallTime;

/// A use that waits this long counts as one priority higher, and again after as long: nobody
/// starves behind a source of a higher priority that never has enough.
pub const AGEING: Duration = Duration::from_secs(15 * 60);

/// What one source wants and has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub share: ShareSpec,
    /// Agents it has by now.
    pub has: u32,
    /// Since when each use that it wants waits, the oldest first.
    pub waits: Vec<WallTime>,
}

/// One use that is wanted: of which claim, and the how-many-eth of its uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The claim's place.
    pub claim: usize,
    /// The use's place among the claim's.
    pub wait: usize,
}

/// The order in which uses are served at this moment; those beyond a source's cap are left out.
pub fn turns(claims: &[Claim], now: WallTime) -> Vec<Turn> {
    let mut given: Vec<usize> = vec![0; claims.len()];
    let total = claims.iter().map(|claim| claim.waits.len()).sum();
    let mut turns = Vec::with_capacity(total);
    let next = |given: &[usize]| {
        let heads = claims.iter().enumerate().filter_map(|(index, claim)| {
            let wait = given[index];
            let since = *claim.waits.get(wait)?;
            let has = u64::from(claim.has) + wait as u64;
            let below = claim.share.cap.is_none_or(|cap| has < u64::from(cap));
            below.then_some((index, wait, since, has))
        });
        heads.min_by(|one, other| {
            let of = |head: &(usize, usize, WallTime, u64)| {
                let share = claims[head.0].share;
                (i64::from(share.priority) + aged(head.2, now), u64::from(share.weight.max(1)))
            };
            let ((first, light), (second, heavy)) = (of(one), of(other));
            // (has + 1) / weight, without dividing.
            let (left, right) = ((one.3 + 1) * heavy, (other.3 + 1) * light);
            second.cmp(&first).then(left.cmp(&right)).then((one.2, one.0).cmp(&(other.2, other.0)))
        })
    };
    while let Some((claim, wait, ..)) = next(&given) {
        given[claim] += 1;
        turns.push(Turn { claim, wait });
    }
    turns
}

/// Priorities that a use has gained by waiting.
fn aged(since: WallTime, now: WallTime) -> i64 {
    let step = i64::try_from(AGEING.as_millis()).unwrap_or(i64::MAX);
    now.0.saturating_sub(since.0).max(0) / step
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: WallTime = WallTime(1_800_000_000_000);

    fn claim(weight: u32, has: u32, waits: usize) -> Claim {
        let share = ShareSpec { weight, ..ShareSpec::default() };
        Claim { share, has, waits: vec![NOW; waits] }
    }

    fn counts(claims: &[Claim], first: usize) -> Vec<usize> {
        let mut counts = vec![0; claims.len()];
        turns(claims, NOW).iter().take(first).for_each(|turn| counts[turn.claim] += 1);
        counts
    }

    // Invariant: what is short is shared by weight, and what one does not want is another's.

    #[test]
    fn machines_go_by_weight_to_those_who_want_more_than_there_are() {
        assert_eq!(counts(&[claim(3, 0, 99), claim(1, 0, 99)], 40), [30, 10]);
        assert_eq!(counts(&[claim(1, 0, 99), claim(1, 0, 99), claim(2, 0, 99)], 40), [10, 10, 20]);
    }

    #[test]
    fn what_one_source_does_not_want_the_others_borrow() {
        assert_eq!(counts(&[claim(3, 0, 4), claim(1, 0, 99)], 40), [4, 36]);
    }

    #[test]
    fn who_lent_its_share_is_served_until_it_has_it_again() {
        // The other has all forty; every one of the next thirty that end comes back.
        assert_eq!(counts(&[claim(3, 0, 99), claim(1, 40, 99)], 30), [30, 0]);
    }

    #[test]
    fn nobody_has_more_than_its_cap() {
        let mut capped = claim(3, 2, 99);
        capped.share.cap = Some(5);
        assert_eq!(counts(&[capped, claim(1, 0, 9)], 99), [3, 9]);
    }

    // Invariant: the urgent go first, and nobody waits for ever.

    #[test]
    fn a_higher_priority_goes_first_until_another_has_waited_long() {
        let mut urgent = claim(1, 0, 2);
        urgent.share.priority = 1;
        let fresh = claim(9, 0, 1);
        assert_eq!(counts(&[urgent.clone(), fresh.clone()], 2), [2, 0]);
        let step = i64::try_from(AGEING.as_millis()).unwrap_or(i64::MAX);
        let mut old = fresh;
        old.waits = vec![WallTime(NOW.0 - 2 * step)];
        assert_eq!(counts(&[urgent, old], 1), [0, 1]);
    }

    proptest! {
        #[test]
        fn every_use_below_the_cap_has_one_turn_in_the_order_of_its_source(
            claims in prop::collection::vec(
                (1u32..9, -2i32..3, prop::option::of(0u32..9), 0u32..9,
                 prop::collection::vec(0i64..9_000_000, 0..9)),
                1..5,
            ),
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(weight, priority, cap, has, ages)| {
                    let mut waits: Vec<WallTime> =
                        ages.into_iter().map(|age| WallTime(NOW.0 - age)).collect();
                    waits.sort_unstable();
                    Claim { share: ShareSpec { weight, priority, cap }, has, waits }
                })
                .collect();
            let turns = turns(&claims, NOW);
            for (index, claim) in claims.iter().enumerate() {
                let own: Vec<usize> =
                    turns.iter().filter(|turn| turn.claim == index).map(|turn| turn.wait).collect();
                let below = claim.share.cap.map_or(usize::MAX, |cap| {
                    cap.saturating_sub(claim.has) as usize
                });
                prop_assert_eq!(own, (0..claim.waits.len().min(below)).collect::<Vec<_>>());
            }
        }
    }
}
