//! Messages between actors.
//!
//! Every message is an event or a command. No message blocks its sender: an answer is another
//! message, or a one-shot channel. A command may be repeated and may arrive late; the receiver
//! drops what no longer applies.
//!
//! ```text
//! server, CLI ── HerdCommand ──▶ herd ── CloudCommand ──▶ cloud ── commands ──▶ template
//! config ─────── ApplySpec ────▶                                                   │
//!                                                      AgentCommand                ▼
//!        herd, template, reconciler, source, cluster ────────────────────────▶  agent
//!                                                                                │
//!                template ◀── AgentReport ───────────────────────────────────────┤
//!                cluster  ◀── LaneAsk, LaneFree, IdBack ─────────────────────────┘
//! ```
//!
//! - [`HerdCommand`]: commands of operators, callers of the API and demand sources. Each carries a
//!   `reply` channel where the caller needs an answer. [`Refusal`] says why a command was refused;
//!   a dropped channel means "unknown".
//! - [`AgentCommand`]: orders go straight to the agent, through the roster. [`AgentReport`]: reports
//!   climb through template and cloud to the herd, since both count them. The book's page on
//!   architecture says why. `Standing` is what an agent means to its template.
//! - [`LaneAsk`], [`LaneFree`], [`IdBack`]: an agent asks its cluster for a place in the
//!   concurrency limits and a VMID, and gives them back.
//!
//! Other commands and reports are declared by their receivers: `cloud/`, `template/`, `cluster/`,
//! `reconciler/`, `demand/`.

mod adopt;
mod copy;
mod images;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use drover_model::demand::report::{Account, SourceJobs, Subject};
use drover_model::fault::Fault;
use drover_model::id::{
    AgentId, CloudId, ClusterId, LeaseId, NodeName, SourceId, TemplateId, VmId,
};
use drover_model::order::{MachineView, Order, OrderStatus, Work};
use drover_model::overridden::{CloudOverrides, TemplateChange, TemplateOverrides};
use drover_model::overrides::{Change, OverrideChange, Overrides};
use drover_model::phase::NodeOrder;
use drover_model::placement::report::{NodeReport, NodesKnown, WhyReport};
use drover_model::plan::Plan;
use drover_model::record::{Hold, LeaseAsk, Reason, Want};
use drover_model::spec::HerdSpec;
use drover_model::status::AgentStatus;
use drover_model::stop::StopPolicy;
use drover_model::tenant::By;
use drover_model::time::{Moment, WallTime};
use drover_runtime::reply::Reply;

use drover_limits::concurrency::OperationEnd;
use drover_model::finding::{Finding, Outcome};

pub use adopt::{AdoptAsk, MachineAdopted};
pub use copy::{Copied, CopyAsk, Purpose};
pub use images::{ImageBuildAsk, ImageImported, ImagesPruned, ImagesSeen};

/// To the herd: puts a checked configuration into force.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ApplySpec(pub Arc<HerdSpec>);

/// To the herd: commands of operators, API callers and demand sources.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum HerdCommand {
    /// Asks for a lease. The reply comes when the ask is durable, also when the journal knew it
    /// before.
    Lease {
        ask: Box<LeaseAsk>,
        /// Receives the lease's id or a refusal.
        reply: Reply<Result<LeaseId, Refusal>>,
    },
    /// Extends a lease.
    Renew {
        lease: LeaseId,
        /// The new time to live, counted from now.
        ttl: Duration,
        by: By,
        /// Receives the new end or a refusal.
        reply: Reply<Result<WallTime, Refusal>>,
    },
    /// Ends a lease. Safe to repeat.
    Release {
        lease: LeaseId,
        by: By,
        /// Receives a value when the end is durable.
        reply: Reply<Result<(), Refusal>>,
    },
    /// A demand source has reported a change.
    Wake {
        source: SourceId,
        /// Receives a value when the command was passed on.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Retires one agent.
    Retire {
        agent: AgentId,
        reason: Reason,
        by: By,
        /// Receives a value when the command was passed on.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Changes an agent's own limits, which override those of its template.
    Override {
        agent: AgentId,
        change: OverrideChange,
        /// Receives all overrides of the agent once they are durable.
        reply: Reply<Result<Overrides, Refusal>>,
    },
    /// Changes what operators say of a template against the configuration.
    OverrideTemplate {
        /// Its name, alone or behind its cloud.
        template: String,
        change: TemplateChange,
        /// Receives the template, and all that holds for it once that is durable.
        reply: Reply<Result<(TemplateId, TemplateOverrides), Refusal>>,
    },
    /// Changes what operators say of a cloud's cap against the configuration.
    OverrideCloud {
        cloud: CloudId,
        cap: Change,
        /// Receives all that holds for the cloud once it is durable.
        reply: Reply<Result<CloudOverrides, Refusal>>,
    },
    /// Says what a configuration would do, and changes nothing.
    Plan {
        next: Arc<HerdSpec>,
        /// Whether a sync with git brings it.
        by_git: bool,
        /// Jobs of sources that wait, each with whose it is.
        jobs: Vec<(String, Want)>,
        reply: Reply<Plan>,
    },
    /// Takes back what operators say of these clouds and their templates.
    UndoOverrides {
        clouds: BTreeSet<CloudId>,
        /// Receives how many templates and clouds it was about, once that is durable.
        reply: Reply<Result<usize, Refusal>>,
    },
    /// Holds an agent for debugging once it is free, or ends its hold.
    Hold {
        agent: AgentId,
        /// `None` ends the hold.
        hold: Option<Box<Hold>>,
        by: By,
        /// Receives a value when the hold is durable.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Gives the machine of a leased or held agent an order.
    Order {
        target: Target,
        work: Work,
        /// Hash of the idempotency key with its principal.
        key: Option<String>,
        by: By,
        /// Receives the order when it is durable.
        reply: Reply<Result<Ordered, Refusal>>,
    },
    /// Looks at the machine of an agent.
    Machine {
        target: Target,
        by: By,
        /// Receives what its cluster shows, or a refusal.
        reply: Reply<Result<MachineSeen, Refusal>>,
    },
    /// Asks which agent has a machine that somebody may give orders to.
    MachineOf {
        target: Target,
        by: By,
        /// Receives the agent, or a refusal.
        reply: Reply<Result<AgentId, Refusal>>,
    },
    /// Holds the next agent of a template that fails before it is ready, or cancels that.
    HoldNext {
        /// The template, by `cloud/template` or bare name.
        template: String,
        /// `None` cancels the waiting hold.
        hold: Option<Box<Hold>>,
        by: By,
        /// Receives the template when the hold is durable.
        reply: Reply<Result<TemplateId, Refusal>>,
    },
    /// Makes a copy of the machine of a leased or held agent: another agent, which is held.
    Copy(CopyAsk),
    /// Starts agents of one template at once, without demand.
    Provision {
        /// The template, by `cloud/template` or bare name.
        template: String,
        count: u32,
        /// Agents on trial are never handed out and retire soon after they are ready.
        trial: bool,
        /// Receives the started agents, or why none can start.
        reply: ProvisionReply,
    },
    /// A guest that proved to be an agent's reports its address.
    CallIn {
        agent: AgentId,
        /// The address that the call came from.
        peer: Option<IpAddr>,
        /// Addresses that the guest reports.
        said: Vec<IpAddr>,
        /// Receives the address that counts once it is durable.
        reply: Reply<Result<IpAddr, Refusal>>,
    },
    /// Closes a breaker on an operator's command.
    ResetBreaker {
        /// A template, or `node:`, `storage:` or `cloud:` and a name.
        name: String,
        /// Receives the breaker's full name or a refusal.
        reply: Reply<Result<String, Refusal>>,
    },
    /// Retires every idle agent that may go; with `all` the warm minimum too.
    Reap {
        /// Also retires the warm minimum, and agents on their way once they are idle.
        all: bool,
        /// Receives the number of agents that go.
        reply: Reply<u32>,
    },
    /// Reconciles every cluster fully and at once.
    Resync {
        /// Receives, when all clusters are done, the findings of each cluster or why it was not
        /// readable.
        reply: Reply<BTreeMap<ClusterId, Outcome<String>>>,
    },
    /// Plans the next reconciliation of every cluster and changes nothing.
    PlanResync {
        /// Receives, when all clusters are judged, the findings of each cluster, the gravest first,
        /// or why it was not readable.
        reply: Reply<BTreeMap<ClusterId, Outcome<Finding>>>,
    },
    /// An operator confirms that the journal is older than the world: orphans may be destroyed
    /// nevertheless.
    ConfirmOlderJournal,
    /// An operator confirms that the state directory was moved here and no other machine uses it.
    ConfirmMachine,
    /// An operator confirms that a cloud leads to the same cluster as before, although the
    /// cluster's root authority is new. The guests' marks must prove it.
    ConfirmCluster {
        cloud: CloudId,
        /// The operator confirms that drover has no guest there that could prove it.
        no_guests: bool,
        /// Receives the result when it is durable, or a refusal.
        reply: Reply<Result<ClusterConfirmed, Refusal>>,
    },
    /// Cordons or drains a node, or lets it be used again.
    OrderNode {
        node: NodeName,
        /// A cloud that leads to the node's cluster, needed where several clusters have a node of
        /// this name.
        cloud: Option<CloudId>,
        order: NodeOrder,
        /// Who wants it, such as `token:ci`.
        by: String,
        /// Receives the result when it is durable, or a refusal.
        reply: Reply<Result<NodeOrdered, Refusal>>,
    },
    /// Reads all nodes: what is free there, and on which of them nothing starts.
    Nodes {
        /// Receives the nodes of each readable cluster, and why other clusters were not readable.
        reply: Reply<NodesSeen>,
    },
    /// Says what is known of nodes without asking any cluster.
    NodesKnown {
        /// Receives it, each part by cluster and name.
        reply: Reply<NodesKnown>,
    },
    /// Finds what keeps a template from starting agents, on each node.
    Why {
        /// The template, by `cloud/template` or bare name.
        template: String,
        /// Receives the report or a refusal.
        reply: Reply<Result<WhyReport, Refusal>>,
    },
    /// Lists the jobs of all sources, from their last polls.
    Jobs {
        /// Receives the jobs of each source.
        reply: Reply<Vec<SourceJobs>>,
    },
    /// Explains why a lease, a job or all work of a source waits.
    Account {
        subject: Subject,
        /// Receives the account or a refusal.
        reply: Reply<Result<Account, Refusal>>,
    },
    /// Builds an image on its nodes, or on one node.
    BuildImage(Box<ImageBuildAsk>),
    /// Ends a build that runs, and destroys what it made.
    CancelBuild {
        build: AgentId,
        /// Receives whether there is such a build.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Lists images, their versions and their builds.
    Images {
        /// Receives what is there, and why other clusters were not readable.
        reply: Reply<ImagesSeen>,
    },
    /// Removes old versions of images.
    PruneImages {
        /// Whether versions of images that left the configuration go too.
        unconfigured: bool,
        /// Plans, and changes nothing.
        dry_run: bool,
        /// Receives what becomes of each version, and why other clusters were not readable.
        reply: Reply<ImagesPruned>,
    },
    /// Marks an existing template as a version of an image.
    ImportImage {
        /// The image, by `cloud/image` or bare name.
        image: String,
        vmid: VmId,
        /// Looks, and changes nothing.
        dry_run: bool,
        /// Receives the new version or a refusal.
        reply: Reply<Result<ImageImported, Refusal>>,
    },
    /// Destroys the guest of a machine that left the configuration.
    DeleteMachine {
        name: String,
        /// Receives a value when the command was passed on.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Lets go of a machine that left the configuration, or was lost; its guest stays.
    ForgetMachine {
        name: String,
        /// Receives a value when the command was passed on.
        reply: Reply<Result<(), Refusal>>,
    },
    /// Has a declared machine without a guest, or with a lost one, adopt a guest that is there.
    AdoptMachine(Box<AdoptAsk>),
    /// Takes no new work. The reply comes when nothing is in flight that must not be interrupted.
    Drain {
        policy: StopPolicy,
        /// Receives a value when the service may stop.
        reply: Reply<()>,
    },
}

/// Whose machine is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Agent(AgentId),
    /// That of the agent that a lease is on.
    Lease(LeaseId),
}

/// The result of [`HerdCommand::Order`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    pub agent: AgentId,
    pub status: OrderStatus,
}

/// The result of [`HerdCommand::Machine`].
#[derive(Debug, Clone, PartialEq)]
pub struct MachineSeen {
    pub agent: AgentId,
    pub template: TemplateId,
    pub cluster: ClusterId,
    /// The cloud that it was looked at through.
    pub cloud: CloudId,
    pub view: MachineView,
}

/// The reply channel of [`HerdCommand::Provision`].
pub type ProvisionReply = Reply<Result<Provisioned, Refusal>>;

/// The result of [`HerdCommand::Provision`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    pub template: TemplateId,
    pub agents: Vec<AgentId>,
    /// Why fewer agents started than asked for.
    pub short: Option<String>,
}

/// A cluster that goes on under another fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfirmed {
    /// The cloud that the operator named.
    pub cloud: CloudId,
    /// The id by which drover knows the cluster, as before.
    pub cluster: ClusterId,
    /// The id of the cluster's present fingerprint.
    pub now: ClusterId,
    /// Guests whose marks prove that the cluster is the same.
    pub guests: usize,
}

/// The result of [`HerdCommand::OrderNode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOrdered {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub order: NodeOrder,
    /// Whether the node was under another order before.
    pub changed: bool,
    /// Agents on the node at this moment.
    pub agents: usize,
}

/// The result of [`HerdCommand::Nodes`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodesSeen {
    /// Sorted by cluster and name.
    pub nodes: Vec<NodeReport>,
    /// Clusters that were not readable, each with the reason.
    pub unread: Vec<(ClusterId, String)>,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing has this name.
    #[error("{0}")]
    Unknown(String),
    /// The command contradicts something known, such as another body under the same idempotency
    /// key.
    #[error("{0}")]
    Conflict(String),
    /// The service is stopping or the journal cannot be written.
    #[error("{0}")]
    Unavailable(String),
    /// A limit is reached; a later try may succeed.
    #[error("{0}")]
    TooMany(String),
    /// The object belongs to another tenant, or the command exceeds the caller's rights.
    #[error("{0}")]
    Forbidden(String),
}

/// To an agent, from its template, its cluster, the reconciler, a source or the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum AgentCommand {
    /// A place in the concurrency limits and a VMID (`Queued` only).
    Granted {
        vmid: VmId,
        /// The node of the future guest.
        node: NodeName,
        cluster: ClusterId,
        /// The agent's spec with the chosen template image, node and storage; `None` where nothing
        /// was chosen.
        spec: Option<Arc<drover_model::spec::TemplateSpec>>,
    },
    /// The cluster could give no place: no free VMID, template image not found, and so on.
    NotGranted(Fault),
    /// Gives a lease to this agent.
    Lease {
        /// The lease as the holder asked for it.
        ask: Box<LeaseAsk>,
    },
    /// Extends a lease (already durable).
    LeaseRenewed {
        lease: LeaseId,
        /// The new end.
        expires: WallTime,
    },
    /// Ends a lease.
    EndLease {
        lease: LeaseId,
        /// `released`, `expired` or `cancelled`.
        why: String,
    },
    /// The source does not list the lease's runner: ask the guest whether the runner has ended.
    AskRunner {
        /// The lease whose runner is asked about.
        lease: LeaseId,
    },
    /// The lease's runner is not what it should be: end the lease and retire the agent.
    FailLease {
        lease: LeaseId,
        /// The problem, for people.
        text: String,
    },
    /// Changes the agent's limits against its template's (already durable).
    Override(OverrideChange),
    /// Holds the agent for debugging once it has no lease, or ends the hold (already durable).
    Hold(Option<Box<Hold>>),
    /// Gives the machine an order (already durable).
    Order(Box<Order>),
    /// Take no new lease; retire when the last lease ends.
    Drain(Reason),
    /// Retire now; with a lease, drain instead.
    Retire(Reason),
    /// The agent is not needed any more. A `Queued` agent goes, since nothing was sent for it yet.
    Withdraw,
    /// Retire now, with leases or without.
    ForceRetire(Reason),
    /// The reconciler found the guest on another node.
    Moved(NodeName),
    /// A quorate endpoint reported the agent's VMID as free.
    Vanished,
    /// The reconciler saw the guest stopped.
    SeenStopped,
    /// The cluster's last list shows this of the guest.
    Observed(Observed),
    /// The guest called from this address (already durable).
    CalledIn(IpAddr),
    /// The guest's node is offline beyond its grace (`true`) or back (`false`).
    NodeDown(bool),
    /// The service stops: forget timers, keep the guest.
    Rest,
}

/// An agent's guest in one list of a quorate cluster. A list is an index: it leads to reads of the
/// guest itself, and proves only that a guest ran (book: safety, rule 4 and book: safety, rule 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// When drover asked for the list. The content may be ten seconds older, and minutes older
    /// where a node's status daemon hangs. It is never newer.
    pub at: Moment,
    pub node: NodeName,
    /// Whether the cluster reports that node offline.
    pub offline: bool,
    pub status: Shown,
    /// The `lock` of the guest's configuration.
    pub lock: Option<String>,
}

/// The state of a guest in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Running,
    Stopped,
    /// The machine exists and does not run: `paused`, `prelaunch`, `io-error` and so on.
    Still(String),
    /// The list does not say: the guest is new, or its node's status daemon has been silent for
    /// long.
    Unknown,
}

impl Shown {
    /// Reads the status of one row of the list.
    pub fn of(status: &str) -> Self {
        match status {
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            "unknown" | "" => Self::Unknown,
            other => Self::Still(other.to_owned()),
        }
    }
}

/// From an agent to its template: the agent's status changed.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct AgentReport {
    pub status: Arc<AgentStatus>,
    /// A fault to charge, where one ended or delayed the agent in this step.
    pub fault: Option<Fault>,
    /// Leases that the agent did not take, or gives back before they were ready. They wait again.
    pub refused: Vec<LeaseId>,
}

/// To a cluster, from an agent: asks for a place in the concurrency limits and a VMID for the
/// clone.
///
/// The answer is [`AgentCommand::Granted`] or [`AgentCommand::NotGranted`].
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneAsk {
    pub agent: AgentId,
    /// Contains the VMID, node and storage of the template image.
    pub spec: Arc<drover_model::spec::TemplateSpec>,
    /// The recipient of the answer.
    pub reply: actix::Recipient<AgentCommand>,
}

/// To a cluster, from an agent: the clone has settled or never started, so the place is free.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LaneFree {
    pub agent: AgentId,
    pub end: OperationEnd,
}

/// To a cluster, from an agent: gives a VMID back.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct IdBack {
    pub vmid: VmId,
    /// Whether the VMID is burned, because it is somebody else's or remains may exist. Otherwise it
    /// rests for an hour.
    pub burned: bool,
}
