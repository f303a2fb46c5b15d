//! How the jobs of runners ended whose row is gone.
//!
//! A missing row says nothing of a job. Where a source can report a single job, drover asks for the
//! job that it last saw on the runner, less and less often, until the source says that the job is
//! over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use parking_lot::{Mutex, MutexGuard};

/// The most runners whose job is asked for in one poll.
const JOBS_ASKED_PER_POLL: usize = 10;
/// The pause before a job is asked for again that is not known to be over. It doubles each time, up
/// to [`RETRY_PAUSE_LONGEST`].
const RETRY_PAUSE: Duration = Duration::from_secs(10);
const RETRY_PAUSE_LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct LastJob {
    /// Where the job is asked for; none where this run of the service never saw it.
    path: Option<String>,
    /// Whether the login could read the job there; none before anybody tried.
    read: Option<bool>,
    /// How the job ended, in one word, once that is known.
    over: Option<&'static str>,
    /// How often the job was asked for.
    times: u32,
    next: Option<Instant>,
}

/// The last job of each runner.
#[derive(Debug, Default)]
pub(crate) struct LastJobs(Mutex<BTreeMap<RunnerName, LastJob>>);

impl LastJobs {
    fn jobs_by_runner(&self) -> MutexGuard<'_, BTreeMap<RunnerName, LastJob>> {
        self.0.lock()
    }

    /// Forgets all runners but the `known` ones.
    pub(crate) fn keep(&self, known: &Known) {
        self.jobs_by_runner().retain(|name, _| known.contains_key(name));
    }

    /// Notes that a job runs on a runner, and where the job is asked for.
    pub(crate) fn learn(&self, name: &str, path: Option<String>) {
        if RunnerName::parse(name).is_some() {
            let (name, mut jobs_by_runner) = (RunnerName::new(name), self.jobs_by_runner());
            let same = jobs_by_runner.get(&name).filter(|job| job.path == path);
            let read = same.and_then(|job| job.read);
            jobs_by_runner.insert(name, LastJob { path, read, ..LastJob::default() });
        }
    }

    /// Jobs of the `known` runners that were never read by themselves, with their paths.
    pub(crate) fn untried(&self, known: &Known) -> Vec<(RunnerName, String)> {
        let jobs_by_runner = self.jobs_by_runner();
        let untried = jobs_by_runner
            .iter()
            .filter(|(name, job)| job.read.is_none() && known.contains_key(*name))
            .filter_map(|(name, job)| Some((name.clone(), job.path.clone()?)));
        untried.take(JOBS_ASKED_PER_POLL).collect()
    }

    /// Notes whether the login could read the job of a runner.
    pub(crate) fn tried(&self, name: &RunnerName, read: bool) {
        if let Some(job) = self.jobs_by_runner().get_mut(name) {
            job.read = Some(read);
        }
    }

    pub(crate) fn was_read(&self, name: &RunnerName) -> bool {
        self.jobs_by_runner().get(name).is_some_and(|job| job.read == Some(true))
    }

    /// Where the job of a runner is asked for, while it is not known to be over.
    pub(crate) fn open(&self, name: &RunnerName) -> Option<String> {
        self.jobs_by_runner().get(name).filter(|job| job.over.is_none())?.path.clone()
    }

    /// Those of the `gone` whose job is asked for now. A row that went just now is asked for in the
    /// next poll: until then its guest may report the end of the job.
    pub(crate) fn due(
        &self,
        gone: &BTreeSet<RunnerName>,
        now: Instant,
    ) -> Vec<(RunnerName, Option<String>)> {
        let (mut jobs_by_runner, mut due) = (self.jobs_by_runner(), Vec::new());
        for name in gone {
            let job = jobs_by_runner.entry(name.clone()).or_default();
            let Some(next) = job.next else {
                job.next = Some(now);
                continue;
            };
            if job.over.is_some() || next > now || due.len() >= JOBS_ASKED_PER_POLL {
                continue;
            }
            let pause = RETRY_PAUSE.saturating_mul(1 << job.times.min(6)).min(RETRY_PAUSE_LONGEST);
            job.times += 1;
            job.next = Some(now + pause);
            due.push((name.clone(), job.path.clone()));
        }
        due
    }

    /// Notes that the job of a runner whose row is gone is over.
    pub(crate) fn end(&self, name: &RunnerName, how: &'static str) {
        tracing::info!(runner = %name, how, "row of a runner is gone, and its job is over");
        self.note_end(name, how);
    }

    /// Notes that the job of a runner is over, as its source reports unasked; the row may still
    /// exist.
    pub(crate) fn note_end(&self, name: &RunnerName, how: &'static str) {
        self.jobs_by_runner().entry(name.clone()).or_default().over = Some(how);
    }

    /// How the jobs of the `gone` runners ended, for those whose job is over.
    pub(crate) fn over(&self, gone: &BTreeSet<RunnerName>) -> BTreeMap<RunnerName, &'static str> {
        let jobs_by_runner = self.jobs_by_runner();
        let over = |name: &RunnerName| Some((name.clone(), jobs_by_runner.get(name)?.over?));
        gone.iter().filter_map(over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a job is asked for until its source says that it is over, and ever less often.

    #[test]
    fn a_job_is_first_asked_for_by_the_second_look_and_then_ever_less_often() {
        let (jobs, began) = (LastJobs::default(), Instant::now());
        let name = RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab-1");
        let gone: BTreeSet<RunnerName> = [name.clone()].into();
        let asked = |at: &u64| !jobs.due(&gone, began + Duration::from_secs(*at)).is_empty();
        let asked: Vec<u64> = (0..200).filter(asked).collect();
        assert_eq!(asked, [1, 11, 31, 71, 131, 191]);
        assert!(jobs.over(&gone).is_empty());
        jobs.end(&name, "cancelled");
        assert_eq!(jobs.over(&gone), [(name, "cancelled")].into());
        assert!(jobs.due(&gone, began + Duration::from_secs(1000)).is_empty(), "once is enough");
    }

    // Invariant: the login tries once to read a job, and the result holds for that very job.

    #[test]
    fn whether_a_job_could_be_read_is_tried_once_and_known_until_the_next_job() {
        let jobs = LastJobs::default();
        let name = RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab");
        let known: Known = [(name.clone(), BTreeSet::new())].into();
        let job = |id: &str| jobs.learn(name.as_str(), Some(format!("jobs/{id}")));
        job("8");
        assert_eq!(jobs.untried(&known), [(name.clone(), "jobs/8".to_owned())]);
        assert!(jobs.untried(&Known::new()).is_empty(), "another's");
        jobs.tried(&name, true);
        job("8");
        assert!(jobs.was_read(&name) && jobs.untried(&known).is_empty());
        job("9");
        assert!(!jobs.was_read(&name));
    }
}
