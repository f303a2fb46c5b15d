//! What the history alone hears, beside the [facts](crate::fact): there is too much of it for people who
//! watch, and nothing shows it.
//!
//! It informs; nothing decides by it, nothing of it is in the journal, and what is lost costs a line of
//! the history.

use std::sync::Arc;

use crate::demand::report::JobObservation;
use crate::id::{AgentId, LeaseId, RunnerName, SourceId, TemplateId};
use crate::size::Size;

/// What an agent is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedFor {
    /// Something that waits.
    Demand,
    /// The warm pool.
    Pool,
    /// An operator, who wants one more.
    Operator,
}

/// Something for the history.
#[derive(Debug, Clone, PartialEq)]
pub enum Noted {
    /// An agent was started.
    Started {
        agent: AgentId,
        template: TemplateId,
        why: StartedFor,
        /// How large its machine is to be, as far as its template says it.
        size: Size,
    },
    /// A source was polled, and this is all that it has.
    Jobs(Arc<JobsSeen>),
}

/// The jobs of a source by one poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsSeen {
    pub source: SourceId,
    /// The priority of its jobs.
    pub priority: i32,
    /// Those that wait.
    pub waiting: Vec<JobObservation>,
    /// Those that run on runners of drover's, as far as it shows which.
    pub running: Vec<JobSeen>,
}

/// A job that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSeen {
    /// Its id at the source.
    pub id: String,
    /// The same as it waited, where that was seen in this start of the service.
    pub waited: Option<JobObservation>,
    pub agent: AgentId,
    /// The lease that it is served by.
    pub lease: LeaseId,
    pub runner: RunnerName,
}
