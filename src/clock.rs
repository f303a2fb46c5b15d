//! The clocks and the dice of the real service, and their stand-ins in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use drover_model::ambient::Dice;
use drover_model::ports::Ambient;
use drover_model::time::{Moment, Now, WallTime};
use parking_lot::Mutex;
use rand::TryRng;
use rand::rngs::SysRng;

/// The machine's clocks, and dice seeded by the operating system.
pub struct SystemAmbient {
    start: Instant,
    dice: Mutex<Dice>,
}

impl SystemAmbient {
    /// Starts the monotonic clock at zero.
    ///
    /// # Errors
    /// When the operating system gives no random seed.
    pub fn new() -> Result<Self, std::io::Error> {
        let mut seed = [0_u8; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(std::io::Error::other)?;
        Ok(Self { start: Instant::now(), dice: Mutex::new(Dice::new(seed)) })
    }
}

impl Ambient for SystemAmbient {
    fn now(&self) -> Now {
        let mono = Moment(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Now { mono, wall: WallTime(wall) }
    }

    fn draw(&self) -> u64 {
        self.dice.lock().draw()
    }
}

/// Tokio's clock, which tests pause, on a fixed wall time, and dice with a known seed.
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
