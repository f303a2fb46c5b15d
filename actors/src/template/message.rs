//! Messages between a template and its cloud.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::Message;
use drover_model::fault::Fault;
use drover_model::id::{LeaseId, NodeName, TemplateId};
use drover_model::record::Reason;
use drover_model::size::Size;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::{Adoption, Lanes};
use crate::message::{ProvisionReply, Purpose};

/// One agent as the levels above see it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLevel {
    pub status: Arc<AgentStatus>,
    /// The spec it was born with.
    pub spec: Arc<TemplateSpec>,
    /// Whether nothing was sent to the cluster for it yet.
    pub queued: bool,
    /// Leases it was sent and could not take, or gives back.
    pub refused: Vec<LeaseId>,
    /// Leases that were on it and ended since the last news of it.
    pub over: Vec<LeaseId>,
    /// It goes: no lease is given to it.
    pub going: bool,
}

/// Why a template starts nothing for a while, where that is not by its breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub why: String,
    /// When it tries again by itself; none where the cause must go first.
    pub retry: Option<WallTime>,
}

/// From a template, through its cloud, to the herd: what changed, and the levels in force.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct TemplateNews {
    pub template: TemplateId,
    /// The spec new agents are born with.
    pub spec: Arc<TemplateSpec>,
    /// Whether it is configured, or only its agents are left.
    pub configured: bool,
    /// Whether its breaker is closed.
    pub flowing: bool,
    /// Until when its breaker is open, and why.
    pub tripped: Option<(WallTime, String)>,
    /// Why it starts nothing, where that is not by the breaker.
    pub paused: Option<Pause>,
    /// Slots that its agents hold.
    pub live: u32,
    /// Agents that it may start at this moment, without regard to the cloud's cap.
    pub room: u32,
    /// Why no address is free for another agent, when none is.
    pub lack: Option<String>,
    /// What it keeps without demand at this moment.
    pub kept: Minimums,
    /// Whether it has no agent at all.
    pub empty: bool,
    /// Agents that changed.
    pub agents: Vec<AgentLevel>,
    /// Agents that are gone, as they were last.
    pub gone: Vec<AgentLevel>,
    /// Reservations of the cloud that are settled: started (and in `live`), or not needed.
    pub released: u32,
    /// Starts asked for by the herd that are settled the same way, by their size.
    pub answered: BTreeMap<Size, u32>,
    /// Sizes of agents for which there was no place, and why: none is started for a while.
    pub unplaced: BTreeMap<Size, String>,
}

/// From a template to its cloud.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum ToCloud {
    News(Box<TemplateNews>),
    /// How many agents the warm pool lacks; replaces what was said before.
    WarmNeed {
        template: TemplateId,
        count: u32,
    },
    /// An agent's fault names the cloud.
    Suspect(Fault),
}

/// To a template, from its cloud.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum TemplateCommand {
    /// A spec comes into force; none when it left the configuration.
    Apply(Option<Arc<TemplateSpec>>),
    /// The ways to its cluster.
    Lanes(Lanes),
    /// Take over agents that lived before, or an orphan; all at once, so that the first news
    /// counts them all.
    Adopt(Vec<Adoption>),
    /// Start agents under a reservation.
    Begin {
        /// Slots reserved under the cloud's cap.
        reserved: u32,
        /// Starts the herd asked for, of this size; none for the warm pool's.
        asked: Option<(Size, u32)>,
    },
    /// Start agents under a reservation because an operator says so.
    Provision {
        /// Slots reserved under the cloud's cap.
        reserved: u32,
        /// Why the cloud reserved fewer than wanted.
        short: Option<String>,
        purpose: Purpose,
        /// Filled with what came of it.
        reply: ProvisionReply,
    },
    /// Let idle agents go.
    Reap {
        /// Whether the warm minimum goes too, and what is coming once it is idle.
        all: bool,
        reason: Reason,
        /// Gets the number of agents that go.
        tally: Option<UnboundedSender<u32>>,
    },
    /// An operator says that it works again.
    ResetBreaker,
    /// Its image has a new version.
    VersionBuilt,
    /// An operator lets a node be used again.
    NodeOpened(NodeName),
    /// The service stops: start nothing.
    Stop,
    /// The actor is not needed any more.
    Leave,
}
