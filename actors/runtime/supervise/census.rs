//! The census: every living actor by its name, from its start to its end.
//!
//! The agent registry says which actors *should* live; the census says which do. So an actor that
//! outlives its cloud, template or agent is found.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The living actors of one herd; clones share the count. An actor that panicked and waits for its
/// restart counts as living.
#[derive(Debug, Clone, Default)]
pub struct Census(Rc<RefCell<BTreeMap<String, u32>>>);

impl Census {
    /// The names of all living actors, in order; a name that two actors have appears twice.
    pub fn names(&self) -> Vec<String> {
        let all = self.0.borrow();
        all.iter().flat_map(|(name, count)| (0..*count).map(|_| name.clone())).collect()
    }

    /// Counts an actor as long as the guard lives.
    pub(super) fn add(&self, name: &str) -> CensusGuard {
        *self.0.borrow_mut().entry(name.to_owned()).or_default() += 1;
        CensusGuard { census: self.clone(), name: name.to_owned() }
    }
}

/// Counts one living actor until it is dropped.
pub(super) struct CensusGuard {
    census: Census,
    name: String,
}

impl Drop for CensusGuard {
    fn drop(&mut self) {
        let mut all = self.census.0.borrow_mut();
        if let Some(count) = all.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.name);
            }
        }
    }
}
