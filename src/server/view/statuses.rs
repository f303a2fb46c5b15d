//! What the view keeps of each kind of thing that facts do not carry as a status already.

use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, ClusterId, Generation, RunnerName, SourceId, TemplateId};
use drover_model::record::Reason;
use drover_model::status::{CloudStatus, ResetStatus};
use drover_model::time::WallTime;

/// How far the start of the service has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Whether the journal is folded.
    pub journal_folded: bool,
    /// Whether each cloud was tried once.
    pub clouds_tried: bool,
}

impl Readiness {
    /// Whether the service is ready for work.
    pub fn ready(&self) -> bool {
        self.journal_folded && self.clouds_tried
    }
}

/// The configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigStatus {
    /// Its generation; none before the first came into force.
    pub generation: Option<Generation>,
    /// Seconds between two reconciliations of every cloud; none where each has its own.
    pub reconcile_seconds: Option<u64>,
    pub applied: Option<WallTime>,
    /// When newer files were refused, and why; none when the newest are in force.
    pub refused: Option<(WallTime, String)>,
    /// Since when the store has no configuration that can be used, and why; none while it has one, and where
    /// the configuration does not lie in a store.
    pub store_trouble: Option<(WallTime, String)>,
}

impl ConfigStatus {
    /// Why a newer one is not in force: files, or what the store has.
    pub fn refusal(&self) -> Option<&(WallTime, String)> {
        self.refused.as_ref().or(self.store_trouble.as_ref())
    }
}

/// A job that was lost with its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostJob {
    pub source: SourceId,
    /// The runner it was on.
    pub runner: RunnerName,
    /// The agent it ran on.
    pub agent: AgentId,
    /// The job, where that is known.
    pub job: Option<String>,
    /// When that was found.
    pub at: WallTime,
}

impl LostJob {
    /// The job that a fact says was lost, if it says so.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        let What::JobLost { source, runner, agent, job } = &fact.what else { return None };
        Some(Self {
            source: source.clone(),
            runner: runner.clone(),
            agent: agent.clone(),
            job: job.clone(),
            at: fact.at,
        })
    }
}

/// What is reported of a template by others than itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateAsides {
    /// What is known of its resets; none when it has none.
    pub resets: Option<ResetStatus>,
    /// For how many seconds its next failure is held; none when it is not.
    pub hold_next: Option<u64>,
}

/// An agent that is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct GoneAgent {
    pub agent: AgentId,
    pub template: TemplateId,
    /// Why it went.
    pub reason: Reason,
    /// Milliseconds in each state.
    pub phases: Vec<(String, u64)>,
    pub at: WallTime,
}

impl GoneAgent {
    /// The agent that a fact says is gone, if it says so.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        let What::AgentGone { agent, template, reason, phases } = &fact.what else { return None };
        Some(Self {
            agent: agent.clone(),
            template: template.clone(),
            reason: reason.clone(),
            phases: phases.clone(),
            at: fact.at,
        })
    }
}

/// An agent that needs an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmStatus {
    pub agent: AgentId,
    /// What is wrong.
    pub text: String,
    /// What to run.
    pub command: String,
    pub at: WallTime,
}

/// A cloud as it was reported last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenCloud {
    pub(super) status: CloudStatus,
    /// When that was.
    pub(super) at: WallTime,
    /// Since when its health is what it is.
    pub(super) since: WallTime,
}

/// The last reconciliation of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileStatus {
    pub cluster: ClusterId,
    /// Its plan as text, one line a finding.
    pub findings: Vec<String>,
    /// Why the cluster could not be read; none where it was.
    pub unread: Option<String>,
    /// When the cluster was last read; none before the first time.
    pub last_read: Option<WallTime>,
    /// When it ended.
    pub at: WallTime,
}

/// A restart of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartStatus {
    pub actor: String,
    /// Restarts within the window.
    pub count: u32,
    /// Whether it was given up.
    pub gave_up: bool,
    pub at: WallTime,
}
