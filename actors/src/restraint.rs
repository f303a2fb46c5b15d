//! Restraint: another drover may use this installation, because its state directory was copied or
//! restored.
//!
//! Agents that live when drover notices this may be leased by the other drover. drover destroys,
//! resets and hands out none of them before an operator decides which drover goes on. Agents that
//! start later have marks that only this drover knows; restraint does not concern them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, ClusterId};

use crate::shared::{Shared, role};

/// Evidence of another drover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The journal was written on another machine.
    Machine,
    /// The marks of guests on a cluster.
    Guests(ClusterId),
}

#[derive(Debug, Default)]
struct Held {
    why: BTreeMap<Cause, String>,
    agents: BTreeSet<AgentId>,
}

/// Agents that must not be destroyed, and why.
#[derive(Debug, Default)]
pub struct Restraint(RefCell<Held>);

/// A role that sees evidence of another drover: the herd the machine's, reconcilers that of guests.
pub trait SeesOthers {}

impl SeesOthers for role::Herd {}
impl SeesOthers for role::Reconciler {}

impl<R: SeesOthers> Shared<Restraint, R> {
    /// Adds evidence of another drover. These agents are not destroyed from now on; a repeated
    /// cause adds no agents.
    pub fn hold(&self, cause: Cause, why: &str, agents: impl IntoIterator<Item = AgentId>) {
        let mut held = self.0.borrow_mut();
        if held.why.insert(cause, why.to_owned()).is_none() {
            held.agents.extend(agents);
        }
    }

    /// Removes a cause after an operator has decided.
    pub fn lift(&self, cause: &Cause) {
        let mut held = self.0.borrow_mut();
        held.why.remove(cause);
        if held.why.is_empty() {
            held.agents.clear();
        }
    }
}

impl Restraint {
    /// The agents that must not be destroyed.
    pub fn agents(&self) -> BTreeSet<AgentId> {
        self.0.borrow().agents.clone()
    }

    /// Why this agent must not be destroyed.
    pub fn of(&self, agent: &AgentId) -> Option<String> {
        let held = self.0.borrow();
        held.agents.contains(agent).then(|| held.why.values().next().cloned())?
    }

    /// All that speaks for another drover, as people read it.
    pub fn signs(&self) -> Vec<String> {
        self.0.borrow().why.values().cloned().collect()
    }

    /// Why no orphan may be destroyed.
    pub fn why(&self) -> Option<String> {
        self.0.borrow().why.values().next().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: agents that live when a second drover is noticed stay until an operator has
    // decided.

    #[test]
    fn agents_of_before_are_held_for_as_long_as_something_speaks_for_another_drover() {
        let (old, young) = (AgentId::new("a1"), AgentId::new("a2"));
        let restraint = Shared::<Restraint, role::Herd>::default();
        let guests = Cause::Guests(ClusterId::new("c"));
        assert_eq!((restraint.of(&old), restraint.why()), (None, None));
        restraint.hold(guests.clone(), "marks", [old.clone()]);
        restraint.hold(guests.clone(), "marks", [old.clone(), young.clone()]);
        assert_eq!(restraint.of(&old), Some("marks".into()));
        assert_eq!(restraint.of(&young), None, "it was started after that");
        assert_eq!(restraint.agents(), BTreeSet::from([old.clone()]));
        restraint.hold(Cause::Machine, "machine", []);
        assert_eq!(restraint.signs(), ["machine", "marks"]);
        restraint.lift(&guests);
        assert_eq!(restraint.of(&old), Some("machine".into()));
        restraint.lift(&Cause::Machine);
        assert_eq!((restraint.of(&old), restraint.why()), (None, None));
    }
}
