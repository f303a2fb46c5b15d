//! Since when jobs wait, at systems that do not say.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use drover_actors::time::WallTime;

/// When each job that waits was seen first.
#[derive(Debug, Default)]
pub struct FirstSeen(Mutex<BTreeMap<String, WallTime>>);

impl FirstSeen {
    /// Takes up the ids of all jobs that wait now, and gives when each was seen first. One that waits no
    /// longer is forgotten.
    pub fn look(
        &self,
        ids: impl IntoIterator<Item = String>,
        now: WallTime,
    ) -> BTreeMap<String, WallTime> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = ids.into_iter().map(|id| {
            let at = seen.get(&id).copied().unwrap_or(now);
            (id, at)
        });
        *seen = waiting.collect();
        seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_as_old_as_the_first_look_that_saw_it() {
        let seen = FirstSeen::default();
        let look = |ids: &[&str], now| {
            let told = seen.look(ids.iter().map(|id| (*id).to_owned()), WallTime(now));
            told.into_values().map(|at| at.0).collect::<Vec<i64>>()
        };
        assert_eq!(look(&["a", "b"], 10), [10, 10]);
        assert_eq!(look(&["b", "c"], 20), [10, 20]);
        assert_eq!(look(&["a"], 30), [30], "it came again");
    }
}
