//! What goes into an agent's mind and what comes out: plain values without behaviour.
//!
//! ```text
//! Event ──▶ Mind::step ──▶ Effects
//!   ▲                         │ Ask(stamp, Call)
//!   └── Answer(stamp, Answer) ◀── port
//! ```
//!
//! - [`Event`]: commands of other actors, answers of ports, the timer, the progress of the journal.
//! - [`Call`]: a call to a port about the agent's own guest. `port_calls.rs` makes it.
//! - [`Answer`]: the result of a call. Every answer is a value or a `Fault`; a fault has a kind and
//!   a culprit (book: agents, What a failure means).
//! - [`Effect`]: what the body must do. `mod.rs` carries effects out in order, and nothing behind a
//!   record before the journal has it.
//! - [`Guest`]: what the agent knows of its guest from the intent to clone on.
//!
//! A stamp ([`Attempt`]) has epoch, incarnation and number. The mind drops answers with a stamp
//! that it does not wait for.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::demand::words::{Ending, Words};
use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{Attempt, LeaseId, NodeName, RunnerName, SourceId, Upid, VmId};

use crate::boot_times::Booted;
use crate::message::{AgentCommand, AgentReport};
use crate::reset_stats::ResetStats;
use crate::runners::TooOld;
use drover_limits::concurrency::OperationEnd;

use drover_model::journal_state::Pass;
use drover_model::marks::Marks;
use drover_model::order::Work;
use drover_model::ports::{
    AddressObservation, Carried, Configured, Greeting, IdStatus, Ran, Sessions, Snapped, TaskEnd,
    VmObservation,
};
use drover_model::record::Body;
use drover_model::spec::UploadSpec;
use drover_model::time::Moment;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The actor runs. Comes once in each incarnation, before any other event.
    Begin,
    /// A command of the template, the cluster, the reconciler or the herd.
    Command(AgentCommand),
    /// The `CloneIntended` record is durable.
    Intended {
        /// The record's sequence in the journal.
        seq: u64,
    },
    /// The result of a call.
    Answer(Attempt, Answer),
    /// The body did not make a call, because the mind no longer waited for it.
    Unmade(Attempt),
    /// The timer of [`Effect::WakeAt`].
    Wake(Attempt),
    /// The journal did not take a record. The body tries again and holds everything behind it.
    JournalFailed(String),
    /// No configured cloud leads to the guest's cluster any more (`true`), or one does again.
    CutOff(bool),
    /// No cloud is proven to lead to the guest's cluster yet: a call waits for that.
    Unproven(String),
    /// Another drover leads: this one must do nothing more.
    Fenced,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Cloned(Result<Upid, Fault>),
    /// The task's end, for [`Call::Await`].
    TaskEnded(Result<TaskEnd, Fault>),
    /// Answers [`Call::Look`] and [`Call::Confirm`].
    Looked(Result<VmObservation, Fault>),
    /// The id's status, for [`Call::IdTaken`].
    IdSeen(Result<IdStatus, Fault>),
    Configured(Result<Configured, Fault>),
    /// Answers [`Call::Start`], [`Call::Shutdown`], [`Call::Stop`] and [`Call::Destroy`].
    Accepted(Result<Upid, Fault>),
    Addressed(Result<AddressObservation, Fault>),
    HostKeys(Result<Vec<String>, Fault>),
    Snapped(Result<Snapped, Fault>),
    RolledBack(Result<(), Fault>),
    Ordered(Result<Carried, Fault>),
    Greeted(Result<Greeting, Fault>),
    Probed(Result<(), Fault>),
    /// Answers [`Call::Run`] and [`Call::Upload`].
    Ran(Result<Ran, Fault>),
    Admitted(LeaseId, Result<(), Fault>),
    Expelled(LeaseId, Result<(), Fault>),
    Words(LeaseId, Result<Words, Fault>),
    Unlocked(Result<(), Fault>),
    Fenced(Result<VmObservation, Fault>),
    Leftovers(Result<Vec<String>, Fault>),
}

/// What the body must do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Report to the template at once, before records that wait. Ends of leases are the exception:
    /// the report lists a lease until its end is durable.
    Report(Box<AgentReport>),
    /// Append this record. Later effects wait until the journal has it.
    Record(Body),
    /// Publish this on the read side.
    Observe(Box<What>),
    /// Ask the cluster for a place in the concurrency limits and a VMID.
    LaneAsk,
    /// Give the place back.
    LaneFree(OperationEnd),
    /// Proxmox accepted the clone call, so other clones may start on this path.
    CloneAccepted,
    /// The outcome of the clone is unknown because of this fault. Other clones are held back.
    Doubted(Box<Fault>),
    /// Give the VMID back.
    IdBack {
        vmid: VmId,
        /// Whether the VMID must not be used again.
        burned: bool,
    },
    /// Call a port. The answer comes back with this stamp.
    Ask(Attempt, Call),
    /// Remember how long the guest took to boot.
    Booted(Booted),
    /// Remember what this agent has shown of its template's resets.
    Learnt(ResetStats),
    /// The agent is held as its template's next failure; no other agent is.
    HeldAsNext,
    /// The runner of a source is in the guest and starts.
    RunnerStarted(SourceId, RunnerName),
    /// The command of a source's runner ended in the guest, this long ago.
    Ended(SourceId, RunnerName, Ending, Duration),
    /// The guest's log shows that the runner program is too old for its source.
    TooOld(SourceId, RunnerName, Box<TooOld>),
    /// The source refused to register the runner, for this reason.
    StartFailed(SourceId, RunnerName, String),
    /// Wake the mind at this moment. Replaces any earlier timer.
    WakeAt(Attempt, Moment),
    /// End the actor.
    End,
}

/// A call to a port about this agent's own guest.
///
/// The body adds the guest's place, marks and login from the mind at the moment of the call.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Clone the template image.
    Clone {
        /// The node of the template image.
        node: NodeName,
    },
    /// Wait for a task, at most this long.
    Await(Upid, Duration),
    /// Read the id's status and the guest's configuration.
    Look,
    /// Check whether the guest, proven before, still runs. A list is enough.
    Confirm,
    /// Check only whether the id is taken.
    IdTaken,
    /// Set cloud-init, sizes and tags.
    Configure,
    Start,
    /// Ask the guest agent for the address.
    Address,
    /// Ask the guest agent for the host keys.
    HostKeys,
    /// Take the snapshot for resets.
    Snapshot,
    /// Return to the snapshot.
    Rollback,
    /// Carry an order to the machine out.
    Order {
        work: Work,
        /// Whether it may have been carried out before.
        repeated: bool,
        /// How long the guest has to shut down by itself.
        shutdown: Duration,
        limit: Duration,
    },
    /// Log in once, within this limit.
    Greet(IpAddr, Duration),
    /// Check whether SSH answers, without a login.
    Probe(IpAddr, Duration),
    Run(IpAddr, String, Duration),
    Upload(IpAddr, UploadSpec, Duration),
    /// Install a lease's public key and user data, or start its runner.
    Admit(IpAddr, LeaseId, Pass),
    /// Remove a lease's public key and user data, or end its runner. The sessions are those of a
    /// guest that a holder had; a runner ends with its own processes.
    Expel(IpAddr, LeaseId, Pass, Sessions),
    /// Ask the guest about a lease's runner.
    Words(IpAddr, LeaseId, Pass),
    /// Install the public key of the operator who holds the guest.
    Unlock(IpAddr, String),
    /// Verify the marks and tag the guest as retiring.
    Fence,
    /// Shut the guest down; Proxmox stops it after this limit.
    Shutdown(Duration),
    /// Stop the guest hard.
    Stop,
    /// Destroy the stopped guest.
    Destroy,
    /// List volumes that still have the VMID. For a guest that existed: on all storages. Otherwise:
    /// on the storages that its clone was meant for.
    Leftovers,
}

impl Call {
    /// The answer that replaces this call while the guest must not be destroyed or reset. `None`
    /// for a call that does neither.
    pub fn withheld(&self, why: String) -> Option<Answer> {
        let fault = Fault::new(FaultKind::Contention, Culprit::Guest, why);
        match self {
            Self::Fence => Some(Answer::Fenced(Err(fault))),
            Self::Shutdown(_) | Self::Stop | Self::Destroy => Some(Answer::Accepted(Err(fault))),
            Self::Rollback => Some(Answer::RolledBack(Err(fault))),
            Self::Order { .. } => Some(Answer::Ordered(Err(fault))),
            Self::Leftovers => Some(Answer::Leftovers(Err(fault))),
            Self::Clone { .. }
            | Self::Await(..)
            | Self::Look
            | Self::Confirm
            | Self::IdTaken
            | Self::Configure
            | Self::Start
            | Self::Address
            | Self::HostKeys
            | Self::Snapshot
            | Self::Greet(..)
            | Self::Probe(..)
            | Self::Run(..)
            | Self::Upload(..)
            | Self::Admit(..)
            | Self::Expel(..)
            | Self::Words(..)
            | Self::Unlock(..) => None,
        }
    }

    /// Whether the call goes to the guest over SSH, and not to its cluster.
    pub fn goes_to_guest(&self) -> bool {
        match self {
            Self::Greet(..)
            | Self::Probe(..)
            | Self::Run(..)
            | Self::Upload(..)
            | Self::Admit(..)
            | Self::Words(..)
            | Self::Unlock(..)
            | Self::Expel(..) => true,
            Self::Clone { .. }
            | Self::Await(..)
            | Self::Look
            | Self::Confirm
            | Self::IdTaken
            | Self::Configure
            | Self::Start
            | Self::Address
            | Self::HostKeys
            | Self::Snapshot
            | Self::Rollback
            | Self::Order { .. }
            | Self::Fence
            | Self::Shutdown(_)
            | Self::Stop
            | Self::Destroy
            | Self::Leftovers => false,
        }
    }
}

/// What an agent knows of its guest, from the intent to clone on.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    pub marks: Marks,
    /// The last known node.
    pub node: NodeName,
    /// The clone's task, once accepted.
    pub upid: Option<Upid>,
    pub clone: CloneProof,
    /// The MAC address of `net0`.
    pub mac: Option<String>,
    pub address: Option<IpAddr>,
    /// Public key lines.
    pub host_keys: Vec<String>,
    /// The guest's volumes, as its configuration named them after the clone, and its disc image.
    pub volumes: Vec<String>,
    /// Whether the disc image is recorded but, as far as known, was never sent.
    pub image_unsent: bool,
}

/// What is proven about the clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneProof {
    None,
    /// The guest is this agent's, by the task's end or by its marks.
    Ours,
    /// The clone was never made and the id was free. Only the check for volumes is left.
    NeverMade,
}

impl Guest {
    /// Whether the guest is proven to be this agent's.
    pub fn is_settled(&self) -> bool {
        self.clone == CloneProof::Ours
    }

    pub(super) fn is_never_made(&self) -> bool {
        self.clone == CloneProof::NeverMade
    }

    /// The id was free. Returns `false` for a guest that was proven to be this agent's.
    pub(super) fn prove_never_made(&mut self) -> bool {
        if !self.is_settled() {
            self.clone = CloneProof::NeverMade;
        }
        self.is_never_made()
    }
}
