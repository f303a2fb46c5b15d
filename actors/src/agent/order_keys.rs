//! The keys in a guest after a revert: a snapshot may be from before its holders' keys were installed.
//!
//! A revert is done only once each holder's key, or that of the hold, is in the guest again. The leases
//! and the hold make these calls, as after a start of the service. A revert whose rollback happened, and
//! which failed later, owes the keys too: they are tried on after the order.

use drover_model::journal_state::Pass;
use drover_model::order::Work;
use drover_model::phase::{LoginPhase, OrderPhase, Power};

use crate::agent::leases::{Lease, Stage};
use crate::agent::machine::OrderStep;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;

/// How a revert ends whose keys did not get in.
pub(super) fn no_key_yet(why: &str) -> String {
    format!(
        "the machine is back at its snapshot and runs, but the key of its holder is not in the guest: \
         {why}; drover tries again"
    )
}

/// Whether a lease is one whose holder logs in with a key in the guest.
fn has_key(lease: &Lease) -> bool {
    lease.stage == Stage::Ready && matches!(lease.granted.pass(), Some(Pass::Holder(_)))
}

/// Whether a lease's key must be put into its guest, and the lease goes on meanwhile.
fn owes_key(lease: &Lease) -> bool {
    lease.unseen && has_key(lease)
}

impl Mind {
    /// The guest was reached and repaired after a revert: the keys follow.
    pub(super) fn put_keys_back(&mut self, out: &mut Out) {
        self.owe_keys_again();
        self.machine.go_to(OrderStep::Keys);
        self.go_on_inside(out);
    }

    fn owe_keys_again(&mut self) {
        for id in self.leases.in_line() {
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            lease.unseen |= has_key(lease);
        }
        if let State::Held { login, .. } = &mut self.state {
            *login = LoginPhase::Opening;
        }
    }

    /// An order fails which may have put the machine back already.
    pub(super) fn owe_keys_after_failure(&mut self, phase: OrderPhase) {
        let reverts = matches!(self.machine.work(), Some(Work::Revert { .. }));
        let rolled_back = match self.machine.step {
            OrderStep::Carry => self.machine.sent,
            OrderStep::Address | OrderStep::Greet | OrderStep::Remedy => true,
            // They are owed already.
            OrderStep::Keys => false,
        };
        if reverts && rolled_back && phase == OrderPhase::Failed {
            self.owe_keys_again();
        }
    }

    /// Ends the order that waits for keys once all of them are in the guest.
    pub(super) fn check_keys_back(&mut self, out: &mut Out) {
        let waits = self.machine.work().is_some() && self.machine.step == OrderStep::Keys;
        if !waits || self.leases.each().any(owes_key) {
            return;
        }
        match &self.state {
            State::Held { login: LoginPhase::Opening, .. } => {}
            State::Held { login: LoginPhase::Closed, .. } => {
                let why = self.machine.hindered.take();
                let why = why.unwrap_or_else(|| "the guest refused it".to_owned());
                let text = format!(
                    "the machine is back at its snapshot and runs, but the key of its hold is not in \
                     the guest: {why}"
                );
                self.order_failed(text, Power::Running, out);
            }
            State::Held { login: LoginPhase::Open, .. }
            | State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => self.order_done(out),
        }
    }

    /// An order is over. Where the machine runs, what its leases and its hold still need there is
    /// done.
    pub(super) fn go_on_inside(&mut self, out: &mut Out) {
        if !self.takes_orders() {
            return;
        }
        if !self.machine.takes_keys() {
            if self.leases.any_expels() {
                self.leave_with_keys(out);
            }
            return;
        }
        for id in self.leases.in_line() {
            self.lease_go_on(&id, out);
        }
        let owed = matches!(self.state, State::Held { login: LoginPhase::Opening, .. });
        if owed && !self.in_flight.state_waits() && self.timers.retry().is_none() {
            self.act(out);
        }
    }
}
