//! What a source's mind takes in, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::demand::report::Unoffered;
use drover_model::demand::spec::SourceSpec;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, LeaseId, RunnerName, TemplateId};
use drover_model::ports::{JournalFault, SourceObservation};
use drover_model::time::Moment;

use crate::demand::Level;
use crate::runners::Kept;

/// What can happen to a source's mind.
#[derive(Debug, Clone)]
pub enum Event {
    /// Its runners as this side knows them now; the events after it go by them.
    Runners(Arc<BTreeMap<RunnerName, Runner>>),
    /// A spec comes into force; none when the source left the configuration.
    Apply(Option<Arc<SourceSpec>>),
    /// A webhook or a person says that there is news: the next poll starts at once.
    Woken,
    /// A runner could not be made or started.
    NotServed,
    /// What its jobs want and no template offers, ordered by what they want.
    NotOffered(Arc<[Unoffered]>),
    /// The herd wants the demand of the last poll again.
    Republish,
    /// A poll came back.
    Polled(Result<Box<SourceObservation>, Fault>),
    /// [`Effect::Cordon`] came back.
    Cordoned(RunnerName, Result<(), Fault>),
    /// [`Effect::Deregister`] came back.
    Deregistered(RunnerName, Result<(), Fault>),
    /// The journal did not take [`Effect::Gone`].
    NotWritten(RunnerName, JournalFault),
    /// [`Effect::Probe`] came back with what keeps runners from being made, if anything does.
    Probed(Result<Option<String>, Fault>),
    /// Time passed: the mind does what is due. The body sends this after every other event.
    Tick,
}

/// What the mind wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Read runners and jobs of the source.
    Poll,
    /// Cordon a runner: it takes no further job.
    Cordon(RunnerName),
    /// Deregister a runner at the source.
    Deregister(RunnerName),
    /// Write down that a runner is gone.
    Gone(RunnerName),
    /// Write down how many jobs began on a runner.
    Worked(RunnerName, u32),
    /// Write down the numbers of a runner's rows.
    Numbered(RunnerName, BTreeSet<u64>),
    /// Deregister a runner that the journal does not know.
    RemoveUnknown(RunnerName),
    /// Report to the herd what is wanted, and the jobs on each lease.
    Publish(Vec<Level>, Vec<(LeaseId, u32)>),
    /// Check whether runners can be made, without making one.
    Probe,
    /// Ask a lease's guest whether its runner has ended.
    Ask(AgentId, LeaseId),
    /// A lease's runner is done: it is over.
    Over(AgentId, LeaseId, &'static str),
    /// A lease's runner is not what it should be.
    Fail(AgentId, LeaseId, String),
    /// The runner in the image of a template is too old for the source.
    TooOld(TemplateId),
    /// A job was lost with its machine.
    Lost {
        runner: RunnerName,
        /// The agent it ran on.
        agent: AgentId,
        /// The job, where that is known.
        job: Option<String>,
    },
    /// Wake it at this moment.
    WakeAt(Moment),
}

/// A runner whose lease lives, with what this side knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Runner {
    /// What this side knows.
    pub kept: Kept,
    /// Whether its lease is on its agent.
    pub lives: bool,
    /// The template of its agent, while that lives.
    pub template: Option<TemplateId>,
    /// Jobs after which it is done.
    pub most: u32,
    /// How long it may be without a job by what its template says; none for no limit.
    pub idle: Option<Duration>,
}
