//! What goes into the mind of a declared machine and what comes out: plain values without behaviour.

use std::sync::Arc;
use std::time::Duration;

use drover_model::declared::DeclaredSpec;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, ClusterId, NodeName, Upid, VmId};
use drover_model::marks::Marks;
use drover_model::order::{MachineView, Work};
use drover_model::ports::{Carried, Configured, IdStatus, Survey, TaskEnd, VmObservation};
use drover_model::record::Body;
use drover_model::status::DeclaredStatus;
use drover_model::template_image::Found;
use drover_model::time::Moment;

/// What can happen to a declared machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The actor runs.
    Begin,
    /// The configuration has it so, or has it no longer.
    Declare(Option<Arc<DeclaredSpec>>),
    /// The cluster that its cloud leads to, or why that is not known.
    Cluster(Result<ClusterId, Fault>),
    /// The VMID and the id for a guest, or why there are none.
    Id(Result<(VmId, AgentId), Fault>),
    /// Somebody wants it looked at now.
    Look,
    /// An operator wants its guest destroyed.
    Delete,
    /// An operator wants it forgotten; its guest stays.
    Forget,
    /// An operator has it adopt this guest, which carries these marks and is on this node.
    TakeOver(Box<Marks>, NodeName),
    /// The intent to make the guest is durable, with this sequence.
    Intended(u64),
    /// A call was not made, and why: another drover may own the guest, or no cloud leads to it.
    Held(Attempt, String),
    /// The result of a call.
    Answer(Attempt, Answer),
    /// The timer of [`Effect::WakeAt`].
    Wake(Attempt),
}

/// A call to a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Survey,
    /// Read the marks of a guest that may be of a machine of this name.
    LookAt(VmId, NodeName),
    /// Find the template image.
    Locate,
    /// Make the guest: clone the template image, or create one that an ISO image installs.
    Clone,
    /// Wait for a task.
    Await(Upid, Duration),
    Look,
    Configure,
    /// Read all that is shown of the guest.
    Describe,
    /// Verify the marks and carry this out to its end.
    Order(Work),
    Fence,
    Stop,
    Destroy,
    IdTaken,
    Leftovers,
}

impl Call {
    /// Whether it may change something.
    pub fn changes(&self) -> bool {
        match self {
            Self::Clone
            | Self::Configure
            | Self::Order(_)
            | Self::Fence
            | Self::Stop
            | Self::Destroy
            | Self::Leftovers => true,
            Self::Survey
            | Self::LookAt(..)
            | Self::Locate
            | Self::Await(..)
            | Self::Look
            | Self::Describe
            | Self::IdTaken => false,
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Surveyed(Result<Survey, Fault>),
    Looked(Result<VmObservation, Fault>),
    Located(Result<Found, Fault>),
    /// A task was accepted; none where there was nothing to do.
    Accepted(Result<Option<Upid>, Fault>),
    TaskEnded(Result<TaskEnd, Fault>),
    Configured(Result<Configured, Fault>),
    Described(Result<Box<MachineView>, Fault>),
    Carried(Result<Carried, Fault>),
    IdSeen(Result<IdStatus, Fault>),
    Leftovers(Result<Vec<String>, Fault>),
}

/// What the body must do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append this record. Later effects wait until the journal has it.
    Record(Body),
    /// Ask the herd for the cluster of its cloud.
    WantCluster,
    /// Ask for a VMID; the last one was somebody else's, where one is named.
    WantId(Option<VmId>),
    /// Give the VMID back.
    IdBack { vmid: VmId, burned: bool },
    /// Make this call.
    Ask(Attempt, Call),
    /// Wake the mind at this moment, in place of the last such moment.
    WakeAt(Attempt, Moment),
    /// Show how it is.
    Report(Box<DeclaredStatus>),
    /// Nothing of it is left to do.
    End,
}
