//! The lives of agents.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, CloudId, TemplateId, VmId};
use drover_model::noted::StartedFor;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::size::Size;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;

use super::{Fold, Kept, OPEN_MAX, OpenAgent, Use};
use crate::{Agent, Line, MadeFor, Part, Peaks};

/// The waterfall's name for the time before this start of the service.
const EARLIER: &str = "Earlier";
/// Parts of one agent that are kept.
const PARTS_MAX: usize = 64;
/// Why an agent is gone whose end drover did not see.
const UNSEEN: &str = "unseen";

impl Fold {
    pub(super) fn restore_agent(&mut self, record: Agent) {
        let counted = self.started;
        let id = AgentId::new(&record.id);
        let open = OpenAgent { record, vmid: None, seen: false, on: BTreeSet::new(), counted };
        self.agents.insert(id, open);
    }

    /// The record of an agent that lives; none where too many are open.
    fn agent_of(
        &mut self,
        at: WallTime,
        id: &AgentId,
        template: &TemplateId,
    ) -> Option<&mut OpenAgent> {
        if !self.agents.contains_key(id) {
            if self.agents.len() >= OPEN_MAX {
                return None;
            }
            let template_name = Self::template(template);
            let (cores, memory_mib) = self.sizes.get(&template_name).copied().unwrap_or_default();
            let record = Agent {
                id: id.to_string(),
                cloud: template.cloud.to_string(),
                template: template_name,
                node: None,
                cores,
                memory_mib,
                made_for: MadeFor::Unknown,
                made: at,
                machine: None,
                ready: None,
                boot: Vec::new(),
                after: Vec::new(),
                gone: None,
                reason: None,
                failed_in: None,
                fault: None,
                uses: 0,
                peaks: Peaks::default(),
            };
            let (on, counted) = (BTreeSet::new(), at);
            let open = OpenAgent { record, vmid: None, seen: true, on, counted };
            self.agents.insert(id.clone(), open);
        }
        let open = self.agents.get_mut(id)?;
        open.seen = true;
        Some(open)
    }

    pub(super) fn agent_started(
        &mut self,
        at: WallTime,
        (id, template): (&AgentId, &TemplateId),
        why: StartedFor,
        size: Size,
    ) {
        let Some(open) = self.agent_of(at, id, template) else { return };
        let record = &mut open.record;
        if record.made_for == MadeFor::Unknown {
            record.made_for = match why {
                StartedFor::Demand => MadeFor::Demand,
                StartedFor::Pool => MadeFor::Pool,
                StartedFor::Operator => MadeFor::Operator,
            };
        }
        record.cores = size.cores.or(record.cores);
        record.memory_mib = size.memory_mb.or(record.memory_mib);
        let line = Line::Agent(Box::new(record.clone()));
        self.out.push(Kept::Open(line));
    }

    pub(super) fn agent(&mut self, at: WallTime, status: &AgentStatus) {
        if status.phase == AgentPhase::Gone {
            return;
        }
        // One that was made by an earlier start is as old as its phase at least.
        let first = status.since.min(at);
        let Some(open) = self.agent_of(first, &status.agent, &status.template) else { return };
        open.vmid = status.vmid.or(open.vmid);
        let record = &mut open.record;
        let before = (record.machine, record.ready, record.node.clone());
        if status.on_trial {
            record.made_for = MadeFor::Trial;
        }
        record.node = status.node.as_ref().map(ToString::to_string).or(record.node.take());
        record.uses = record.uses.max(status.uses);
        if status.phase != AgentPhase::Queued && record.machine.is_none() {
            record.machine = Some(first.max(record.made));
        }
        let is_ready = matches!(status.phase, AgentPhase::Ready | AgentPhase::Leased);
        if is_ready && record.ready.is_none() {
            record.ready = Some(first.max(record.machine.unwrap_or(record.made)));
            let way = status.phases.split_last().map_or(&[][..], |(_, way)| way);
            record.boot = parts(way);
        }
        if before != (record.machine, record.ready, record.node.clone()) {
            let line = Line::Agent(Box::new(record.clone()));
            self.out.push(Kept::Open(line));
        }
    }

    pub(super) fn agent_gone(
        &mut self,
        at: WallTime,
        (id, template): (&AgentId, &TemplateId),
        reason: &Reason,
        phases: &[(String, u64)],
    ) {
        if self.agent_of(at, id, template).is_none() {
            return;
        }
        self.count(id, at);
        let Some(OpenAgent { mut record, .. }) = self.agents.remove(id) else { return };
        let start = record.ready.or(record.machine).unwrap_or(record.made);
        record.gone = Some(at.max(start));
        record.reason = Some(reason.label().to_owned());
        let state = reason.failure().and_then(|failure| failure.state);
        record.failed_in = state.map(|state| state.to_string());
        if let Reason::Failed { kind, .. } = reason {
            record.fault = Some(kind.clone());
        }
        if record.ready.is_none() {
            record.boot = parts(phases);
        } else {
            record.after = joined(after_boot(&record.boot, phases));
        }
        self.out.push(Kept::Closed(Line::Agent(Box::new(record))));
    }

    /// An agent of an earlier start that this one does not know: the journal has its end.
    pub(super) fn agent_unseen(&mut self, id: &AgentId) {
        let last = self.last;
        self.count(id, last);
        let Some(OpenAgent { mut record, .. }) = self.agents.remove(id) else { return };
        let start = record.ready.or(record.machine).unwrap_or(record.made);
        record.gone = Some(last.max(start));
        record.reason = Some(UNSEEN.to_owned());
        self.out.push(Kept::Closed(Line::Agent(Box::new(record))));
    }

    /// Takes in what the guests of a cluster use.
    pub fn used(&mut self, cloud: &CloudId, uses: &[Use]) {
        let uses: BTreeMap<VmId, &Use> = uses.iter().map(|one| (one.vmid, one)).collect();
        let here = self.clusters.get(cloud);
        for open in self.agents.values_mut() {
            let its_cloud = CloudId::new(&open.record.cloud);
            let is_here =
                its_cloud == *cloud || here.is_some() && self.clusters.get(&its_cloud) == here;
            let seen = open.vmid.filter(|_| is_here).and_then(|vmid| uses.get(&vmid));
            let Some(Use { cores, memory_mib, busy_milli, used_mib, .. }) = seen else { continue };
            let record = &mut open.record;
            (record.cores, record.memory_mib) =
                (cores.or(record.cores), memory_mib.or(record.memory_mib));
            let peaks = Peaks { cpu_milli: *busy_milli, memory_mib: *used_mib, looks: 1 };
            record.peaks = record.peaks.joined(peaks);
            let size = (record.cores, record.memory_mib);
            if self.sizes.get(&record.template) != Some(&size) {
                self.sizes.insert(record.template.clone(), size);
            }
        }
    }
}

/// Parts of a way, bounded: what is beyond is in the last.
fn parts(phases: &[(String, u64)]) -> Vec<Part> {
    let one = |(name, ms): &(String, u64)| Part { name: name.clone(), ms: *ms };
    let mut parts: Vec<Part> = phases.iter().map(one).collect();
    let rest = parts.split_off(parts.len().min(PARTS_MAX));
    if let Some(last) = parts.last_mut() {
        last.ms += rest.iter().map(|part| part.ms).sum::<u64>();
    }
    parts
}

/// What of a waterfall is behind the way to ready: all, where that was in an earlier start.
fn after_boot<'a>(boot: &[Part], phases: &'a [(String, u64)]) -> &'a [(String, u64)] {
    let begins = |part: &Part, (name, ms): &(String, u64)| part.name == *name && part.ms == *ms;
    let same = boot.iter().zip(phases).take_while(|(part, phase)| begins(part, phase)).count();
    if same == boot.len() { &phases[same..] } else { phases }
}

/// The parts of one name together, in order of their first; without what was before this start.
fn joined(phases: &[(String, u64)]) -> Vec<Part> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for (name, ms) in phases.iter().filter(|(name, _)| name != EARLIER) {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += ms,
            None => all.push((name.clone(), *ms)),
        }
    }
    parts(&all)
}
