//! Holders that lock drover out of their guests, drawn by dice of their own for a part of the seeds: most of
//! them just before the service is cut down or stops, so that it finds itself locked out.

use drover_model::ambient::Dice;

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Plan};

/// So long before a cut a lock falls at most, in milliseconds.
const BEFORE: u64 = 4_000;

/// Adds them to a plan in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("lockouts");
    if dice.below(3) > 0 {
        return;
    }
    let cut = |event: &&Event| event.deed.cuts() || matches!(event.deed, Deed::Stop { .. });
    let cuts: Vec<u64> = plan.events.iter().filter(cut).map(|event| event.at).collect();
    let mut times: Vec<u64> = (0..2).map(|_| 20_000 + dice.below(150_000)).collect();
    times.extend(cuts.iter().map(|at| at.saturating_sub(dice.below(BEFORE))));
    for at in times {
        let seconds = one_of(&mut dice, &[10, 60, 600, 3600]);
        plan.events.push(Event { at, deed: Deed::LockOut { pick: index(&mut dice, 5), seconds } });
    }
    plan.events.sort_by_key(|event| event.at);
}
