//! What the scheduler takes in, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::{AgentId, CloudId, LeaseId, SourceId, TemplateId};
use drover_model::record::{HoldOwner, LeaseAsk};
use drover_model::size::Size;
use drover_model::state_machine::Timed;
use drover_model::tenant::LeaseLimits;

use super::routing::Routing;
use crate::demand::Level;
use crate::template::TemplateNews;

/// What can happen to the scheduler.
#[derive(Debug, Clone)]
pub enum Event {
    /// Limits of leases come into force. Leases that wait stay.
    Limits(LeaseLimits),
    /// Label mappings come into force.
    Routing(Routing),
    /// Shares come into force: of callers who ask for leases themselves, and of each source.
    Shares(ShareSpec, Vec<Arc<SourceSpec>>),
    /// How many more agents of each template and size its cluster has room for.
    Fits(BTreeMap<(TemplateId, Size), u64>),
    /// Agents that another drover may have handed out: no lease goes to them.
    Restrained(BTreeSet<AgentId>),
    /// No lease goes to this agent while a hold of it is on its way to the journal, or again may.
    Barred(AgentId, bool),
    /// Agents that somebody holds: each counts as one lease of its holder.
    Held(BTreeMap<AgentId, HoldOwner>),
    /// A lease is asked for, and [`admission`](super::state::Scheduler::admission) said New.
    Asked(Box<LeaseAsk>),
    /// The record of an ask is durable, or could not be written.
    Recorded(LeaseId, bool),
    /// A lease is to end, and [`releasable`](super::state::Scheduler::releasable) allowed it.
    Release(LeaseId),
    /// The end of a lease that no agent has is durable, or could not be written.
    Cancelled(LeaseId, bool),
    /// How many agents a cloud has room for.
    Room(CloudId, u32),
    /// A cloud left the configuration and has no agent.
    CloudGone(CloudId),
    /// The agents or the limits of a template changed.
    News(Box<TemplateNews>),
    /// So many starts of a size did not reach their template: they are not in flight.
    NotStarted(TemplateId, Size, u32),
    /// A source reports the jobs that wait there, and how many jobs run on each of its leases.
    Wanted(SourceId, Vec<Level>, Vec<(LeaseId, u32)>),
    /// The runner of a source's lease is done, for this reason in one word.
    RunnerDone(LeaseId, &'static str),
    /// Time to decide: ends waits that lasted too long, hands out, starts, and takes back. Ids of
    /// leases for jobs come from the turn's random bits.
    Decide,
    /// The service stops: nothing is handed out or started any more.
    Stop,
}

impl Timed for Event {
    fn needs_time(&self) -> bool {
        match self {
            Self::Asked(_) | Self::Cancelled(..) | Self::News(_) | Self::Decide => true,
            Self::Limits(_)
            | Self::Routing(_)
            | Self::Shares(..)
            | Self::Fits(_)
            | Self::Restrained(_)
            | Self::Barred(..)
            | Self::Held(_)
            | Self::Recorded(..)
            | Self::Release(_)
            | Self::Room(..)
            | Self::CloudGone(_)
            | Self::NotStarted(..)
            | Self::Wanted(..)
            | Self::RunnerDone(..)
            | Self::Stop => false,
        }
    }
}

/// What the scheduler wants done by the herd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Give a lease out on an agent.
    HandOut {
        agent: AgentId,
        /// The lease as asked for.
        ask: Box<LeaseAsk>,
    },
    /// Have a template start so many agents of a size.
    Start { template: TemplateId, size: Size, count: u32 },
    /// Retire an agent that no demand needs, if it is still Queued.
    Withdraw { agent: AgentId },
    /// Retire an idle agent that is kept for one owner, or that has another size than who waits needs:
    /// others wait for its place.
    Evict { agent: AgentId },
    /// End a lease on its agent.
    End {
        agent: AgentId,
        lease: LeaseId,
        /// Why, one word, as in the record.
        why: &'static str,
    },
    /// Record that a lease is over that no agent has.
    Cancel {
        lease: LeaseId,
        /// Why, as in the record.
        why: &'static str,
    },
    /// A lease lost its agent before it was ready, and waits again.
    Again { lease: LeaseId },
    /// A source's runner could not be put on its agent.
    NotServed {
        source: SourceId,
        /// The lease, which is forgotten.
        lease: LeaseId,
    },
    /// A lease is over: the herd answers the callers who wait for that.
    Over { lease: LeaseId },
}
