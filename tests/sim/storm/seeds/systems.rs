//! What happens to CI systems, drawn by dice of its own for a part of the seeds: jobs, outages, tokens
//! that may not do what they should, guests that lie, runners that others remove.

use drover_model::ambient::Dice;

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Lie, Plan, SOURCES, SourceConf};
use super::sizes::Asked;
use crate::world::ci::Lists;
use crate::world::ci::rows::RowDeed;

/// Longer than this no storm begins anything.
const SPAN: u64 = 240_000;
/// So long after jobs came in have most of them a runner, and for so long they are served.
const STARTED: u64 = 20_000;
const BUSY: u64 = 90_000;

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
    let mut pages = Dice::from_number(seed).fork("lists of systems");
    let mut rows = Dice::from_number(seed).fork("rows of systems");
    let all = [Lists::Whole, Lists::Shift, Lists::Cut, Lists::Shy];
    for _ in 0..count {
        let (nodes, lists) = (kinds.below(2) == 0, one_of(&mut pages, &all));
        let guesses = !nodes && rows.below(2) == 0;
        let conf = SourceConf { nodes, lists, guesses, ..systems.conf() };
        systems.plan.stage.sources.push(conf);
    }
    for source in 0..count {
        systems.jobs(source);
    }
    for _ in 0..systems.dice.below(7) {
        systems.trouble();
    }
    systems.dice = rows;
    for source in 0..count {
        systems.rows(source);
    }
    plan.events.sort_by_key(|event| event.at);
}

impl Systems<'_> {
    /// Something happens to rows while long jobs run on them.
    fn rows(&mut self, source: usize) {
        if self.dice.below(2) == 0 {
            return;
        }
        let at = self.within(100, SPAN);
        let templates = self.plan.stage.templates.iter().flatten().count();
        let template = index(&mut self.dice, templates);
        let size = Asked::default();
        self.push(at, Deed::Jobs { source, count: 2, template, seconds: 1_800, size });
        let (off, renamed) = (self.within(at + STARTED, BUSY), self.within(at + STARTED, BUSY));
        if self.dice.below(2) == 0 {
            let span = one_of(&mut self.dice, &[60_000, 900_000, 1_200_000]);
            self.push(off, Deed::Rows(source, RowDeed::Off(true)));
            self.push(off + span, Deed::Rows(source, RowDeed::Off(false)));
        }
        let pick = index(&mut self.dice, 5);
        self.push(renamed, Deed::Rows(source, RowDeed::Rename(pick)));
        if self.dice.below(2) == 0 {
            let away = one_of(&mut self.dice, &[0, 5, 60]);
            self.push(renamed + 30_000, Deed::Crash { away });
        }
    }

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
            lists: Lists::Whole,
            guesses: false,
        }
    }

    fn jobs(&mut self, source: usize) {
        for _ in 0..1 + self.dice.below(3) {
            let at = self.within(100, SPAN);
            let templates = self.plan.stage.templates.iter().flatten().count();
            let template = index(&mut self.dice, templates);
            let count = one_of(&mut self.dice, &[1, 1, 2, 4]);
            let seconds = one_of(&mut self.dice, &[1, 20, 90, 300]);
            let size = Asked::default();
            self.push(at, Deed::Jobs { source, count, template, seconds, size });
            if self.dice.below(2) == 0 {
                self.push(at, Deed::Hook(source));
            }
            if self.dice.below(3) == 0 {
                let at = self.within(at, 60_000);
                self.push(at, Deed::CallOff(source));
            }
        }
    }

    /// When jobs of a source come in, of which one is drawn.
    fn busy(&mut self, source: usize) -> Option<u64> {
        let jobs = |event: &Event| match event.deed {
            Deed::Jobs { source: of, .. } if of == source => Some(event.at),
            _ => None,
        };
        let all: Vec<u64> = self.plan.events.iter().filter_map(jobs).collect();
        (!all.is_empty()).then(|| one_of(&mut self.dice, &all))
    }

    /// Most of it happens to a source while its jobs are served.
    fn trouble(&mut self) {
        let source = index(&mut self.dice, self.plan.stage.sources.len().min(SOURCES.len()));
        let at = match self.busy(source) {
            Some(at) if self.dice.below(3) > 0 => self.within(at + STARTED, BUSY),
            _ => self.within(100, SPAN),
        };
        let span = one_of(&mut self.dice, &[3_000, 30_000, 200_000]);
        match self.dice.below(8) {
            0 | 1 => {
                self.push(at, Deed::Mute(source, true));
                self.push(at + span, Deed::Mute(source, false));
            }
            2 | 3 => {
                let span = span.max(60_000);
                self.push(at, Deed::Forbid(source, true));
                self.push(at + span, Deed::Forbid(source, false));
            }
            4 => {
                let lie = one_of(&mut self.dice, &[Lie::Deaf, Lie::Idle]);
                self.push(at, Deed::Lie(source, lie));
            }
            5 => {
                let pick = index(&mut self.dice, 5);
                self.push(at, Deed::Unlist { source, pick });
            }
            6 => {
                let conf = self.conf();
                // A cap that changes would allow for what began under the other one.
                let SourceConf { cap, nodes, lists, guesses, .. } = self.plan.stage.sources[source];
                let conf = SourceConf { cap, nodes, lists, guesses, ..conf };
                self.push(at, Deed::Source(source, Some(conf)));
            }
            _ => {
                let conf = self.plan.stage.sources[source].clone();
                self.push(at, Deed::Source(source, None));
                self.push(at + span, Deed::Source(source, Some(conf)));
            }
        }
    }
}
