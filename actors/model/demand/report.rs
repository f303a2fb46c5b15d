//! What people see of demand: the jobs of a source, and why what is wanted waits, in numbers.

use std::time::Duration;

use crate::demand::spec::ShareSpec;
use crate::id::{AgentId, LeaseId, RunnerName, SourceId, TemplateId};
use crate::record::Want;
use crate::time::WallTime;

/// What is reported of a source that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    pub since: WallTime,
    /// Why, in words for people.
    pub text: String,
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// Everything a source wants; none for all leases.
    Source(Option<SourceId>),
    /// A job of a source, by what it wants, since when, and how many that want the same since the same
    /// moment are before it.
    Job(SourceId, Want, WallTime, usize),
    /// A lease that waits.
    Lease(LeaseId),
}

/// The jobs of one source, by its last look.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceJobs {
    pub source: SourceId,
    /// Jobs that wait.
    pub waiting: Vec<JobObservation>,
    /// What is wanted of them that no template offers.
    pub unoffered: Vec<Unoffered>,
    /// Jobs that are left alone, since they want labels that it may not have.
    pub ignored: Vec<JobObservation>,
    /// Jobs that wait and do not say what they want.
    pub unread: Vec<UnreadJob>,
    /// Jobs that run on its runners, where a look shows which.
    pub running: Vec<RunningJob>,
    /// Its runners whose row it does not have any more while their machines live.
    pub rowless: Vec<RowlessRunner>,
    /// Since when it cannot be polled, and why.
    pub outage: Option<Outage>,
    /// Runners in a row that could not be started.
    pub unserved: u32,
    /// Since when it lets no runner be made, and why.
    pub refused: Option<Outage>,
}

/// A job that waits at a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobObservation {
    /// Its id there.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it wants.
    pub want: Want,
    pub since: WallTime,
    /// What it is a part of, as far as its source says it.
    pub origin: Option<Box<JobOrigin>>,
}

/// What a job is a part of at its source, for people and traces; nothing is decided by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobOrigin {
    /// The address of the job's page.
    pub url: Option<String>,
    /// The id of the run of a pipeline, workflow or project that it belongs to.
    pub run: Option<String>,
    /// The address of that run's page.
    pub run_url: Option<String>,
    /// What people call the pipeline, workflow or project.
    pub pipeline: Option<String>,
    /// The address of its repository's page.
    pub repository: Option<String>,
    /// The branch or tag.
    pub branch: Option<String>,
    /// The commit that is built.
    pub revision: Option<String>,
}

/// A job that waits and of which its source does not say what it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadJob {
    /// Its id there.
    pub id: String,
    /// What people call it.
    pub name: String,
    pub since: WallTime,
}

/// Something wanted that no template offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Unoffered {
    /// What is wanted.
    pub want: Want,
    /// What the templates are short of, in words for people.
    pub lacks: String,
}

/// A job on an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Its id at the source.
    pub id: String,
    /// The job as it waited, where that was seen in this start of the service.
    pub waited: Option<JobObservation>,
    pub runner: RunnerName,
    pub agent: AgentId,
}

/// A runner whose row its source, asked for that very row, does not have any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowlessRunner {
    pub runner: RunnerName,
    pub agent: AgentId,
    pub lease: LeaseId,
}

/// What a source wants and has.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// The source; none for the leases.
    pub source: Option<SourceId>,
    pub share: ShareSpec,
    /// Uses of agents that it has by now.
    pub has: u32,
    /// Uses of agents that all have.
    pub all: u32,
    /// The weights of all that have or want uses, its own included.
    pub weights: u32,
    /// What it wants, by kind.
    pub kinds: Vec<Kind>,
}

/// Uses of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// What is wanted.
    pub want: Want,
    /// How many uses.
    pub count: usize,
    /// Since when the oldest waits, or the one that was asked about.
    pub since: Option<WallTime>,
    /// Of them, those for which a runner is there or on its way.
    pub open: usize,
    /// Uses that are served before the first one, or the one that was asked about; none where a cap
    /// of its source keeps it from being served, or no template serves it.
    pub ahead: Option<usize>,
    /// Templates that serve it.
    pub serve: Vec<Serving>,
    /// Templates that do not, each with why.
    pub others: Vec<(TemplateId, String)>,
    /// Why it waits.
    pub why: String,
    /// When it is served, as far as that is known.
    pub estimate: Estimate,
}

/// A template that serves what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    pub template: TemplateId,
    /// Its living agents.
    pub live: u32,
    /// The most of them, by its own cap.
    pub cap: Option<u32>,
    /// Those on their way, those just asked for included.
    pub coming: u32,
    /// Uses that are free on ready ones.
    pub free: u32,
    /// Those whose uses are all taken.
    pub busy: u32,
    /// How many more may be started at this moment, by its cap and pauses.
    pub room: u32,
    /// What keeps it from beginning more, if anything.
    pub obstacle: Option<String>,
    /// How long its agents take to be ready, by the last of them.
    pub until_ready: Option<Duration>,
    /// How long uses of its agents last.
    pub of_uses: Option<Duration>,
}

/// When something is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estimate {
    /// In about so long, for this reason.
    In(Duration, String),
    /// Not before this has happened, which no time brings about.
    Never(String),
    /// Nothing is known, for this reason.
    Unknown(String),
}
