//! The plan of one reconciliation: what one list of guests, set against what is known, calls
//! for. Pure, and readable as text. A list is an index: it proposes looks and checks, and proves
//! nothing (book: safety, rules 4 and 5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{AgentId, ClusterId, Installation, NodeName, VmId};
use drover_model::marks::{Marks, RETIRING, parse_name};
use drover_model::phase::AgentPhase;
use drover_model::ports::{ImageObservation, Listed, Survey, VmObservation};
use drover_model::time::{Moment, WallTime};

use super::judge::{Verdict, describe, verdict};
use super::offline::Offline;
use super::unlisted::Unlisted;
use crate::message::{AgentCommand, Observed, Shown};
use crate::roster::Living;
use drover_model::finding::{Does, Finding};

/// What is known before the list is read.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Whose guests are ours.
    pub installation: Installation,
    /// The cluster the list is of.
    pub cluster: ClusterId,
    /// Every living agent.
    pub agents: BTreeMap<AgentId, Living>,
    /// Builds of images that run, and declared machines.
    pub builds: BTreeSet<AgentId>,
    /// The journal's highest sequence.
    pub last_seq: u64,
    /// The journal's last record before this start: whatever is younger it knows, or another drover
    /// made it.
    pub since: WallTime,
}

/// How a reconciliation goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Config {
    /// Whether orphans are destroyed, or only reported.
    pub cleanup_orphans: bool,
    /// How long an orphan is left alone.
    pub orphan_grace: Duration,
    /// How long an offline node's agents keep their slots.
    pub node_grace: Duration,
}

/// A guest that looks like ours and has no agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) first_seen: Moment,
    name: Option<String>,
    tags: Vec<String>,
    pub(super) verdict: Option<Verdict>,
}

/// What one reconciliation remembers for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(super) candidates: BTreeMap<VmId, Candidate>,
    /// Nodes that are offline.
    pub(super) offline: Offline,
    /// Disc images without an agent, and since when.
    pub(super) images: BTreeMap<ImageObservation, Moment>,
    /// Where there may be any: storages leave the configuration, what is on them stays.
    pub(super) image_storages: BTreeSet<String>,
    /// A guest's marks were ahead of the journal: its VMID and their sequence.
    pub(super) ahead: Option<(VmId, u64)>,
    /// Up to this sequence an operator knows that guests are ahead.
    confirmed: u64,
    /// When the youngest guest of another drover was made, and up to when an operator knows of such.
    youngest: String,
    confirmed_born: String,
    /// Ids that the watch asks about.
    pub(super) unlisted: Unlisted,
}

impl Memory {
    /// A memory of nothing but a guest that is ahead of the journal, by its VMID and sequence, and of
    /// the storages that disc images were put on.
    pub(crate) fn restored(ahead: Option<(VmId, u64)>, image_storages: BTreeSet<String>) -> Self {
        Self { ahead, image_storages, ..Self::default() }
    }

    /// The same with nodes that were offline for so long when they were heard of last.
    #[must_use]
    pub(crate) fn with_offline(self, spans: BTreeMap<NodeName, Duration>, now: Moment) -> Self {
        Self { offline: Offline::restored(spans, now), ..self }
    }

    /// Forgets what was seen of guests and images, whose graces start again; not that a journal is too
    /// old, nor since when nodes are offline.
    pub(crate) fn restart(&mut self) {
        let mut offline = std::mem::take(&mut self.offline);
        offline.forget_reported();
        let storages = std::mem::take(&mut self.image_storages);
        *self = Self { offline, ..Self::restored(self.ahead, storages) };
    }

    /// The guest that is furthest ahead of the journal, by its VMID and sequence.
    pub(crate) fn ahead(&self) -> Option<(VmId, u64)> {
        self.ahead
    }

    /// An operator knows that the journal is older than the world; says whether it was noticed.
    pub(crate) fn confirm(&mut self) -> bool {
        let ahead = self.ahead.take();
        self.confirmed = ahead.map_or(self.confirmed, |(_, seq)| self.confirmed.max(seq));
        self.confirmed_born.clone_from(&self.youngest);
        ahead.is_some()
    }

    /// A guest of this installation was made by another drover; says whether that is new.
    pub(crate) fn foreign(&mut self, marks: &Marks) -> bool {
        if marks.born <= self.confirmed_born {
            return false;
        }
        self.youngest = marks.born.clone().max(std::mem::take(&mut self.youngest));
        let new = self.ahead.is_none();
        self.ahead.get_or_insert((marks.vmid, marks.seq));
        new
    }

    /// A known agent's guest was fenced by another drover; says whether that is new.
    pub(crate) fn fenced(&mut self, vmid: VmId) -> bool {
        let new = self.ahead.is_none();
        self.ahead.get_or_insert((vmid, 0));
        new
    }

    /// Forgets what looks showed of guests that are not touched: the next list proposes looks at them.
    pub(crate) fn look_again(&mut self) {
        for candidate in self.candidates.values_mut() {
            if matches!(candidate.verdict, Some(Verdict::Stranger(_) | Verdict::Damaged(_))) {
                candidate.verdict = None;
            }
        }
    }

    /// Learns from a look whether its guest is further ahead of the journal than any before; all
    /// looks are to be learnt from before one is judged.
    pub(crate) fn learn(
        &mut self,
        vmid: VmId,
        observation: &Result<VmObservation, String>,
        known: &Known,
    ) -> bool {
        let Verdict::Orphan(marks) = verdict(vmid, observation, false, known) else { return false };
        let usual = known.last_seq.max(self.confirmed);
        let further = marks.seq > self.ahead.map_or(usual, |(_, seq)| seq);
        if further {
            self.ahead = Some((vmid, marks.seq));
        }
        further
    }
}

/// What one list calls for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    /// Guests whose marks must be read.
    pub looks: Vec<(VmId, NodeName)>,
    /// Known agents missing from the list, to be asked about by id.
    pub checks: Vec<(AgentId, VmId)>,
    /// What agents must hear.
    pub report: Vec<(AgentId, AgentCommand)>,
    /// What the list shows of agents' guests.
    pub observed: Vec<(AgentId, Observed)>,
    /// Agents found on another node.
    pub moved: Vec<(AgentId, NodeName)>,
    /// Guests of agents that somebody else retires.
    pub fenced: Vec<VmId>,
    /// What was found.
    pub findings: Vec<Finding>,
}

#[cfg(test)]
impl Plan {
    /// The plan as text, one line a step, then the findings.
    pub(crate) fn render(&self) -> String {
        let looks = self.looks.iter().map(|(vmid, node)| format!("look at {vmid} on {node}"));
        let checks = self
            .checks
            .iter()
            .map(|(agent, vmid)| format!("ask whether {vmid} of {agent} is free"));
        let report =
            self.report.iter().map(|(agent, command)| format!("send {agent}: {command:?}"));
        let findings = self.findings.iter().map(|finding| format!("found: {}", finding.text));
        let lines: Vec<String> = looks.chain(checks).chain(report).chain(findings).collect();
        lines.join("\n")
    }
}

/// Whether a guest may be ours: by tag or by name, both an index only.
fn looks_ours(guest: &Listed, installation: &Installation) -> bool {
    let tag = format!("drover-{installation}");
    let named = guest.name.as_deref().and_then(parse_name);
    guest.tags.contains(&tag) || named.is_some_and(|(whose, _)| whose == *installation)
}

/// A line for each other installation whose guests the list shows: a neighbour, or this one before
/// its journal was lost.
fn others(survey: &Survey, installation: &Installation) -> Vec<Finding> {
    let mut counts: BTreeMap<Installation, Vec<VmId>> = BTreeMap::new();
    for guest in &survey.guests {
        if let Some((whose, _)) = guest.name.as_deref().and_then(parse_name)
            && whose != *installation
        {
            counts.entry(whose).or_default().push(guest.vmid);
        }
    }
    let line = |(whose, vmids): (Installation, Vec<VmId>)| {
        let shown: Vec<String> = vmids.iter().take(5).map(ToString::to_string).collect();
        let more = if vmids.len() > shown.len() { ", ..." } else { "" };
        Finding::reported(format!(
            "guests of another installation, `{whose}`: {} ({}{more}): not touched",
            vmids.len(),
            shown.join(", ")
        ))
    };
    counts.into_iter().map(line).collect()
}

/// Plans a reconciliation; `memory` keeps since when something has been so.
pub(crate) fn plan(
    survey: &Survey,
    known: &Known,
    config: Config,
    memory: &mut Memory,
    now: Moment,
) -> Plan {
    let mut plan = Plan::default();
    if !survey.quorate {
        return plan;
    }
    let guests: BTreeMap<VmId, &Listed> =
        survey.guests.iter().map(|guest| (guest.vmid, guest)).collect();
    let ours = living(&mut plan, survey, &guests, known, now);
    memory.offline.plan(&mut plan, survey, known, config.node_grace, now);
    if let Some((vmid, seq)) = memory.ahead {
        plan.findings.push(Finding::reported(format!(
            "no orphan is destroyed: the marks of {vmid} (seq {seq}) were ahead of the journal, \
             which is older than the world; look at the orphans, then confirm with `drover resync \
             --confirm-older-journal`"
        )));
    }
    plan.findings.extend(others(survey, &known.installation));
    let builds = |guest: &Listed| {
        let named = guest.name.as_deref().and_then(parse_name);
        named.is_some_and(|(_, build)| known.builds.contains(&build))
    };
    let candidates =
        survey.guests.iter().filter(|guest| !ours.contains(&guest.vmid) && !builds(guest));
    let candidates: Vec<&Listed> =
        candidates.filter(|guest| looks_ours(guest, &known.installation)).collect();
    memory.candidates.retain(|vmid, _| candidates.iter().any(|guest| guest.vmid == *vmid));
    for guest in candidates {
        consider(&mut plan, guest, config, memory, now);
    }
    plan
}

/// Plans what a list means for living agents alone.
pub(crate) fn watch(
    survey: &Survey,
    known: &Known,
    config: Config,
    memory: &mut Memory,
    now: Moment,
) -> Plan {
    let mut plan = Plan::default();
    if survey.quorate {
        let guests = survey.guests.iter().map(|guest| (guest.vmid, guest)).collect();
        living(&mut plan, survey, &guests, known, now);
        memory.offline.plan(&mut plan, survey, known, config.node_grace, now);
        // What it observed says the same.
        plan.report.retain(|(_, command)| *command != AgentCommand::SeenStopped);
    }
    plan
}

/// Sets the list against the guests of living agents; gives the ids of these.
fn living(
    plan: &mut Plan,
    survey: &Survey,
    guests: &BTreeMap<VmId, &Listed>,
    known: &Known,
    now: Moment,
) -> BTreeSet<VmId> {
    let mut ours: BTreeSet<VmId> = BTreeSet::new();
    let offline: BTreeSet<&NodeName> =
        survey.nodes.iter().filter(|(_, online)| !online).map(|(node, _)| node).collect();
    for (agent, living) in &known.agents {
        let Some(place) = living.place.as_ref().filter(|at| at.cluster == known.cluster) else {
            continue;
        };
        ours.insert(place.vmid);
        match guests.get(&place.vmid) {
            Some(guest) => {
                compare(plan, agent, living, &place.node, guest);
                plan.findings.extend(renamed(agent, living, guest, &known.installation));
                let observed = Observed {
                    at: now.before(survey.age),
                    node: guest.node.clone(),
                    offline: offline.contains(&guest.node),
                    status: Shown::of(&guest.status),
                    lock: guest.lock.clone(),
                };
                plan.observed.push((agent.clone(), observed));
            }
            None if living.status.phase.has_guest() => {
                plan.checks.push((agent.clone(), place.vmid));
            }
            None => {}
        }
    }
    ours
}

/// A known agent's guest is listed: is it where and how it should be?
fn compare(plan: &mut Plan, agent: &AgentId, living: &Living, node: &NodeName, guest: &Listed) {
    if guest.node != *node {
        let (vmid, to) = (guest.vmid, &guest.node);
        let text = format!("{vmid} of agent `{agent}` moved from `{node}` to `{to}`");
        plan.findings.push(Finding::of(Does::Follow, vmid, text));
        plan.moved.push((agent.clone(), to.clone()));
        plan.report.push((agent.clone(), AgentCommand::Moved(to.clone())));
    }
    if living.status.phase.should_run() && guest.tags.iter().any(|tag| tag == RETIRING) {
        let (vmid, state) = (guest.vmid, &living.status.phase);
        let text = format!(
            "{vmid} of agent `{agent}` is tagged `{RETIRING}` in state {state}: another drover \
             retires it"
        );
        plan.findings.push(Finding::of(Does::Report, vmid, text));
        plan.fenced.push(vmid);
    }
    let expected = living.status.phase.should_run() && living.status.machine.expects_running();
    if guest.status == "stopped" && guest.lock.is_none() && expected {
        let (vmid, state) = (guest.vmid, &living.status.phase);
        let text = format!("{vmid} of agent `{agent}` is stopped in state {state}");
        plan.findings.push(Finding::of(Does::Retire, vmid, text));
        plan.report.push((agent.clone(), AgentCommand::SeenStopped));
    }
    let ordered = living.status.machine.running.is_some();
    let of_others = |lock: &&str| !ordered && is_of_others(lock, living.status.phase);
    if let Some(lock) = guest.lock.as_deref().filter(of_others) {
        let (vmid, state) = (guest.vmid, &living.status.phase);
        let text = format!(
            "{vmid} of agent `{agent}` is locked ({lock}) in state {state}: left alone until that \
             is over"
        );
        plan.findings.push(Finding::of(Does::Leave, vmid, text));
    }
}

/// An agent's guest does not carry its name any more: who destroys it will find out by its marks.
fn renamed(
    agent: &AgentId,
    living: &Living,
    guest: &Listed,
    installation: &Installation,
) -> Option<Finding> {
    let name = guest.name.as_deref().filter(|_| living.status.phase.should_run())?;
    let own =
        parse_name(name).is_some_and(|(whose, whom)| whose == *installation && whom == *agent);
    let text = || {
        let vmid = guest.vmid;
        format!("{vmid} of agent `{agent}` is called `{name}`: renamed, or somebody else's")
    };
    (!own).then(|| Finding::of(Does::Report, guest.vmid, text()))
}

/// Whether a lock is somebody else's work on an agent's guest, such as a backup or a migration: an
/// agent's own clone and snapshots lock its guest too.
fn is_of_others(lock: &str, state: AgentPhase) -> bool {
    let copies = matches!(lock, "clone" | "create") || !state.has_guest();
    let snapshots =
        matches!(lock, "snapshot" | "snapshot-delete" | "rollback") && state.uses_snapshots();
    !copies && !snapshots
}

/// A guest that looks like ours and has no agent: report it, and look at it where that may show
/// something new.
fn consider(plan: &mut Plan, guest: &Listed, config: Config, memory: &mut Memory, now: Moment) {
    let vmid = guest.vmid;
    let fresh = Candidate {
        first_seen: now,
        name: guest.name.clone(),
        tags: guest.tags.clone(),
        verdict: None,
    };
    let candidate = memory.candidates.entry(vmid).or_insert_with(|| fresh.clone());
    if (&candidate.name, &candidate.tags) != (&fresh.name, &fresh.tags) {
        *candidate = fresh;
    }
    let waited = now - candidate.first_seen;
    let look = match &candidate.verdict {
        None | Some(Verdict::Unread(_) | Verdict::Absent) => true,
        Some(Verdict::Orphan(_)) => {
            config.cleanup_orphans && waited >= config.orphan_grace && memory.ahead.is_none()
        }
        Some(Verdict::Stranger(_) | Verdict::Image | Verdict::Damaged(_)) => false,
    };
    if look {
        plan.looks.push((vmid, guest.node.clone()));
    } else if let Some(verdict) = &candidate.verdict {
        plan.findings.extend(describe(vmid, verdict, config, waited, memory.ahead));
    }
}

#[cfg(test)]
mod tests;
