//! The failures of the present state's step: how many in a row, the last fault, and the pause before
//! the next try.

use std::time::Duration;

use drover_model::fault::Fault;

const PAUSE_FIRST: Duration = Duration::from_secs(2);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tries {
    pause: Duration,
    /// Failures in a row.
    count: u32,
    fault: Option<Fault>,
}

impl Default for Tries {
    fn default() -> Self {
        Self { pause: PAUSE_FIRST, count: 0, fault: None }
    }
}

impl Tries {
    /// The step went on. The last fault is kept for the state's deadline.
    pub(super) fn calm(&mut self) {
        self.pause = PAUSE_FIRST;
        self.count = 0;
    }

    pub(super) fn forget_fault(&mut self) {
        self.fault = None;
    }

    /// The step went on, and the last fault says nothing any more.
    pub(super) fn start_again(&mut self) {
        *self = Self::default();
    }

    pub(super) fn keep(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    pub(super) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Counts a try that needs no growing pause.
    pub(super) fn add(&mut self) {
        self.count += 1;
    }

    /// Counts a failure. Returns the pause before the next try; the one after that is longer.
    pub(super) fn failed(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_LONGEST);
        self.count += 1;
        pause
    }
}
