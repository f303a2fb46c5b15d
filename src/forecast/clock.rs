//! The stand-in of the machine's clocks and dice in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use drover_model::ambient::Dice;
use drover_model::ports::Ambient;
use drover_model::time::{Moment, Now, WallTime};
use parking_lot::Mutex;

/// Tokio's clock, which tests and replays pause, on a fixed wall time, and dice with a known seed.
pub struct VirtualAmbient {
    start: tokio::time::Instant,
    wall: WallTime,
    /// By how many milliseconds somebody has set the wall clock.
    set: Arc<AtomicI64>,
    dice: Mutex<Dice>,
}

impl VirtualAmbient {
    /// Starts both clocks: the monotonic one at zero, the wall at `wall`.
    pub fn new(wall: WallTime, seed: u64) -> Self {
        let dice = Mutex::new(Dice::from_number(seed));
        Self { start: tokio::time::Instant::now(), wall, set: Arc::default(), dice }
    }

    /// The same with a wall clock that is set by so many milliseconds at any time.
    #[must_use]
    pub fn set_by(self, set: Arc<AtomicI64>) -> Self {
        Self { set, ..self }
    }
}

impl Ambient for VirtualAmbient {
    fn now(&self) -> Now {
        let elapsed = self.start.elapsed();
        let wall = (self.wall + elapsed).shifted(self.set.load(Ordering::Acquire));
        Now { mono: Moment(0) + elapsed, wall }
    }

    fn draw(&self) -> u64 {
        self.dice.lock().draw()
    }
}
