//! Dispatch: which part of the mind handles an event.

use drover_model::fault::Fault;
use drover_model::id::Attempt;
use drover_model::record::Reason;

use crate::agent::alive::is_of_ssh;
use crate::agent::concurrency_place::ConcurrencyPlace;
use crate::agent::event::{Answer, Effect, Guest};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{RetireStep, State};
use crate::message::AgentCommand;

impl Mind {
    pub(super) fn command(&mut self, command: AgentCommand, out: &mut Out) {
        match command {
            AgentCommand::Granted { vmid, node, cluster, spec } => {
                let mine = self.guest.as_ref().is_some_and(|guest| guest.marks.vmid == vmid);
                if matches!(self.state, State::Queued) {
                    self.granted(vmid, node, cluster, spec, out);
                } else if !mine {
                    out.effects.push(Effect::IdBack { vmid, burned: false });
                }
            }
            AgentCommand::NotGranted(fault) => self.not_granted(fault, out),
            AgentCommand::Lease { ask } => self.lease(*ask, out),
            AgentCommand::LeaseRenewed { lease, expires } => self.renewed(&lease, expires, out),
            AgentCommand::EndLease { lease, why } => self.end_lease(&lease, &why, out),
            AgentCommand::FailLease { lease, text } => self.fail_lease(&lease, text, out),
            AgentCommand::AskRunner { lease } => {
                self.ask_words(&lease, out);
            }
            AgentCommand::Override(change) => self.override_limits(change, out),
            AgentCommand::Hold(hold) => self.hold(hold.map(|hold| *hold), out),
            AgentCommand::Order(order) => self.order(*order, out),
            AgentCommand::Drain(reason) => self.retire_idle(reason, out),
            AgentCommand::Retire(reason) => {
                let wants_end = matches!(
                    reason,
                    Reason::Asked | Reason::AskedBy { .. } | Reason::TrialOver | Reason::Stopping
                );
                if wants_end {
                    self.holding.want(None);
                }
                if matches!(self.state, State::Held { .. }) {
                    self.retire(reason, out);
                } else {
                    self.retire_idle(reason, out);
                }
            }
            AgentCommand::Withdraw => {
                if matches!(self.state, State::Queued) {
                    self.retire(Reason::Cancelled, out);
                }
            }
            AgentCommand::ForceRetire(reason) => {
                if !matches!(self.state, State::Stranded { .. }) {
                    self.holding.want(None);
                    self.retire(reason, out);
                }
            }
            AgentCommand::Moved(node) => {
                if let Some(guest) = &mut self.guest {
                    guest.node = node;
                }
            }
            AgentCommand::Vanished => self.reported_vanished(out),
            AgentCommand::SeenStopped => self.seen_stopped(out),
            AgentCommand::Observed(seen) => self.observed_in_list(&seen, out),
            AgentCommand::CalledIn(address) => self.called_in(address, out),
            AgentCommand::NodeDown(down) => self.node_down(down, out),
            AgentCommand::Rest => self.rest(out),
        }
    }

    fn not_granted(&mut self, fault: Fault, out: &mut Out) {
        if !matches!(self.state, State::Queued) {
            return;
        }
        let reason = self.failure(&fault);
        out.fault = Some(fault);
        self.place = ConcurrencyPlace::None;
        self.gone(reason, false, out);
    }

    /// Retires the agent once it has no lease.
    fn retire_idle(&mut self, reason: Reason, out: &mut Out) {
        if !matches!(self.state, State::Stranded { .. }) {
            self.drain(reason, out);
        }
    }

    /// While the clone is being made its id may well be free. There only the state's own reads
    /// decide.
    fn reported_vanished(&mut self, out: &mut Out) {
        if let State::Retiring {
            step: RetireStep::DestroyTask(_) | RetireStep::Leftovers, ..
        } = self.state
        {
            // This agent destroys the guest itself and must still find out whether volumes remain.
            return;
        }
        let settled = self.guest.as_ref().is_some_and(Guest::is_settled);
        if matches!(self.state, State::Stranded { .. }) {
            self.in_flight.forget();
            self.list_remains(out);
        } else if self.state.is_alive() {
            self.vanished(out);
        } else if matches!(self.state, State::Retiring { .. }) && settled {
            // The end of the destroy was not seen: volumes may remain.
            self.in_flight.forget();
            self.retire_step(RetireStep::Leftovers, out);
        }
    }

    fn node_down(&mut self, down: bool, out: &mut Out) {
        // Without a guest there is nothing on that node.
        let was_parked = self.reachability.park(down && self.guest.is_some());
        let back = was_parked && !down;
        if let Some(text) = self.parked_text() {
            self.report.say(text);
        }
        if self.reachability.is_parked() {
            self.lose_where_parked(out);
        }
        if back {
            self.retire_idle(Reason::ReturnedFromPark, out);
            // A node that lost power brings its guests back stopped. The holder should not have to
            // wait for a list that shows it.
            self.seen_stopped(out);
        }
    }

    pub(super) fn answered(&mut self, attempt: Attempt, answer: Answer, out: &mut Out) {
        if self.awaits(attempt) && is_of_ssh(&answer) {
            self.ssh_answered(out);
        }
        self.answer_taken(attempt, answer, out);
        self.give_keys_back(attempt, out);
    }

    fn answer_taken(&mut self, attempt: Attempt, answer: Answer, out: &mut Out) {
        if self.machine.awaits(attempt) {
            return self.order_answered(answer, out);
        }
        match answer {
            Answer::Ordered(_) => {}
            Answer::Probed(result) => {
                if self.alive.awaits(attempt) {
                    self.probed(result, out);
                }
            }
            Answer::Admitted(id, result) => {
                if self.leases.is_asked(&id, attempt) {
                    self.admitted(&id, result, out);
                }
            }
            Answer::Expelled(id, result) => {
                if self.leases.is_asked(&id, attempt) {
                    self.expelled(&id, result, out);
                }
            }
            Answer::Words(id, result) => {
                if self.leases.is_asked(&id, attempt) {
                    self.worded(&id, result, out);
                }
            }
            Answer::Looked(result) if self.in_flight.is_peek(attempt) => {
                self.in_flight.forget_peek();
                self.peeked(result, out);
            }
            answer @ (Answer::Cloned(_)
            | Answer::TaskEnded(_)
            | Answer::Looked(_)
            | Answer::IdSeen(_)
            | Answer::Configured(_)
            | Answer::Accepted(_)
            | Answer::Addressed(_)
            | Answer::HostKeys(_)
            | Answer::Snapped(_)
            | Answer::RolledBack(_)
            | Answer::Greeted(_)
            | Answer::Ran(_)
            | Answer::Unlocked(_)
            | Answer::Fenced(_)
            | Answer::Leftovers(_)) => {
                if self.in_flight.take_answer(attempt) {
                    self.state_answered(answer, out);
                }
            }
        }
    }

    fn state_answered(&mut self, answer: Answer, out: &mut Out) {
        match answer {
            Answer::Cloned(result) => self.cloned(result, out),
            Answer::TaskEnded(result) if matches!(self.state, State::Booting(_)) => {
                self.start_ended(result, out);
            }
            Answer::TaskEnded(result) if matches!(self.state, State::Retiring { .. }) => {
                self.retire_task_ended(result, out);
            }
            Answer::TaskEnded(result) => self.clone_ended(result, out),
            Answer::Looked(result) => self.looked(result, out),
            Answer::IdSeen(result) => self.retire_confirmed(result, out),
            Answer::Configured(result) => self.configured(result, out),
            Answer::Accepted(result) => {
                if matches!(self.state, State::Retiring { .. }) {
                    self.retire_accepted(result, out);
                } else {
                    self.start_accepted(result, out);
                }
            }
            Answer::Addressed(result) if matches!(self.state, State::Resetting { .. }) => {
                self.reset_addressed(result, out);
            }
            Answer::Addressed(result) => self.addressed(result, out),
            Answer::HostKeys(result) => self.keys_read(result, out),
            Answer::Snapped(result) => self.snapped(result, out),
            Answer::RolledBack(result) => self.rolled_back(result, out),
            Answer::Greeted(result) if matches!(self.state, State::Resetting { .. }) => {
                self.reset_greeted(result, out);
            }
            Answer::Greeted(result) => self.greeted(result, out),
            Answer::Ran(result) => match self.state {
                State::Preparing(step) => self.prepared(step, result, out),
                State::Resetting { step, .. } => self.repaired(step, result, out),
                State::Queued
                | State::Cloning { .. }
                | State::InDoubt { .. }
                | State::Configuring
                | State::Booting(_)
                | State::Connecting { .. }
                | State::Ready
                | State::Leased
                | State::Draining(_)
                | State::Held { .. }
                | State::Retiring { .. }
                | State::Stranded { .. }
                | State::Gone { .. } => self.closed_off(result, out),
            },
            Answer::Unlocked(result) => self.unlocked(result, out),
            Answer::Fenced(result) => self.fenced(result, out),
            Answer::Leftovers(result) => self.remains_listed(result, out),
            Answer::Admitted(..)
            | Answer::Expelled(..)
            | Answer::Words(..)
            | Answer::Ordered(_)
            | Answer::Probed(_) => {}
        }
    }
}
