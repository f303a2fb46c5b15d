//! Which agents live. Permits are derived from it (book: safety, rule 9), a restarted actor is
//! rebuilt from it, and reconciliation compares the cluster with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use actix::Recipient;
use drover_model::id::{AgentId, TemplateId};
use drover_model::overrides::Overrides;
use drover_model::place::Place;
use drover_model::spec::TemplateSpec;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;

use crate::message::AgentCommand;

/// A living agent as other actors see it.
#[derive(Debug, Clone)]
pub struct Living {
    pub template: TemplateId,
    /// The spec of the agent's birth.
    pub spec: Arc<TemplateSpec>,
    pub address: Recipient<AgentCommand>,
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
/// Shared by the actors of one thread. Templates write life and reports, clusters write places, the
/// herd writes overrides.
#[derive(Debug, Clone, Default)]
pub struct Roster(Rc<RefCell<BTreeMap<AgentId, Living>>>, Rc<RefCell<Started>>);

/// The agents that lived in this start of the service, at most the last [`STARTED_MOST`].
#[derive(Debug, Default)]
struct Started {
    all: BTreeSet<AgentId>,
    order: VecDeque<AgentId>,
}

/// The number of agents that are remembered, ended ones included.
const STARTED_MOST: usize = 10_000;

impl Roster {
    /// Adds an agent.
    pub fn enter(&self, agent: AgentId, living: Living) {
        let mut started = self.1.borrow_mut();
        if started.all.insert(agent.clone()) {
            started.order.push_back(agent.clone());
        }
        if started.order.len() > STARTED_MOST
            && let Some(oldest) = started.order.pop_front()
        {
            started.all.remove(&oldest);
        }
        drop(started);
        self.0.borrow_mut().insert(agent, living);
    }

    /// Whether an agent lived in this start of the service, as far as is remembered.
    pub fn knew(&self, agent: &AgentId) -> bool {
        self.1.borrow().all.contains(agent)
    }

    /// Removes an agent.
    pub fn leave(&self, agent: &AgentId) {
        self.0.borrow_mut().remove(agent);
    }

    /// The agents that are not in `known`.
    pub fn others(&self, known: &BTreeSet<AgentId>) -> Vec<(AgentId, Living)> {
        let roster = self.0.borrow();
        let others = roster.iter().filter(|(agent, _)| !known.contains(*agent));
        others.map(|(agent, living)| (agent.clone(), living.clone())).collect()
    }

    /// Changes an agent's entry, where it exists.
    pub fn update(&self, agent: &AgentId, change: impl FnOnce(&mut Living)) {
        if let Some(living) = self.0.borrow_mut().get_mut(agent) {
            change(living);
        }
    }

    pub fn get(&self, agent: &AgentId) -> Option<Living> {
        self.0.borrow().get(agent).cloned()
    }

    /// Sends an agent a command. Returns whether the agent lives.
    pub fn send(&self, agent: &AgentId, command: AgentCommand) -> bool {
        let address = self.0.borrow().get(agent).map(|living| living.address.clone());
        address.inspect(|address| address.do_send(command)).is_some()
    }

    /// All agents for which `wanted` holds.
    pub fn select(&self, wanted: impl Fn(&Living) -> bool) -> BTreeMap<AgentId, Living> {
        let all = self.0.borrow();
        all.iter()
            .filter(|(_, living)| wanted(living))
            .map(|(agent, living)| (agent.clone(), living.clone()))
            .collect()
    }

    /// Calls `look` for every agent.
    pub fn each(&self, mut look: impl FnMut(&Living)) {
        self.0.borrow().values().for_each(&mut look);
    }

    /// The number of agents for which `wanted` holds.
    pub fn count(&self, wanted: impl Fn(&Living) -> bool) -> usize {
        self.0.borrow().values().filter(|living| wanted(living)).count()
    }

    /// The number of living agents.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
