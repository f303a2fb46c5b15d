//! The clocks and the dice of the real service. `drover-forecast` has their stand-ins in virtual time.

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
