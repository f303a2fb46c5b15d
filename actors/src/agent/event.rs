//! What an agent's mind is told, and what it wants done. Plain values, nothing that acts.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::demand::words::{Ending, Words};
use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{Attempt, LeaseId, NodeName, RunnerName, SourceId, Upid, VmId};

use crate::agent::boots::Booted;
use crate::agent::lessons::Lesson;
use crate::cluster::OperationEnd;
use crate::demand::runners::TooOld;
use crate::message::{AgentCommand, AgentReport};

pub use drover_model::ledger::Pass;
use drover_model::marks::Marks;
use drover_model::ports::{
    AddressSight, Configured, Greeting, IdSight, Ran, Snapped, TaskEnd, VmSight,
};
use drover_model::record::Body;
use drover_model::spec::UploadSpec;
use drover_model::time::Moment;

/// What an agent's mind is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The body runs; said once in each incarnation, before anything else.
    Begin,
    /// Its template, cluster or the reconciler says something.
    Command(AgentCommand),
    /// The `CloneIntended` is durable and got this sequence.
    Intended {
        /// The journal's sequence.
        seq: u64,
    },
    /// A call came back.
    Answer(Attempt, Answer),
    /// A call was not made, for nobody waited for it any more.
    Unmade(Attempt),
    /// The wake asked for by [`Effect::WakeAt`].
    Wake(Attempt),
    /// The journal did not take a record; the body keeps trying and holds everything behind it.
    JournalFailed(String),
    /// No configured cloud leads to its guest any more, or one does again.
    CutOff(bool),
    /// No cloud has said yet that it leads to its guest: a call waits for that.
    Unproven(String),
    /// Another drover leads: nothing may be done any more.
    Fenced,
}

/// What a call came back with.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Of [`Call::Clone`].
    Cloned(Result<Upid, Fault>),
    /// Of [`Call::Await`].
    TaskEnded(Result<TaskEnd, Fault>),
    /// Of [`Call::Look`] and [`Call::Confirm`].
    Looked(Result<VmSight, Fault>),
    /// Of [`Call::IdTaken`].
    IdSeen(Result<IdSight, Fault>),
    /// Of [`Call::Configure`].
    Configured(Result<Configured, Fault>),
    /// Of [`Call::Start`], [`Call::Shutdown`], [`Call::Stop`] and [`Call::Destroy`].
    Accepted(Result<Upid, Fault>),
    /// Of [`Call::Address`].
    Addressed(Result<AddressSight, Fault>),
    /// Of [`Call::HostKeys`].
    HostKeys(Result<Vec<String>, Fault>),
    /// Of [`Call::Snapshot`].
    Snapped(Result<Snapped, Fault>),
    /// Of [`Call::Rollback`].
    RolledBack(Result<(), Fault>),
    /// Of [`Call::Greet`].
    Greeted(Result<Greeting, Fault>),
    /// Of [`Call::Probe`].
    Probed(Result<(), Fault>),
    /// Of [`Call::Run`] and [`Call::Upload`].
    Ran(Result<Ran, Fault>),
    /// Of [`Call::Admit`].
    Admitted(LeaseId, Result<(), Fault>),
    /// Of [`Call::Expel`].
    Expelled(LeaseId, Result<(), Fault>),
    /// Of [`Call::Words`].
    Words(LeaseId, Result<Words, Fault>),
    /// Of [`Call::Unlock`].
    Unlocked(Result<(), Fault>),
    /// Of [`Call::Fence`].
    Fenced(Result<VmSight, Fault>),
    /// Of [`Call::Leftovers`].
    Leftovers(Result<Vec<String>, Fault>),
}

/// What an agent's mind wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Tell the template at once, whatever waits for the journal but the ends of leases.
    Report(Box<AgentReport>),
    /// Write this down; what follows waits until the journal has it.
    Record(Body),
    /// Tell the read side.
    Observe(Box<What>),
    /// Ask the cluster for a place in the lanes and a VMID.
    LaneAsk,
    /// Give the place back.
    LaneFree(OperationEnd),
    /// Proxmox accepted the clone call: it takes clones there.
    CloneAccepted,
    /// What became of the clone is unknown, for this reason: others are held back.
    Doubted(Box<Fault>),
    /// Give the VMID back.
    IdBack {
        /// Which.
        vmid: VmId,
        /// Whether it must be burned.
        burned: bool,
    },
    /// Ask a port; the answer comes back with the stamp.
    Ask(Attempt, Call),
    /// Remember how long the guest took to boot.
    Booted(Booted),
    /// Remember what this agent tells of its template's resets.
    Learnt(Lesson),
    /// It is held as its template's next failure: nobody else is.
    HeldAsNext,
    /// The runner of a source is in the guest and starts.
    Hired(SourceId, RunnerName),
    /// The command of a source's runner has ended in the guest, so long ago.
    Ended(SourceId, RunnerName, Ending, Duration),
    /// The guest's log shows that the program of a source's runner is too old for it.
    TooOld(SourceId, RunnerName, Box<TooOld>),
    /// The source did not let its runner be made, for this reason.
    NotHired(SourceId, RunnerName, String),
    /// Wake the mind at this moment; takes the place of any earlier wish.
    WakeAt(Attempt, Moment),
    /// The actor ends.
    End,
}

/// A call to a port about this agent's own guest.
///
/// The guest's place, its marks and its login are the mind's at the moment the call is made.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Clone the template.
    Clone {
        /// The node of the template.
        node: NodeName,
    },
    /// Wait for a task, at most this long.
    Await(Upid, Duration),
    /// Look at the id and the guest.
    Look,
    /// Ask whether the guest, proven before, still runs: a list will do.
    Confirm,
    /// Ask only whether the id is taken.
    IdTaken,
    /// Set cloud-init, sizes and tags.
    Configure,
    /// Start the guest.
    Start,
    /// Ask the guest agent for the address.
    Address,
    /// Ask the guest agent for the host keys.
    HostKeys,
    /// Take the snapshot that resets go back to.
    Snapshot,
    /// Go back to the snapshot.
    Rollback,
    /// Log in once.
    Greet(IpAddr, Duration),
    /// Ask SSH whether it is there, without a login.
    Probe(IpAddr, Duration),
    /// Run a command.
    Run(IpAddr, String, Duration),
    /// Put a file into the guest.
    Upload(IpAddr, UploadSpec, Duration),
    /// Install a lease's public key and user data, or start its runner.
    Admit(IpAddr, LeaseId, Pass),
    /// Remove a lease's public key and user data, or end its runner.
    Expel(IpAddr, LeaseId, Pass),
    /// Ask the guest about a lease's runner.
    Words(IpAddr, LeaseId, Pass),
    /// Install the public key of whoever holds the guest.
    Unlock(IpAddr, String),
    /// Verify the marks and tag the guest as going.
    Fence,
    /// Shut down, and stop after the limit.
    Shutdown(Duration),
    /// Stop hard.
    Stop,
    /// Destroy the stopped guest.
    Destroy,
    /// List volumes that still carry the id: of a guest that was there on all storages, else on those
    /// its clone was to be on.
    Leftovers,
}

impl Call {
    /// What answers in its place while the guest must not be destroyed or put back; none of a call
    /// that does neither.
    pub fn withheld(&self, why: String) -> Option<Answer> {
        let fault = Fault::new(FaultKind::Contention, Culprit::Guest, why);
        match self {
            Self::Fence => Some(Answer::Fenced(Err(fault))),
            Self::Shutdown(_) | Self::Stop | Self::Destroy => Some(Answer::Accepted(Err(fault))),
            Self::Rollback => Some(Answer::RolledBack(Err(fault))),
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

    /// Whether the guest itself is called over SSH, and its cluster is not.
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
            | Self::Fence
            | Self::Shutdown(_)
            | Self::Stop
            | Self::Destroy
            | Self::Leftovers => false,
        }
    }
}

/// What an agent knows of its guest, from the intent to clone it on.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    /// The marks it carries.
    pub marks: Marks,
    /// The node it is on, as last known.
    pub node: NodeName,
    /// The clone's task, once accepted.
    pub upid: Option<Upid>,
    /// Whether it is proven to be this agent's: by the task's end or by its marks.
    pub settled: bool,
    /// The MAC address of net0.
    pub mac: Option<String>,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its host keys, public key lines.
    pub host_keys: Vec<String>,
    /// Its volumes, as its configuration named them once it was made, and its disc image.
    pub volumes: Vec<String>,
}
