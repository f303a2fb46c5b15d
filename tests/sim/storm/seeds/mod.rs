//! Everything at once, by chance: a seed draws a plan of demand, trouble, reloads, operators and
//! crashes; the plan is played on a herd, what must hold is judged at every fact, record and
//! request, and a plan that fails is made small and printed so that it can be played again.

mod act;
mod around;
mod asked;
mod askers;
mod branch;
mod clocks;
mod containers;
mod deaths;
mod draw;
mod held;
mod kinds;
mod leases;
mod lockouts;
mod orders;
mod outage;
mod owners;
mod places;
mod plan;
mod rooms;
mod run;
mod runners;
mod seen;
mod shrink;
mod sizes;
mod stage;
mod systems;
mod usage;
mod waits;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use libtest_mimic::{Failed, Trial};

use crate::Seeds;
use plan::Plan;
use run::{Failure, judge, play};

/// Seeds played so far, from the beginning of the first to the end of the last.
static PLAYED: Mutex<Option<(u64, Instant, Instant)>> = Mutex::new(None);
/// Seeds whose logs are compared, a few of every run.
const COMPARED: usize = 3;

/// How many seeds were played, and in how many seconds.
pub fn played() -> Option<(u64, f64)> {
    let played = PLAYED.lock().unwrap();
    played.map(|(count, first, last)| (count, (last - first).as_secs_f64()))
}

/// Counts a seed that began then and is over now.
fn count(started: Instant) {
    let mut played = PLAYED.lock().unwrap();
    let (count, first) =
        played.map_or((0, started), |(count, first, _)| (count, first.min(started)));
    *played = Some((count + 1, first, Instant::now()));
}

/// One trial a seed; or the one of a plan that was printed before.
pub fn trials(range: &Seeds) -> Vec<Trial> {
    if let Some(path) = range.plan.clone() {
        let name = "seeds::the_plan_leaves_nothing".to_owned();
        return vec![Trial::test(name, move || replay(&path))];
    }
    let trial = |seed: u64| {
        Trial::test(format!("seeds::the_storm_of_seed_{seed}_leaves_nothing"), move || {
            let started = Instant::now();
            let plan = draw::plan(seed);
            let judged = judge(&plan);
            count(started);
            judged.map_err(|failure| report(seed, plan, failure))
        })
    };
    let same = |seed: u64| {
        Trial::test(format!("seeds::the_storm_of_seed_{seed}_is_the_same_twice"), move || {
            same_twice(seed)
        })
    };
    let text = Trial::test("seeds::a_plan_is_read_back_as_it_was_printed", || {
        for seed in 1..200 {
            let plan = draw::plan(seed);
            if Plan::parse(&plan.text()).ok().as_ref() != Some(&plan) {
                return Err(format!("of seed {seed}:\n{}", plan.text()).into());
            }
        }
        Ok(())
    });
    let compared = range.numbers().take(COMPARED).map(same);
    // The seeds first and in a row: the rate in a second is that of the seeds alone.
    range.numbers().map(trial).chain(compared).chain(std::iter::once(text)).collect()
}

fn replay(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let plan = Plan::parse(&text)?;
    judge(&plan).map_err(|failure| describe(&failure).into())
}

/// Two plays of one plan report and ask the same in the same order.
fn same_twice(seed: u64) -> Result<(), Failed> {
    let log = || play(&draw::plan(seed), true).map(|outcome| outcome.log);
    let (one, other) = match (log(), log()) {
        (Ok(one), Ok(other)) => (one, other),
        // What is wrong with it is reported by its own trial.
        (Err(one), Err(other)) => (vec![describe(&one)], vec![describe(&other)]),
        (one, other) => return Err(format!("{} {}", one.is_ok(), other.is_ok()).into()),
    };
    if one == other {
        return Ok(());
    }
    let differs = one.iter().zip(&other).position(|(one, other)| one != other);
    let at = differs.unwrap_or_else(|| one.len().min(other.len()));
    Err(format!("they part at {at}:\n{:?}\n{:?}", one.get(at), other.get(at)).into())
}

fn describe(failure: &Failure) -> String {
    let wrong = &failure.wrong;
    format!("{} at {:?}: {}\n{}", wrong.invariant, wrong.at, wrong.text, failure.portrait)
}

/// What a failing seed prints.
fn report(seed: u64, plan: Plan, failure: Failure) -> Failed {
    let before = plan.events.len();
    let (plan, failure) = shrink::shrink(plan, failure);
    let path = PathBuf::from(format!("storm-{seed}.plan"));
    format!(
        "seed {seed} breaks {}\n\nthe plan, {} of {before} events:\n{}\n\n{}\n\n\
         again: cargo test --release -p drover-storms -- --seeds 1 --from {seed} seed_{seed}_\n\
         the plan alone, from a file with the lines above: \
         cargo test --release -p drover-storms -- --plan {}\n",
        failure.wrong.invariant,
        plan.events.len(),
        plan.text(),
        describe(&failure),
        path.display(),
    )
    .into()
}
