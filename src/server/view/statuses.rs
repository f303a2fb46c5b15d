//! What the view keeps of each kind of thing that facts do not carry as a status already.

use std::collections::BTreeMap;

use drover_model::fact::{ResetStatus, What};
use drover_model::id::{AgentId, CloudId, ClusterId, Generation, RunnerName, SourceId, TemplateId};
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth};
use drover_model::record::Reason;
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
    /// When a newer one was refused, and why; none when the newest is in force.
    pub refused: Option<(WallTime, String)>,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateStatus {
    pub template: TemplateId,
    /// How many of its agents are in each phase.
    pub states: BTreeMap<AgentPhase, u32>,
    pub cap: Option<u32>,
    /// Agents it keeps at this moment, in use or not.
    pub minimum: u32,
    /// Idle agents it keeps at this moment.
    pub idle_minimum: u32,
    /// Why it begins nothing although it may: no address is free.
    pub lack: Option<String>,
    pub labels: Vec<String>,
    pub breaker: BreakerPhase,
    /// When a tripped breaker may be tried again, and the cause.
    pub tripped: Option<(WallTime, String)>,
    /// What its agents are cloned from, once that was chosen.
    pub source: Option<String>,
    /// Why no agent is started for a while, when that is no breaker's matter.
    pub paused: Option<String>,
    /// What is known beside that.
    pub asides: TemplateAsides,
}

/// What is reported of a template by others than itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateAsides {
    /// What is known of its resets; none when it has none.
    pub resets: Option<ResetStatus>,
    /// For how many seconds its next failure is held; none when it is not.
    pub hold_next: Option<u64>,
}

impl TemplateStatus {
    /// Takes the status out of a fact of that kind.
    pub fn of(what: &What) -> Option<Self> {
        let What::Template {
            template,
            states,
            cap,
            minimum,
            idle_minimum,
            lack,
            labels,
            breaker,
            tripped,
            source,
            paused,
        } = what
        else {
            return None;
        };
        Some(Self {
            template: template.clone(),
            states: states.clone(),
            cap: *cap,
            minimum: *minimum,
            idle_minimum: *idle_minimum,
            lack: lack.clone(),
            labels: labels.clone(),
            breaker: *breaker,
            tripped: tripped.clone(),
            source: source.clone(),
            paused: paused.clone(),
            asides: TemplateAsides::default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerStatus {
    /// Whose it is.
    pub id: String,
    pub breaker: BreakerPhase,
    /// When a tripped breaker may be tried again, and the cause.
    pub tripped: Option<(WallTime, String)>,
    /// The template whose agent moved it last.
    pub template: TemplateId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudStatus {
    pub cloud: CloudId,
    /// Its cluster, once known.
    pub cluster: Option<ClusterId>,
    pub health: CloudHealth,
    /// Proxmox's version, once known.
    pub version: Option<String>,
    /// What is wrong.
    pub detail: String,
    /// Agents that count against its cap.
    pub agents: u32,
    pub cap: Option<u32>,
    /// When the cloud reported it.
    pub at: WallTime,
}

impl CloudStatus {
    /// Takes the status out of a fact of that kind.
    pub fn of(what: &What, at: WallTime) -> Option<Self> {
        let What::Cloud { cloud, cluster, health, version, detail, agents, cap } = what else {
            return None;
        };
        Some(Self {
            cloud: cloud.clone(),
            cluster: cluster.clone(),
            health: *health,
            version: version.clone(),
            detail: detail.clone(),
            agents: *agents,
            cap: *cap,
            at,
        })
    }
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

/// The last reconciliation of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileStatus {
    pub cluster: ClusterId,
    /// Its plan as text, one line a finding.
    pub findings: Vec<String>,
    /// Why the cluster could not be read; none where it was.
    pub unread: Option<String>,
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
