//! The reconciler's mind: lists and answers come in, and what follows from them goes out.
//!
//! ```text
//!  reconciliation, preview                          watch (every 10 s)
//!  Listed ──▶ Look, Check, Send, Restrain           Listed ──▶ Send, Check
//!  Answered ▶ Destroy, Send Vanished, Restrain      IdsAnswered ▶ Send Vanished
//!  Images ──▶ RemoveImage
//! ```
//!
//! Its state is [`Memory`]: candidates and since when each is seen, offline nodes, leftover images,
//! and whether guests are ahead of the journal. What drover knows and how it is configured comes in
//! with each event ([`Round`]). `transitions.txt` has the table, drawn from [`Memory::step`].
//!
//! A failed read is an answer too: it becomes a finding, and nothing is destroyed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{AgentId, NodeName, VmId};
use drover_model::marks::Marks;
use drover_model::ports::{IdStatus, ImageObservation, Survey, VmObservation};
use drover_model::state_machine::{StateMachine, Timed, Turn};
use drover_model::time::{Moment, Now};

use super::plan::{Config, Known, Memory};
use super::{images, judge, plan};
use crate::message::AgentCommand;
use drover_model::finding::{Does, Finding};

/// What an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Everything that follows is carried out.
    Reconcile,
    /// Only findings are used. Fences and guests of another drover restrain nothing in a preview.
    Preview,
    /// Living agents hear what the list shows of their guests; nothing else follows.
    Watch,
}

/// What is known and configured at the moment of an event.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(super) purpose: Purpose,
    pub(super) known: Known,
    pub(super) config: Config,
}

/// What a look at a guest brought back, and the node that it asked.
pub(crate) type Looked = (VmId, NodeName, Result<VmObservation, String>);
/// What the question about an agent's id brought back.
pub(crate) type Checked = (AgentId, VmId, Result<IdStatus, Fault>);

/// What the looks and questions of one list brought back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    pub(super) looks: Vec<Looked>,
    pub(super) checks: Vec<Checked>,
    /// Ids that the list shows as templates.
    pub(super) templates: BTreeSet<VmId>,
    /// Agents of the looked-at marks that lived in this start of the service.
    pub(super) lived: BTreeSet<AgentId>,
}

/// What can happen to a reconciler's mind.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A list of the cluster came. Known agents were read after it: an agent that was granted an id
    /// before is among them.
    Listed(Box<Round>, Survey),
    /// The looks and questions of that list came back.
    Answered(Box<Round>, Answers),
    /// The disc images came; the agents are those whose guests the list names.
    Images(Box<Round>, Result<Vec<ImageObservation>, Fault>, BTreeSet<AgentId>),
    /// The questions of the watch came back.
    IdsAnswered(Vec<(AgentId, Result<IdStatus, Fault>)>),
    /// Disc images may lie on these storages, also when they leave the configuration.
    ImageStorages(BTreeSet<String>),
    /// An operator asks for a fresh look at guests that are not touched.
    LookAgain,
    /// An operator knows that the journal is older than the world.
    ConfirmAhead,
    /// The actor starts again: what was seen of guests is forgotten.
    Restarted,
}

impl Timed for Event {
    fn needs_time(&self) -> bool {
        match self {
            Self::Listed(..) | Self::Answered(..) | Self::Images(..) | Self::IdsAnswered(_) => true,
            Self::ImageStorages(_) | Self::LookAgain | Self::ConfirmAhead | Self::Restarted => {
                false
            }
        }
    }
}

/// Why agents that live now may be another drover's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A guest's marks are ahead of the journal.
    OlderJournal,
    /// A guest of this agent was made by another drover.
    OthersAgent(AgentId),
    /// Another drover set its fence on the guest of a living agent.
    OthersFence,
}

/// What a reconciler's mind wants done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Destroy no agent that lives now before an operator confirms; write that down.
    Restrain { vmid: VmId, seq: u64, sign: Sign },
    /// Share which ids and nodes the list shows, and whether all nodes are online.
    Share { seen: BTreeSet<VmId>, nodes: Vec<NodeName>, all_online: bool },
    /// Publish for how long each node is offline.
    Offline(BTreeMap<NodeName, Duration>),
    /// Note the node that an agent's guest moved to.
    Follow(AgentId, NodeName),
    /// Send a command to an agent.
    Send(AgentId, AgentCommand),
    /// Read the marks of a guest.
    Look(VmId, NodeName),
    /// Ask whether the id of an agent is free.
    Check(AgentId, VmId),
    /// Report what was found.
    Found(Finding),
    /// Retire an orphan, which is on this node.
    Destroy(NodeName, Box<Marks>),
    /// Remove a disc image.
    RemoveImage(ImageObservation),
    /// Write down that an operator confirmed an older journal.
    Confirmed,
    /// The list has no quorum, and nothing follows from it.
    NoQuorum,
}

type Effects<'a> = &'a mut Turn<Effect>;

impl StateMachine for Memory {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: Effects<'_>) {
        let at = now.mono;
        match event {
            Event::Listed(round, survey) => match round.purpose {
                Purpose::Reconcile | Purpose::Preview => self.listed(&round, &survey, at, turn),
                Purpose::Watch => self.watched(&round, &survey, at, turn),
            },
            Event::Answered(round, answers) => self.answered(&round, answers, at, turn),
            Event::Images(round, listed, named) => {
                let judged = images::judge(listed, &named, &round.known, round.config, self, at);
                judged.findings.into_iter().for_each(|found| turn.push(Effect::Found(found)));
                judged.remove.into_iter().for_each(|image| turn.push(Effect::RemoveImage(image)));
            }
            Event::IdsAnswered(answers) => {
                for agent in self.unlisted.answered(answers, at) {
                    turn.push(Effect::Send(agent, AgentCommand::Vanished));
                }
            }
            Event::ImageStorages(storages) => self.image_storages.extend(storages),
            Event::LookAgain => self.look_again(),
            Event::ConfirmAhead => {
                if self.confirm() {
                    turn.push(Effect::Confirmed);
                }
            }
            Event::Restarted => self.restart(),
        }
    }
}

impl Memory {
    fn listed(&mut self, round: &Round, survey: &Survey, now: Moment, turn: Effects<'_>) {
        if !survey.quorate {
            return turn.push(Effect::NoQuorum);
        }
        let mut plan = plan::plan(survey, &round.known, round.config, self, now);
        let restrains = round.purpose == Purpose::Reconcile;
        for vmid in plan.fenced.drain(..).filter(|_| restrains) {
            if self.fenced(vmid) {
                turn.push(Effect::Restrain { vmid, seq: 0, sign: Sign::OthersFence });
            }
        }
        turn.push(Effect::Share {
            seen: survey.guests.iter().map(|guest| guest.vmid).collect(),
            nodes: survey.nodes.iter().map(|(node, _)| node.clone()).collect(),
            all_online: survey.nodes.iter().all(|(_, online)| *online),
        });
        let plan::Plan { looks, checks, report, observed, moved, fenced: _, findings } = plan;
        turn.push(Effect::Offline(self.offline.spans(now)));
        inform(report, observed, moved, turn);
        looks.into_iter().for_each(|(vmid, node)| turn.push(Effect::Look(vmid, node)));
        checks.into_iter().for_each(|(agent, vmid)| turn.push(Effect::Check(agent, vmid)));
        findings.into_iter().for_each(|found| turn.push(Effect::Found(found)));
    }

    fn watched(&mut self, round: &Round, survey: &Survey, now: Moment, turn: Effects<'_>) {
        let plan = plan::watch(survey, &round.known, round.config, self, now);
        turn.push(Effect::Offline(self.offline.spans(now)));
        inform(plan.report, plan.observed, plan.moved, turn);
        for (agent, vmid) in self.unlisted.ask(plan.checks, now) {
            turn.push(Effect::Check(agent, vmid));
        }
    }

    /// All looks are learnt from before one is judged: a guest that is ahead of the journal saves
    /// those before it.
    fn answered(&mut self, round: &Round, answers: Answers, now: Moment, turn: Effects<'_>) {
        let Answers { looks, checks, templates, lived } = answers;
        for (vmid, _, observation) in &looks {
            if self.learn(*vmid, observation, &round.known)
                && let Some((vmid, seq)) = self.ahead()
            {
                turn.push(Effect::Restrain { vmid, seq, sign: Sign::OlderJournal });
            }
        }
        let restrains = round.purpose == Purpose::Reconcile;
        for (vmid, _, observation) in looks.iter().filter(|_| restrains) {
            let Some(marks) = judge::young(*vmid, observation, &round.known) else { continue };
            if !lived.contains(&marks.agent) && self.foreign(marks) {
                let sign = Sign::OthersAgent(marks.agent.clone());
                turn.push(Effect::Restrain { vmid: *vmid, seq: marks.seq, sign });
            }
        }
        for (vmid, node, observation) in looks {
            let template = templates.contains(&vmid);
            let (known, config) = (&round.known, round.config);
            let judged = judge::judge(vmid, &observation, template, known, config, self, now);
            if let Some(marks) = judged.destroy {
                let found = observation.ok().and_then(|observation| observation.node);
                turn.push(Effect::Destroy(found.unwrap_or(node), marks));
            }
            judged.finding.into_iter().for_each(|found| turn.push(Effect::Found(found)));
        }
        for (agent, vmid, status) in checks {
            let finding = unlisted(&agent, vmid, &status);
            if matches!(status, Ok(IdStatus::Free)) {
                turn.push(Effect::Send(agent, AgentCommand::Vanished));
            }
            finding.into_iter().for_each(|found| turn.push(Effect::Found(found)));
        }
    }
}

/// Sends agents what the list shows of their guests.
fn inform(
    report: Vec<(AgentId, AgentCommand)>,
    observed: Vec<(AgentId, crate::message::Observed)>,
    moved: Vec<(AgentId, NodeName)>,
    turn: Effects<'_>,
) {
    moved.into_iter().for_each(|(agent, node)| turn.push(Effect::Follow(agent, node)));
    report.into_iter().for_each(|(agent, command)| turn.push(Effect::Send(agent, command)));
    for (agent, observed) in observed {
        turn.push(Effect::Send(agent, AgentCommand::Observed(observed)));
    }
}

/// What follows when the list does not show an agent's guest, by what its id is.
fn unlisted(agent: &AgentId, vmid: VmId, status: &Result<IdStatus, Fault>) -> Option<Finding> {
    let (does, text) = match status {
        Ok(IdStatus::Free) => (Does::Remove, format!("the guest of agent `{agent}` is gone")),
        Ok(IdStatus::Taken) => return None,
        Ok(IdStatus::Unknown) => {
            let text = format!(
                "the guest of agent `{agent}` is not listed, and Proxmox did not say whether its \
                 VMID is free"
            );
            (Does::Report, text)
        }
        Err(fault) => {
            (Does::Report, format!("the guest of agent `{agent}` is not listed: {fault}"))
        }
    };
    Some(Finding::of(does, vmid, text))
}

#[cfg(test)]
mod tests;
