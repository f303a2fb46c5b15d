//! When each waiting job was seen first, for CI systems that do not report it. The dates survive a
//! restart of the service.

use std::collections::BTreeMap;

use drover_model::time::WallTime;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::state_file::StateFile;

/// The most jobs whose dates survive a restart: those that wait longest.
const STORED_JOBS_MAX: usize = 1000;

/// When each waiting job was seen first.
#[derive(Debug, Default)]
pub(crate) struct FirstSeen(Mutex<Dates>);

#[derive(Debug, Default)]
struct Dates {
    jobs: BTreeMap<String, WallTime>,
    /// The state file, and the URL of the server whose jobs it describes.
    keeps: Option<(StateFile, String)>,
}

/// The content of the state file.
#[derive(Serialize, Deserialize)]
struct StoredDates {
    server: String,
    jobs: BTreeMap<String, WallTime>,
}

impl FirstSeen {
    /// Loads the stored dates of this server's jobs, and stores dates from now on.
    pub(crate) fn keep(&self, state_file: StateFile, server: &str) {
        let kept = state_file.read::<StoredDates>().filter(|kept| kept.server == server);
        let mut seen = self.0.lock();
        if let Some(kept) = kept {
            seen.jobs = kept.jobs;
        }
        seen.keeps = Some((state_file, server.to_owned()));
    }

    /// Takes the ids of all jobs that wait now and returns when each was seen first. Jobs that wait
    /// no longer are forgotten.
    pub(crate) fn update(
        &self,
        ids: impl IntoIterator<Item = String>,
        now: WallTime,
    ) -> BTreeMap<String, WallTime> {
        let mut seen = self.0.lock();
        let waiting = ids.into_iter().map(|id| {
            let at = seen.jobs.get(&id).copied().unwrap_or(now);
            (id, at)
        });
        let jobs: BTreeMap<String, WallTime> = waiting.collect();
        if let Some((state_file, server)) = seen.keeps.as_ref().filter(|_| jobs != seen.jobs) {
            let mut oldest: Vec<(&String, &WallTime)> = jobs.iter().collect();
            oldest.sort_by_key(|(_, at)| **at);
            oldest.truncate(STORED_JOBS_MAX);
            let jobs = oldest.into_iter().map(|(id, at)| (id.clone(), *at)).collect();
            state_file.write(&StoredDates { server: server.clone(), jobs });
        }
        seen.jobs.clone_from(&jobs);
        jobs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::id::SourceId;
    use drover_vault::MemoryVault;

    use super::*;

    fn update(seen: &FirstSeen, ids: &[&str], now: i64) -> Vec<i64> {
        let dates = seen.update(ids.iter().map(|id| (*id).to_owned()), WallTime(now));
        dates.into_values().map(|at| at.0).collect()
    }

    // Invariant: a job is as old as the first poll that saw it wait, in whichever run of the
    // service.

    #[test]
    fn a_job_is_as_old_as_the_first_look_that_saw_it() {
        let seen = FirstSeen::default();
        assert_eq!(update(&seen, &["a", "b"], 10), [10, 10]);
        assert_eq!(update(&seen, &["b", "c"], 20), [10, 20]);
        assert_eq!(update(&seen, &["a"], 30), [30], "it came again");
    }

    /// The dates as a newly started service loads them.
    fn started(vault: &MemoryVault, server: &str) -> FirstSeen {
        let seen = FirstSeen::default();
        let vault = Arc::new(vault.clone());
        seen.keep(StateFile::of(vault, &SourceId::new("git"), None), server);
        seen
    }

    #[test]
    fn of_more_jobs_than_are_kept_those_that_wait_longest_are_as_old_after_a_start() {
        let vault = MemoryVault::default();
        let ids: Vec<String> = (0..=STORED_JOBS_MAX).map(|n| format!("{n:04}")).collect();
        let all: Vec<&str> = ids.iter().map(String::as_str).collect();
        let first = started(&vault, "http://git.lan/");
        update(&first, &all[1..], 10);
        update(&first, &all, 20);
        let ages = update(&started(&vault, "http://git.lan/"), &all, 30);
        let kept = [10; STORED_JOBS_MAX];
        assert_eq!((ages[0], &ages[1..]), (30, &kept[..]));
    }

    #[test]
    fn a_job_that_waited_before_a_start_is_as_old_after_it_at_the_same_server() {
        let vault = MemoryVault::default();
        let started = |server: &str| started(&vault, server);
        assert_eq!(update(&started("http://git.lan/"), &["a", "b"], 10), [10, 10]);
        assert_eq!(update(&started("http://git.lan/"), &["b", "c"], 20), [10, 20]);
        assert_eq!(update(&started("http://git.lan/"), &["a", "c"], 30), [30, 20]);
        assert_eq!(update(&started("http://other.lan/"), &["a"], 40), [40], "another's job 1");
    }
}
