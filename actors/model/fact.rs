//! What happened, reported once: read by the view, the metrics, the event stream and tests.
//!
//! Facts inform; nothing decides by them. Everything durable is a [`crate::record::Body`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{
    AddressPoolId, AgentId, CloudId, ClusterId, Generation, LeaseId, NodeName, RunnerName,
    SourceId, TemplateId, VmId,
};
use crate::image::ImageStatus;
use crate::overrides::Overrides;
use crate::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use crate::record::{HoldOwner, Reason};
use crate::scope::Scope;
use crate::time::WallTime;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    pub at: WallTime,
    #[serde(flatten)]
    pub what: What,
}

/// A fresh status of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDetail {
    pub agent: AgentId,
    pub template: TemplateId,
    pub state: AgentPhase,
    /// When that state began.
    pub since: WallTime,
    /// Its VMID, once chosen.
    pub vmid: Option<VmId>,
    /// Its node, once chosen.
    pub node: Option<NodeName>,
    /// Its address, once known.
    pub address: Option<String>,
    /// Its SSH port and login.
    pub ssh: Option<(u16, String)>,
    /// Its SSH host keys, public key lines.
    pub host_keys: Vec<String>,
    /// Leases on it.
    pub leases: Vec<LeaseId>,
    /// Uses so far.
    pub uses: u32,
    /// What holds for it instead of what its template says.
    #[serde(default)]
    pub overrides: Overrides,
    /// Until when it is held for debugging, once it is.
    #[serde(default)]
    pub held_until: Option<WallTime>,
    /// Who asked for its hold; none where nobody did, or the journal does not say.
    #[serde(default)]
    pub hold_owner: Option<HoldOwner>,
    /// Whether it was made for trial, and serves nobody.
    #[serde(default)]
    pub on_trial: bool,
    /// A line for people about what it waits for or why it goes.
    pub detail: String,
    /// Milliseconds spent in each part of its life so far, in order: the waterfall. A part is a
    /// phase, or a step of one; [`AgentPhase::of_part`] says which.
    pub phases: Vec<(String, u64)>,
}

/// What is known of the resets of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetStatus {
    /// Resets that went well in this start of the service.
    pub count: u64,
    /// Milliseconds one takes by now.
    pub reset_ms: Option<u64>,
    /// Milliseconds it takes to destroy an agent and make a new one.
    #[serde(rename = "anewMs")]
    pub clone_ms: Option<u64>,
    /// Why agents are destroyed all the same; empty when they are not.
    pub detail: String,
}

/// A fresh status of one source of demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    pub source: SourceId,
    /// The kind of system.
    pub kind: String,
    /// Whether it is configured; one that is not has runners left.
    #[serde(default = "configured")]
    pub configured: bool,
    /// Jobs that wait there for what some template serves.
    pub waiting: usize,
    /// Since when the oldest of them does.
    pub oldest: Option<WallTime>,
    /// Jobs that wait there and that no template serves.
    #[serde(default)]
    pub unoffered: usize,
    /// What templates are short of for them, in words for people; the first few.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Jobs that want labels it may not have.
    pub ignored: usize,
    /// Runners of drover's there.
    pub runners: usize,
    /// Jobs that run on them.
    pub running: usize,
    /// Runners in a row that could not be started; nothing more is wanted for a while after each.
    #[serde(default)]
    pub unserved: u32,
    /// Since when it lets no runner be made, and why.
    #[serde(default)]
    pub refused: Option<(WallTime, String)>,
    /// Since when it cannot be polled, and why.
    pub outage: Option<(WallTime, String)>,
}

impl SourceStatus {
    /// A configured source of that kind with no jobs and no runners, which answers.
    pub fn idle(source: SourceId, kind: &str) -> Self {
        Self {
            source,
            kind: kind.to_owned(),
            configured: true,
            waiting: 0,
            oldest: None,
            unoffered: 0,
            lacks: Vec::new(),
            ignored: 0,
            runners: 0,
            running: 0,
            unserved: 0,
            refused: None,
            outage: None,
        }
    }
}

/// What is said of a source that says nothing else.
fn configured() -> bool {
    true
}

/// A fresh status of one lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    pub lease: LeaseId,
    pub state: LeasePhase,
    /// Its agent, once granted.
    pub agent: Option<AgentId>,
    /// For whom, as the lease API was given it.
    pub owner: String,
    /// Who asked, as authenticated.
    pub principal: String,
    /// The group whose lease it is too.
    pub group: Option<String>,
    /// What is wanted, in words.
    pub wants: String,
    /// When it was asked for; none where that is not known.
    pub asked: Option<WallTime>,
    /// When it runs out, once granted.
    pub expires: Option<WallTime>,
    /// Why it waits or ended.
    pub detail: String,
}

/// A pool of addresses at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    pub pool: AddressPoolId,
    /// What it gives.
    pub ranges: Vec<String>,
    /// How many addresses that are.
    pub size: u64,
    /// Those that agents have, or that are kept back for them.
    pub used: u64,
    /// Those that rest after use.
    pub resting: u64,
    /// Those that the next agents can have.
    pub free: u64,
    /// When the next of those that rest is free.
    pub next_free: Option<WallTime>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// A configuration came into force.
    ConfigApplied {
        generation: Generation,
        /// Seconds between two reconciliations of every cloud; none where each has its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reconcile_seconds: Option<u64>,
    },
    /// A configuration was refused; the old one stays.
    ConfigRefused {
        /// The faults, as shown to people.
        text: String,
        /// The configuration that stays: later reports of it or of earlier ones change nothing.
        after: Generation,
    },
    /// An agent changed.
    Agent(Box<AgentDetail>),
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
    Template {
        template: TemplateId,
        /// How many of its agents are in each phase.
        states: BTreeMap<AgentPhase, u32>,
        cap: Option<u32>,
        /// Agents it keeps at this moment, in use or not.
        minimum: u32,
        /// Idle agents it keeps at this moment.
        idle_minimum: u32,
        /// Why it begins nothing at this moment although it may: no address is free.
        #[serde(default)]
        lack: Option<String>,
        labels: Vec<String>,
        breaker: BreakerPhase,
        /// When an open breaker may be tried again, and the cause.
        tripped: Option<(WallTime, String)>,
        /// What its agents are cloned from, once that was chosen.
        #[serde(default)]
        source: Option<String>,
        /// Why no agent is started for a while, when that is no breaker's matter.
        #[serde(default)]
        paused: Option<String>,
    },
    /// The breaker of a node, a storage or a cloud moved.
    Breaker {
        scope: Scope,
        breaker: BreakerPhase,
        /// When an open breaker may be tried again, and the cause.
        tripped: Option<(WallTime, String)>,
        /// The template whose agent moved it last.
        template: TemplateId,
    },
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
    Cloud {
        cloud: CloudId,
        /// Its cluster, once known.
        cluster: Option<ClusterId>,
        health: CloudHealth,
        /// Proxmox's version, once known.
        version: Option<String>,
        /// What is wrong.
        detail: String,
        /// Agents that count against its cap.
        agents: u32,
        cap: Option<u32>,
    },
    /// A cloud left the configuration and its last agent is gone.
    CloudGone { cloud: CloudId },
    /// What the pools of addresses have changed.
    AddressPools {
        /// All of them.
        pools: Vec<AddressPoolStatus>,
    },
    /// The build of an image, or the removal of a version, moved on.
    Image(Box<ImageStatus>),
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
