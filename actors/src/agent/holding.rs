//! The hold that an operator or a failure asked for.

use drover_model::record::Hold;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Holding {
    /// The hold that starts as soon as no lease is on the agent.
    hold: Option<Hold>,
    /// Why the agent would have retired, where it is held instead.
    why: Option<String>,
}

impl Holding {
    pub(super) fn new(hold: Option<Hold>, why: Option<String>) -> Self {
        Self { hold, why }
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        self.hold.as_ref()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.hold.is_some()
    }

    /// Sets or removes the hold. A hold that replaces another one keeps its reason.
    pub(super) fn set(&mut self, hold: Option<Hold>) {
        self.hold = hold;
        self.why = self.why.take().filter(|_| self.hold.is_some());
    }

    /// Sets the hold and keeps any reason.
    pub(super) fn want(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// Why the agent is held instead of retired.
    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// The hold starts. A hold that is extended keeps the reason it started with.
    pub(super) fn begin(&mut self, why: Option<String>) {
        self.why = why.or(self.why.take());
    }
}
