//! Which calls the agent waits for. An answer with any other stamp is dropped.
//!
//! Calls of leases are in `leases.rs`, probes in `alive.rs`, the change of keys in `keys.rs`.

use std::time::Duration;

use drover_model::id::Attempt;
use drover_model::time::Moment;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct InFlight {
    /// The stamp of the latest effect.
    stamp: Attempt,
    /// The call that the state waits for.
    asked: Option<Attempt>,
    asked_at: Moment,
    /// A read of the guest beside `asked`, sent because a list shows the guest stopped.
    peek: Option<Attempt>,
}

impl InFlight {
    pub(super) fn new(epoch: u64, incarnation: u32, now: Moment) -> Self {
        let stamp = Attempt { epoch, incarnation, n: 0 };
        Self { stamp, asked: None, asked_at: now, peek: None }
    }

    /// The stamp of the next effect.
    pub(super) fn next(&mut self) -> Attempt {
        self.stamp.n += 1;
        self.stamp
    }

    /// The state waits for this call from now on.
    pub(super) fn ask(&mut self, attempt: Attempt, now: Moment) {
        self.asked = Some(attempt);
        self.asked_at = now;
    }

    /// The state's call came back. `false` for any other call.
    pub(super) fn take_answer(&mut self, attempt: Attempt) -> bool {
        let ours = self.asked == Some(attempt);
        self.asked = self.asked.filter(|_| !ours);
        ours
    }

    /// The state no longer waits for its call.
    pub(super) fn forget(&mut self) {
        self.asked = None;
    }

    pub(super) fn state_waits(&self) -> bool {
        self.asked.is_some()
    }

    /// The time since the state's last call was made.
    pub(super) fn age(&self, now: Moment) -> Duration {
        now - self.asked_at
    }

    /// The stamp of a read of the guest beside the state's call. `None` while one is under way.
    pub(super) fn peek(&mut self) -> Option<Attempt> {
        if self.peek.is_some() {
            return None;
        }
        self.peek = Some(self.next());
        self.peek
    }

    /// Whether this is the read beside the state's call.
    pub(super) fn is_peek(&self, attempt: Attempt) -> bool {
        self.peek == Some(attempt)
    }

    pub(super) fn forget_peek(&mut self) {
        self.peek = None;
    }

    pub(super) fn awaits(&self, attempt: Attempt) -> bool {
        self.asked == Some(attempt) || self.is_peek(attempt)
    }
}
