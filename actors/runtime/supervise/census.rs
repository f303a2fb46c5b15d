//! Who lives: every supervised actor by its name, from its start to its end.
//!
//! The roster says who *should* live; this counts who does, so that an actor which outlives its
//! cloud, its template or its agent can be told from one that is needed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The living actors of one herd; clones share the count. Actors that panicked and wait to be
/// started anew live.
#[derive(Debug, Clone, Default)]
pub struct Census(Rc<RefCell<BTreeMap<String, u32>>>);

impl Census {
    /// The names of all who live, in order; a name that two actors bear stands there twice.
    pub fn names(&self) -> Vec<String> {
        let all = self.0.borrow();
        all.iter().flat_map(|(name, count)| (0..*count).map(|_| name.clone())).collect()
    }

    /// Counts an actor for as long as the guard lives.
    pub(super) fn enter(&self, name: &str) -> Present {
        *self.0.borrow_mut().entry(name.to_owned()).or_default() += 1;
        Present { census: self.clone(), name: name.to_owned() }
    }
}

/// One living actor.
pub(super) struct Present {
    census: Census,
    name: String,
}

impl Drop for Present {
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
