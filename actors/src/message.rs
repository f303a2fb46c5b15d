//! The messages that cross between actors, and the handle the outside talks to.
//!
//! Messages are facts or wishes, never questions that block: an answer is another message, or a
//! one-shot channel that the handler fills at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use drover_model::demand::report::{Account, SourceJobs, Subject};
use drover_model::fault::Fault;
use drover_model::id::{
    AgentId, CloudId, ClusterId, LeaseId, NodeName, SourceId, TemplateId, VmId,
};
use drover_model::overrides::{OverrideChange, Overrides};
use drover_model::placement::report::{NodeReport, WhyReport};
use drover_model::record::{Hold, LeaseAsk, Owner, Reason};
use drover_model::spec::HerdSpec;
use drover_model::stop::StopPolicy;
use drover_model::tenant::By;
use drover_model::time::{Moment, WallTime};
use tokio::sync::oneshot;

use crate::cluster::OperationEnd;
use crate::reconciler::finding::{Finding, Outcome};

/// To the herd: a checked configuration comes into force.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ApplySpec(pub Arc<HerdSpec>);

/// To the herd: what an operator or a demand source wants.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum HerdCommand {
    /// A lease is wanted; the ask is durable (or the same one is known) when the reply comes.
    Lease {
        /// What.
        ask: Box<LeaseAsk>,
        /// Filled with the lease's id, or why not.
        reply: oneshot::Sender<Result<LeaseId, Refusal>>,
    },
    /// A lease lasts longer.
    Renew {
        /// Which.
        lease: LeaseId,
        /// For how long from this moment.
        ttl: Duration,
        /// Who wants it.
        by: By,
        /// Filled with its new end, or why not.
        reply: oneshot::Sender<Result<WallTime, Refusal>>,
    },
    /// A lease is over; safe to repeat.
    Release {
        /// Which.
        lease: LeaseId,
        /// Who wants it.
        by: By,
        /// Filled when the end is durable.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// A source of demand says that there is news.
    Wake {
        /// Which.
        source: SourceId,
        /// Filled when it was passed on.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// One agent goes.
    Retire {
        /// Which.
        agent: AgentId,
        /// Why.
        reason: Reason,
        /// Who wants it.
        by: By,
        /// Filled when it was passed on.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// An agent's limits change against its template's.
    Override {
        /// Which.
        agent: AgentId,
        /// What changes.
        change: OverrideChange,
        /// Filled with all its overrides once they are durable.
        reply: oneshot::Sender<Result<Overrides, Refusal>>,
    },
    /// An agent is held for debugging once it is free, or its hold is over.
    Hold {
        /// Which.
        agent: AgentId,
        /// The hold; none when it is over.
        hold: Option<Box<Hold>>,
        /// Who wants it.
        by: By,
        /// Filled when it is durable.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
    /// The next agent of a template that fails on its way is held for debugging, or none.
    HoldNext {
        /// The template, by `cloud/template` or bare name.
        template: String,
        /// The hold; none to take it back.
        hold: Option<Box<Hold>>,
        /// Who wants it.
        by: By,
        /// Filled with the template when it is durable.
        reply: oneshot::Sender<Result<TemplateId, Refusal>>,
    },
    /// Agents of one template are begun at once, without demand.
    Provision {
        /// The template, by `cloud/template` or bare name.
        template: String,
        /// How many.
        count: u32,
        /// Whether they are on trial: handed to nobody, and gone soon after they are ready.
        trial: bool,
        /// Filled with those that were begun, or why none can be.
        reply: ProvisionReply,
    },
    /// A guest that proved to be an agent's says where it is.
    CallIn {
        /// The agent.
        agent: AgentId,
        /// Where it called from.
        peer: Option<IpAddr>,
        /// Addresses it says.
        said: Vec<IpAddr>,
        /// Filled with the address that counts once it is durable.
        reply: oneshot::Sender<Result<IpAddr, Refusal>>,
    },
    /// A breaker flows again because an operator says so.
    ResetBreaker {
        /// Whose: a template, or `node:`, `storage:` or `cloud:` and a name.
        name: String,
        /// Filled with its whole name, or why not.
        reply: oneshot::Sender<Result<String, Refusal>>,
    },
    /// Retire everything idle that may go (the warm minimum too with `all`).
    Reap {
        /// Whether the warm minimum goes too, and what is coming once it is idle.
        all: bool,
        /// Filled with the number of agents that go.
        reply: oneshot::Sender<u32>,
    },
    /// Reconcile every cluster fully and at once.
    Resync {
        /// Filled when all are done: the findings of each cluster, or why it could not be read.
        reply: oneshot::Sender<BTreeMap<ClusterId, Outcome<String>>>,
    },
    /// Say what the next reconciliation of every cluster would do, and do nothing.
    PlanResync {
        /// Filled when all are judged: the findings of each cluster, the gravest first, or why it
        /// could not be read.
        reply: oneshot::Sender<BTreeMap<ClusterId, Outcome<Finding>>>,
    },
    /// An operator knows that the journal is older than the world: orphans may go all the same.
    ConfirmOlderJournal,
    /// An operator says that this machine is the only one with this state directory: it was moved.
    ConfirmMachine,
    /// An operator says that a cloud leads to the same cluster as before, whose root authority was
    /// made anew; the guests' marks must prove it.
    ConfirmCluster {
        /// The cloud.
        cloud: CloudId,
        /// That drover has no guest there that could prove it.
        no_guests: bool,
        /// Filled when that is durable, or with why not.
        reply: oneshot::Sender<Result<ClusterConfirmed, Refusal>>,
    },
    /// A node is drained: nothing is begun there, idle agents go, busy ones finish; or it is used
    /// again.
    DrainNode {
        /// The node.
        node: NodeName,
        /// A cloud that leads to its cluster, where several clusters have such a node.
        cloud: Option<CloudId>,
        /// Whether it is drained.
        drained: bool,
        /// Filled when that is durable.
        reply: oneshot::Sender<Result<NodeDrained, Refusal>>,
    },
    /// Look at all nodes, at what is free there, and at what is begun nowhere.
    Nodes {
        /// Filled with the nodes of each cluster that could be read, and why others could not.
        reply: oneshot::Sender<NodesSeen>,
    },
    /// Look at what keeps a template from beginning agents, on each node.
    Why {
        /// The template, by `cloud/template` or bare name.
        template: String,
        /// Filled with what was found, or why it could not be looked at.
        reply: oneshot::Sender<Result<WhyReport, Refusal>>,
    },
    /// The jobs of all sources, by their last looks.
    Jobs {
        /// Filled with them.
        reply: oneshot::Sender<Vec<SourceJobs>>,
    },
    /// Why what somebody wants waits.
    Account {
        /// What is asked about.
        subject: Subject,
        /// Filled with the account, or why there is none.
        reply: oneshot::Sender<Result<Account, Refusal>>,
    },
    /// Take no new work; `reply` when nothing is in flight that must not be cut.
    Drain {
        /// What becomes of the agents.
        policy: StopPolicy,
        /// Filled when the service may stop.
        reply: oneshot::Sender<()>,
    },
}

/// Where what came of a wish to provision goes.
pub type ProvisionReply = oneshot::Sender<Result<Provisioned, Refusal>>;

/// What came of a wish to provision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    /// The template.
    pub template: TemplateId,
    /// The agents that were begun.
    pub agents: Vec<AgentId>,
    /// Why they are fewer than wanted, when they are.
    pub short: Option<String>,
}

/// A cluster that goes on under another fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfirmed {
    /// The cloud it was said of.
    pub cloud: CloudId,
    /// The id by which drover knows the cluster, as before.
    pub cluster: ClusterId,
    /// What its fingerprint says now.
    pub now: ClusterId,
    /// Guests whose marks prove it.
    pub guests: usize,
}

/// What came of draining a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDrained {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeName,
    /// Whether it is drained.
    pub drained: bool,
    /// Agents on it at this moment.
    pub agents: usize,
}

/// What was seen of all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodesSeen {
    /// Nodes, by cluster and name.
    pub nodes: Vec<NodeReport>,
    /// Clusters that could not be read, each with why.
    pub unread: Vec<(ClusterId, String)>,
}

/// Why a wish was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing of that name.
    #[error("{0}")]
    Unknown(String),
    /// It contradicts something that stands (another body under the same idempotency key, …).
    #[error("{0}")]
    Conflict(String),
    /// The service is stopping or the journal cannot be written.
    #[error("{0}")]
    Unavailable(String),
    /// As many as may be are there already; later there may be room.
    #[error("{0}")]
    TooMany(String),
    /// It is not theirs, or beyond what they may have.
    #[error("{0}")]
    Forbidden(String),
}

/// To an agent, from its template, the cluster or the reconciler.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum AgentCommand {
    /// Its place in the lanes and its VMID (Queued only).
    Granted {
        /// Its VMID.
        vmid: VmId,
        /// The node its guest is to be on.
        node: NodeName,
        /// The cluster.
        cluster: ClusterId,
        /// Its spec with what was chosen for it; none where nothing was.
        spec: Option<Arc<drover_model::spec::TemplateSpec>>,
    },
    /// No place could be had (no id free, template not found, …).
    NotGranted(Fault),
    /// A lease is given out on it.
    Lease {
        /// As asked for.
        ask: Box<LeaseAsk>,
    },
    /// A lease lasts longer (already durable).
    LeaseRenewed {
        /// Which.
        lease: LeaseId,
        /// When it runs out.
        expires: WallTime,
    },
    /// A lease is over.
    EndLease {
        /// Which.
        lease: LeaseId,
        /// `released`, `expired`, `cancelled`.
        why: String,
    },
    /// A lease's runner is not seen at its source: whether it has ended is asked of its guest.
    AskRunner {
        /// Which.
        lease: LeaseId,
    },
    /// A lease's runner is not what it should be: it ends, and the agent with it.
    FailLease {
        /// Which.
        lease: LeaseId,
        /// What is wrong, in words for people.
        text: String,
    },
    /// Its limits change against its template's (already durable).
    Override(OverrideChange),
    /// Be held for debugging once no lease is on it, or be held no longer (already durable).
    Hold(Option<Box<Hold>>),
    /// Take no new use; go when the last one ends.
    Drain(Reason),
    /// Go now unless it is busy with a lease (then it drains).
    Retire(Reason),
    /// It is not wanted any more: go, if still Queued, where nothing was sent for it yet.
    Withdraw,
    /// Go now, leases or not.
    ForceRetire(Reason),
    /// The reconciler saw it on another node.
    Moved(NodeName),
    /// A quorate endpoint said its id is free.
    Vanished,
    /// The reconciler saw it stopped.
    SeenStopped,
    /// What the last list of the cluster shows of its guest.
    Observed(Observed),
    /// Its guest has called from this address (already durable).
    CalledIn(IpAddr),
    /// Its node is offline beyond the grace, or back.
    NodeDown(bool),
    /// The service stops: forget timers, keep the guest.
    Rest,
}

/// What one list of a quorate cluster shows of an agent's guest. A list is an index: it leads to
/// looks, and proves nothing but that a guest ran (design rules 4 and 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// When the list was asked for. What it shows may be older by ten seconds, and by minutes where a
    /// node's status daemon hangs; it is never newer.
    pub at: Moment,
    /// The node the guest is on.
    pub node: NodeName,
    /// Whether the cluster sees that node offline.
    pub offline: bool,
    /// What the guest does.
    pub status: Shown,
    /// Its `lock`.
    pub lock: Option<String>,
}

/// What a list shows that a guest does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It runs.
    Running,
    /// It is switched off.
    Stopped,
    /// Its machine is there and does not run: `paused`, `prelaunch`, `io-error`, …
    Still(String),
    /// The list does not tell: the guest is new, or its node's status daemon was not heard for long.
    Unknown,
}

impl Shown {
    /// Reads the status of a row of the list.
    pub fn of(status: &str) -> Self {
        match status {
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            "unknown" | "" => Self::Unknown,
            other => Self::Still(other.to_owned()),
        }
    }
}

/// From an agent to its template: its picture changed.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct AgentReport {
    /// The agent.
    pub agent: AgentId,
    /// Its template.
    pub template: TemplateId,
    /// Its standing towards permits and hand-outs.
    pub standing: Standing,
    /// Its state's name.
    pub state: &'static str,
    /// Leases on it.
    pub leases: Vec<LeaseId>,
    /// What holds for it instead of what its template says.
    pub overrides: Overrides,
    /// The only one it serves from here on, when it is kept for one.
    pub owner: Option<Owner>,
    /// A fault to charge, when one ended or hindered it in this step.
    pub fault: Option<Fault>,
    /// Leases it was told to take and could not, or gives back before they were ready: they wait.
    pub refused: Vec<LeaseId>,
}

/// What an agent means to its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// On its way to Ready.
    Coming,
    /// Ready, or leased with executors free: this many more uses fit.
    Free {
        /// Free executors.
        executors: u32,
        /// Whether no lease is on it.
        idle: bool,
    },
    /// Leased in full, draining or held.
    Busy,
    /// Going; still holds its permit.
    Leaving,
    /// On an offline node: reservations stay, the slot left the caps. Or its clone came to nothing,
    /// and whether that left volumes will only be known later.
    Parked,
    /// Gone: the permit is free, the actor ends.
    Gone,
}

/// To a cluster, from an agent: a place in the lanes and a VMID for its clone.
///
/// Answered with [`AgentCommand::Granted`] or [`AgentCommand::NotGranted`].
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneAsk {
    /// The agent.
    pub agent: AgentId,
    /// Its spec: the template's VMID, node and storage are in it.
    pub spec: Arc<drover_model::spec::TemplateSpec>,
    /// Where the answer goes.
    pub reply: actix::Recipient<AgentCommand>,
}

/// To a cluster, from an agent: its clone has settled (or never began), the lane is free.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneFree {
    /// The agent.
    pub agent: AgentId,
    /// What came of it.
    pub end: OperationEnd,
}

/// To a cluster, from an agent: a VMID is given back.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct IdBack {
    /// The id.
    pub vmid: VmId,
    /// Whether it must be burned (somebody else's, or remains may exist) rather than rest an hour.
    pub burned: bool,
}
