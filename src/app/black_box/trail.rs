//! What happened to each agent that lives, and what is kept of one that failed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drover_api::{BlackBoxOut, MomentOut, PhaseOut};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, NodeName, TemplateId, VmId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use drover_model::strip::stripped;
use drover_model::time::WallTime;

/// Moments of one agent that are kept: the newest.
const MOMENTS_MAX: usize = 64;
/// Characters of one text.
const TEXT_MAX: usize = 4096;
/// How long SSH may take before the guest agent is asked, and between two questions.
const UNREACHED_SPAN: Duration = Duration::from_secs(60);
/// Guests that are asked at once.
const UNREACHED_MAX: usize = 8;

/// What is said of a guest of which nothing could be read.
const NEITHER: &str = "SSH never reached the guest, and its guest agent gave no log";

/// What is known of one agent.
#[derive(Default)]
struct Trail {
    began: Option<WallTime>,
    phase: Option<AgentPhase>,
    detail: String,
    vmid: Option<VmId>,
    node: Option<NodeName>,
    address: Option<String>,
    moments: VecDeque<MomentOut>,
    left_out: u64,
    template: Option<TemplateId>,
    /// Since when it is in its phase.
    phase_since: Option<WallTime>,
    inside: Inside,
    /// When its guest agent was asked for a log.
    asked: Option<WallTime>,
    guest_log: Option<String>,
}

/// How far drover came into a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Inside {
    /// It was not started.
    #[default]
    NotStarted,
    /// It boots, or SSH does not let drover in.
    Unreached,
    /// SSH let drover in: what its steps say is among the moments.
    Reached,
}

/// A guest that SSH has not reached for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreached {
    pub(super) agent: AgentId,
    pub(super) template: TemplateId,
    pub(super) node: NodeName,
    pub(super) vmid: VmId,
}

/// An agent that failed: what is kept of it so far, and where its machine was.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failed {
    pub(super) template: TemplateId,
    pub(super) began: WallTime,
    pub(super) kept: BlackBoxOut,
}

/// The trails of all agents that live.
#[derive(Default)]
pub(super) struct Trails(BTreeMap<AgentId, Trail>);

impl Trails {
    /// Takes a fact in; gives an agent that is gone because it failed.
    pub(super) fn take(&mut self, fact: &Fact) -> Option<Failed> {
        let at = fact.at;
        match &fact.what {
            // What comes of an agent that is gone is of no use, and would stay.
            What::Agent(status) if status.phase == AgentPhase::Gone => {}
            What::Agent(status) => {
                self.0.entry(status.agent.clone()).or_default().follow(at, status);
            }
            What::Step { agent, step, ms, exit, log, .. } => {
                let exit =
                    exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
                let seconds = *ms as f64 / 1000.0;
                let text = format!("{step}: {exit} after {seconds:.1} s\n{log}");
                self.note(agent, at, "step", &text);
            }
            What::Alarm { agent, text, command } => {
                self.note(agent, at, "alarm", &format!("{text}: {command}"));
            }
            What::Lease(status) => {
                if let Some(agent) = &status.agent {
                    let text =
                        format!("lease {} {}: {}", status.lease, status.state, status.detail);
                    self.note(agent, at, "lease", text.trim_end_matches([':', ' ']));
                }
            }
            What::JobLost { source, runner, agent, job } => {
                let job = job.as_deref().unwrap_or("a job that is not known");
                let text = format!("lost {job} of source {source}, which ran as {runner}");
                self.note(agent, at, "job", &text);
            }
            What::AgentGone { agent, template, reason, phases } => {
                let trail = self.0.remove(agent).unwrap_or_default();
                return reason.failure().map(|_| trail.ended(agent, template, reason, phases, at));
            }
            What::ConfigApplied { .. }
            | What::ConfigRefused { .. }
            | What::ConfigSynced { .. }
            | What::ConfigNotSynced { .. }
            | What::Ordered { .. }
            | What::OtherDrover { .. }
            | What::Source(_)
            | What::SourceGone { .. }
            | What::Template(_)
            | What::Breaker(_)
            | What::Resets { .. }
            | What::HoldNext { .. }
            | What::TemplateGone { .. }
            | What::Cloud(_)
            | What::CloudGone { .. }
            | What::AddressPools { .. }
            | What::Image(_)
            | What::Declared(_)
            | What::Reconciled { .. }
            | What::Restarted { .. } => {}
        }
        None
    }

    /// Guests that SSH has not reached for long, whose guest agents are to be asked now.
    pub(super) fn unreached(&mut self, now: WallTime) -> Vec<Unreached> {
        let waiting = self.0.iter_mut().filter_map(|(agent, trail)| {
            let wanted = trail.unreached(agent, now)?;
            Some((wanted, trail))
        });
        let asked = waiting.take(UNREACHED_MAX).map(|(wanted, trail)| {
            trail.asked = Some(now);
            wanted
        });
        asked.collect()
    }

    /// Takes a log in that the guest agent of an agent read.
    pub(super) fn heard(&mut self, agent: &AgentId, log: &str) {
        if let Some(trail) = self.0.get_mut(agent) {
            trail.guest_log = Some(stripped(log).chars().take(TEXT_MAX).collect());
        }
    }

    /// Notes something about an agent that lives.
    fn note(&mut self, agent: &AgentId, at: WallTime, kind: &str, text: &str) {
        if let Some(trail) = self.0.get_mut(agent) {
            trail.note(at, kind, text);
        }
    }
}

impl Trail {
    fn follow(&mut self, at: WallTime, status: &AgentStatus) {
        self.began.get_or_insert(at);
        self.template.get_or_insert_with(|| status.template.clone());
        self.vmid = status.vmid.or(self.vmid);
        self.node = status.node.clone().or(self.node.take());
        self.address = status.address.clone().or(self.address.take());
        if self.phase == Some(status.phase) && self.detail == status.detail {
            return;
        }
        if self.phase != Some(status.phase) {
            self.phase_since = Some(at);
            self.inside = self.inside.after(status.phase);
        }
        self.phase = Some(status.phase);
        self.detail.clone_from(&status.detail);
        let text = format!("{}: {}", status.phase, status.detail);
        self.note(at, "state", text.trim_end_matches([':', ' ']));
    }

    fn unreached(&self, agent: &AgentId, now: WallTime) -> Option<Unreached> {
        let waits = matches!(self.phase, Some(AgentPhase::Booting | AgentPhase::Connecting));
        let last = self.asked.max(self.phase_since)?;
        (waits && now - last >= UNREACHED_SPAN).then_some(())?;
        let (template, node) = (self.template.clone()?, self.node.clone()?);
        Some(Unreached { agent: agent.clone(), template, node, vmid: self.vmid? })
    }

    fn note(&mut self, at: WallTime, kind: &str, text: &str) {
        self.moments.push_back(MomentOut {
            at: at.rfc3339(),
            kind: kind.to_owned(),
            text: stripped(text).chars().take(TEXT_MAX).collect(),
        });
        if self.moments.len() > MOMENTS_MAX {
            self.moments.pop_front();
            self.left_out += 1;
        }
    }

    fn ended(
        self,
        agent: &AgentId,
        template: &TemplateId,
        reason: &Reason,
        phases: &[(String, u64)],
        at: WallTime,
    ) -> Failed {
        let unreached = self.inside == Inside::Unreached;
        let guest_log = self.guest_log.filter(|_| unreached);
        let silent = unreached && guest_log.is_none();
        let phases = phases.iter().map(|(state, ms)| PhaseOut { state: state.clone(), ms: *ms });
        let kept = BlackBoxOut {
            agent: agent.to_string(),
            template: template.to_string(),
            reason: reason.label().to_owned(),
            detail: stripped(&reason.to_string()),
            gone_at: at.rfc3339(),
            vmid: self.vmid.map(|vmid| vmid.0),
            node: self.node.map(|node| node.to_string()),
            address: self.address,
            phases: phases.collect(),
            moments: self.moments.into(),
            moments_left_out: self.left_out,
            tasks: Vec::new(),
            tasks_unread: None,
            calls: Vec::new(),
            guest_log,
            guest_unread: silent.then(|| NEITHER.to_owned()),
        };
        Failed { template: template.clone(), began: self.began.unwrap_or(at), kept }
    }
}

impl Inside {
    fn after(self, phase: AgentPhase) -> Self {
        match phase {
            AgentPhase::Booting | AgentPhase::Connecting => Self::Unreached,
            AgentPhase::Preparing => Self::Reached,
            AgentPhase::Queued
            | AgentPhase::Cloning
            | AgentPhase::InDoubt
            | AgentPhase::Configuring
            | AgentPhase::Ready
            | AgentPhase::Leased
            | AgentPhase::Draining
            | AgentPhase::Resetting
            | AgentPhase::Held
            | AgentPhase::Retiring
            | AgentPhase::Stranded
            | AgentPhase::Gone => self,
        }
    }
}
