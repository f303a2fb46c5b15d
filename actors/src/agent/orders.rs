//! Orders to the machine of an agent that is leased or held: power, snapshots, sizes.
//!
//! ```text
//! Order (durable) ──▶ Carry ── Proxmox's task ends ──▶ done, where the machine is not woken by it
//!                       │ ▲                       └──▶ Address ─▶ Greet ─▶ (Remedy ─▶ Keys) ─▶ done
//!                       ▼ │ a lock, a timeout: again after a pause
//!                     failed: any other fault, the order's time is over, the agent goes
//! ```
//!
//! - In: `AgentCommand::Order`, which is durable already; answers; the timer.
//! - Out: calls beside those of the state, `OrderEnded`, which is durable before it is shown.
//! - While an order runs, and as long as the machine is meant not to run, no list and no silence of SSH
//!   ends the agent: what was ordered is no loss. A machine that vanished ends it as ever.
//! - After a start of the service an order is carried out again where twice is as good as once. Of a
//!   reset, a reboot or a revert nobody knows how far it came: it fails, and says so.
//! - Snapshots and sizes, and a machine that does not run, are nobody else's: the agent retires after
//!   its use ([`MachineOrders::spoils`]).
//!
//! [`MachineOrders::spoils`]: drover_model::order::MachineOrders::spoils

use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::fault::{Fault, FaultKind};
use drover_model::order::{Order, OrderEnd, Work};
use drover_model::os::Os;
use drover_model::phase::{OrderPhase, Power};
use drover_model::ports::{AddressObservation, Carried, Greeting, Ran};
use drover_model::record::{Body, Reason};
use drover_scripts::{guest, windows};

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::leases::Stage;
use crate::agent::machine::OrderStep;
use crate::agent::mind::{Mind, Out};
use crate::agent::order_keys::no_key_yet;
use crate::agent::provision::{GREET_PAUSE, greet_limit};
use crate::agent::settle::STARTS;
use crate::agent::state::State;
use crate::ran::{can_pass, describe_failure};

/// The first and the longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// What a snapshot may take beyond one operation: its memory is written to a storage.
const SNAPSHOT_EXTRA: Duration = Duration::from_secs(15 * 60);
/// How long a guest may take to shut down where its template stops guests at once.
const SHUTDOWN: Duration = Duration::from_secs(60);
/// What an order may take beyond its limits: waits for locks and for its turn.
const ORDER_EXTRA: Duration = Duration::from_secs(60);
/// The limit of the repair after a revert.
const REMEDY_LIMIT: Duration = Duration::from_secs(60);

impl Mind {
    /// An order, which is durable already.
    pub(super) fn order(&mut self, order: Order, out: &mut Out) {
        let is_running = |known: &Order| known.id == order.id;
        if self.machine.orders.running.as_ref().is_some_and(is_running) {
            return;
        }
        self.machine.orders.begin(order);
        if self.machine.orders.running.is_none() {
            return;
        }
        self.machine.rest();
        if let Some(why) = self.refuses_orders() {
            return self.order_failed(why, self.machine.orders.power, out);
        }
        self.begin_order(out);
    }

    /// Why no order may begin; the state may have changed since somebody looked.
    fn refuses_orders(&self) -> Option<String> {
        if !self.takes_orders() {
            return Some(format!("the agent is in {} by now", self.state.phase()));
        }
        let admits = |lease: &super::leases::Lease| lease.stage == Stage::Admitting;
        self.leases.each().any(admits).then(|| "its lease is not ready yet".to_owned())
    }

    /// Whether somebody has the machine.
    pub(super) fn takes_orders(&self) -> bool {
        matches!(self.state, State::Leased | State::Draining(_) | State::Held { .. })
    }

    fn begin_order(&mut self, out: &mut Out) {
        let Some(work) = self.machine.work().cloned() else { return };
        let limits = &self.spec.limits;
        let waking = if work.wakes() { limits.startup } else { Duration::ZERO };
        let all = self.carry_limit(&work) + self.shutdown_limit() + waking + ORDER_EXTRA;
        self.machine.ends = Some(out.now.mono + all);
        self.act_order(out);
    }

    fn carry_limit(&self, work: &Work) -> Duration {
        let extra = if work.snapshot().is_some() { SNAPSHOT_EXTRA } else { Duration::ZERO };
        self.spec.limits.operation + extra
    }

    fn shutdown_limit(&self) -> Duration {
        let own = self.spec.limits.shutdown;
        if own.is_zero() { SHUTDOWN } else { own }
    }

    /// The adopted guest was inspected: goes on with the order that was under way.
    pub(super) fn resume_order(&mut self, running: bool, out: &mut Out) {
        if !self.takes_orders() {
            return;
        }
        let Some(work) = self.machine.work() else { return self.look_where_unknown(STARTS, out) };
        if work.is_repeatable() {
            return self.begin_order(out);
        }
        let text = "drover started again while it was carried out, and nobody knows how far it came: \
                    drover looks whether the machine runs";
        // A machine that still shuts down for its reboot proves nothing.
        let runs = running && *work != Work::Reboot;
        let stops = if *work == Work::Reboot { self.shutdown_limit() } else { Duration::ZERO };
        let power = if runs { Power::Running } else { Power::Unknown };
        self.order_over(OrderPhase::Failed, text.to_owned(), power, out);
        self.look_where_unknown(stops + STARTS, out);
    }

    /// Makes the call of the order's step.
    fn act_order(&mut self, out: &mut Out) {
        let Some(work) = self.machine.work().cloned() else { return };
        if self.adoption.is_unseen() || self.machine.asked.is_some() {
            return;
        }
        self.machine.retry = None;
        let call = match (self.machine.step, self.address()) {
            // The leases and the hold make these calls.
            (OrderStep::Keys, _) => return,
            (OrderStep::Carry, _) => Call::Order {
                repeated: self.machine.repeated,
                shutdown: self.shutdown_limit(),
                limit: self.carry_limit(&work),
                work,
            },
            (OrderStep::Address, _) | (OrderStep::Greet | OrderStep::Remedy, None) => Call::Address,
            (OrderStep::Greet, Some(address)) => Call::Greet(address, greet_limit(self.spec.os)),
            (OrderStep::Remedy, Some(address)) => {
                let command = match self.spec.os {
                    Os::Linux => guest::after_revert(out.now.wall, out.draw),
                    Os::Windows(_) => windows::after_revert(),
                };
                Call::Run(address, command, REMEDY_LIMIT)
            }
        };
        let attempt = self.next();
        self.machine.asked = Some(attempt);
        out.effects.push(Effect::Ask(attempt, call));
    }

    fn order_step(&mut self, step: OrderStep, out: &mut Out) {
        self.machine.go_to(step);
        self.act_order(out);
    }

    /// The answer of the order's call.
    pub(super) fn order_answered(&mut self, answer: Answer, out: &mut Out) {
        self.machine.asked = None;
        self.machine.sent |= may_have_switched(&answer);
        match answer {
            Answer::Ordered(Ok(carried)) => self.carried(carried, out),
            Answer::Ordered(Err(fault)) => self.carry_failed(fault, Power::Unknown, out),
            Answer::Addressed(result) => self.order_addressed(result, out),
            Answer::Greeted(result) => self.order_greeted(result, out),
            Answer::Ran(result) => self.order_repaired(result, out),
            Answer::Cloned(_)
            | Answer::TaskEnded(_)
            | Answer::Looked(_)
            | Answer::IdSeen(_)
            | Answer::Configured(_)
            | Answer::Accepted(_)
            | Answer::HostKeys(_)
            | Answer::Snapped(_)
            | Answer::RolledBack(_)
            | Answer::Probed(_)
            | Answer::Admitted(..)
            | Answer::Expelled(..)
            | Answer::Words(..)
            | Answer::Unlocked(_)
            | Answer::Fenced(_)
            | Answer::Leftovers(_) => {}
        }
    }

    fn carried(&mut self, carried: Carried, out: &mut Out) {
        let Some(work) = self.machine.work().cloned() else { return };
        match carried.outcome {
            Err(fault) => self.carry_failed(fault, carried.power, out),
            Ok(text) => {
                self.machine.reported = text;
                self.machine.snapshot_taken = carried.snapshot_taken;
                self.machine.hindered = None;
                if !work.wakes() {
                    return self.order_done(out);
                }
                let own = self.own_address().is_some();
                let step = if own { OrderStep::Greet } else { OrderStep::Address };
                self.machine.go_to(step);
                // A machine that only stood still answers at once.
                if work == Work::Resume {
                    return self.act_order(out);
                }
                self.order_again(GREET_PAUSE, out);
            }
        }
    }

    /// Repeats the order's step after this pause.
    fn order_again(&mut self, pause: Duration, out: &Out) {
        self.machine.retry = Some(out.now.mono + jittered(pause, out.draw));
    }

    /// Tries again where a fault can pass, but never twice what may have happened and is not as good
    /// twice as once.
    fn carry_failed(&mut self, fault: Fault, seen: Power, out: &mut Out) {
        let Some(work) = self.machine.work().cloned() else { return };
        let unclear = fault.kind == FaultKind::UnknownOutcome;
        if can_pass(&fault.kind) && (!unclear || work.is_repeatable()) {
            self.machine.repeated = true;
            let pause = PAUSE.0 * 2_u32.pow(self.machine.tries.min(4));
            self.machine.tries = self.machine.tries.saturating_add(1);
            self.machine.hindered = Some(fault.text);
            return self.order_again(pause.min(PAUSE.1), out);
        }
        let power = self.power_after(&work, seen);
        self.order_over(OrderPhase::Failed, fault.text, power, out);
        // What stopped by itself is lost as ever.
        if seen == Power::Stopped {
            self.seen_stopped(out);
        }
    }

    /// Whether the machine is meant to run after an order that failed: as before, unless it is seen to
    /// run, or this very order may have left it as it is.
    fn power_after(&self, work: &Work, seen: Power) -> Power {
        let (before, sent) = (self.machine.orders.power, self.machine.sent);
        match seen {
            Power::Running => seen,
            Power::Stopped | Power::Suspended if sent && work.may_leave(seen) => seen,
            Power::Unknown if sent && work.leaves(before) != before => seen,
            Power::Unknown if sent && !work.is_repeatable() => seen,
            Power::Stopped | Power::Suspended | Power::Unknown => before,
        }
    }

    fn order_addressed(&mut self, result: Result<AddressObservation, Fault>, out: &mut Out) {
        match result {
            Ok(AddressObservation::At(address)) => {
                if self.address() != Some(address) {
                    self.machine.moved = self.address().map(|before| (before, address));
                    if let Some(guest) = &mut self.guest {
                        guest.address = Some(address);
                    }
                    let keys = self.guest.as_ref().map(|guest| guest.host_keys.clone());
                    self.pin(keys.unwrap_or_default(), out);
                }
                self.order_step(OrderStep::Greet, out);
            }
            Ok(AddressObservation::NotYet(text)) => {
                self.machine.hindered = Some(text);
                self.order_again(PAUSE.0, out);
            }
            Err(fault) => self.wake_failed(fault, PAUSE.0, out),
        }
    }

    fn order_greeted(&mut self, result: Result<Greeting, Fault>, out: &mut Out) {
        match result.and_then(|greeting| self.proven(greeting)) {
            Ok(_) => match self.machine.work() {
                Some(Work::Revert { .. }) => self.order_step(OrderStep::Remedy, out),
                Some(_) | None => self.order_done(out),
            },
            Err(fault) => self.wake_failed(fault, GREET_PAUSE, out),
        }
    }

    fn order_repaired(&mut self, result: Result<Ran, Fault>, out: &mut Out) {
        match result {
            Ok(Ran { exit: Some(0), .. }) => self.put_keys_back(out),
            Ok(ran) => {
                let text = describe_failure("repair", &ran);
                self.order_failed(text, Power::Running, out);
            }
            Err(fault) => self.wake_failed(fault, GREET_PAUSE, out),
        }
    }

    /// The machine runs, and its guest is not reached.
    fn wake_failed(&mut self, fault: Fault, pause: Duration, out: &mut Out) {
        if can_pass(&fault.kind) {
            self.machine.hindered = Some(fault.text);
            return self.order_again(pause, out);
        }
        let text = format!("the machine runs, but drover cannot log in: {}", fault.text);
        self.order_failed(text, Power::Running, out);
    }

    pub(super) fn order_done(&mut self, out: &mut Out) {
        let Some(work) = self.machine.work().cloned() else { return };
        let power = work.leaves(self.machine.orders.power);
        let mut text = std::mem::take(&mut self.machine.reported);
        if let Some((before, now)) = self.machine.moved {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text += &format!("its address is {now} now, it was {before}");
        }
        self.order_over(OrderPhase::Done, text, power, out);
    }

    pub(super) fn order_failed(&mut self, text: String, power: Power, out: &mut Out) {
        self.order_over(OrderPhase::Failed, text, power, out);
    }

    fn order_over(&mut self, phase: OrderPhase, text: String, power: Power, out: &mut Out) {
        let Some(id) = self.machine.orders.running.as_ref().map(|order| order.id.clone()) else {
            return;
        };
        let snapshot_taken = self.machine.snapshot_taken;
        let end = OrderEnd { phase, text, power, snapshot_taken };
        self.owe_keys_after_failure(phase);
        self.machine.orders.end(&id, &end, out.now.wall);
        self.machine.rest();
        out.record(Body::OrderEnded { agent: self.agent.clone(), order: id, end });
        self.look_where_unknown(Duration::ZERO, out);
        self.go_on_inside(out);
    }

    /// The agent goes, or is another's: its order comes to nothing.
    pub(super) fn drop_order(&mut self, out: &mut Out) {
        if self.machine.orders.running.is_some() && !self.takes_orders() {
            let text = match self.state.leaving() {
                Some(Reason::Altered | Reason::UsedUp) => "its lease was released".to_owned(),
                Some(Reason::HoldOver) => "its hold ended".to_owned(),
                Some(reason) => format!("its agent goes: {reason}"),
                None => {
                    format!("nobody has its agent any more, which is in {}", self.state.phase())
                }
            };
            self.order_over(OrderPhase::Failed, text, Power::Unknown, out);
        }
    }

    /// Repeats the order's step, or gives the order up, when that is due.
    pub(super) fn tick_order(&mut self, out: &mut Out) {
        let now = out.now.mono;
        let Some(work) = self.machine.work().cloned() else { return self.tick_look(out) };
        if self.machine.ends.is_some_and(|ends| ends <= now) {
            let why = self.machine.hindered.take().unwrap_or_else(|| "no answer came".to_owned());
            let (text, power) = match self.machine.step {
                OrderStep::Carry => {
                    self.machine.sent |= self.machine.asked.is_some();
                    let power = self.power_after(&work, Power::Unknown);
                    (format!("it took too long: {why}"), power)
                }
                OrderStep::Address | OrderStep::Greet | OrderStep::Remedy => {
                    let text = format!("the machine runs, but drover cannot log in: {why}");
                    (text, Power::Running)
                }
                OrderStep::Keys => (no_key_yet(&why), Power::Running),
            };
            return self.order_failed(text, power, out);
        }
        if self.machine.retry.is_some_and(|retry| retry <= now) {
            self.act_order(out);
        }
    }
}

/// Whether the machine may be switched although the order goes on or fails.
fn may_have_switched(answer: &Answer) -> bool {
    let unclear = |fault: &Fault| fault.kind == FaultKind::UnknownOutcome;
    let Answer::Ordered(ordered) = answer else { return false };
    match ordered {
        Ok(carried) => carried.sent || carried.outcome.as_ref().is_err_and(unclear),
        Err(fault) => unclear(fault),
    }
}
