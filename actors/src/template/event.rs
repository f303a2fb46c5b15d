//! What can happen to a template, and what it can want done.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::canary::MadeAs;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, LeaseId, NodeName};
use drover_model::journal_state::AgentEntry;
use drover_model::place::Place;
use drover_model::record::{Body, Reason};
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::state_machine::Timed;

use super::TemplateNews;
use super::schedule_window::ScheduleWindow;
use crate::addresses::Supply;
use crate::canary::Proving;
use crate::message::{AgentCommand, AgentReport, Purpose};
use crate::roster::Living;

/// What can happen to a template.
#[derive(Debug, Clone)]
pub enum Event {
    /// Its cluster is known: agents can be started.
    Opened,
    /// A spec comes into force; none when the template left the configuration.
    Applied(Option<Arc<TemplateSpec>>),
    /// The service stops: nothing is started any more.
    Stopped,
    /// An agent that lived before this start of the service is taken over.
    Adopted(AgentId, Box<AgentEntry>),
    /// An agent that lived before this incarnation of the actor is taken over.
    Recalled(AgentId, Box<Living>),
    /// The incarnation before this one left reservations and asked starts that no news settled.
    Owed { reserved: u32, asked: BTreeMap<Size, u32> },
    /// The incarnation before this one left agents that are gone and leases that were refused,
    /// without news of them.
    Missed { gone: Vec<AgentId>, refused: Vec<(AgentId, LeaseId)> },
    /// The cloud reserved slots: for demand of a size, or for the warm pool where nothing was `asked`.
    ///
    /// There is an id for each agent that [`TemplateMind::startable`] allows.
    ///
    /// [`TemplateMind::startable`]: super::state::TemplateMind::startable
    Reserved { slots: u32, asked: Option<(Size, u32)>, ids: Vec<AgentId> },
    /// The cloud reserved slots because an operator says so.
    Provisioned { slots: u32, purpose: Purpose, ids: Vec<AgentId> },
    /// An agent's status changed.
    Reported(Box<AgentReport>),
    /// An agent was given a place.
    Placed(Place),
    /// Whether an agent tries a new version.
    Tries(AgentId, bool),
    /// By which spec agents are made from now on; none where nothing must prove itself.
    Proving(Option<Proving>),
    /// The cluster said what can be cloned, or why nothing can be, and which version of it there is.
    Located { source: Result<String, String>, version: Option<String> },
    /// How many agents more can have addresses.
    Supplied(Supply),
    /// What the calendar keeps from now on.
    Scheduled(ScheduleWindow),
    /// An operator says that it works again.
    BreakerReset,
    /// An operator lets a node be used again that was cordoned or drained.
    NodeOpened(NodeName),
    /// Idle agents go; with `all` the warm minimum too, and what is coming as soon as it is idle.
    Reap { all: bool, reason: Reason },
    /// Time has passed, or something else changed: what is due goes.
    Tick,
    /// The levels above are to have what changed since the last time.
    Publish,
}

impl Timed for Event {
    fn needs_time(&self) -> bool {
        match self {
            Self::Applied(_)
            | Self::Adopted(..)
            | Self::Recalled(..)
            | Self::Reserved { .. }
            | Self::Provisioned { .. }
            | Self::Reported(_)
            | Self::Located { .. }
            | Self::Proving(_)
            | Self::Scheduled(_)
            | Self::BreakerReset
            | Self::Tick
            | Self::Publish => true,
            Self::Opened
            | Self::Stopped
            | Self::Owed { .. }
            | Self::Missed { .. }
            | Self::Placed(_)
            | Self::Tries(..)
            | Self::Supplied(_)
            | Self::NodeOpened(_)
            | Self::Reap { .. } => false,
        }
    }
}

/// What the body is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start an agent's actor; a permit is already held for it.
    Spawn(AgentId),
    /// Send an agent a command.
    Send(AgentId, AgentCommand),
    /// Append to the journal.
    Record(Body),
    /// Have the cloud look at itself: an agent's fault names it.
    SuspectCloud(Fault),
    /// An agent failed by the fault of a node, a storage or a cloud.
    Charge(AgentId, Fault),
    /// An agent got ready: the node, storages and cloud it made use of work.
    Proven(AgentId),
    /// An agent of a new version, made as this, failed by no fault of anything around it, and why.
    CanaryFailed(AgentId, Option<MadeAs>, String),
    /// Answer a reap: so many agents go now or once they are idle.
    Reaped(u32),
    /// Pass news to the cloud.
    News(Box<TemplateNews>),
}

impl Effect {
    /// The agent it starts, if it starts one.
    pub fn spawned(&self) -> Option<&AgentId> {
        match self {
            Self::Spawn(agent) => Some(agent),
            Self::Send(..)
            | Self::Record(_)
            | Self::SuspectCloud(_)
            | Self::Charge(..)
            | Self::Proven(_)
            | Self::CanaryFailed(..)
            | Self::Reaped(_)
            | Self::News(_) => None,
        }
    }
}
