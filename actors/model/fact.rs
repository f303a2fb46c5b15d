//! What happened, reported once: read by the view, the metrics, the event stream and tests.
//!
//! Facts inform; nothing decides by them. Everything durable is a [`crate::record::Body`]. Where a
//! thing changed, its fact carries its [status](crate::status).
//!
//! The service writes facts to a file for people, and reads them at its next start. A name that is
//! changed here costs the events of earlier versions, and nothing else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, CloudId, ClusterId, Generation, RunnerName, SourceId, TemplateId};
use crate::phase::LeasePhase;
use crate::record::Reason;
use crate::status::{
    AddressPoolStatus, AgentStatus, BreakerStatus, CloudStatus, DeclaredStatus, ImageStatus,
    LeaseStatus, ResetStatus, SourceStatus, TemplateStatus,
};
use crate::time::WallTime;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    pub at: WallTime,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// A configuration came into force.
    ConfigApplied {
        generation: Generation,
        /// Seconds between two reconciliations of every cloud; none where each has its own.
        reconcile_seconds: Option<u64>,
    },
    /// A configuration was refused; the old one stays.
    ConfigRefused {
        /// The faults, as shown to people.
        text: String,
        /// The configuration that stays: later reports of it or of earlier ones change nothing.
        after: Generation,
    },
    /// A commit of git came into force.
    ConfigSynced {
        commit: String,
        /// The first line of its message.
        subject: String,
    },
    /// Git could not be read, or what it has was refused; the configuration before stays.
    ConfigNotSynced {
        /// What is wrong, as shown to people.
        text: String,
    },
    /// An operator ordered something of the whole or of a node, and it was taken.
    Ordered {
        /// The principal that ordered it.
        by: String,
        /// What it did, as the rest of a sentence about it.
        order: String,
    },
    /// An agent changed.
    Agent(Arc<AgentStatus>),
    /// A step of preparing an agent ended.
    Step {
        agent: AgentId,
        template: TemplateId,
        /// The step's name.
        step: String,
        /// Milliseconds it took.
        ms: u64,
        /// Its exit status; none when a signal or its limit ended it.
        exit: Option<u32>,
        /// The last lines it said.
        log: String,
    },
    /// An agent is gone.
    AgentGone {
        agent: AgentId,
        template: TemplateId,
        reason: Reason,
        /// Milliseconds in each state: the waterfall.
        phases: Vec<(String, u64)>,
    },
    /// An agent needs an administrator.
    Alarm {
        agent: AgentId,
        /// What is wrong.
        text: String,
        /// What to run.
        command: String,
    },
    /// What speaks for another drover that uses this installation.
    OtherDrover {
        /// Each sign with what to do; empty once an operator has decided.
        why: Vec<String>,
    },
    /// A lease changed.
    Lease(Box<LeaseStatus>),
    /// A source of demand changed.
    Source(Box<SourceStatus>),
    /// A source of demand left the configuration, and its last runner is gone.
    SourceGone { source: SourceId },
    /// A job was lost with its machine; nobody runs it again unasked.
    JobLost {
        source: SourceId,
        /// The runner it was on.
        runner: RunnerName,
        /// The agent it ran on.
        agent: AgentId,
        /// The job, where that is known.
        job: Option<String>,
    },
    /// A template's counts changed.
    Template(Box<TemplateStatus>),
    /// The breaker of a node, a storage or a cloud moved.
    Breaker(Box<BreakerStatus>),
    /// What is known of the resets of a template changed.
    Resets {
        template: TemplateId,
        /// What is known.
        resets: ResetStatus,
    },
    /// The next agent of a template that fails on its way is held, or none.
    HoldNext {
        template: TemplateId,
        /// For how long, in seconds; none when none is held.
        seconds: Option<u64>,
    },
    /// A template left the configuration and its last agent is gone.
    TemplateGone { template: TemplateId },
    /// A cloud's health changed.
    Cloud(Box<CloudStatus>),
    /// A cloud left the configuration and its last agent is gone.
    CloudGone { cloud: CloudId },
    /// What the pools of addresses have changed.
    AddressPools {
        /// All of them.
        pools: Vec<AddressPoolStatus>,
    },
    /// The build of an image, or the removal of a version, moved on.
    Image(Box<ImageStatus>),
    /// A declared machine changed.
    Declared(Box<DeclaredStatus>),
    /// A reconciliation ended.
    Reconciled {
        cluster: ClusterId,
        /// Its plan as text, one line a finding.
        findings: Vec<String>,
        /// Why the cluster could not be read; none where it was.
        unread: Option<String>,
    },
    /// An actor panicked and was started again, or was given up.
    Restarted {
        actor: String,
        /// Restarts within the window.
        count: u32,
        /// Whether it was given up.
        gave_up: bool,
    },
}

impl What {
    /// Whether it ends an agent, a lease, or the jobs of a source: what has no end goes on for ever.
    pub fn is_end(&self) -> bool {
        if let Self::Lease(status) = self {
            return status.state == LeasePhase::Ended;
        }
        matches!(self, Self::AgentGone { .. } | Self::JobLost { .. } | Self::SourceGone { .. })
    }
}
