//! Holds for debugging: the agent serves nobody else, the operator can log in, and the agent is
//! destroyed afterwards.

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::TemplateId;
use drover_model::phase::LoginPhase;
use drover_model::record::{Body, Hold, Reason};

use crate::agent::event::{Call, Effect};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use crate::ran::can_pass;

/// After this many failures in a row the login may never come.
const WAIT_LIMIT: u32 = 3;

impl Mind {
    /// An operator starts or ends a hold. The command is durable already.
    pub(super) fn hold(&mut self, hold: Option<Hold>, out: &mut Out) {
        let held = matches!(self.state, State::Held { .. });
        self.holding.set(hold);
        match (self.holding.hold(), held) {
            (Some(_), true) if !self.adoption.is_unseen() => self.be_held("", out),
            (None, true) => self.retire(Reason::HoldOver, out),
            (Some(_), false)
                if matches!(self.state, State::Ready) && !self.adoption.is_unseen() =>
            {
                self.lease_over(out);
            }
            (Some(_) | None, _) => {}
        }
    }

    /// Starts the hold.
    pub(super) fn be_held(&mut self, why: &str, out: &mut Out) {
        self.be_held_as(why, None, out);
    }

    /// Whether the agent is held for a failure on its way, because its template waits for one.
    pub(super) fn is_next_to_hold(&self, reason: &Reason) -> bool {
        // A guest that is gone cannot be looked at.
        let failed = reason.failure().is_some() && *reason != Reason::Vanished;
        let is_kept = self.hints.hold_next.is_some();
        self.has_guest_on_its_way() && failed && !self.holding.is_wanted() && is_kept
    }

    /// Whether the guest runs, or should, and is not ready.
    fn has_guest_on_its_way(&self) -> bool {
        matches!(self.state, State::Booting(_) | State::Connecting { .. } | State::Preparing(_))
    }

    /// Adds to a fault that shows in the guest alone how somebody can look there.
    pub(super) fn suggest_hold(&self, out: &mut Out) {
        let shows_there = self.has_guest_on_its_way();
        let fault = out.fault.as_mut().filter(|fault| fault.kind.counts_against_breaker());
        if let Some(fault) = fault.filter(|_| shows_there) {
            let id = &self.spec.id;
            fault.text +=
                &format!("; `drover hold-next {id}` keeps the next agent that fails, to look at");
        }
    }

    /// Starts the hold that its template kept for the next failure.
    pub(super) fn hold_as_next(&mut self, reason: &Reason, out: &mut Out) {
        self.holding.want(self.hints.hold_next.take());
        out.effects.push(Effect::HeldAsNext);
        let next = Some(self.spec.id.clone());
        self.be_held_as(&format!("held instead of retired: {reason}"), next, out);
    }

    /// Starts the hold, perhaps as the next failure of a template.
    pub(super) fn be_held_as(&mut self, why: &str, next: Option<TemplateId>, out: &mut Out) {
        let Some(hold) = self.holding.hold() else { return };
        let span = Duration::from_millis(hold.span_ms);
        let (until, ends) = (out.now.wall + span, out.now.mono + span);
        let (agent, hold) = (self.agent.clone(), Some(Box::new(hold.clone())));
        let said = (!why.is_empty()).then(|| why.to_owned());
        self.holding.begin(said.clone());
        self.adoption.finish();
        self.lose_leases("its agent is held for debugging", out);
        out.record(Body::HoldSet { agent, hold, until: Some(until), next, why: said });
        self.enter(State::Held { until, ends, login: LoginPhase::Opening }, out);
        self.report.say(self.holding.why().unwrap_or_default());
        if self.address().is_none() {
            self.closed("it has no address");
        } else {
            self.act(out);
        }
    }

    pub(super) fn unlock_call(&self, login: LoginPhase) -> Option<Call> {
        let owed = login == LoginPhase::Opening && self.machine.takes_keys();
        let hold = self.holding.hold().filter(|_| owed)?;
        Some(Call::Unlock(self.address()?, hold.public_key.clone()))
    }

    /// The result of installing the operator's key.
    pub(super) fn unlocked(&mut self, result: Result<(), Fault>, out: &mut Out) {
        match result {
            Ok(()) => self.login(LoginPhase::Open, "the login is open"),
            Err(fault) if can_pass(&fault.kind) => {
                self.machine.hinder_keys(&fault);
                self.back_off(out);
                if self.tries.count() == WAIT_LIMIT {
                    self.report_login(&format!("no login yet, {}: {}", self.console(), fault.text));
                }
            }
            Err(fault) => {
                self.machine.hinder_keys(&fault);
                self.closed(&fault.text);
            }
        }
    }

    /// No login is possible. Only the guest's console is left.
    fn closed(&mut self, why: &str) {
        self.login(LoginPhase::Closed, &format!("no login, {}: {why}", self.console()));
    }

    /// The advice where no login is possible.
    fn console(&self) -> String {
        let place = self.guest.as_ref().map(|guest| {
            let console = guest.marks.guest.console();
            format!(" (`{console} {}` on node {})", guest.marks.vmid, guest.node)
        });
        format!("use its console{}", place.unwrap_or_default())
    }

    fn login(&mut self, now: LoginPhase, reported: &str) {
        if let State::Held { login, .. } = &mut self.state {
            *login = now;
        }
        self.report_login(reported);
    }

    fn report_login(&mut self, reported: &str) {
        self.report.say(match self.holding.why() {
            Some(why) => format!("{why}; {reported}"),
            None => reported.to_owned(),
        });
    }
}
