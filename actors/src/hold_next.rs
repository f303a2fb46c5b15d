//! Which templates hold their next failure for debugging, and who owns the holds on agents. The
//! herd and agents write it at once, so that of two agents that fail at the same moment only one
//! is held.

use std::cell::RefCell;
use std::collections::BTreeMap;

use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::{Hold, HoldOwner};

use crate::shared::{Shared, role};

/// The holds that wait for a failure, by template, and the holds on agents.
#[derive(Debug, Default)]
pub struct HoldNext(RefCell<Holds>);

#[derive(Debug, Default)]
struct Holds {
    next: BTreeMap<TemplateId, Hold>,
    on: BTreeMap<AgentId, Hold>,
}

impl HoldNext {
    /// Restores the holds from the journal.
    pub fn of_journal_state(known: &JournalState) -> Self {
        let agents = known.agents.iter().map(|(agent, entry)| (agent, &entry.commands));
        let commands = agents.chain(&known.early);
        let on =
            commands.filter_map(|(agent, commands)| Some((agent.clone(), commands.hold.clone()?)));
        let holds = Holds { next: known.hold_next.clone(), on: on.collect() };
        Self(RefCell::new(holds))
    }

    /// The hold that waits for a failure of this template.
    pub fn of(&self, template: &TemplateId) -> Option<Hold> {
        self.0.borrow().next.get(template).cloned()
    }

    /// The owners of holds on agents, where known.
    pub fn owners(&self) -> BTreeMap<AgentId, HoldOwner> {
        let holds = self.0.borrow();
        let each = holds.on.iter();
        each.filter_map(|(agent, hold)| Some((agent.clone(), hold.owner.clone()?))).collect()
    }

    pub fn on(&self, agent: &AgentId) -> Option<Hold> {
        self.0.borrow().on.get(agent).cloned()
    }
}

impl Shared<HoldNext, role::Herd> {
    /// Sets or removes the hold that waits for a template's next failure.
    pub fn set(&self, template: &TemplateId, hold: Option<Hold>) {
        match hold {
            Some(hold) => self.0.borrow_mut().next.insert(template.clone(), hold),
            None => self.0.borrow_mut().next.remove(template),
        };
    }

    /// Sets or removes the hold on an agent.
    pub fn set_on(&self, agent: &AgentId, hold: Option<Hold>) {
        match hold {
            Some(hold) => self.0.borrow_mut().on.insert(agent.clone(), hold),
            None => self.0.borrow_mut().on.remove(agent),
        };
    }
}

impl Shared<HoldNext, role::Agent> {
    /// Moves the waiting hold of a template to the agent that failed.
    pub fn take(&self, template: &TemplateId, agent: &AgentId) {
        let mut holds = self.0.borrow_mut();
        if let Some(hold) = holds.next.remove(template) {
            holds.on.insert(agent.clone(), hold);
        }
    }
}

impl Shared<HoldNext, role::Template> {
    /// An agent is gone, and so is the hold on it.
    pub fn gone(&self, agent: &AgentId) {
        self.0.borrow_mut().on.remove(agent);
    }
}
