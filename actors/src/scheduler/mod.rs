//! The scheduler: turns all demand, less what is in flight, into hand-outs and starts.
//!
//! It is a mind under the herd. The herd translates messages to an [`Event`], lets the scheduler
//! [`step`](drover_model::state_machine::StateMachine::step), and carries out each [`Effect`].
//!
//! ```text
//! leases ──┐                                  ┌──▶ agents (HandOut, End, Withdraw, Evict)
//! sources ─┼─ Event ─▶ Scheduler ─ Effect ────┼──▶ clouds (Start)
//! clouds ──┘           (state.rs)             └──▶ journal and callers (Cancel, Over, Again)
//! ```
//!
//! It works by levels of demand, not by changes. A hand-out or start that is refused, dies, or
//! crosses another message on the way is decided again at the next [`Event::Decide`].
//!
//! One lease goes Recording → Waiting → Sent → On → Ended; `transitions.txt` has every step. A lease
//! that ends before an agent has it goes through Cancelling, until the journal has its end. A lease
//! that an agent gives back waits again; after some returns the scheduler cancels it.
//!
//! Files: `state.rs` takes events in, `follow.rs` compares agents with the book of leases
//! (`book.rs`, `queue.rs`). `serve.rs`, `begin.rs`, `evict.rs` and `surplus.rs` decide, by `uses.rs`
//! (what is wanted), `classes.rs`, `specs.rs`, `routing.rs` (which templates serve it) and
//! `matching.rs`. `account.rs`, `forecast.rs` and `waiting.rs` explain a wait to people.

pub mod account;
mod agents;
mod begin;
pub mod book;
mod classes;
mod covered;
pub mod door;
pub mod event;
mod evict;
mod follow;
mod forecast;
pub mod making;
pub mod matching;
mod queue;
mod quota;
mod refusal;
pub mod routing;
mod serve;
mod specs;
pub mod start_backoff;
pub mod state;
mod surplus;
pub mod uses;
pub mod waiting;

pub use account::CAUSE_GONE;
pub use event::{Effect, Event};

use std::sync::Arc;

use drover_model::id::SourceId;
pub use drover_model::record::describe;
use drover_model::record::{Owner, Want};
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

/// An agent as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentView {
    /// The spec it was born with.
    pub spec: Arc<TemplateSpec>,
    /// Which of the specs in use that is.
    pub(self) kind: specs::SpecId,
    pub status: Arc<AgentStatus>,
    /// Whether nothing was sent to the cluster for it yet.
    pub queued: bool,
    /// Whether it was asked to go.
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
