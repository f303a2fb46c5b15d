//! How many calls may run at once at one place, learned from how long they take.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::time::Moment;

/// Reads under pressure by which a limit moves.
const WINDOW: u32 = 16;
/// Below this many times the usual length the limit grows.
const GROW: f64 = 1.3;
/// Above this many times it shrinks.
const SHRINK: f64 = 1.8;
/// How much of what was usual stays usual after one read more.
const KEEP: f64 = 0.95;
/// Shorter reads count as this long: below it the network and this machine say more than Proxmox.
const LEAST: Duration = Duration::from_millis(5);
/// Failures that come together are one.
const TOGETHER: Duration = Duration::from_secs(5);
/// How long a limit that met failures is not passed.
const WALL: Duration = Duration::from_secs(60);
/// Classes of reads that are told apart.
const CLASSES: usize = 32;

/// How many at first, and at most.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// While nothing is known.
    pub first: u32,
    /// At most.
    pub most: u32,
}

/// How full a lane was when a call began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Crowd {
    /// No fuller than at first: what the call takes is what such calls take.
    free: bool,
    /// As full as it may be: one more might have run.
    pressed: bool,
}

/// Calls at one place.
#[derive(Debug)]
pub struct Lane {
    size: Size,
    running: u32,
    limit: u32,
    /// How long reads of each class take, in seconds.
    usual: BTreeMap<String, f64>,
    /// Reads under pressure since the limit moved, and the sum of their lengths as multiples of
    /// the usual ones.
    window: (u32, f64),
    /// Not to be passed until then.
    wall: Option<(u32, Moment)>,
    narrowed: Option<Moment>,
}

impl Lane {
    /// An empty one.
    pub fn new(size: Size) -> Self {
        Self {
            size,
            running: 0,
            limit: size.first,
            usual: BTreeMap::new(),
            window: (0, 0.0),
            wall: None,
            narrowed: None,
        }
    }

    /// How many run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many may run at once; at least one.
    pub fn limit(&self, now: Moment) -> u32 {
        let wall = self.wall.filter(|(_, until)| now < *until).map_or(u32::MAX, |(wall, _)| wall);
        self.limit.min(wall).max(1)
    }

    /// A call begins; `more` says whether others wait.
    pub fn begin(&mut self, more: bool, now: Moment) -> Crowd {
        self.running += 1;
        let pressed = more && self.running >= self.limit(now);
        Crowd { free: self.running <= self.size.first, pressed }
    }

    /// A call has ended; a read that was answered tells its class, its length and how full the
    /// lane was.
    pub fn end(&mut self, read: Option<(&str, Duration, Crowd)>) {
        self.running = self.running.saturating_sub(1);
        let Some((class, took, crowd)) = read else { return };
        let took = took.max(LEAST).as_secs_f64();
        let usual = match self.usual.get_mut(class) {
            Some(usual) => {
                let before = *usual;
                if crowd.free {
                    *usual = *usual * KEEP + took * (1.0 - KEEP);
                }
                before
            }
            None => {
                if self.usual.len() < CLASSES {
                    self.usual.insert(class.to_owned(), took);
                }
                return;
            }
        };
        if crowd.pressed {
            self.window = (self.window.0 + 1, self.window.1 + took / usual);
            self.judge();
        }
    }

    fn judge(&mut self) {
        let (count, sum) = self.window;
        if count < WINDOW {
            return;
        }
        self.window = (0, 0.0);
        let ratio = sum / f64::from(count);
        if ratio < GROW {
            self.limit = (self.limit + 1).min(self.size.most);
        } else if ratio > SHRINK {
            self.limit = self.limit.saturating_sub(1).max(self.size.first.min(self.limit));
        }
    }

    /// The place did not answer in time.
    pub fn narrow(&mut self, now: Moment) {
        if self.narrowed.is_some_and(|before| now - before < TOGETHER) {
            return;
        }
        let limit = self.limit(now);
        self.wall = Some((limit.saturating_sub(1).max(1), now + WALL));
        self.limit = (limit / 2).max(1);
        self.window = (0, 0.0);
        self.narrowed = Some(now);
    }
}
