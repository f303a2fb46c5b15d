//! What was ordered of the machine, and how far the running order is.

use std::net::IpAddr;

use drover_model::fault::Fault;
use drover_model::id::Attempt;
use drover_model::order::{MachineOrders, Work};
use drover_model::phase::{OrderPhase, Power};
use drover_model::time::Moment;

use crate::agent::settle::LOOKS;

/// The step of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderStep {
    /// Proxmox carries it out.
    Carry,
    /// The guest runs again; reads its address, which may have changed.
    Address,
    Greet,
    /// Repairs clock, network, randomness and sessions after a return to a snapshot.
    Remedy,
    /// Puts back the keys that a snapshot may lack. The leases and the hold make these calls.
    Keys,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Machine {
    pub(super) orders: MachineOrders,
    pub(super) step: OrderStep,
    /// The running call.
    pub(super) asked: Option<Attempt>,
    /// When the step is repeated.
    pub(super) retry: Option<Moment>,
    /// When the order is given up; none while it waits for the first look at an adopted guest.
    pub(super) ends: Option<Moment>,
    /// Whether the order may have been carried out before, or may still be.
    pub(super) repeated: bool,
    /// Whether the order may have switched the machine already.
    pub(super) sent: bool,
    /// When drover looks whether the machine runs, where that is not known.
    pub(super) look: Option<Moment>,
    /// From when on such a look counts: until then the order may still be at work.
    pub(super) settles: Moment,
    /// Failures of this step in a row.
    pub(super) tries: u32,
    /// What Proxmox's part of the order came to, for people.
    pub(super) reported: String,
    /// The address that the order found, and the one before it.
    pub(super) moved: Option<(IpAddr, IpAddr)>,
    /// When Proxmox took the order's snapshot, in Unix seconds.
    pub(super) snapshot_taken: Option<u64>,
    /// The last fault of the order.
    pub(super) hindered: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            orders: MachineOrders::default(),
            step: OrderStep::Carry,
            asked: None,
            retry: None,
            ends: None,
            repeated: false,
            sent: false,
            look: None,
            settles: Moment(0),
            tries: 0,
            reported: String::new(),
            moved: None,
            snapshot_taken: None,
            hindered: None,
        }
    }
}

impl Machine {
    /// As the journal knows it. An order that was under way may have been carried out.
    pub(super) fn of_entry(orders: MachineOrders) -> Self {
        let repeated = orders.running.is_some();
        Self { orders, repeated, sent: repeated, ..Self::default() }
    }

    /// The running order is over, or begins.
    pub(super) fn rest(&mut self) {
        *self = Self { orders: std::mem::take(&mut self.orders), ..Self::default() };
    }

    /// The next step begins.
    pub(super) fn go_to(&mut self, step: OrderStep) {
        self.step = step;
        self.tries = 0;
        self.retry = None;
    }

    pub(super) fn work(&self) -> Option<&Work> {
        self.orders.running.as_ref().map(|order| &order.work)
    }

    pub(super) fn expects_running(&self) -> bool {
        self.orders.expects_running()
    }

    /// Whether the guest takes keys: its machine runs, and no order but the return of keys is under way.
    pub(super) fn takes_keys(&self) -> bool {
        self.expects_running() || (self.orders.running.is_some() && self.step == OrderStep::Keys)
    }

    /// Whether it was stopped or suspended by an order that is over.
    pub(super) fn stands_still(&self) -> bool {
        self.orders.running.is_none() && !self.expects_running()
    }

    /// A key could not be put back yet.
    pub(super) fn hinder_keys(&mut self, fault: &Fault) {
        if self.step == OrderStep::Keys {
            self.hindered = Some(fault.text.clone());
        }
    }

    /// Whether nobody else may get the machine.
    pub(super) fn spoils(&self) -> bool {
        self.orders.spoils()
    }

    /// Whether this is the running call.
    pub(super) fn awaits(&self, attempt: Attempt) -> bool {
        self.asked == Some(attempt)
    }

    /// When the order must be thought of again, or its machine looked at.
    pub(super) fn due(&self) -> Option<Moment> {
        if self.orders.running.is_none() {
            return self.look;
        }
        [self.retry, self.ends].into_iter().flatten().min()
    }

    /// What keeps the machine from use, for people.
    pub(super) fn trouble(&self) -> Option<String> {
        if let Some(order) = &self.orders.running {
            let why = self.hindered.as_ref().map(|why| format!("; last: {why}"));
            let why = why.unwrap_or_default();
            return Some(format!("order `{}` is carried out: {}{why}", order.id, order.work));
        }
        let power = self.orders.power;
        match power {
            Power::Running => None,
            Power::Stopped | Power::Suspended => Some(match self.orders.left_by(power) {
                Some(status) if status.phase == OrderPhase::Failed => format!(
                    "its machine is {power} since order `{}` ({}), which failed: {}",
                    status.order.id,
                    status.order.work,
                    helps(power)
                ),
                Some(status) => {
                    format!("its machine is {power} as ordered (order `{}`)", status.order.id)
                }
                None => format!("its machine is {power} as ordered"),
            }),
            Power::Unknown => {
                let last = self.orders.past.last();
                let last = last.map(|status| format!(" since order `{}`", status.order.id));
                Some(format!(
                    "whether its machine runs is not known{}: drover looks every {} s until Proxmox \
                     shows it",
                    last.unwrap_or_default(),
                    LOOKS.as_secs()
                ))
            }
        }
    }
}

/// The command that lets a machine run again.
fn helps(power: Power) -> &'static str {
    match power {
        Power::Suspended => "`drover machine resume` helps",
        Power::Stopped | Power::Running | Power::Unknown => "`drover machine start` helps",
    }
}
