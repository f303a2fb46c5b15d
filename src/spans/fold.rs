//! Facts become spans: the life of each agent, the parts of it, the leases that it served.
//!
//! ```text
//! Agent(status)   ──▶ parts of its waterfall that are over
//! AgentGone       ──▶ the other parts, and the root span
//! Lease(ended)    ──▶ the lease, with its wait, its hand-over and its use (`leases.rs`)
//! ```
//!
//! - **Once.** A part is made when the next one starts; a step of preparing once its exit status is known, or the
//!   part behind it is over. While an agent leaves or is held, its parts wait for
//!   its end: only then it is known which of them failed.
//! - **Restarts.** A start of the service knows the time before it as one sum, of which it makes no span: the
//!   start before has made those that were over. The root span goes from the agent's start in any case.
//! - **Places.** A part has no time of its own in a status: it begins where the ones before it end, and the
//!   first where the agent started. A waterfall with [`PARTS_MAX`] parts adds later ones to earlier ones of
//!   the same name, so those are in no span.
//! - **Bounds.** What is open beyond [`OPEN_MAX`] agents or leases has no spans.

mod leases;

use std::collections::BTreeMap;

use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId, NodeName, TemplateId, VmId};
use drover_model::noted::Noted;
use drover_model::phase::AgentPhase;
use drover_model::record::{Reason, without_output};
use drover_model::status::AgentStatus;
use drover_model::strip::stripped;
use drover_model::time::WallTime;

use crate::Value;
use crate::conventions as named;
use crate::span::{Span, SpanId};
use leases::OpenLease;

/// Agents, and leases, that may be open at once.
const OPEN_MAX: usize = 100_000;
/// The most parts that a waterfall keeps apart (`actors/src/agent/report.rs`).
const PARTS_MAX: usize = 64;
/// Steps of one agent of which the exit status is kept.
const STEPS_MAX: usize = 64;

/// An agent that lives.
struct OpenAgent {
    template: TemplateId,
    start: WallTime,
    /// How many parts of its waterfall have their span, or have none.
    made: usize,
    node: Option<NodeName>,
    vmid: Option<VmId>,
    uses: u32,
    /// Exit statuses by the part of the waterfall.
    exits: BTreeMap<String, u32>,
    /// The parts that are over, where the last one waits for the exit status of its step.
    late: Option<Vec<(String, u64)>>,
}

/// What is open, and the spans of what is over.
pub struct Fold {
    /// Since when facts are of this start of the service: earlier ones are of the journal.
    started: WallTime,
    agents: BTreeMap<AgentId, OpenAgent>,
    leases: BTreeMap<LeaseId, OpenLease>,
    out: Vec<Span>,
}

/// The sum of all parts.
fn whole(phases: &[(String, u64)]) -> u64 {
    phases.iter().fold(0, |sum, (_, ms)| sum.saturating_add(*ms))
}

/// A time that many milliseconds before another.
fn before(at: WallTime, ms: u64) -> WallTime {
    WallTime(at.0.saturating_sub_unsigned(ms))
}

/// Why something failed, without what its steps said.
fn why(reason: &Reason) -> String {
    stripped(without_output(&reason.to_string()))
}

impl Fold {
    /// A fold that knows nothing yet, of a service that started then.
    pub fn new(started: WallTime) -> Self {
        let (agents, leases) = (BTreeMap::new(), BTreeMap::new());
        Self { started, agents, leases, out: Vec::new() }
    }

    /// Takes the spans that were made since the last time.
    pub fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.out)
    }

    /// Whether a fold has a use for a fact.
    pub fn wants(what: &What) -> bool {
        match what {
            What::Agent(_) | What::AgentGone { .. } | What::Lease(_) | What::Step { .. } => true,
            What::ConfigApplied { .. }
            | What::ConfigRefused { .. }
            | What::ConfigSynced { .. }
            | What::ConfigNotSynced { .. }
            | What::Ordered { .. }
            | What::Alarm { .. }
            | What::OtherDrover { .. }
            | What::Source(_)
            | What::SourceGone { .. }
            | What::JobLost { .. }
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
            | What::Restarted { .. } => false,
        }
    }

    /// Takes in a fact.
    pub fn observe(&mut self, fact: &Fact) {
        let at = fact.at;
        if let What::Agent(status) = &fact.what {
            self.agent(at, status);
        }
        if let What::Step { agent, step, exit: Some(exit), .. } = &fact.what
            && let Some(open) = self.agents.get_mut(agent)
            && open.exits.len() < STEPS_MAX
        {
            open.exits.insert(format!("{}: {step}", AgentPhase::Preparing), *exit);
            if let Some(over) = open.late.take() {
                self.parts(agent, &over, None);
            }
        }
        if let What::AgentGone { agent, template, reason, phases } = &fact.what {
            self.agent_gone(at, (agent, template), reason, phases);
        }
        if let What::Lease(status) = &fact.what {
            self.lease(at, status);
        }
    }

    /// Takes in what the history hears beside facts: which jobs run where.
    pub fn note(&mut self, noted: &Noted) {
        match noted {
            Noted::Jobs(seen) => self.jobs_seen(seen),
            Noted::Started { .. } => {}
        }
    }

    /// An agent that lives; none where too many do.
    fn agent_of(
        &mut self,
        (id, template): (&AgentId, &TemplateId),
        start: WallTime,
    ) -> Option<&mut OpenAgent> {
        if !self.agents.contains_key(id) {
            if self.agents.len() >= OPEN_MAX {
                return None;
            }
            let open = OpenAgent {
                template: template.clone(),
                start,
                made: 0,
                node: None,
                vmid: None,
                uses: 0,
                exits: BTreeMap::new(),
                late: None,
            };
            self.agents.insert(id.clone(), open);
        }
        self.agents.get_mut(id)
    }

    fn agent(&mut self, at: WallTime, status: &AgentStatus) {
        if status.phase == AgentPhase::Gone {
            return;
        }
        let start = before(at, whole(&status.phases));
        let Some(open) = self.agent_of((&status.agent, &status.template), start) else { return };
        open.node = status.node.clone().or(open.node.take());
        open.vmid = status.vmid.or(open.vmid);
        open.uses = open.uses.max(status.uses);
        let waits = status.phase.is_leaving() || status.phase == AgentPhase::Held;
        let Some((_, over)) = status.phases.split_last() else { return };
        open.late = None;
        if waits || status.phases.len() > PARTS_MAX {
            return;
        }
        // A step reports its exit status after the agent's move.
        let is_step = |(part, _): &(String, u64)| {
            AgentPhase::of_part(part) == Some(AgentPhase::Preparing)
                && !open.exits.contains_key(part)
        };
        let waits_for_step = over.len() > open.made && over.last().is_some_and(is_step);
        open.late = waits_for_step.then(|| over.to_vec());
        let known = over.len() - usize::from(waits_for_step);
        self.parts(&status.agent, &over[..known], None);
    }

    /// Makes the spans of the parts that have none yet.
    fn parts(&mut self, agent: &AgentId, over: &[(String, u64)], failed: Option<(usize, &Reason)>) {
        let Some(open) = self.agents.get_mut(agent) else { return };
        let mut start = open.start;
        let root = SpanId::root(agent);
        for (number, (part, ms)) in over.iter().take(PARTS_MAX).enumerate() {
            let end = WallTime(start.0.saturating_add_unsigned(*ms));
            // The time before this start of the service is a part without a phase.
            if let (true, Some(phase)) = (number >= open.made, AgentPhase::of_part(part)) {
                let (count, from) = (number.to_string(), start.0.to_string());
                let id = SpanId::of(agent, &["part", &count, part, &from]);
                let mut span = Span::new((agent, id, Some(root)), part, (start, end));
                span.set(named::PHASE, phase.name());
                span.set(named::WORKER_STATE, named::worker_state(phase));
                if let Some(exit) = open.exits.remove(part) {
                    span.attributes.push((named::EXIT_CODE, Value::Whole(exit.into())));
                }
                if let Some((_, reason)) = failed.filter(|(which, _)| *which == number)
                    && let Some(failure) = reason.failure()
                {
                    span.fail(failure.kind, &why(reason));
                }
                self.out.push(span);
            }
            start = end;
        }
        open.made = open.made.max(over.len());
    }

    fn agent_gone(
        &mut self,
        at: WallTime,
        (id, template): (&AgentId, &TemplateId),
        reason: &Reason,
        phases: &[(String, u64)],
    ) {
        let is_known = self.agents.contains_key(id);
        // The journal shows again what was over before this start.
        if !is_known && at < self.started {
            return;
        }
        if self.agent_of((id, template), before(at, whole(phases))).is_none() {
            return;
        }
        let failed = reason.failure();
        let where_failed = failed.and_then(|failure| failure.state).and_then(|phase| {
            let is_it = |(part, _): &(String, u64)| AgentPhase::of_part(part) == Some(phase);
            phases.iter().rposition(is_it)
        });
        if phases.len() <= PARTS_MAX {
            self.parts(id, phases, where_failed.map(|which| (which, reason)));
        }
        let Some(open) = self.agents.remove(id) else { return };
        let name = format!("agent {}", open.template);
        let root = SpanId::root(id);
        let mut span = Span::new((id, root, None), &name, (open.start, at));
        span.set(named::CLOUD, open.template.cloud.as_str());
        span.set(named::TEMPLATE, &*open.template.to_string());
        span.set_if(named::NODE, open.node.as_ref().map(NodeName::as_str));
        if let Some(VmId(vmid)) = open.vmid {
            span.attributes.push((named::VMID, Value::Whole(vmid.into())));
        }
        span.attributes.push((named::USES, Value::Whole(open.uses.into())));
        span.set(named::REASON, reason.label());
        if let Some(failure) = failed {
            span.fail(failure.kind, &why(reason));
        }
        self.out.push(span);
    }
}

#[cfg(test)]
mod tests;
