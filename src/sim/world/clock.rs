//! The world's time: a wall clock that follows tokio's, and the moments everything is dated by.

use std::time::Duration;

use tokio::time::Instant;

/// Time since the world began.
pub type Moment = Duration;

/// Unix seconds at which a world begins when nothing else is said.
pub const EPOCH: u64 = 1_795_250_000;

/// How long the nodes have been up when the world begins.
pub const UPTIME_AT_START: u64 = 7_200;

/// Reads tokio's clock, so that a paused one drives the world.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    epoch: u64,
}

impl Clock {
    /// Starts the clock at these Unix seconds.
    pub fn starting_at(epoch: u64) -> Self {
        Self { start: Instant::now(), epoch }
    }

    /// Time since the world began.
    pub fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// Unix seconds of the present.
    pub fn unix(&self) -> u64 {
        self.unix_of(self.now())
    }

    /// Unix seconds of a moment.
    pub fn unix_of(&self, moment: Moment) -> u64 {
        self.epoch + moment.as_secs()
    }
}
