//! One limit that finds its own width: how many operations may run at once on something that serves
//! a part of each of them one after the other, such as a storage with its lock or a node with its
//! processors. Pure: time is an argument.
//!
//! The limit learns from how long operations take, compared with how many ran when they started. A
//! straight line through both gives two figures: by how much each other operation prolongs one (the
//! slope), and how long an operation takes alone. Proxmox waits 10 s for a storage's lock and then
//! fails (book: proxmox, section 6). So the limit admits at most as many as get through the lock in
//! half of that time, and no more than keep the busiest part busy: further ones would only wait.
//! From time to time it admits one more, because a line needs at least two different widths.
//!
//! A fault that names the lock halves the width at once and clears what was learned. The width that
//! failed is not tried again for `WALL_LASTS`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drover_model::time::Moment;

/// How long the last of the operations that run at once may wait for the others, in milliseconds.
/// Clones and destroys wait for the same lock and have separate limits: both together stay below 10
/// s.
const LOCK_WAIT_MAX_MS: f64 = 4_000.0;
/// The first width, while nothing is known: two operations get through a lock that each holds for
/// up to 10 s.
const INITIAL_WIDTH: u32 = 2;
/// The first width for work that holds the lock only briefly.
const INITIAL_WIDTH_BRIEF: u32 = 4;
/// The weight that older operations keep with each newer one.
const FIT_DECAY: f64 = 0.97;
/// The least variance of the number at once for which a line is drawn.
const VARIANCE_MIN: f64 = 0.02;
/// The number of operations with the target width, before as many run with one more.
const PROBE_PERIOD: u32 = 8;
/// How many more than the busiest part needs are admitted, so that one is always ready to be next.
const READY_RESERVE: f64 = 2.0;
/// The number of last operations whose mix of work decides the width.
const RECENT_WORKS_MAX: usize = 16;
/// How long a width that met timeouts is not tried again.
const WALL_LASTS: Duration = Duration::from_secs(600);
/// Timeouts within this time count as one.
const SAME_FAULT_WITHIN: Duration = Duration::from_secs(15);
/// The number of kinds of work that are kept apart; beyond it those not used last are forgotten.
const WORKS_MAX: usize = 64;

/// What a width follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Adapt {
    /// The configuration alone.
    Fixed,
    /// The durations of operations, and faults.
    #[default]
    ByTimes,
    /// Faults alone: what slows the operations down is shared with others that drover does not see.
    ByFaults,
}

/// How an operation ended, as far as it says something about the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkEnd {
    Done,
    /// It timed out while it waited for its turn.
    Contended,
    /// Its end says nothing: it failed for another reason, or never started.
    Inconclusive,
}

/// A kind of work, as far as others wait for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Names operations that take equally long.
    pub name: String,
    /// The longest time for which it is expected to keep others waiting; none for its whole
    /// duration.
    pub holds: Option<Duration>,
}

/// An operation that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningWork {
    work: Work,
    began: Moment,
    /// The batch: operations that started one after another without an end in between. Nobody knows
    /// in which order they are served.
    batch: u64,
}

/// A width, with the observations it was learned from.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdaptiveLimit {
    running: u32,
    /// Batches with operations that still run.
    batches: BTreeMap<u64, Batch>,
    /// The number of the newest batch, and whether an operation has ended since it started.
    batch: (u64, bool),
    fits: BTreeMap<Work, Fit>,
    /// The work of the last operations.
    recent: VecDeque<Work>,
    /// The number of completed operations.
    done: u32,
    /// The width that the durations suggest; none before there are any.
    by_times: Option<u32>,
    /// The width that the faults leave; none before the first fault.
    by_faults: Option<u32>,
    /// A width that is not exceeded until this time.
    wall: Option<(u32, Moment)>,
    narrowed: Option<Moment>,
}

impl AdaptiveLimit {
    /// The number of operations that run.
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// How many operations may run at once if the next one does this work: at least one, and at
    /// most `most`.
    pub(crate) fn width(&self, work: &Work, rule: Adapt, most: u32, now: Moment) -> u32 {
        let wall = self.wall.filter(|(_, until)| now < *until).map_or(u32::MAX, |(width, _)| width);
        let wanted = match rule {
            Adapt::Fixed => return most.max(1),
            Adapt::ByTimes => match self.by_times {
                Some(by_times) => by_times.saturating_add(self.done / PROBE_PERIOD % 2),
                None if work.holds.is_some() => INITIAL_WIDTH_BRIEF,
                None => INITIAL_WIDTH,
            },
            Adapt::ByFaults => self.by_faults.unwrap_or(u32::MAX),
        };
        wanted.min(wall).min(most).max(1)
    }

    /// The width that the durations suggest.
    fn target(&self) -> Option<u32> {
        let lines: Vec<Line> =
            self.recent.iter().filter_map(|work| self.fits.get(work)?.line(work.holds)).collect();
        let count = lines.len() as f64;
        let mean = |part: fn(&Line) -> f64| lines.iter().map(part).sum::<f64>() / count;
        let within_lock_wait = 1.0 + (LOCK_WAIT_MAX_MS / mean(|line| line.serial).max(1.0)).floor();
        let busy = mean(|line| line.busy);
        (!lines.is_empty()).then(|| within_lock_wait.min(busy) as u32)
    }

    /// Counts an operation that starts.
    pub(crate) fn begin(&mut self, work: Work, now: Moment) -> RunningWork {
        self.running += 1;
        if self.batch.1 || !self.batches.contains_key(&self.batch.0) {
            self.batch = (self.batch.0 + 1, false);
        }
        let running = self.running;
        let here = self.batches.entry(self.batch.0).or_insert_with(|| Batch::of(running));
        (here.last, here.left) = (running, here.left + 1);
        RunningWork { work, began: now, batch: self.batch.0 }
    }

    /// Counts an operation that has ended, and learns from it once its whole batch has ended.
    pub(crate) fn end(&mut self, turn: RunningWork, end: WorkEnd, now: Moment) {
        self.running = self.running.saturating_sub(1);
        self.batch.1 = true;
        if end == WorkEnd::Contended {
            self.narrow(now);
        }
        let Some(batch) = self.batches.get_mut(&turn.batch) else { return };
        batch.left -= 1;
        // Operations of the batch that was too large say nothing about the width after it.
        let counts = self.narrowed.is_none_or(|at| turn.began >= at);
        if end == WorkEnd::Done && counts {
            batch.took.push((turn.work, (now - turn.began).as_millis() as f64));
        }
        // The first to end were served before the others: only the whole batch shows how long one
        // of it has to wait.
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
            self.recent.push_back(work);
            self.done = self.done.wrapping_add(1);
            self.by_faults = self.by_faults.map(|by_faults| by_faults.saturating_add(1));
        }
        let beyond = self.recent.len().saturating_sub(RECENT_WORKS_MAX);
        self.recent.drain(..beyond);
        if self.fits.len() > WORKS_MAX {
            let recent = &self.recent;
            self.fits.retain(|work, _| recent.contains(work));
        }
        if let Some(target) = self.target() {
            // The width grows by at most one for each completed operation: the line is not trusted
            // far beyond the widths that were tried.
            let step = self.by_times.unwrap_or(batch.last).saturating_add(done);
            self.by_times = Some(target.min(step));
        }
    }

    fn narrow(&mut self, now: Moment) {
        let together = self.narrowed.is_some_and(|before| now - before < SAME_FAULT_WITHIN);
        if !together {
            // What was learned led to this timeout.
            self.fits.clear();
            let crowd = self.running + 1;
            self.by_times = Some((crowd / 2).clamp(1, INITIAL_WIDTH));
            self.by_faults = Some((crowd / 2).max(1));
            self.wall = Some((self.running.max(1), now + WALL_LASTS));
            self.narrowed = Some(now);
        }
    }
}

/// Operations that started one after another without an end in between.
#[derive(Debug, Clone)]
struct Batch {
    /// How many ran when the first and when the last of them started, itself included.
    first: u32,
    last: u32,
    /// The number that still run.
    left: u32,
    /// The completed ones, with their durations in milliseconds.
    took: Vec<(Work, f64)>,
}

impl Batch {
    fn of(running: u32) -> Self {
        Self { first: running, last: running, left: 0, took: Vec::new() }
    }
}

/// Sums over (number at once, duration) pairs, in which older pairs fade.
#[derive(Debug, Clone, Default)]
struct Fit {
    weight: f64,
    at_once: f64,
    took: f64,
    squares: f64,
    products: f64,
    took_squares: f64,
}

/// The straight line through the pairs.
struct Line {
    /// By how much each other operation prolongs one, in milliseconds.
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
            *sum = *sum * FIT_DECAY + value;
        }
    }

    /// The line. Where the number at once has not varied, the whole duration may be a wait for
    /// others.
    fn line(&self, holds: Option<Duration>) -> Option<Line> {
        if self.weight <= 0.0 {
            return None;
        }
        let (at_once, took) = (self.at_once / self.weight, self.took / self.weight);
        let whole = took / at_once;
        let variance = self.squares / self.weight - at_once * at_once;
        let (slope, error) = if variance > VARIANCE_MIN {
            let slope = (self.products / self.weight - at_once * took) / variance;
            let scatter = self.took_squares / self.weight - took * took - slope * slope * variance;
            let error = (scatter.max(0.0) / variance / self.weight).sqrt();
            (slope.clamp(0.0, whole), error)
        } else {
            (whole, 0.0)
        };
        // The scatter of the durations leaves the slope uncertain, so each use takes the careful
        // end. More operations than keep the busiest part busy only wait, which does no harm; more
        // than get through the lock in time fail.
        let surely = (slope - error).max(1.0);
        let alone = took - surely * (at_once - 1.0);
        let serial = holds.map_or(slope, |holds| surely.min(holds.as_millis() as f64));
        Some(Line { serial, busy: (alone / surely + READY_RESERVE).ceil() })
    }
}

#[cfg(test)]
mod tests;
