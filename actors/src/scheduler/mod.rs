//! The scheduler: turns all demand, less what is in flight, into hand-outs and starts. A mind under
//! the herd alone; it knows levels, not events, so that whatever is refused, dies or crosses
//! another message on the way is simply served again.

pub mod account;
mod agents;
mod begin;
pub mod book;
mod classes;
mod covered;
pub mod door;
mod evict;
mod forecast;
pub mod matching;
mod queue;
mod quota;
pub mod routing;
mod serve;
mod specs;
pub mod start_backoff;
pub mod state;
mod surplus;
pub mod uses;
pub mod waiting;

use std::sync::Arc;

use drover_model::id::{AgentId, LeaseId, SourceId, TemplateId};
pub use drover_model::record::describe;
use drover_model::record::{LeaseAsk, Owner, Want};
use drover_model::spec::TemplateSpec;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;

/// Where demand comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Leases that wait.
    Leases,
    /// A configured source.
    Named(SourceId),
}

/// One level of demand: so many uses of that kind are wanted at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Where it comes from.
    pub source: Source,
    /// What is wanted.
    pub want: Want,
    /// For whom, where an agent is kept for just them; none where that makes no difference.
    pub whose: Option<Owner>,
    /// How many uses.
    pub count: u32,
    /// Since when the oldest of them waits.
    pub oldest: WallTime,
}

/// What the herd is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Give a lease out on an agent.
    HandOut {
        /// The agent.
        agent: AgentId,
        /// The lease as asked for.
        ask: Box<LeaseAsk>,
    },
    /// Have a template begin agents.
    Start {
        /// The template.
        template: TemplateId,
        /// How many.
        count: u32,
    },
    /// Let an agent go that nobody needs, if it is still Queued.
    Withdraw {
        /// The agent.
        agent: AgentId,
    },
    /// Let an idle agent go that is kept for another owner: its place is wanted.
    Evict {
        /// The agent.
        agent: AgentId,
    },
    /// End a lease on its agent.
    End {
        /// The agent.
        agent: AgentId,
        /// The lease.
        lease: LeaseId,
        /// Why, one word, as in the record.
        why: &'static str,
    },
    /// Record that a lease is over that no agent has.
    Cancel {
        /// The lease.
        lease: LeaseId,
        /// Why, as in the record.
        why: &'static str,
    },
    /// A lease lost its agent before it was ready, and waits again.
    Again {
        /// The lease.
        lease: LeaseId,
    },
    /// A source's runner could not be put on its agent.
    NotServed {
        /// The source.
        source: SourceId,
        /// The lease, which is forgotten.
        lease: LeaseId,
    },
    /// A lease is over; anyone who waits for that may be told.
    Over {
        /// The lease.
        lease: LeaseId,
    },
}

/// An agent as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentView {
    /// The spec it was born with.
    pub spec: Arc<TemplateSpec>,
    /// Which of the specs in use that is.
    pub(self) kind: specs::SpecId,
    pub status: AgentStatus,
    /// Whether nothing was sent to the cluster for it yet.
    pub queued: bool,
    /// Told to go.
    pub going: bool,
    /// Counts the agents as they got free, so that the longest ready one is known.
    pub order: u64,
    /// When it was first heard of, while it is on its way in this start of the service.
    pub started: Option<WallTime>,
}

impl AgentView {
    /// Whether it takes the leases of these; none stands for those it is surely not kept for.
    pub fn takes(&self, whose: Option<&Owner>) -> bool {
        takes(self.status.owner.as_ref(), whose)
    }
}

/// Whether what is kept for one, or for nobody, takes the leases of these.
pub(crate) fn takes(kept_for: Option<&Owner>, whose: Option<&Owner>) -> bool {
    kept_for.is_none() || kept_for == whose
}
