//! What a storm's eye has seen of nodes: what agents were promised of each, and which are cordoned
//! or drained.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::NodeOrdered;
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName};
use drover_model::journal_state::JournalState;
use drover_model::marks::Marks;
use drover_model::phase::{AgentPhase, NodeOrder};
use drover_model::spec::TemplateSpec;

use super::plan::{CLOUDS, Stage};
use super::seen::Live;

/// MiB that a node of the simulator's needs for itself.
const OWN: u64 = 1024;
/// How long what was granted before a cordon or a drain may be written down after it.
const MOMENT: Duration = Duration::from_millis(1);
/// How long an agent that nobody uses may stay on a drained node before it is asked to go.
const NOTICE: Duration = Duration::from_secs(60);

/// A node: the number of its cluster, and its name.
type Place = (usize, String);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    leads: BTreeMap<CloudId, usize>,
    /// The MiB that agents may have of a node; none where there is plenty.
    limit: Option<u64>,
    /// What each agent was promised, from its record until it is gone.
    promised: BTreeMap<AgentId, (Place, u64)>,
    /// The nodes of agents with disc images.
    images: BTreeMap<AgentId, Place>,
    /// Since when nodes are cordoned or drained, as an operator heard.
    closed: BTreeMap<Place, (Duration, NodeOrder)>,
    /// How many orders of each node no operator has heard of yet.
    unheard: BTreeMap<Place, usize>,
    /// What clusters are called.
    names: BTreeMap<ClusterId, usize>,
    /// Agents that are idle on a drained node, since when.
    idle: BTreeMap<AgentId, Duration>,
}

impl Rooms {
    /// Those of a stage.
    pub(super) fn of(stage: &Stage) -> Self {
        let leads = CLOUDS.into_iter().map(CloudId::new).zip(stage.leads).collect();
        let memory = stage.memory * 1024;
        let limit = (memory > 0).then(|| memory - memory * stage.headroom / 100 - OWN);
        Self { leads, limit, ..Self::default() }
    }

    /// How many clusters there are.
    pub(super) fn clusters(&self) -> u32 {
        let most = self.leads.values().max().copied().unwrap_or(0);
        u32::try_from(most).unwrap() + 1
    }

    /// The place of a node that a cloud leads to.
    pub(super) fn place(&self, cloud: &CloudId, node: &NodeName) -> Place {
        (self.leads.get(cloud).copied().unwrap_or(0), node.to_string())
    }

    /// What a start reads in the journal; says which order is missing there.
    pub(super) fn restored(
        &mut self,
        journal_state: &JournalState,
        now: Duration,
    ) -> Option<String> {
        self.promised.clear();
        self.images.clear();
        self.idle.clear();
        for entry in journal_state.agents.values() {
            self.promise(&entry.marks, &entry.node, &entry.spec);
        }
        let before = std::mem::take(&mut self.closed);
        let unheard = std::mem::take(&mut self.unheard);
        let cordoned = journal_state.cordoned.iter().map(|at| (at, NodeOrder::Cordon));
        let drained = journal_state.drained.iter().map(|at| (at, NodeOrder::Drain));
        for ((cluster, nodes), order) in cordoned.chain(drained) {
            let Some(number) = self.names.get(cluster) else { continue };
            let places = nodes.iter().map(|node| (*number, node.to_string()));
            self.closed.extend(places.map(|place| (place, (now, order))));
        }
        for (place, (_, order)) in before {
            let after = self.closed.get(&place).map(|(_, after)| *after);
            let settled = !unheard.contains_key(&place);
            if after.is_none() || settled && after != Some(order) {
                return Some(format!(
                    "{place:?}: {order:?} before a start, and {after:?} after it"
                ));
            }
        }
        None
    }

    fn promise(&mut self, marks: &Marks, node: &NodeName, spec: &TemplateSpec) {
        let Some(origin) = &spec.origin else { return };
        let sizes = origin.sizes.cloned(spec);
        let place = self.place(&spec.id.cloud, node);
        if spec.cloud_init.seed.is_some() {
            self.images.insert(marks.agent.clone(), place.clone());
        }
        self.promised.insert(marks.agent.clone(), (place, sizes.memory_mb));
    }

    /// A clone is intended; says what is wrong with that, and what must hold.
    pub(super) fn cloned(
        &mut self,
        marks: &Marks,
        node: &NodeName,
        spec: &TemplateSpec,
        now: Duration,
    ) -> Option<(&'static str, String)> {
        let agent = &marks.agent;
        self.promise(marks, node, spec);
        let place = self.place(&spec.id.cloud, node);
        let home = spec.origin.as_ref().map(|origin| self.place(&spec.id.cloud, &origin.home));
        for at in std::iter::once(&place).chain(&home) {
            let closed = self.closed.get(at).filter(|(since, _)| now > *since + MOMENT);
            if let Some((since, order)) = closed {
                let text = format!("{agent} is started on {at:?}: {order:?} since {since:?}");
                return Some(("nothing-is-started-on-a-closed-node", text));
            }
        }
        let all = self.promised.values().filter(|(at, _)| *at == place).map(|(_, mb)| mb);
        let all: u64 = all.sum();
        let over = self.limit.is_some_and(|limit| all > limit);
        over.then(|| {
            let text = format!("{agent}: {all} MiB of {place:?}, and {:?} are there", self.limit);
            ("nobody-is-promised-what-is-not-there", text)
        })
    }

    /// An agent says where its guest is: one that moved is followed.
    pub(super) fn reported(&mut self, agent: &AgentId, at: &Place) {
        if let Some((place, _)) = self.promised.get_mut(agent).filter(|(place, _)| place != at) {
            place.clone_from(at);
        }
    }

    /// An agent is gone; gives its node where it may have had a disc image there.
    pub(super) fn gone(&mut self, agent: &AgentId) -> Option<Place> {
        self.promised.remove(agent);
        self.images.remove(agent)
    }

    /// An operator heard that a node of this cluster is cordoned, drained or used again.
    pub(super) fn node_ordered(&mut self, cluster: usize, done: &NodeOrdered, now: Duration) {
        self.names.insert(done.cluster.clone(), cluster);
        let place = (cluster, done.node.to_string());
        if let Some(count) = self.unheard.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.unheard.remove(&place);
            }
        }
        match done.order {
            NodeOrder::Use => drop(self.closed.remove(&place)),
            order @ (NodeOrder::Cordon | NodeOrder::Drain) => {
                self.closed.entry(place).or_insert((now, order)).1 = order;
            }
        }
    }

    /// An operator is about to give an order of a node.
    pub(super) fn orders_node(&mut self, cluster: usize, node: &str, order: NodeOrder) {
        let place = (cluster, node.to_owned());
        if order == NodeOrder::Use {
            self.closed.remove(&place);
        }
        *self.unheard.entry(place).or_default() += 1;
    }

    /// Looks for agents that stay on drained nodes though nobody uses them.
    pub(super) fn linger(
        &mut self,
        live: &BTreeMap<AgentId, Live>,
        now: Duration,
    ) -> Option<String> {
        let there = |agent: &AgentId| {
            let place = self.promised.get(agent).map(|(place, _)| place);
            let order = place.and_then(|place| self.closed.get(place)).map(|(_, order)| *order);
            order == Some(NodeOrder::Drain)
                && place.is_some_and(|at| !self.unheard.contains_key(at))
        };
        let idle = live
            .iter()
            .filter(|(_, live)| live.state == AgentPhase::Ready && live.leases.is_empty());
        let idle: Vec<AgentId> =
            idle.map(|(agent, _)| agent.clone()).filter(|agent| there(agent)).collect();
        self.idle.retain(|agent, _| idle.contains(agent));
        for agent in idle {
            let since = *self.idle.entry(agent.clone()).or_insert(now);
            if now > since + NOTICE {
                return Some(format!("{agent} has been idle on a drained node since {since:?}"));
            }
        }
        None
    }
}
