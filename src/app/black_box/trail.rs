//! What happened to each agent that lives, and what is kept of one that failed.

use std::collections::{BTreeMap, VecDeque};

use drover_api::{BlackBoxOut, MomentOut, PhaseOut};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, NodeName, TemplateId, VmId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;
use drover_server::view::GoneAgent;

use super::strip::stripped;

/// Moments of one agent that are kept: the newest.
const MOMENTS_MAX: usize = 64;
/// Characters of one text.
const TEXT_MAX: usize = 4096;

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
                return GoneAgent::has_failed(reason)
                    .then(|| trail.ended(agent, template, reason, phases, at));
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
        self.vmid = status.vmid.or(self.vmid);
        self.node = status.node.clone().or(self.node.take());
        self.address = status.address.clone().or(self.address.take());
        if self.phase == Some(status.phase) && self.detail == status.detail {
            return;
        }
        self.phase = Some(status.phase);
        self.detail.clone_from(&status.detail);
        let text = format!("{}: {}", status.phase, status.detail);
        self.note(at, "state", text.trim_end_matches([':', ' ']));
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
        };
        Failed { template: template.clone(), began: self.began.unwrap_or(at), kept }
    }
}
