//! A failing plan made small: fewer events, a simpler stage, as long as the same thing is wrong.

use super::plan::{Deed, Event, Found, Plan, Speed};
use super::run::{Failure, judge};
use super::sizes;

/// The most plans that are played, unless `STORM_TRIES` in the environment says how many.
const TRIES: u32 = 400;

struct Shrink {
    plan: Plan,
    failure: Failure,
    left: u32,
}

/// The smallest plan found that fails as this one does.
pub fn shrink(plan: Plan, failure: Failure) -> (Plan, Failure) {
    let wanted = std::env::var("STORM_TRIES").ok().and_then(|text| text.parse().ok());
    let mut shrink = Shrink { plan, failure, left: wanted.unwrap_or(TRIES) };
    loop {
        let before = shrink.plan.clone();
        shrink.events();
        shrink.stage();
        shrink.details();
        if shrink.plan == before || shrink.left == 0 {
            return (shrink.plan, shrink.failure);
        }
    }
}

impl Shrink {
    /// Takes a plan when it fails in the same way.
    fn take(&mut self, plan: Plan) -> bool {
        if self.left == 0 || plan == self.plan {
            return false;
        }
        self.left -= 1;
        match judge(&plan) {
            Err(failure) if failure.wrong.invariant == self.failure.wrong.invariant => {
                (self.plan, self.failure) = (plan, failure);
                true
            }
            _ => false,
        }
    }

    /// Leaves events out, in halves first, then in ever smaller parts.
    fn events(&mut self) {
        let mut part = self.plan.events.len().div_ceil(2);
        while part > 0 {
            let mut from = 0;
            while from < self.plan.events.len() {
                let to = (from + part).min(self.plan.events.len());
                let mut plan = self.plan.clone();
                plan.events.drain(from..to);
                if !self.take(plan) {
                    from = to;
                }
            }
            part /= 2;
        }
    }

    fn stage(&mut self) {
        let simpler: [fn(&mut Plan); 18] = [
            |plan| plan.stage.clouds[2] = None,
            |plan| plan.stage.memory = 0,
            |plan| plan.stage.headroom = 0,
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.image = false),
            |plan| plan.stage.templates[2] = None,
            |plan| plan.stage.templates[1] = None,
            |plan| plan.stage.clouds[1] = None,
            |plan| plan.stage.nodes = 1,
            |plan| plan.stage.speed = Speed::Usual,
            |plan| plan.stage.new_version = false,
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.min = 0),
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.executors = 1),
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.full = false),
            |plan| {
                plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.found = Found::Id)
            },
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.uses = 1),
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.window = 0),
            |plan| plan.stage.templates.iter_mut().flatten().for_each(|conf| conf.life = 0),
            sizes::none,
        ];
        for change in simpler {
            let mut plan = self.plan.clone();
            change(&mut plan);
            if plan.fits() {
                self.take(plan);
            }
        }
    }

    /// Leaves parts of weathers out.
    fn details(&mut self) {
        for index in 0..self.plan.events.len() {
            let Deed::Weather(faults) = self.plan.events[index].deed.clone() else { continue };
            for part in 0..faults.calls.len() + faults.tasks.len() + faults.holds.len() {
                let mut plan = self.plan.clone();
                let Event { deed: Deed::Weather(faults), .. } = &mut plan.events[index] else {
                    continue;
                };
                let (calls, tasks) = (faults.calls.len(), faults.tasks.len());
                if part < calls {
                    faults.calls.remove(part);
                } else if part < calls + tasks {
                    faults.tasks.remove(part - calls);
                } else if part - calls - tasks < faults.holds.len() {
                    faults.holds.remove(part - calls - tasks);
                }
                if self.take(plan) {
                    break;
                }
            }
        }
    }
}
