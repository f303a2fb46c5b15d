//! Which templates hold their next failure for debugging, and who owns the holds on agents. The
//! herd and the agents of one thread share it, so that of two agents that fail at the same moment
//! only one is held.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::{Hold, HoldOwner};

/// The holds that wait for a failure, by template, and the holds on agents.
#[derive(Debug, Clone, Default)]
pub struct HoldNext(Rc<RefCell<Holds>>);

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
        Self(Rc::new(RefCell::new(holds)))
    }

    /// The hold that waits for a failure of this template.
    pub fn of(&self, template: &TemplateId) -> Option<Hold> {
        self.0.borrow().next.get(template).cloned()
    }

    /// Sets or removes the hold that waits for a template's next failure.
    pub fn set(&self, template: &TemplateId, hold: Option<Hold>) {
        match hold {
            Some(hold) => self.0.borrow_mut().next.insert(template.clone(), hold),
            None => self.0.borrow_mut().next.remove(template),
        };
    }

    /// Moves the waiting hold of a template to the agent that failed.
    pub fn take(&self, template: &TemplateId, agent: &AgentId) {
        let mut holds = self.0.borrow_mut();
        if let Some(hold) = holds.next.remove(template) {
            holds.on.insert(agent.clone(), hold);
        }
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

    /// Sets or removes the hold on an agent.
    pub fn set_on(&self, agent: &AgentId, hold: Option<Hold>) {
        match hold {
            Some(hold) => self.0.borrow_mut().on.insert(agent.clone(), hold),
            None => self.0.borrow_mut().on.remove(agent),
        };
    }
}
