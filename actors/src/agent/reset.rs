//! Resets a used guest: it returns to the snapshot from before its first use, is repaired, and is
//! free again for the same owner only. Any failure ends the agent.
//!
//! The call that rolls back also verifies the marks. This file decides the rest.

use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::os::Os;
use drover_model::ports::{AddressObservation, Greeting, Ran, Snapped};
use drover_model::record::{Body, Owner, Reason};
use drover_model::spec::ResetKind;
use drover_scripts::guest;
use drover_scripts::windows;

use crate::agent::event::{Call, Effect};
use crate::agent::mind::{Mind, Out};
use crate::agent::provision::{GREET_PAUSE, greet_limit};
use crate::agent::state::{PrepareStep, ResetStep, State};
use crate::ran::{can_pass, describe_failure};
use crate::reset_stats::ResetStats;

/// The limit of the repair after a rollback.
const REMEDY_LIMIT: Duration = Duration::from_secs(60);

impl Mind {
    /// The only owner whose leases the agent takes. `None` while it takes anybody's.
    pub(super) fn kept_for(&self) -> Option<&Owner> {
        self.usage.owner().filter(|_| self.spec.reset.is_some())
    }

    /// Reports what this agent has shown to its template's other agents.
    pub(super) fn learn(&self, reset_stats: ResetStats, out: &mut Out) {
        if self.spec.reset.is_some() {
            out.effects.push(Effect::Learnt(reset_stats));
        }
    }

    /// The result of the snapshot before the first use. The agent is ready also where none is
    /// possible.
    pub(super) fn snapped(&mut self, result: Result<Snapped, Fault>, out: &mut Out) {
        match result {
            Ok(Snapped::Taken) => {
                self.usage.take_snapshot();
                out.record(Body::SnapshotTaken { agent: self.agent.clone() });
                self.prepare_next(PrepareStep::Snapshot, out);
            }
            Ok(Snapped::Impossible(why)) => {
                self.report.warn([format!("it cannot be reset: {why}")]);
                self.learn(ResetStats::Refused(why), out);
                self.prepare_next(PrepareStep::Snapshot, out);
            }
            Err(fault) => self.failed(fault, out),
        }
    }

    /// After the last lease: resets the agent where that is possible and worth it, or retires it.
    pub(super) fn reset_or_retire(&mut self, out: &mut Out) {
        if !self.usage.has_snapshot() {
            return self.retire(Reason::UsedUp, out);
        }
        if !self.hints.worth {
            self.learn(ResetStats::Passed, out);
            return self.retire(Reason::UsedUp, out);
        }
        out.record(Body::ResetIntended { agent: self.agent.clone() });
        let since = out.now.mono;
        self.enter(State::Resetting { step: ResetStep::Rollback, since }, out);
        self.report.say("goes back to its snapshot");
        if !self.adoption.is_unseen() {
            self.act(out);
        }
    }

    pub(super) fn reset_call(&self, step: ResetStep, out: &Out) -> Option<Call> {
        let left = self.timers.left(out.now.mono).unwrap_or(REMEDY_LIMIT);
        Some(match step {
            ResetStep::Rollback => Call::Rollback,
            ResetStep::Address => Call::Address,
            ResetStep::Greet => Call::Greet(self.address()?, greet_limit(self.spec.os)),
            ResetStep::Remedy => {
                let command = match self.spec.os {
                    Os::Linux => guest::after_rollback(out.now.wall, out.draw),
                    Os::Windows(_) => windows::after_rollback(),
                };
                Call::Run(self.address()?, command, REMEDY_LIMIT.min(left))
            }
            ResetStep::ReadyCommand => {
                Call::Run(self.address()?, self.spec.ready_command.clone()?, left)
            }
        })
    }

    fn reset_step(&mut self, step: ResetStep, reported: &str, out: &mut Out) {
        self.tries.start_again();
        self.set_reset_step(step);
        self.report.say(reported);
        self.act(out);
    }

    fn set_reset_step(&mut self, next: ResetStep) {
        if let State::Resetting { step, .. } = &mut self.state {
            *step = next;
        }
    }

    /// Ends the agent for a fault that does not pass. Somebody else's guest stays untouched.
    fn reset_failed(&mut self, fault: Fault, out: &mut Out) {
        match &fault.kind {
            FaultKind::Foreign => self.strand(&fault.text, out),
            FaultKind::Denied { .. } => {
                self.learn(ResetStats::Refused(fault.text.clone()), out);
                self.fail(fault, out);
            }
            FaultKind::Contention
            | FaultKind::Locked { .. }
            | FaultKind::Unreachable
            | FaultKind::UnknownOutcome
            | FaultKind::Gone
            | FaultKind::IdTaken
            | FaultKind::Capacity
            | FaultKind::KeyRejected
            | FaultKind::Impostor
            | FaultKind::Broken => self.fail(fault, out),
        }
    }

    /// The result of the rollback. An agent whose rollback failed or is unclear is not offered
    /// again.
    pub(super) fn rolled_back(&mut self, result: Result<(), Fault>, out: &mut Out) {
        if let Err(fault) = result {
            return self.reset_failed(fault, out);
        }
        self.tries.start_again();
        // A guest with an assigned address has it again, and perhaps no guest agent that reports
        // one.
        let own = self.own_address().is_some();
        self.set_reset_step(if own { ResetStep::Greet } else { ResetStep::Address });
        self.report.say(if own { "waits for its login" } else { "waits for its address" });
        if self.spec.reset == Some(ResetKind::Memory) {
            return self.act(out);
        }
        let first = self.boot.begin(out.now.mono, self.spec.limits.startup);
        self.retry_in(first, out);
    }

    pub(super) fn reset_addressed(
        &mut self,
        result: Result<AddressObservation, Fault>,
        out: &mut Out,
    ) {
        match result {
            Ok(AddressObservation::At(address)) => {
                let moved = self.address() != Some(address);
                if let Some(guest) = &mut self.guest {
                    guest.address = Some(address);
                    if moved {
                        let keys = guest.host_keys.clone();
                        self.pin(keys, out);
                    }
                }
                self.reset_step(ResetStep::Greet, "waits for its login", out);
            }
            Ok(AddressObservation::NotYet(text)) => {
                self.report.say(text);
                self.tries.forget_fault();
                self.ask_address_again(out);
            }
            Err(fault) if can_pass(&fault.kind) => {
                self.hinder(fault);
                self.back_off(out);
            }
            Err(fault) => self.reset_failed(fault, out),
        }
    }

    /// The guest must show its known host key. Otherwise it is not the guest that was reset.
    pub(super) fn reset_greeted(&mut self, result: Result<Greeting, Fault>, out: &mut Out) {
        match result.and_then(|greeting| self.proven(greeting)) {
            Ok(_) => self.reset_step(ResetStep::Remedy, "is repaired", out),
            Err(fault) if can_pass(&fault.kind) => {
                self.hinder(fault);
                self.retry_in(GREET_PAUSE, out);
            }
            Err(fault) => self.reset_failed(fault, out),
        }
    }

    pub(super) fn repaired(&mut self, step: ResetStep, ran: Result<Ran, Fault>, out: &mut Out) {
        match ran {
            Ok(Ran { exit: Some(0), .. }) => {
                if step == ResetStep::Remedy && self.spec.ready_command.is_some() {
                    return self.reset_step(ResetStep::ReadyCommand, "runs readyCommand", out);
                }
                if let State::Resetting { since, .. } = self.state {
                    self.learn(ResetStats::Reset(out.now.mono - since), out);
                }
                self.usage.clean();
                self.enter(State::Ready, out);
                self.lease_over(out);
            }
            Ok(ran) => {
                let name = if step == ResetStep::Remedy { "repair" } else { "readyCommand" };
                let text = describe_failure(name, &ran);
                self.reset_failed(Fault::new(FaultKind::Broken, Culprit::Guest, text), out);
            }
            Err(fault) if can_pass(&fault.kind) => {
                self.hinder(fault);
                self.retry_in(GREET_PAUSE, out);
            }
            Err(fault) => self.reset_failed(fault, out),
        }
    }
}
