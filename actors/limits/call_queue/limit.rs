//! The limit of one endpoint or node: how many calls may run at once, learned from how long reads
//! take.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::time::Moment;

/// The number of reads under pressure after which the limit moves.
const READS_PER_DECISION: u32 = 16;
/// The limit grows when reads take less than this many times their usual duration.
const GROW_BELOW_RATIO: f64 = 1.3;
/// The limit shrinks when reads take more than this many times their usual duration.
const SHRINK_ABOVE_RATIO: f64 = 1.8;
/// The weight that the usual duration keeps with each new read.
const USUAL_DECAY: f64 = 0.95;
/// Shorter reads count as this long: below it the network and this machine take more of the time
/// than Proxmox.
const SHORTEST_READ: Duration = Duration::from_millis(5);
/// Failures within this time count as one.
const SAME_FAILURE_WITHIN: Duration = Duration::from_secs(5);
/// How long the limit stays below the number of calls that failed.
const WALL_LASTS: Duration = Duration::from_secs(60);
/// The number of classes of reads that are kept apart.
const CLASSES_MAX: usize = 32;

/// The range of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitRange {
    /// The limit while nothing is known.
    pub first: u32,
    /// The highest limit.
    pub most: u32,
}

/// How full the place was when a call started.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// No more calls ran than the first limit allows: the call's duration is the usual one of its
    /// class.
    below_first: bool,
    /// As many calls ran as the limit allows, and others waited: a higher limit would have been
    /// used.
    at_limit: bool,
}

/// The calls at one endpoint or node.
#[derive(Debug)]
pub(super) struct CallLimit {
    range: LimitRange,
    running: u32,
    limit: u32,
    /// The usual duration of reads of each class, in seconds.
    usual: BTreeMap<String, f64>,
    /// The number of reads under pressure since the limit moved, and the sum of their durations as
    /// multiples of the usual ones.
    window: (u32, f64),
    /// A limit that is not exceeded until this time.
    wall: Option<(u32, Moment)>,
    narrowed: Option<Moment>,
}

impl CallLimit {
    /// A limit without running calls.
    pub(super) fn new(range: LimitRange) -> Self {
        Self {
            range,
            running: 0,
            limit: range.first,
            usual: BTreeMap::new(),
            window: (0, 0.0),
            wall: None,
            narrowed: None,
        }
    }

    /// The number of calls that run.
    pub(super) fn running(&self) -> u32 {
        self.running
    }

    /// How many calls may run at once; at least one.
    pub(super) fn allowed(&self, now: Moment) -> u32 {
        let wall = self.wall.filter(|(_, until)| now < *until).map_or(u32::MAX, |(wall, _)| wall);
        self.limit.min(wall).max(1)
    }

    /// Counts a call that starts; `more` says whether others wait.
    pub(super) fn begin(&mut self, more: bool, now: Moment) -> Load {
        self.running += 1;
        let at_limit = more && self.running >= self.allowed(now);
        Load { below_first: self.running <= self.range.first, at_limit }
    }

    /// Counts a call that has ended. An answered read gives its class, its duration and the load
    /// when it started.
    pub(super) fn end(&mut self, read: Option<(&str, Duration, Load)>) {
        self.running = self.running.saturating_sub(1);
        let Some((class, took, load)) = read else { return };
        let took = took.max(SHORTEST_READ).as_secs_f64();
        let usual = match self.usual.get_mut(class) {
            Some(usual) => {
                let before = *usual;
                if load.below_first {
                    *usual = *usual * USUAL_DECAY + took * (1.0 - USUAL_DECAY);
                }
                before
            }
            None => {
                if self.usual.len() < CLASSES_MAX {
                    self.usual.insert(class.to_owned(), took);
                }
                return;
            }
        };
        if load.at_limit {
            self.window = (self.window.0 + 1, self.window.1 + took / usual);
            self.judge();
        }
    }

    fn judge(&mut self) {
        let (count, sum) = self.window;
        if count < READS_PER_DECISION {
            return;
        }
        self.window = (0, 0.0);
        let ratio = sum / f64::from(count);
        if ratio < GROW_BELOW_RATIO {
            self.limit = (self.limit + 1).min(self.range.most);
        } else if ratio > SHRINK_ABOVE_RATIO {
            self.limit = self.limit.saturating_sub(1).max(self.range.first.min(self.limit));
        }
    }

    /// Halves the limit: the place did not answer in time.
    pub(super) fn narrow(&mut self, now: Moment) {
        if self.narrowed.is_some_and(|before| now - before < SAME_FAILURE_WITHIN) {
            return;
        }
        let limit = self.allowed(now);
        self.wall = Some((limit.saturating_sub(1).max(1), now + WALL_LASTS));
        self.limit = (limit / 2).max(1);
        self.window = (0, 0.0);
        self.narrowed = Some(now);
    }
}
