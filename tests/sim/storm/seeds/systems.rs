//! What befalls CI systems, drawn by dice of its own for a part of the seeds: jobs, outages, tokens
//! that may not do what they should, guests that lie, runners that others remove.

use drover_actors::ambient::Dice;

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Lie, Plan, SOURCES, SourceConf};

/// Longer than this no storm begins anything.
const SPAN: u64 = 240_000;

struct Systems<'a> {
    dice: Dice,
    plan: &'a mut Plan,
}

/// Adds CI systems to a plan in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("systems");
    if dice.below(5) > 1 {
        return;
    }
    let count = one_of(&mut dice, &[1, 2, 5, 5, 5]);
    let mut systems = Systems { dice, plan };
    let mut kinds = Dice::from_number(seed).fork("kinds of systems");
    for _ in 0..count {
        let nodes = kinds.below(3) == 0;
        let conf = SourceConf { nodes, ..systems.conf() };
        systems.plan.stage.sources.push(conf);
    }
    for source in 0..count {
        systems.jobs(source);
    }
    for _ in 0..systems.dice.below(7) {
        systems.trouble();
    }
    plan.events.sort_by_key(|event| event.at);
}

impl Systems<'_> {
    fn push(&mut self, at: u64, deed: Deed) {
        self.plan.events.push(Event { at, deed });
    }

    fn within(&mut self, from: u64, span: u64) -> u64 {
        from + self.dice.below(span)
    }

    fn conf(&mut self) -> SourceConf {
        SourceConf {
            weight: one_of(&mut self.dice, &[1, 1, 3]),
            priority: one_of(&mut self.dice, &[0, 0, 0, 1]),
            cap: one_of(&mut self.dice, &[0, 0, 1, 3]),
            nodes: false,
        }
    }

    fn jobs(&mut self, source: usize) {
        for _ in 0..1 + self.dice.below(3) {
            let at = self.within(100, SPAN);
            let templates = self.plan.stage.templates.iter().flatten().count();
            let template = index(&mut self.dice, templates);
            let count = one_of(&mut self.dice, &[1, 1, 2, 4]);
            let seconds = one_of(&mut self.dice, &[1, 20, 90, 300]);
            self.push(at, Deed::Jobs { source, count, template, seconds });
            if self.dice.below(2) == 0 {
                self.push(at, Deed::Hook(source));
            }
            if self.dice.below(3) == 0 {
                let at = self.within(at, 60_000);
                self.push(at, Deed::CallOff(source));
            }
        }
    }

    fn trouble(&mut self) {
        let source = index(&mut self.dice, self.plan.stage.sources.len().min(SOURCES.len()));
        let at = self.within(100, SPAN);
        let span = one_of(&mut self.dice, &[3_000, 30_000, 200_000]);
        match self.dice.below(7) {
            0 | 1 => {
                self.push(at, Deed::Mute(source, true));
                self.push(at + span, Deed::Mute(source, false));
            }
            2 => {
                self.push(at, Deed::Forbid(source, true));
                self.push(at + span, Deed::Forbid(source, false));
            }
            3 => {
                let lie = one_of(&mut self.dice, &[Lie::Deaf, Lie::Idle]);
                self.push(at, Deed::Lie(source, lie));
            }
            4 => {
                let pick = index(&mut self.dice, 5);
                self.push(at, Deed::Unlist { source, pick });
            }
            5 => {
                let conf = self.conf();
                // A cap that changes would allow for what began under the other one.
                let SourceConf { cap, nodes, .. } = self.plan.stage.sources[source];
                self.push(at, Deed::Source(source, Some(SourceConf { cap, nodes, ..conf })));
            }
            _ => {
                let conf = self.plan.stage.sources[source].clone();
                self.push(at, Deed::Source(source, None));
                self.push(at + span, Deed::Source(source, Some(conf)));
            }
        }
    }
}
