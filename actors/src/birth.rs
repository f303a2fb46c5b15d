//! The spawn of actors: what an agent gets at its start, which agents live, and the one function
//! through which every child starts.
//!
//! ```text
//! src/app ──▶ herd ──▶ spawn_child ──▶ cloud, template, cluster, reconciler, source
//!                          │
//!             template ──▶ AgentSpawner ──▶ agent (`agent::start`)
//!                          │
//!                          └──▶ supervise: restart ── too often ──▶ GiveUp: the service ends
//! ```
//!
//! - [`Common`]: what every actor of the herd gets. It lists all knowledge that actors of the one
//!   thread share beside their mailboxes. `src/` cannot see it.
//! - [`AgentBirth`]: what one agent gets. The spec in it stays the agent's for life. [`Start`] says
//!   whether the agent is new or adopted.
//! - [`spawn_child`]: the one place where supervision is put around an actor. A restarted actor
//!   keeps its address and mailbox; its futures and timers are dropped.
//! - [`Rank`]: how often an actor may restart: three times in 10 s for a leaf, five times in 60 s
//!   for a branch. Beyond that the service ends with exit status 70.
//!
//! Beside it: `agent/mod.rs` starts agents, `drover_runtime::supervise` restarts them.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Recipient, Supervised};
use drover_model::fact::Fact;
use drover_model::id::{AgentId, ClusterId, Generation, Installation};
use drover_model::journal_state::AgentEntry;
use drover_model::ports::Ports;
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::time::WallTime;

use crate::addresses::Addresses;
use crate::board::Board;
use crate::boot_times::Boots;
use crate::doubts::Doubts;
use crate::hold_next::HoldNext;
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree};
use crate::records::Records;
use crate::reset_stats::Resets;
use crate::restraint::Restraint;
use crate::roster::Roster;
use crate::runners::Runners;
use crate::sites::Sites;
use crate::troubles::Troubles;
use crate::ways::Ways;
use drover_runtime::supervise::{Census, GivenUp, RestartLimit, SupervisionOptions, supervise};

#[derive(Debug, Clone)]
pub enum Start {
    /// A new agent, which must be cloned.
    Fresh,
    /// An agent from before this start of the service, or an orphan to retire.
    Adopted {
        /// What the journal knows of the agent.
        entry: Box<AgentEntry>,
        /// How long the service was down. The time is credited to the agent's leases.
        down: Duration,
    },
}

/// The addresses of an agent's cluster.
#[derive(Debug, Clone)]
pub struct Lanes {
    pub cluster: ClusterId,
    /// Asks for a place in the concurrency limits and a VMID.
    pub ask: Recipient<LaneAsk>,
    pub free: Recipient<LaneFree>,
    pub id_back: Recipient<IdBack>,
}

/// What an adopted agent starts from.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// What the journal knows of the agent.
    pub entry: Box<AgentEntry>,
    pub lanes: Lanes,
    /// How long the service was down. The time is credited to the agent's leases.
    pub down: Duration,
}

/// Everything that an agent gets at its start.
#[derive(Clone)]
pub struct AgentBirth {
    pub id: AgentId,
    /// The agent keeps this spec for life.
    pub spec: Arc<TemplateSpec>,
    pub start: Start,
    /// For the agent's marks.
    pub installation: Installation,
    /// The number of this start of the service, part of every stamp.
    pub epoch: u64,
    /// Receives the agent's reports.
    pub report: Recipient<AgentReport>,
    pub lanes: Lanes,
    pub ports: Ports,
    /// Counts the agent while it lives.
    pub census: Census,
    /// Through which cloud the guest is reached.
    pub ways: Ways,
    /// What holds clones back.
    pub doubts: Doubts,
    /// Agents that must not be destroyed.
    pub restraint: Restraint,
    /// What the boots of the agent's template have shown.
    pub boots: Boots,
    /// What the resets of each template have shown.
    pub resets: Resets,
    /// The templates whose next failure is held.
    pub hold_next: HoldNext,
    /// The owner of each address.
    pub addresses: Addresses,
    /// Runners that may be registered at their sources.
    pub runners: Runners,
}

/// Starts an agent's actor and returns its address.
pub type AgentSpawner = Arc<dyn Fn(AgentBirth) -> Recipient<AgentCommand> + Send + Sync>;

/// What every actor of the herd gets.
#[derive(Clone)]
pub struct Common {
    pub ports: Ports,
    /// Records that are written even if the journal fails for a while.
    pub records: Records,
    /// The living agents.
    pub roster: Roster,
    /// The living actors.
    pub census: Census,
    /// Through which cloud a guest is reached.
    pub ways: Ways,
    /// What holds clones back.
    pub doubts: Doubts,
    /// Agents that must not be destroyed.
    pub restraint: Restraint,
    /// Since when nodes, clouds and sources are in trouble.
    pub troubles: Troubles,
    /// The breakers of nodes, storages and clouds.
    pub board: Board,
    /// The nodes of each cluster, and which are drained.
    pub sites: Sites,
    /// The owner of each address.
    pub addresses: Addresses,
    /// Runners that may be registered at their sources.
    pub runners: Runners,
    pub spawner: AgentSpawner,
    /// What the resets of each template have shown.
    pub resets: Resets,
    /// The templates whose next failure is held.
    pub hold_next: HoldNext,
    pub installation: Installation,
    /// The number of this start of the service.
    pub epoch: u64,
    /// When the last journal record before this start was written.
    pub since: WallTime,
    /// Called when the supervisor gives an actor up.
    pub give_up: GiveUp,
}

impl Common {
    /// Publishes the state of a node's, storage's or cloud's breaker.
    pub fn show_breaker(&self, scope: &Scope) {
        if let Some(what) = self.board.status(scope) {
            let at = self.ports.ambient.now().wall;
            self.ports.observer.observe(Fact { at, what });
        }
    }
}

/// How far a child is from the root. Decides how often it may restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    Leaf,
    /// A cloud, a cluster or a reconciler.
    Branch,
}

/// Called for an actor that restarted too often. The service cannot go on then.
pub type GiveUp = Arc<dyn Fn(GivenUp) + Send + Sync>;

/// Starts an actor under its parent. `make` gets the context, as in [`Actor::create`].
///
/// Every actor of the herd except the root and the agents starts here. A restarted actor keeps its
/// address and mailbox. Its futures and timers are dropped.
pub fn spawn_child<A>(
    common: &Common,
    rank: Rank,
    name: &str,
    make: impl FnOnce(&mut Context<A>) -> A,
) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    tracing::debug!(actor = name, ?rank, epoch = common.epoch, "actor starts");
    let give_up = Arc::clone(&common.give_up);
    let options = SupervisionOptions {
        name: name.to_owned(),
        restart_limit: match rank {
            Rank::Leaf => RestartLimit::LEAF,
            Rank::Branch => RestartLimit::BRANCH,
        },
        observer: Arc::clone(&common.ports.observer),
        ambient: Arc::clone(&common.ports.ambient),
        census: common.census.clone(),
        on_give_up: Box::new(move |what| give_up(what)),
    };
    supervise(options, make)
}

/// Whether two specs differ only in their generation.
pub fn same_template(one: &TemplateSpec, other: &TemplateSpec) -> bool {
    let aligned = TemplateSpec { generation: Generation::default(), ..one.clone() };
    aligned == TemplateSpec { generation: Generation::default(), ..other.clone() }
}
