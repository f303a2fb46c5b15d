//! The call that carries an order to a guest out, and its answer.

use std::time::Duration;

use super::VmRef;
use crate::fault::Fault;
use crate::id::OrderId;
use crate::marks::Marks;
use crate::order::{TakenSnapshots, Work};
use crate::phase::Power;

/// An order to a guest, to be carried out to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderCall {
    pub vm: VmRef,
    /// The marks it must carry; anything else is `Foreign` and nothing is written.
    pub marks: Marks,
    pub work: Work,
    /// The order's identity, which marks a snapshot that it takes; none of drover's own work.
    pub order: Option<OrderId>,
    /// Snapshots that orders took in the present use of the guest; any other is nobody's here.
    pub snapshots: TakenSnapshots,
    /// Whether it may have been carried out before, or may still be.
    pub repeated: bool,
    /// How long the guest has to shut down by itself.
    pub shutdown: Duration,
    /// How long the whole may take.
    pub limit: Duration,
}

/// What came of an order to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Whether the machine runs now; `Unknown` where that could not be read.
    pub power: Power,
    /// Whether the guest may have been switched: its cluster took the call, or gave no clear answer.
    pub sent: bool,
    /// When Proxmox took the order's snapshot, in Unix seconds.
    pub snapshot_taken: Option<u64>,
    /// What there is to say of it for people, or why it came to nothing.
    pub outcome: Result<String, Fault>,
}
