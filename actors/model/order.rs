//! Orders to the machine of an agent, and what a look at the machine shows.
//!
//! An order is durable before anything is sent for it ([`Body::MachineOrdered`]), and so is its end
//! ([`Body::OrderEnded`]). A machine has one order at a time. [`MachineOrders`] is what all of it adds
//! up to: the journal, the agent and its status share that type.
//!
//! [`Body::MachineOrdered`]: crate::record::Body::MachineOrdered
//! [`Body::OrderEnded`]: crate::record::Body::OrderEnded

mod taken;
mod view;
mod work;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::OrderId;
use crate::phase::{OrderPhase, Power};
use crate::size::Size;
use crate::time::WallTime;

pub use taken::{Taken, TakenSnapshots, is_marked, marked_description, unmarked_description};
pub use view::{ConfigValue, MachineView, SnapshotView};
pub use work::{SNAPSHOT_NAME, SNAPSHOTS_MOST, Work, is_own_snapshot, memory_volume};

/// Orders of a machine that are remembered once they are over.
const ORDERS_KEPT: usize = 8;
/// The most characters that are kept of how an order ended.
const TEXT_CHARS: usize = 1000;

/// An order to the machine of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    pub id: OrderId,
    pub work: Work,
    /// Who asked for it, as authenticated.
    pub by: String,
    pub asked: WallTime,
    /// Hash of the idempotency key, with its principal; none without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An order and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderStatus {
    pub order: Order,
    pub phase: OrderPhase,
    /// When it was over; none while drover carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// How it goes on or ended, for people.
    #[serde(default)]
    pub text: String,
}

/// How an order ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderEnd {
    /// `Done` or `Failed`.
    pub phase: OrderPhase,
    /// For people, at most 1000 characters.
    pub text: String,
    /// Whether the machine is meant to run from here on; `Unknown` where nobody can say.
    pub power: Power,
    /// When Proxmox took the order's snapshot, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_taken: Option<u64>,
}

/// What was ordered of a machine, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineOrders {
    /// Whether the machine is meant to run.
    pub power: Power,
    /// The order that is carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Order>,
    /// Orders that are over, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<OrderStatus>,
    /// Whether snapshots or sizes of the machine may be others than at its birth: it serves nobody
    /// after its present use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub altered: bool,
    /// Snapshots with memory that orders started to take, whatever came of them: the volume of one that
    /// was cut short may outlast the machine.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub memories: BTreeSet<String>,
    /// Snapshots that orders took and did not delete.
    #[serde(skip_serializing_if = "TakenSnapshots::is_empty")]
    pub snapshots: TakenSnapshots,
    /// The largest sizes that it was given since its birth. Accounts of capacity count these until it is
    /// gone: what gets smaller does so at its next start, or not at all.
    #[serde(skip_serializing_if = "Size::is_none")]
    pub sizes: Size,
}

impl Default for MachineOrders {
    fn default() -> Self {
        Self {
            power: Power::Running,
            running: None,
            past: Vec::new(),
            altered: false,
            memories: BTreeSet::new(),
            snapshots: TakenSnapshots::default(),
            sizes: Size::NONE,
        }
    }
}

impl MachineOrders {
    /// Whether nothing was ever ordered.
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the order was heard of already.
    pub fn knows(&self, id: &OrderId) -> bool {
        self.running.as_ref().is_some_and(|order| order.id == *id)
            || self.past.iter().any(|status| status.order.id == *id)
    }

    /// drover carries an order out from here on.
    pub fn begin(&mut self, order: Order) {
        if self.knows(&order.id) {
            return;
        }
        self.altered |= order.work.alters();
        if let Work::Resize(sizes) = order.work {
            self.sizes = self.sizes.max(sizes);
        }
        if let Work::Snapshot { name, memory: true, .. } = &order.work {
            self.memories.insert(name.clone());
        }
        self.running = Some(order);
    }

    /// The order that is carried out is over, or what the last one left unclear was seen since. Any
    /// other is not known, and nothing changes.
    pub fn end(&mut self, id: &OrderId, end: &OrderEnd, at: WallTime) {
        let text: String = end.text.chars().take(TEXT_CHARS).collect();
        let Some(order) = self.running.take_if(|order| order.id == *id) else {
            let last = self.past.last_mut().filter(|last| last.order.id == *id);
            if let Some(last) = last.filter(|_| self.power == Power::Unknown) {
                last.text = text;
                self.power = end.power;
            }
            return;
        };
        self.power = end.power;
        if end.phase == OrderPhase::Done {
            self.keep_snapshots(&order.work, end.snapshot_taken);
        }
        let (phase, ended) = (end.phase, Some(at));
        self.past.push(OrderStatus { order, phase, ended, text });
        let over = self.past.len().saturating_sub(ORDERS_KEPT);
        self.past.drain(..over);
    }

    /// What an order that is done leaves of snapshots.
    fn keep_snapshots(&mut self, work: &Work, taken: Option<u64>) {
        match work {
            Work::Snapshot { name, .. } => self.snapshots.insert(name, taken),
            Work::DeleteSnapshot { name } => self.snapshots.remove(name),
            Work::Start
            | Work::Stop
            | Work::Shutdown
            | Work::Reboot
            | Work::Reset
            | Work::Suspend
            | Work::Resume
            | Work::Revert { .. }
            | Work::Resize(_) => {}
        }
    }

    /// The order that left the machine so, or may have where it failed; none where none could.
    pub fn left_by(&self, power: Power) -> Option<&OrderStatus> {
        for status in self.past.iter().rev().filter(|status| status.order.work.switches()) {
            let work = &status.order.work;
            if status.phase == OrderPhase::Done {
                return Some(status).filter(|_| work.leaves(Power::Unknown) == power);
            }
            if work.may_leave(power) && !self.done_before(status, power) {
                return Some(status);
            }
        }
        None
    }

    /// Whether the last order to switch the machine that was done before this one left it so already.
    fn done_before(&self, later: &OrderStatus, power: Power) -> bool {
        let before = self.past.iter().take_while(|status| status.order.id != later.order.id);
        let done = |status: &&OrderStatus| {
            status.phase == OrderPhase::Done && status.order.work.switches()
        };
        let last = before.filter(done).last();
        last.is_some_and(|status| status.order.work.leaves(Power::Unknown) == power)
    }

    /// All orders that are remembered, oldest first.
    pub fn all(&self) -> Vec<OrderStatus> {
        let running = self.running.iter().map(|order| OrderStatus {
            order: order.clone(),
            phase: OrderPhase::Running,
            ended: None,
            text: String::new(),
        });
        self.past.iter().cloned().chain(running).collect()
    }

    /// Whether drover expects the machine to run, and no order of its own may stop it.
    pub fn expects_running(&self) -> bool {
        self.power == Power::Running && self.running.is_none()
    }

    /// Whether the machine is not what it was at its birth, or does not run: nobody else gets it.
    pub fn spoils(&self) -> bool {
        self.altered || !self.expects_running()
    }
}

#[cfg(test)]
mod tests;
