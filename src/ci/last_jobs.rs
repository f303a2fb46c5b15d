//! How the jobs ended of runners whose row is gone.
//!
//! That a row is gone says nothing of a job. Where a source can be asked for one job by itself, it
//! is asked for the one that it last showed on the runner, ever less often, until it says that this
//! one is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use parking_lot::{Mutex, MutexGuard};

/// Runners in one look at most whose job is asked for.
const ASKED: usize = 10;
/// After so long a job that is not known to be over is asked for again, then after twice that, and so
/// on.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// The job of one runner.
#[derive(Debug, Default)]
struct LastJob {
    /// Where it is asked for; none where it was not seen in this start of the service.
    path: Option<String>,
    /// Whether the login could read it there; none before anybody tried.
    read: Option<bool>,
    /// How it ended, in one word, once that is known.
    over: Option<&'static str>,
    /// How often it was asked for, and when it is next.
    times: u32,
    next: Option<Instant>,
}

/// The jobs that runners were seen with.
#[derive(Debug, Default)]
pub struct LastJobs(Mutex<BTreeMap<RunnerName, LastJob>>);

impl LastJobs {
    fn book(&self) -> MutexGuard<'_, BTreeMap<RunnerName, LastJob>> {
        self.0.lock()
    }

    /// Nobody asks for others any more.
    pub fn keep(&self, known: &Known) {
        self.book().retain(|name, _| known.contains_key(name));
    }

    /// A job is under way on a runner, and is asked for there.
    pub fn learn(&self, name: &str, path: Option<String>) {
        if RunnerName::parse(name).is_some() {
            let (name, mut book) = (RunnerName::new(name), self.book());
            let same = book.get(&name).filter(|job| job.path == path);
            let read = same.and_then(|job| job.read);
            book.insert(name, LastJob { path, read, ..LastJob::default() });
        }
    }

    /// Jobs of the `known` runners that nobody tried to read by themselves, and where each is read.
    pub fn untried(&self, known: &Known) -> Vec<(RunnerName, String)> {
        let book = self.book();
        let untried = book
            .iter()
            .filter(|(name, job)| job.read.is_none() && known.contains_key(*name))
            .filter_map(|(name, job)| Some((name.clone(), job.path.clone()?)));
        untried.take(ASKED).collect()
    }

    /// The login could, or could not, read the job of a runner.
    pub fn tried(&self, name: &RunnerName, read: bool) {
        if let Some(job) = self.book().get_mut(name) {
            job.read = Some(read);
        }
    }

    /// Whether the login could read the job of a runner.
    pub fn was_read(&self, name: &RunnerName) -> bool {
        self.book().get(name).is_some_and(|job| job.read == Some(true))
    }

    /// Where the job of a runner is asked for, while it is not known to be over.
    pub fn open(&self, name: &RunnerName) -> Option<String> {
        self.book().get(name).filter(|job| job.over.is_none())?.path.clone()
    }

    /// Those of the `gone` whose job is asked for now. One that went just now is asked for by the next
    /// look: its guest may say meanwhile that it ended.
    pub fn due(
        &self,
        gone: &BTreeSet<RunnerName>,
        now: Instant,
    ) -> Vec<(RunnerName, Option<String>)> {
        let (mut book, mut due) = (self.book(), Vec::new());
        for name in gone {
            let job = book.entry(name.clone()).or_default();
            let Some(next) = job.next else {
                job.next = Some(now);
                continue;
            };
            if job.over.is_some() || next > now || due.len() >= ASKED {
                continue;
            }
            let pause = PAUSE.saturating_mul(1 << job.times.min(6)).min(PAUSE_LONGEST);
            job.times += 1;
            job.next = Some(now + pause);
            due.push((name.clone(), job.path.clone()));
        }
        due
    }

    /// The job of a runner ended whose row is gone.
    pub fn end(&self, name: &RunnerName, how: &'static str) {
        tracing::info!(runner = %name, how, "row of a runner is gone, and its job is over");
        self.note_end(name, how);
    }

    /// The job of a runner ended, as its source reports by itself; the row may still be there.
    pub fn note_end(&self, name: &RunnerName, how: &'static str) {
        self.book().entry(name.clone()).or_default().over = Some(how);
    }

    /// Those of the `gone` whose job is over.
    pub fn over(&self, gone: &BTreeSet<RunnerName>) -> BTreeMap<RunnerName, &'static str> {
        let book = self.book();
        let over = |name: &RunnerName| Some((name.clone(), book.get(name)?.over?));
        gone.iter().filter_map(over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a job is asked for until its source says that it is over, and not all the time.

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

    // Invariant: the login tries once to read a job, and what came of that stays with that very job.

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
