//! The time of the world: a wall clock that follows tokio's clock. A paused tokio clock thus drives
//! the whole world.

use std::time::Duration;

use tokio::time::Instant;

/// Time since the start of the world.
pub(crate) type Moment = Duration;

/// The default start of a world, in Unix seconds.
pub const EPOCH: u64 = 1_795_250_000;

/// The uptime of the nodes when the world starts, in seconds.
pub(crate) const UPTIME_AT_START: u64 = 7_200;

/// Converts tokio's clock to the time of the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    epoch: u64,
}

impl Clock {
    /// Starts the clock at this time, in Unix seconds.
    pub(crate) fn starting_at(epoch: u64) -> Self {
        Self { start: Instant::now(), epoch }
    }

    /// Time since the start of the world.
    pub(crate) fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// The present time in Unix seconds.
    pub(crate) fn unix(&self) -> u64 {
        self.unix_of(self.now())
    }

    /// A moment in Unix seconds.
    pub(crate) fn unix_of(&self, moment: Moment) -> u64 {
        self.epoch + moment.as_secs()
    }
}
