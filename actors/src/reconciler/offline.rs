//! Nodes that are offline: for how long, also from before this start of the service, and which agents
//! know that theirs is so beyond the grace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{AgentId, NodeName};
use drover_model::ports::Survey;
use drover_model::time::Moment;

use super::plan::{Known, Plan};
use crate::message::AgentCommand;
use drover_model::finding::{Does, Finding};

/// When a node was seen offline first in this start, and for how long it was by then.
#[derive(Debug, Clone, Copy)]
struct Since {
    seen: Moment,
    before: Duration,
}

impl Since {
    fn span(self, now: Moment) -> Duration {
        self.before.saturating_add(now - self.seen)
    }
}

/// The nodes of one cluster that are offline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offline {
    nodes: BTreeMap<NodeName, Since>,
    reported: BTreeSet<AgentId>,
}

impl Offline {
    /// Nodes that were offline for so long when they were heard of last.
    pub(crate) fn restored(spans: BTreeMap<NodeName, Duration>, now: Moment) -> Self {
        let since = |before| Since { seen: now, before };
        let nodes = spans.into_iter().map(|(node, before)| (node, since(before))).collect();
        Self { nodes, reported: BTreeSet::new() }
    }

    /// For how long each node is offline.
    pub(crate) fn spans(&self, now: Moment) -> BTreeMap<NodeName, Duration> {
        self.nodes.iter().map(|(node, since)| (node.clone(), since.span(now))).collect()
    }

    /// Reports to all agents again.
    pub(crate) fn forget_reported(&mut self) {
        self.reported.clear();
    }

    /// Plans what a list means for nodes: those that are offline beyond the grace, and those that are back.
    pub(crate) fn plan(
        &mut self,
        plan: &mut Plan,
        survey: &Survey,
        known: &Known,
        grace: Duration,
        now: Moment,
    ) {
        let offline: BTreeSet<&NodeName> =
            survey.nodes.iter().filter(|(_, online)| !online).map(|(node, _)| node).collect();
        self.nodes.retain(|node, _| offline.contains(node));
        for node in offline {
            let fresh = Since { seen: now, before: Duration::ZERO };
            let spent = self.nodes.entry(node.clone()).or_insert(fresh).span(now);
            if spent < grace {
                let spent = spent.as_secs();
                let text = format!("node `{node}` is seen offline for {spent} s");
                plan.findings.push(Finding::reported(text));
            } else {
                let text = format!("node `{node}` is offline beyond the grace");
                plan.findings.push(Finding { does: Does::Park, vmid: None, text });
            }
        }
        self.reported.retain(|agent| known.agents.contains_key(agent));
        for (agent, living) in &known.agents {
            let Some(place) = living.place.as_ref().filter(|at| at.cluster == known.cluster) else {
                continue;
            };
            let since = self.nodes.get(&place.node);
            let down = since.is_some_and(|since| since.span(now) >= grace);
            if down && self.reported.insert(agent.clone()) {
                plan.report.push((agent.clone(), AgentCommand::NodeDown(true)));
            } else if since.is_none() && self.reported.remove(agent) {
                plan.report.push((agent.clone(), AgentCommand::NodeDown(false)));
            }
        }
    }
}
