//! A CI system in virtual time: jobs that wait, runners, and what guests do with them.
//!
//! A system gives a job to a runner that is connected, takes jobs and has its labels, or was made for
//! what the job wants. An ephemeral runner is gone after its job. One that is a node takes job after
//! job, one on each of its executors. A guest that ends takes its runner off, and its job hangs there
//! until the runner's row is removed: then the job is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::RunnerName;
use drover_model::ports::{JobObservation, StartRunnerCall};
use drover_model::record::Want;
use drover_model::time::WallTime;
use tokio::time::Instant;

/// How long a runner takes from its start to its connection.
pub const CONNECTS: Duration = Duration::from_secs(3);
/// How long a call takes.
pub const CALL: Duration = Duration::from_millis(200);

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    /// On this runner, until then.
    Running(RunnerName, Instant),
    /// It is over.
    Done,
    /// Its machine went, or its row.
    Lost,
}

#[derive(Debug, Clone)]
pub struct Job {
    pub want: Want,
    /// How long it takes.
    pub length: Duration,
    pub stage: Stage,
    /// How often a runner took it.
    pub runs: u32,
    pub since: WallTime,
}

impl Job {
    /// A job that waits.
    pub fn new(want: Want, length: Duration, since: WallTime) -> Self {
        Self { want, length, stage: Stage::Waiting, runs: 0, since }
    }

    /// The runner that it runs on.
    pub fn runner(&self) -> Option<&RunnerName> {
        if let Stage::Running(name, _) = &self.stage { Some(name) } else { None }
    }
}

/// A runner's row. `T` is what somebody else knows of it.
#[derive(Debug)]
pub struct Row<T> {
    /// What it was made for.
    pub want: Want,
    pub labels: BTreeSet<String>,
    /// How many jobs it takes at once.
    pub executors: usize,
    /// The guest it runs in, by its host key.
    pub guest: Option<(u32, String)>,
    pub started: Option<Instant>,
    pub more: T,
}

impl<T> Row<T> {
    /// A row that was just made and is in no guest yet.
    pub fn new(call: &StartRunnerCall, executors: usize, more: T) -> Self {
        let mut labels = call.spec.labels.clone();
        if let Want::Labels(wanted) = &call.want {
            labels.extend(wanted.iter().cloned());
        }
        let want = call.want.clone();
        Self { want, labels, executors, guest: None, started: None, more }
    }

    /// Whether its runner was started long enough ago to be connected.
    pub fn is_connected(&self, now: Instant) -> bool {
        self.started.is_some_and(|at| now >= at + CONNECTS)
    }

    fn fits(&self, job: &Job) -> bool {
        let has = || match &job.want {
            Want::Labels(labels) => labels.is_subset(&self.labels),
            Want::Template(_) | Want::Expression(_) | Want::Sized(..) => false,
        };
        job.want == self.want || has()
    }
}

/// The jobs and rows of one system.
#[derive(Debug)]
pub struct Board<T> {
    jobs: Vec<Job>,
    /// Jobs that are neither over nor lost.
    open: BTreeSet<usize>,
    pub rows: BTreeMap<RunnerName, Row<T>>,
    /// Whether its runners are nodes.
    pub nodes: bool,
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        let (jobs, open, rows) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        Self { jobs, open, rows, nodes: false }
    }
}

impl<T> Board<T> {
    /// A job comes in; gives its number.
    pub fn push(&mut self, job: Job) -> usize {
        self.open.insert(self.jobs.len());
        self.jobs.push(job);
        self.jobs.len() - 1
    }

    /// All jobs that ever came in.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    fn open(&self) -> impl DoubleEndedIterator<Item = (usize, &Job)> {
        self.open.iter().filter_map(|number| Some((*number, self.jobs.get(*number)?)))
    }

    /// The first of the jobs that wait is called off.
    pub fn cancel_first(&mut self) {
        let first = self.open().find(|(_, job)| job.stage == Stage::Waiting).map(|(at, _)| at);
        if let Some(number) = first {
            self.cancel(number);
        }
    }

    /// A job is called off, where it waits.
    pub fn cancel(&mut self, number: usize) {
        if self.jobs.get(number).is_some_and(|job| job.stage == Stage::Waiting) {
            self.close(number, Stage::Done);
        }
    }

    /// Whether no job waits or runs.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    fn close(&mut self, number: usize, stage: Stage) {
        if let Some(job) = self.jobs.get_mut(number) {
            job.stage = stage;
            self.open.remove(&number);
        }
    }

    /// Jobs on a runner, by number.
    pub fn on(&self, runner: &RunnerName) -> impl Iterator<Item = (usize, &Job)> {
        self.open().filter(move |(_, job)| job.runner() == Some(runner))
    }

    /// Jobs that wait, as a look shows them.
    pub fn waiting(&self) -> Vec<JobObservation> {
        let waiting = self.open().filter(|(_, job)| job.stage == Stage::Waiting);
        let shown = waiting.map(|(number, job)| JobObservation {
            id: number.to_string(),
            name: format!("job {number}"),
            want: job.want.clone(),
            since: job.since,
            origin: None,
        });
        shown.collect()
    }

    /// Lets everything happen that is due. `lives` says whether the guest of a row is as it was,
    /// `takes` whether a row takes jobs.
    pub fn advance(
        &mut self,
        now: Instant,
        lives: impl Fn(&Row<T>) -> bool,
        takes: impl Fn(&Row<T>) -> bool,
    ) {
        let running: Vec<(usize, RunnerName, Instant)> = self
            .open()
            .filter_map(|(number, job)| match &job.stage {
                Stage::Running(name, until) => Some((number, name.clone(), *until)),
                Stage::Waiting | Stage::Done | Stage::Lost => None,
            })
            .collect();
        for (number, name, until) in running {
            match self.rows.get(&name) {
                None => self.close(number, Stage::Lost),
                Some(row) if until <= now && lives(row) => {
                    self.close(number, Stage::Done);
                    if !self.nodes {
                        self.rows.remove(&name);
                    }
                }
                Some(_) => {}
            }
        }
        for (name, row) in &self.rows {
            if !takes(row) || !row.is_connected(now) || !lives(row) {
                continue;
            }
            let free = row.executors.saturating_sub(self.on(name).count());
            let fitting = self.open().filter(|(_, job)| job.stage == Stage::Waiting);
            let fitting = fitting.filter(|(_, job)| row.fits(job)).take(free);
            for number in fitting.map(|(number, _)| number).collect::<Vec<_>>() {
                if let Some(job) = self.jobs.get_mut(number) {
                    job.stage = Stage::Running(name.clone(), now + job.length);
                    job.runs += 1;
                }
            }
        }
    }
}
