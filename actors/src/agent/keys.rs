//! The keys in the guest: one change at a time, and leases that go on while no login succeeds.
//!
//! Calls that change the guest's keys wait in a queue, first come, first served. The place depends
//! on when a lease was granted, when it ended, or when the pause before another try was over. The
//! queue moves when the running call comes back, or was never made. What became of its lease
//! meanwhile does not matter. A runner has no key, so its calls do not wait.

use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{Attempt, LeaseId};
use drover_model::phase::LoginPhase;
use drover_model::time::WallTime;

use crate::agent::event::Call;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use drover_model::journal_state::Pass;

/// The pause between two tries to change a key, and the first of growing pauses.
pub(super) const KEY_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two tries for a lease that goes on meanwhile.
const KEY_PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// The state of changes to the guest's keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Keys {
    /// The running change.
    under_way: Option<Attempt>,
    /// Since when no login succeeds although a lease goes on.
    shut_since: Option<WallTime>,
}

/// Whether a call changes the keys in the guest.
fn changes_keys(call: &Call) -> bool {
    match call {
        Call::Admit(_, _, pass) | Call::Expel(_, _, pass, _) => matches!(pass, Pass::Holder(_)),
        Call::Unlock(..) => true,
        Call::Clone { .. }
        | Call::Await(..)
        | Call::Look
        | Call::Confirm
        | Call::IdTaken
        | Call::Configure
        | Call::Start
        | Call::Address
        | Call::HostKeys
        | Call::Snapshot
        | Call::Rollback
        | Call::Order { .. }
        | Call::Greet(..)
        | Call::Probe(..)
        | Call::Run(..)
        | Call::Upload(..)
        | Call::Words(..)
        | Call::Fence
        | Call::Shutdown(_)
        | Call::Stop
        | Call::Destroy
        | Call::Leftovers => false,
    }
}

impl Mind {
    /// Takes the guest's keys for a call. `false` while another call changes them.
    pub(super) fn take_keys(&mut self, call: &Call, attempt: Attempt) -> bool {
        if !changes_keys(call) {
            return true;
        }
        if self.keys.under_way.is_some() {
            return false;
        }
        self.keys.under_way = Some(attempt);
        true
    }

    /// A call came back or was not made: the next in the queue takes the keys.
    pub(super) fn give_keys_back(&mut self, attempt: Attempt, out: &mut Out) {
        if self.keys.under_way != Some(attempt) {
            return;
        }
        self.keys.under_way = None;
        if matches!(self.state, State::Held { login: LoginPhase::Opening, .. })
            && !self.in_flight.state_waits()
            && self.timers.retry().is_none()
        {
            self.act(out);
        }
        while self.keys.under_way.is_none() {
            let Some(id) = self.leases.next_waiting() else { return };
            self.lease_act(&id, out);
        }
    }

    /// A call was not made, because the mind no longer waited for it.
    pub(super) fn not_made(&mut self, attempt: Attempt, out: &mut Out) {
        if let Some(id) = self.leases.of_call(attempt) {
            self.is_outdated(&id, out);
        }
        self.give_keys_back(attempt, out);
    }

    /// Whether the lease's call came back for a stage that is over. Then the call of its present
    /// stage is made.
    pub(super) fn is_outdated(&mut self, id: &LeaseId, out: &mut Out) -> bool {
        let Some(lease) = self.leases.get_mut(id) else { return true };
        lease.asked = None;
        let outdated = std::mem::take(&mut lease.outdated);
        if outdated {
            self.lease_go_on(id, out);
        }
        outdated
    }

    /// Repeats the lease's call after a growing pause. The lease goes on and no fault is charged.
    pub(super) fn key_later(&mut self, id: &LeaseId, out: &Out) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.tries = lease.tries.saturating_add(1);
        let pause = KEY_PAUSE * 2_u32.pow(lease.tries.saturating_sub(1).min(5));
        let pause = jittered(pause.min(KEY_PAUSE_LONGEST), out.draw);
        lease.retry_at(out.now.mono + pause);
    }

    /// Shows operators that no login succeeds while a lease goes on.
    pub(super) fn keys_shut(&mut self, fault: &Fault, out: &Out) {
        let since = *self.keys.shut_since.get_or_insert(out.now.wall);
        let what = match fault.kind {
            FaultKind::KeyRejected | FaultKind::Impostor => "SSH login refused",
            FaultKind::Contention
            | FaultKind::Locked { .. }
            | FaultKind::Unreachable
            | FaultKind::UnknownOutcome
            | FaultKind::Denied { .. }
            | FaultKind::Gone
            | FaultKind::IdTaken
            | FaultKind::Capacity
            | FaultKind::Foreign
            | FaultKind::Broken => "no SSH login",
        };
        let (since, why) = (since.rfc3339(), &fault.text);
        self.report.say(format!("{what} since {since}; the lease goes on: {why}"));
    }

    pub(super) fn keys_open(&mut self) {
        if self.keys.shut_since.take().is_some() {
            self.report.say_nothing();
        }
    }
}
