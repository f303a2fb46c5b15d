//! What goes into the mind of a build and what comes out: plain values without behaviour.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, TemplateId, Upid, VmId};
use drover_model::ports::{
    AddressObservation, Configured, Greeting, IdStatus, Ran, TaskEnd, VmObservation,
};
use drover_model::record::Body;
use drover_model::spec::UploadSpec;
use drover_model::status::ImageStatus;
use drover_model::template_image::Found;
use drover_model::time::Moment;

/// What can happen to a build.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The actor runs.
    Begin,
    /// No other build brings the same source to the same place.
    Turn,
    /// This build of this image has the turn, and the one that hears it waits.
    Behind(TemplateId, AgentId),
    /// The VMID that the guest may have, or why there is none.
    Id(Result<VmId, Fault>),
    /// Somebody wants it no longer.
    Cancel,
    /// The intent to make the guest is durable, with this sequence.
    Intended(u64),
    /// A call was not made, and why: another drover may own the guest, or no cloud leads to it.
    Held(Attempt, String),
    /// The result of a call.
    Answer(Attempt, Answer),
    /// The timer of [`Effect::WakeAt`].
    Wake(Attempt),
}

/// A call to a port about the build's own guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Bring the source to the node.
    Pull,
    /// Wait for a task.
    Await(Upid, Duration),
    /// Find the template image that is copied.
    Locate,
    /// Make the guest of the source, or copy the template image.
    Create,
    Look,
    Configure,
    /// Take the discs out of the guest.
    Eject,
    Start,
    Address,
    HostKeys,
    Greet(IpAddr),
    Run(IpAddr, String, Duration),
    Upload(IpAddr, UploadSpec, Duration),
    Shutdown,
    /// Make the guest a template.
    Finish,
    /// Check the template.
    Check,
    /// Give the template the marks of an image.
    Seal,
    Fence,
    Stop,
    Destroy,
    IdTaken,
    Leftovers,
}

impl Call {
    /// Whether it may change something on the cluster, or in a guest.
    pub fn changes(&self) -> bool {
        match self {
            Self::Pull
            | Self::Create
            | Self::Configure
            | Self::Eject
            | Self::Start
            | Self::Run(..)
            | Self::Upload(..)
            | Self::Shutdown
            | Self::Finish
            | Self::Seal
            | Self::Fence
            | Self::Stop
            | Self::Destroy
            | Self::Leftovers => true,
            Self::Await(..)
            | Self::Locate
            | Self::Look
            | Self::Address
            | Self::HostKeys
            | Self::Greet(_)
            | Self::Check
            | Self::IdTaken => false,
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A task was accepted; none where there was nothing to do.
    Accepted(Result<Option<Upid>, Fault>),
    TaskEnded(Result<TaskEnd, Fault>),
    Located(Result<Found, Fault>),
    Looked(Result<VmObservation, Fault>),
    Configured(Result<Configured, Fault>),
    Ejected(Result<(), Fault>),
    Addressed(Result<AddressObservation, Fault>),
    HostKeys(Result<Vec<String>, Fault>),
    Greeted(Result<Greeting, Fault>),
    Ran(Result<Ran, Fault>),
    Checked(Result<Vec<String>, Fault>),
    Sealed(Result<(), Fault>),
    IdSeen(Result<IdStatus, Fault>),
    Leftovers(Result<Vec<String>, Fault>),
}

/// A step over SSH that ended, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepEnd {
    pub step: String,
    pub ms: u64,
    pub ran: Ran,
}

/// What the body must do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append this record. Later effects wait until the journal has it.
    Record(Body),
    /// Ask for the turn to bring the source to its place.
    WantTurn,
    /// Give that turn to the next.
    TurnOver,
    /// Ask for a VMID; the last one was somebody else's, where one is named.
    WantId(Option<VmId>),
    /// Give the VMID back.
    IdBack { vmid: VmId, burned: bool },
    /// Make this call.
    Ask(Attempt, Call),
    /// Wake the mind at this moment, in place of the last such moment.
    WakeAt(Attempt, Moment),
    /// Show how far it is.
    Report(Box<ImageStatus>),
    /// A step over SSH ended.
    Stepped(StepEnd),
    /// The build is over.
    End,
}
