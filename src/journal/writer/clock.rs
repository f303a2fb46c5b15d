//! How far the wall clock was set while the journal was written.

use std::sync::atomic::{AtomicI64, Ordering};

use drover_model::time::{Now, WallTime};

/// The wall clock in relation to the monotonic one.
pub(super) struct Clock {
    /// The wall time at which the monotonic clock was zero, in milliseconds.
    zero: AtomicI64,
}

impl Clock {
    pub(super) fn new(now: Now) -> Self {
        let clock = Self { zero: AtomicI64::new(0) };
        clock.follow(now);
        clock
    }

    pub(super) fn follow(&self, now: Now) {
        self.zero.store(now.zero().0, Ordering::Release);
    }

    /// How far the wall clock was set since the last record about that, in milliseconds.
    pub(super) fn set_by(&self, now: Now) -> Option<i64> {
        now.set_by(WallTime(self.zero.load(Ordering::Acquire)))
    }
}
