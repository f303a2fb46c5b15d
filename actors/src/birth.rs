//! The spawn of actors: what each gets at its start, and the one function through which every child
//! starts.
//!
//! ```text
//! src/app ──▶ herd ──▶ spawn_child ──▶ cloud, template, cluster, reconciler, source
//!                          │
//!             template ──▶ AgentSpawner ──▶ agent (`agent::start`)
//!                          │
//!                          └──▶ supervise: restart ── too often ──▶ GiveUp: the service ends
//! ```
//!
//! - [`Common`]: what every actor of the herd gets: the ports, and all knowledge that actors of the
//!   one thread share beside their mailboxes. `src/` cannot see it. Everybody may read; what an actor
//!   may write follows from its role, the parameter of its `Common` (`shared.rs`).
//! - [`AgentBirth`]: what one agent gets besides. The spec in it stays the agent's for life. [`Start`]
//!   says whether the agent is new or adopted.
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
use crate::canary::Canaries;
use crate::doubts::Doubts;
use crate::history::History;
use crate::hold_next::HoldNext;
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree};
use crate::records::Records;
use crate::restraint::Restraint;
use crate::roster::Roster;
use crate::runners::Runners;
use crate::shared::{Shared, role};
use crate::sites::Sites;
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
pub struct AgentBirth {
    pub id: AgentId,
    /// The agent keeps this spec for life.
    pub spec: Arc<TemplateSpec>,
    pub start: Start,
    /// Receives the agent's reports.
    pub report: Recipient<AgentReport>,
    pub lanes: Lanes,
    pub common: Common<role::Agent>,
    /// What the agents of the same template have shown.
    pub history: Shared<History, role::Agent>,
}

/// Starts an agent's actor and returns its address.
pub type AgentSpawner = Arc<dyn Fn(AgentBirth) -> Recipient<AgentCommand> + Send + Sync>;

/// What every actor of the herd gets. `R` is the actor's role.
pub struct Common<R> {
    pub ports: Ports,
    pub run: Run,
    pub supervision: Supervision,
    /// Records that are written even if the journal fails for a while.
    pub records: Shared<Records, R>,
    /// The living agents.
    pub roster: Shared<Roster, R>,
    /// Through which cloud a guest is reached.
    pub ways: Shared<Ways, R>,
    /// What holds clones back.
    pub doubts: Shared<Doubts, R>,
    /// Agents that must not be destroyed.
    pub restraint: Shared<Restraint, R>,
    /// The breakers of nodes, storages and clouds.
    pub board: Shared<Board, R>,
    /// The versions that templates have proven.
    pub canaries: Shared<Canaries, R>,
    /// The nodes of each cluster, and which are drained.
    pub sites: Shared<Sites, R>,
    /// The owner of each address.
    pub addresses: Shared<Addresses, R>,
    /// Runners that may be registered at their sources.
    pub runners: Shared<Runners, R>,
    /// The templates whose next failure is held.
    pub hold_next: Shared<HoldNext, R>,
}

/// This start of the service.
#[derive(Debug, Clone)]
pub struct Run {
    /// For the marks of guests.
    pub installation: Installation,
    /// The number of this start, part of every stamp.
    pub epoch: u64,
    /// When the last journal record before this start was written.
    pub since: WallTime,
}

/// How actors are started and watched.
#[derive(Clone)]
pub struct Supervision {
    /// Counts the living actors.
    pub census: Census,
    /// Called when the supervisor gives an actor up.
    pub give_up: GiveUp,
    pub spawner: AgentSpawner,
}

impl<R> Common<R> {
    /// Starts to share knowledge, of which only the holds are known at a start.
    pub fn new(ports: Ports, run: Run, supervision: Supervision, hold_next: HoldNext) -> Self {
        Self {
            records: Shared::new(Records::new(Arc::clone(&ports.journal))),
            ports,
            run,
            supervision,
            roster: Shared::default(),
            ways: Shared::default(),
            doubts: Shared::default(),
            restraint: Shared::default(),
            board: Shared::default(),
            canaries: Shared::default(),
            sites: Shared::default(),
            addresses: Shared::default(),
            runners: Shared::default(),
            hold_next: Shared::new(hold_next),
        }
    }

    /// What an actor gets that this one starts.
    pub fn give<C>(&self) -> Common<C>
    where
        R: role::Starts<C>,
    {
        Common {
            ports: self.ports.clone(),
            run: self.run.clone(),
            supervision: self.supervision.clone(),
            records: self.records.give(),
            roster: self.roster.give(),
            ways: self.ways.give(),
            doubts: self.doubts.give(),
            restraint: self.restraint.give(),
            board: self.board.give(),
            canaries: self.canaries.give(),
            sites: self.sites.give(),
            addresses: self.addresses.give(),
            runners: self.runners.give(),
            hold_next: self.hold_next.give(),
        }
    }

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

/// Starts an actor under its parent. `make` gets what every actor of its role gets, and the context,
/// as in [`Actor::create`].
///
/// Every actor of the herd except the root and the agents starts here. A restarted actor keeps its
/// address and mailbox. Its futures and timers are dropped.
pub fn spawn_child<A, P, C>(
    parent: &Common<P>,
    rank: Rank,
    name: &str,
    make: impl FnOnce(Common<C>, &mut Context<A>) -> A,
) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
    P: role::Starts<C>,
{
    tracing::debug!(actor = name, ?rank, epoch = parent.run.epoch, "actor starts");
    let common = parent.give();
    let give_up = Arc::clone(&parent.supervision.give_up);
    let options = SupervisionOptions {
        name: name.to_owned(),
        restart_limit: match rank {
            Rank::Leaf => RestartLimit::LEAF,
            Rank::Branch => RestartLimit::BRANCH,
        },
        observer: Arc::clone(&parent.ports.observer),
        ambient: Arc::clone(&parent.ports.ambient),
        census: parent.supervision.census.clone(),
        on_give_up: Box::new(move |what| give_up(what)),
    };
    supervise(options, |ctx| make(common, ctx))
}

/// Whether two specs differ only in their generation.
pub fn same_template(one: &TemplateSpec, other: &TemplateSpec) -> bool {
    let aligned = TemplateSpec { generation: Generation::default(), ..one.clone() };
    aligned == TemplateSpec { generation: Generation::default(), ..other.clone() }
}
