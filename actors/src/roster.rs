//! Which agents live. Permits are derived from it (book: safety, rule 9), a restarted actor is
//! rebuilt from it, and reconciliation compares the cluster with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use actix::Recipient;
use drover_model::id::{AgentId, LeaseId, NodeName, TemplateId};
use drover_model::overrides::{OverrideChange, Overrides};
use drover_model::place::Place;
use drover_model::spec::TemplateSpec;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;

use crate::message::AgentCommand;
use crate::shared::{Shared, role};

/// A living agent as other actors see it.
#[derive(Debug, Clone)]
pub struct Living {
    pub template: TemplateId,
    /// The spec of the agent's birth.
    pub spec: Arc<TemplateSpec>,
    /// From the last report.
    pub status: Arc<AgentStatus>,
    /// As the herd set them last; the agent may not have reported them yet.
    pub overrides: Overrides,
    /// When the agent was started.
    pub born: WallTime,
    /// Where the guest is, once a place was granted.
    pub place: Option<Place>,
}

/// Every agent that is not gone. Permits are derived from it, a restarted actor is rebuilt from it,
/// and reconciliation compares the cluster with it.
///
/// It is the one way by which orders reach agents, too: nobody else has their addresses.
#[derive(Debug, Default)]
pub struct Roster {
    rows: RefCell<BTreeMap<AgentId, Row>>,
    started: RefCell<Started>,
}

#[derive(Debug)]
struct Row {
    living: Living,
    address: Recipient<AgentCommand>,
}

/// The agents that lived in this start of the service, at most the last [`STARTED_MOST`].
#[derive(Debug, Default)]
struct Started {
    all: BTreeSet<AgentId>,
    order: VecDeque<AgentId>,
}

/// The number of agents that are remembered, ended ones included.
const STARTED_MOST: usize = 10_000;

impl Started {
    fn note(&mut self, agent: &AgentId) {
        if self.all.insert(agent.clone()) {
            self.order.push_back(agent.clone());
        }
        if self.order.len() > STARTED_MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

impl Roster {
    /// Whether an agent lived in this start of the service, as far as is remembered.
    pub fn knew(&self, agent: &AgentId) -> bool {
        self.started.borrow().all.contains(agent)
    }

    /// The agents that are not in `known`.
    pub fn others(&self, known: &BTreeSet<AgentId>) -> Vec<(AgentId, Living)> {
        let rows = self.rows.borrow();
        let others = rows.iter().filter(|(agent, _)| !known.contains(*agent));
        others.map(|(agent, row)| (agent.clone(), row.living.clone())).collect()
    }

    pub fn get(&self, agent: &AgentId) -> Option<Living> {
        self.rows.borrow().get(agent).map(|row| row.living.clone())
    }

    pub fn has(&self, agent: &AgentId) -> bool {
        self.rows.borrow().contains_key(agent)
    }

    /// All agents for which `wanted` holds.
    pub fn select(&self, wanted: impl Fn(&Living) -> bool) -> BTreeMap<AgentId, Living> {
        let rows = self.rows.borrow();
        rows.iter()
            .filter(|(_, row)| wanted(&row.living))
            .map(|(agent, row)| (agent.clone(), row.living.clone()))
            .collect()
    }

    /// Calls `look` for every agent.
    pub fn each(&self, mut look: impl FnMut(&Living)) {
        self.rows.borrow().values().for_each(|row| look(&row.living));
    }

    /// The number of agents for which `wanted` holds.
    pub fn count(&self, wanted: impl Fn(&Living) -> bool) -> usize {
        self.rows.borrow().values().filter(|row| wanted(&row.living)).count()
    }

    /// The number of living agents.
    pub fn len(&self) -> usize {
        self.rows.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.borrow().is_empty()
    }

    fn address(&self, agent: &AgentId) -> Option<Recipient<AgentCommand>> {
        self.rows.borrow().get(agent).map(|row| row.address.clone())
    }

    fn send(&self, agent: &AgentId, command: AgentCommand) -> bool {
        self.address(agent).inspect(|address| address.do_send(command)).is_some()
    }

    /// Changes an agent's entry, where it exists.
    fn update(&self, agent: &AgentId, change: impl FnOnce(&mut Living)) {
        if let Some(row) = self.rows.borrow_mut().get_mut(agent) {
            change(&mut row.living);
        }
    }
}

/// Life and reports are its template's to write.
impl Shared<Roster, role::Template> {
    /// Adds an agent.
    pub fn enter(&self, agent: AgentId, living: Living, address: Recipient<AgentCommand>) {
        self.started.borrow_mut().note(&agent);
        self.rows.borrow_mut().insert(agent, Row { living, address });
    }

    /// An agent's report. The overrides stay: the herd may have set others since.
    pub fn reported(&self, status: &Arc<AgentStatus>) {
        self.update(&status.agent, |living| living.status = Arc::clone(status));
    }

    /// Removes an agent.
    pub fn leave(&self, agent: &AgentId) {
        self.rows.borrow_mut().remove(agent);
    }
}

impl Shared<Roster, role::Herd> {
    /// Changes an agent's own limits.
    pub fn set_overrides(&self, agent: &AgentId, change: OverrideChange) {
        self.update(agent, |living| living.overrides.change(change));
    }
}

impl Shared<Roster, role::Cluster> {
    /// A place was granted to an agent.
    pub fn placed(&self, agent: &AgentId, place: Place) {
        self.update(agent, |living| living.place = Some(place));
    }
}

impl Shared<Roster, role::Reconciler> {
    /// An agent's guest is on another node now.
    pub fn moved(&self, agent: &AgentId, node: NodeName) {
        self.update(agent, |living| {
            if let Some(place) = &mut living.place {
                place.node = node;
            }
        });
    }
}

/// A role that gives agents any order. Clusters answer those that asked.
pub trait Commands {}

impl Commands for role::Herd {}
impl Commands for role::Template {}
impl Commands for role::Reconciler {}

impl<R: Commands> Shared<Roster, R> {
    /// Sends an agent an order. Returns whether the agent lives.
    pub fn send(&self, agent: &AgentId, command: AgentCommand) -> bool {
        (**self).send(agent, command)
    }
}

/// A source gives orders about the runners on leases of its own, and no others.
impl Shared<Roster, role::Source> {
    /// Has the agent ask its guest whether a lease's runner has ended.
    pub fn ask_runner(&self, agent: &AgentId, lease: LeaseId) {
        (**self).send(agent, AgentCommand::AskRunner { lease });
    }

    /// Has the agent end a lease whose runner is not what it should be.
    pub fn fail_lease(&self, agent: &AgentId, lease: LeaseId, text: String) {
        (**self).send(agent, AgentCommand::FailLease { lease, text });
    }
}

impl Shared<Roster, role::Reader> {
    /// Where an agent hears orders: a test may give one.
    pub fn address(&self, agent: &AgentId) -> Option<Recipient<AgentCommand>> {
        (**self).address(agent)
    }
}
