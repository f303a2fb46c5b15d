//! How many operations of one kind may run at once against something that serves some part of each
//! of them one after the other: a storage with its lock, a node with its processors. Pure.
//!
//! What is waited for is learned from how long operations take beside how many ran when they began:
//! a straight line through both tells the part of an operation that keeps all others waiting (its
//! slope) and what one takes alone. Proxmox waits 10 s for a storage's lock and fails then
//! (behaviour section 6), so no more are let in than get through it in half of that; nor more than
//! keep the busiest part busy, for they would only wait. In turns one more is let in, without which
//! no line could be drawn. Faults that name the lock narrow the width at once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drover_model::time::Moment;

/// How long the last of those at once may wait for all others, in milliseconds. Destroying and
/// cloning wait for one lock and do not know of each other: both together stay below 10 s.
const WAIT: f64 = 4_000.0;
/// At once while nothing is known: two get through a lock that each of them holds for up to 10 s.
const FIRST: u32 = 2;
/// The same for work that holds it for a moment.
const FIRST_BRIEF: u32 = 4;
/// How much older operations still count, each beside the next one.
const KEEP: f64 = 0.97;
/// How far the numbers at once must have varied for a line to be drawn (their variance).
const VARIED: f64 = 0.02;
/// So many operations with the width that is aimed at, then as many with one more.
const TURN: u32 = 8;
/// Beyond what keeps the busiest part busy: somebody is always ready to be next.
const READY: f64 = 2.0;
/// Operations by which the mix of the last time is told.
const MIX: usize = 16;
/// How long a width that met timeouts is not tried again.
const WALL: Duration = Duration::from_secs(600);
/// Timeouts that come together are one.
const TOGETHER: Duration = Duration::from_secs(15);
/// Kinds of work that are told apart: the least recent are forgotten beyond that.
const WORKS: usize = 64;

/// Which way a width goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// It stays as it is configured.
    Fixed,
    /// By the times operations take, and by faults.
    #[default]
    Timed,
    /// By faults alone: what slows it down is shared with others that are not seen.
    Faults,
}

/// How an operation ended, for whoever serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was done.
    Done,
    /// It waited in vain for its turn.
    Contended,
    /// It says nothing: it failed for another reason, or never began.
    Void,
}

/// What an operation does, as far as others wait for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Names those that take equally long.
    pub name: String,
    /// The longest that it is expected to keep others waiting; none for all of its time.
    pub holds: Option<Duration>,
}

/// An operation that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    work: Work,
    began: Moment,
    /// Those that began one after another without an end between them: who of them is served first
    /// nobody knows.
    batch: u64,
}

/// A width, and what it was learned from.
#[derive(Debug, Clone, Default)]
pub struct Throttle {
    running: u32,
    /// Batches that have not ended yet.
    batches: BTreeMap<u64, Batch>,
    /// The number of the last batch, and whether an operation has ended since.
    batch: (u64, bool),
    fits: BTreeMap<Work, Fit>,
    /// The works of the last operations.
    mix: VecDeque<Work>,
    /// How many were done.
    done: u32,
    /// How many are let in by what the times say; none before they said anything.
    aim: Option<u32>,
    /// By faults alone: how many at once.
    eased: Option<u32>,
    /// Not to be exceeded until then.
    wall: Option<(u32, Moment)>,
    narrowed: Option<Moment>,
}

impl Throttle {
    /// How many run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many may run at once when one more does this work; at least one, and at most `most`.
    pub fn width(&self, work: &Work, rule: Rule, most: u32, now: Moment) -> u32 {
        let wall = self.wall.filter(|(_, until)| now < *until).map_or(u32::MAX, |(width, _)| width);
        let wanted = match rule {
            Rule::Fixed => return most.max(1),
            Rule::Timed => match self.aim {
                Some(aim) => aim.saturating_add(self.done / TURN % 2),
                None if work.holds.is_some() => FIRST_BRIEF,
                None => FIRST,
            },
            Rule::Faults => self.eased.unwrap_or(u32::MAX),
        };
        wanted.min(wall).min(most).max(1)
    }

    /// What the times say.
    fn target(&self) -> Option<u32> {
        let lines: Vec<Line> =
            self.mix.iter().filter_map(|work| self.fits.get(work)?.line(work.holds)).collect();
        let count = lines.len() as f64;
        let mean = |part: fn(&Line) -> f64| lines.iter().map(part).sum::<f64>() / count;
        let patient = 1.0 + (WAIT / mean(|line| line.serial).max(1.0)).floor();
        let busy = mean(|line| line.busy);
        (!lines.is_empty()).then(|| patient.min(busy) as u32)
    }

    /// An operation begins.
    pub fn begin(&mut self, work: Work, now: Moment) -> Turn {
        self.running += 1;
        if self.batch.1 || !self.batches.contains_key(&self.batch.0) {
            self.batch = (self.batch.0 + 1, false);
        }
        let running = self.running;
        let here = self.batches.entry(self.batch.0).or_insert_with(|| Batch::of(running));
        (here.last, here.left) = (running, here.left + 1);
        Turn { work, began: now, batch: self.batch.0 }
    }

    /// An operation has ended.
    pub fn end(&mut self, turn: Turn, end: End, now: Moment) {
        self.running = self.running.saturating_sub(1);
        self.batch.1 = true;
        if end == End::Contended {
            self.narrow(now);
        }
        let Some(batch) = self.batches.get_mut(&turn.batch) else { return };
        batch.left -= 1;
        // Those that were in the line that was too long say nothing of the next one.
        let counts = self.narrowed.is_none_or(|at| turn.began >= at);
        if end == End::Done && counts {
            batch.took.push((turn.work, (now - turn.began).as_millis() as f64));
        }
        // The first of them to end were served before the others: all of them together say what one
        // of them has to wait.
        if batch.left == 0
            && let Some(batch) = self.batches.remove(&turn.batch)
        {
            self.learn(batch);
        }
    }

    fn learn(&mut self, batch: Batch) {
        let done = u32::try_from(batch.took.len()).unwrap_or(u32::MAX);
        let at_once = f64::from(batch.first + batch.last) / 2.0;
        for (work, took) in batch.took {
            self.fits.entry(work.clone()).or_default().learn(at_once, took);
            self.mix.push_back(work);
            self.done = self.done.wrapping_add(1);
            self.eased = self.eased.map(|eased| eased.saturating_add(1));
        }
        let beyond = self.mix.len().saturating_sub(MIX);
        self.mix.drain(..beyond);
        if self.fits.len() > WORKS {
            let mix = &self.mix;
            self.fits.retain(|work, _| mix.contains(work));
        }
        if let Some(target) = self.target() {
            // What was never seen is not believed: wider goes by one for each that went well.
            let step = self.aim.unwrap_or(batch.last).saturating_add(done);
            self.aim = Some(target.min(step));
        }
    }

    fn narrow(&mut self, now: Moment) {
        let together = self.narrowed.is_some_and(|before| now - before < TOGETHER);
        if !together {
            // What was learned led here.
            self.fits.clear();
            let crowd = self.running + 1;
            self.aim = Some((crowd / 2).clamp(1, FIRST));
            self.eased = Some((crowd / 2).max(1));
            self.wall = Some((self.running.max(1), now + WALL));
            self.narrowed = Some(now);
        }
    }
}

/// Operations that began one after another without an end between them.
#[derive(Debug, Clone)]
struct Batch {
    /// How many ran when the first and when the last of them began, itself included.
    first: u32,
    last: u32,
    /// How many of them still run.
    left: u32,
    /// Those that were done, with their milliseconds.
    took: Vec<(Work, f64)>,
}

impl Batch {
    fn of(running: u32) -> Self {
        Self { first: running, last: running, left: 0, took: Vec::new() }
    }
}

/// Times beside numbers at once, of which older ones fade.
#[derive(Debug, Clone, Default)]
struct Fit {
    weight: f64,
    at_once: f64,
    took: f64,
    squares: f64,
    products: f64,
    took_squares: f64,
}

/// The straight line through them.
struct Line {
    /// By how much each other one prolongs an operation, in milliseconds.
    serial: f64,
    /// How many at once keep the busiest part busy.
    busy: f64,
}

impl Fit {
    fn learn(&mut self, at_once: f64, took: f64) {
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.at_once, at_once),
            (&mut self.took, took),
            (&mut self.squares, at_once * at_once),
            (&mut self.products, at_once * took),
            (&mut self.took_squares, took * took),
        ] {
            *sum = *sum * KEEP + value;
        }
    }

    /// The line; where the numbers have not varied, all of the time may be a wait for others.
    fn line(&self, holds: Option<Duration>) -> Option<Line> {
        if self.weight <= 0.0 {
            return None;
        }
        let (at_once, took) = (self.at_once / self.weight, self.took / self.weight);
        let whole = took / at_once;
        let variance = self.squares / self.weight - at_once * at_once;
        let (slope, error) = if variance > VARIED {
            let slope = (self.products / self.weight - at_once * took) / variance;
            let scatter = self.took_squares / self.weight - took * took - slope * slope * variance;
            let error = (scatter.max(0.0) / variance / self.weight).sqrt();
            (slope.clamp(0.0, whole), error)
        } else {
            (whole, 0.0)
        };
        // The scatter of the times leaves some of it open. Beyond what keeps the busiest part busy one
        // waits for nothing, which is no harm; beyond what the lock bears one fails, which is.
        let surely = (slope - error).max(1.0);
        let alone = took - surely * (at_once - 1.0);
        let serial = holds.map_or(slope, |holds| surely.min(holds.as_millis() as f64));
        Some(Line { serial, busy: (alone / surely + READY).ceil() })
    }
}

#[cfg(test)]
mod tests;
