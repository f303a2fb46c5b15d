//! Held for debugging: kept from everybody else, with a login for whoever wants to look, and
//! destroyed afterwards.

use std::time::Duration;

use crate::agent::event::Call;
use crate::agent::mind::{Mind, Out};
use crate::agent::provision::can_pass;
use crate::agent::state::{Login, State};
use crate::fault::Fault;
use crate::record::{Body, Hold, Reason};

impl Mind {
    /// An operator wants it held, or held no longer; that is durable already.
    pub(super) fn hold(&mut self, hold: Option<Hold>, out: &mut Out) {
        let held = matches!(self.state, State::Held { .. });
        self.hold = hold;
        match (&self.hold, held) {
            (Some(_), true) if !self.observing => self.be_held("", out),
            (None, true) => self.retire(Reason::HoldOver, out),
            (Some(_), false) if matches!(self.state, State::Ready) && !self.observing => {
                self.lease_over(out);
            }
            (Some(_) | None, _) => {}
        }
    }

    /// It is held from this moment on.
    pub(super) fn be_held(&mut self, why: &str, out: &mut Out) {
        let Some(hold) = &self.hold else { return };
        let span = Duration::from_millis(hold.span_ms);
        let (until, ends) = (out.now.wall + span, out.now.mono + span);
        let (agent, hold) = (self.agent.clone(), Some(Box::new(hold.clone())));
        self.observing = false;
        self.lose_leases(out);
        out.record(Body::HoldSet { agent, hold, until: Some(until) });
        self.enter(State::Held { until, ends, login: Login::Owed }, out);
        why.clone_into(&mut self.detail);
        if self.address().is_none() {
            self.closed("it has no address", out);
        } else {
            self.act(out);
        }
    }

    pub(super) fn unlock_call(&self, login: Login) -> Option<Call> {
        let hold = self.hold.as_ref().filter(|_| login == Login::Owed)?;
        Some(Call::Unlock(self.address()?, hold.public_key.clone()))
    }

    /// The operator's key was installed, or could not be.
    pub(super) fn unlocked(&mut self, result: Result<(), Fault>, out: &mut Out) {
        match result {
            Ok(()) => self.login(Login::Open, "the login is open"),
            Err(fault) if can_pass(&fault.kind) => self.back_off(out),
            Err(fault) => self.closed(&fault.text, out),
        }
    }

    /// Nobody can log in: what is left is the console of the guest.
    fn closed(&mut self, why: &str, _: &mut Out) {
        self.login(Login::Closed, &format!("no login, use its console: {why}"));
    }

    fn login(&mut self, now: Login, told: &str) {
        if let State::Held { login, .. } = &mut self.state {
            *login = now;
        }
        let before = std::mem::take(&mut self.detail);
        self.detail = if before.is_empty() { told.to_owned() } else { format!("{before}; {told}") };
    }
}
