//! Wall time of a simulated cluster, driven by tokio's clock so that virtual time moves it.
//!
//! Deadlines do not use it: they use tokio's instants.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Unix time that starts at a chosen second and moves with tokio's clock, paused or not.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    base: u64,
    start: Instant,
}

impl WallClock {
    /// A clock that shows `base`, in Unix seconds, now.
    pub fn starting_at(base: u64) -> Self {
        Self { base, start: Instant::now() }
    }

    /// Unix seconds now.
    pub fn now(&self) -> u64 {
        self.base + self.start.elapsed().as_secs()
    }
}

/// This computer's wall clock in Unix seconds. A simulated cluster on real time starts at it.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wall_time_moves_with_virtual_time() {
        let clock = WallClock::starting_at(1_000);
        tokio::time::advance(std::time::Duration::from_secs(90)).await;
        assert_eq!(clock.now(), 1_090);
    }
}
