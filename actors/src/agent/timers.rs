//! When the agent must do something by itself. One wake is pending, for the earliest of these.

use std::time::Duration;

use drover_model::id::Attempt;
use drover_model::spec::LimitSpec;
use drover_model::time::Moment;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timers {
    /// The pending wake.
    wake: Option<(Attempt, Moment)>,
    /// The deadline of the state.
    deadline: Option<Moment>,
    /// When the state's step is repeated.
    retry: Option<Moment>,
    /// The deadline of the whole clone.
    clone_until: Moment,
    /// When the clone was intended, until the agent is first ready.
    cloned_since: Option<Moment>,
    /// The end of the agent's lifetime.
    old_at: Option<Moment>,
}

impl Timers {
    pub(super) fn new(limits: &LimitSpec, now: Moment) -> Self {
        Self {
            wake: None,
            deadline: None,
            retry: None,
            clone_until: now + limits.clone,
            cloned_since: None,
            old_at: limits.lifetime.map(|life| now + life),
        }
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Moment>) {
        self.deadline = deadline;
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// Ends the state at this moment at the latest, where it has a deadline.
    pub(super) fn bring_deadline_forward(&mut self, until: Moment) {
        self.deadline = self.deadline.map(|due| due.min(until));
    }

    /// The time before the deadline. `None` without a deadline.
    pub(super) fn left(&self, now: Moment) -> Option<Duration> {
        self.deadline.map(|deadline| deadline - now)
    }

    /// Whether the deadline has passed. It is reported once.
    pub(super) fn take_deadline(&mut self, now: Moment) -> bool {
        take_due(&mut self.deadline, now)
    }

    pub(super) fn retry_at(&mut self, at: Moment) {
        self.retry = Some(at);
    }

    pub(super) fn retry(&self) -> Option<Moment> {
        self.retry
    }

    pub(super) fn forget_retry(&mut self) {
        self.retry = None;
    }

    /// Whether the step must be repeated now. That is reported once.
    pub(super) fn take_retry(&mut self, now: Moment) -> bool {
        take_due(&mut self.retry, now)
    }

    /// The clone is intended at this moment.
    pub(super) fn start_clone(&mut self, now: Moment, limit: Duration) {
        self.clone_until = now + limit;
        self.cloned_since = Some(now);
    }

    pub(super) fn clone_until(&self) -> Moment {
        self.clone_until
    }

    /// When the clone was intended, at the first time that the agent is ready.
    pub(super) fn take_clone_start(&mut self) -> Option<Moment> {
        self.cloned_since.take()
    }

    /// The end of the agent's lifetime.
    pub(super) fn old_at(&self) -> Option<Moment> {
        self.old_at
    }

    pub(super) fn live_until(&mut self, end: Option<Moment>) {
        self.old_at = end;
    }

    /// Whether a wake is pending for exactly this moment.
    pub(super) fn is_armed_for(&self, at: Moment) -> bool {
        self.wake.is_some_and(|(_, armed)| armed == at)
    }

    pub(super) fn arm(&mut self, attempt: Attempt, at: Moment) {
        self.wake = Some((attempt, at));
    }

    pub(super) fn disarm(&mut self) {
        self.wake = None;
    }

    /// The moment for which the pending wake was armed. `None` for an earlier one.
    pub(super) fn take_wake(&mut self, attempt: Attempt) -> Option<Moment> {
        let (_, due) = self.wake.filter(|(expected, _)| *expected == attempt)?;
        self.disarm();
        Some(due)
    }

    #[cfg(test)]
    pub(super) fn wake(&self) -> Option<(Attempt, Moment)> {
        self.wake
    }
}

fn take_due(timer: &mut Option<Moment>, now: Moment) -> bool {
    timer.take_if(|due| *due <= now).is_some()
}
