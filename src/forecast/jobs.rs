//! The sources of a configuration with the jobs of a trace, as the actors' port to CI systems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::demand::words::{Life, Words};
use drover_model::id::{RunnerName, SourceId};
use drover_model::ports::{
    Ask, Demand, Idle, Known, NodeObservation, RowObservation, Shut, SourceObservation,
    StartRunnerCall,
};
use drover_model::spec::HerdSpec;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::ci::{Board, CALL, Job, Row};
use crate::guests::Guests as _;
use crate::machines::Machines;
use crate::ssh::{LOGIN, login};

/// What a source of a replay knows of a row besides.
#[derive(Debug)]
struct Extra {
    quiet: bool,
    number: u64,
}

#[derive(Default)]
struct Source {
    board: Board<Extra>,
    made: u64,
}

/// The sources of a replay, each with its jobs and runners.
#[derive(Clone)]
pub struct Jobs {
    sources: Arc<Mutex<BTreeMap<SourceId, Source>>>,
    machines: Machines,
}

impl Jobs {
    /// The sources of a configuration, without jobs.
    pub fn new(spec: &HerdSpec, machines: Machines) -> Self {
        let sources = spec.sources.values().map(|source| {
            let mut made = Source::default();
            made.board.nodes = source.whole;
            (source.id.clone(), made)
        });
        Self { sources: Arc::new(Mutex::new(sources.collect())), machines }
    }

    fn with<T>(&self, source: &SourceId, change: impl FnOnce(&mut Source) -> T) -> T {
        change(self.sources.lock().entry(source.clone()).or_default())
    }

    /// A job comes in; gives its number.
    pub fn push(&self, source: &SourceId, job: Job) -> usize {
        self.with(source, |source| source.board.push(job))
    }

    /// A job is called off, where it waits.
    pub fn cancel(&self, source: &SourceId, number: usize) {
        self.with(source, |source| source.board.cancel(number));
    }

    /// Whether no job waits or runs.
    pub fn are_quiet(&self) -> bool {
        self.sources.lock().values().all(|source| source.board.is_quiet())
    }

    fn advance(&self, source: &mut Source) {
        let now = Instant::now();
        let machines = &self.machines;
        let lives = |row: &Row<Extra>| row.guest.as_ref().is_some_and(|one| machines.is_same(one));
        source.board.advance(now, lives, |row| !row.more.quiet);
    }

    fn observation(&self, id: &SourceId, known: &Known) -> SourceObservation {
        let now = Instant::now();
        self.with(id, |source| {
            self.advance(source);
            let board = &source.board;
            let rows: Vec<RowObservation> = board
                .rows
                .iter()
                .map(|(name, row)| {
                    let running: BTreeSet<String> =
                        board.on(name).map(|(number, _)| number.to_string()).collect();
                    let lives = row.guest.as_ref().is_some_and(|one| self.machines.is_same(one));
                    let shut = if row.more.quiet { Shut::Quiet } else { Shut::Open };
                    RowObservation {
                        runner: name.clone(),
                        online: row.is_connected(now) && lives,
                        jobs: u32::try_from(running.len()).unwrap_or(u32::MAX),
                        job: running.first().cloned(),
                        idle: Idle::Known,
                        node: match board.nodes {
                            true => NodeObservation { running, shut, reason: None },
                            false => NodeObservation::default(),
                        },
                    }
                })
                .collect();
            let gone = known.keys().filter(|name| !board.rows.contains_key(*name)).cloned();
            let numbers = board.rows.iter().filter(|(name, _)| known.contains_key(*name));
            let numbers = numbers.map(|(name, row)| (name.clone(), [row.more.number].into()));
            SourceObservation {
                gone: gone.collect(),
                whole: true,
                numbers: numbers.collect(),
                jobs: board.waiting(),
                rows,
                ..SourceObservation::default()
            }
        })
    }
}

impl Demand for Jobs {
    fn look_at_jobs(&self, source: &SourceId, known: &Known) -> Ask<SourceObservation> {
        let (jobs, source, known) = (self.clone(), source.clone(), known.clone());
        async move {
            sleep(CALL).await;
            Ok(jobs.observation(&source, &known))
        }
        .boxed()
    }

    fn start_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        let jobs = self.clone();
        async move {
            let guest = login(&jobs.machines, &call.target, (LOGIN, limit), |_| true).await?;
            sleep(CALL + LOGIN).await;
            jobs.with(&call.source, |source| {
                if source.board.rows.contains_key(&call.runner) {
                    return;
                }
                source.made += 1;
                let executors = if source.board.nodes { call.spec.executors.max(1) } else { 1 };
                let executors = usize::try_from(executors).unwrap_or(1);
                let more = Extra { quiet: false, number: source.made };
                let mut row = Row::new(&call, executors, more);
                row.guest = Some(guest);
                row.started = Some(Instant::now());
                source.board.rows.insert(call.runner.clone(), row);
            });
            Ok(())
        }
        .boxed()
    }

    fn stop_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        let jobs = self.clone();
        async move {
            login(&jobs.machines, &call.target, (LOGIN, limit), |_| true).await?;
            jobs.with(&call.source, |source| {
                if let Some(row) = source.board.rows.get_mut(&call.runner) {
                    row.guest = None;
                }
            });
            Ok(())
        }
        .boxed()
    }

    fn words(&self, call: StartRunnerCall, limit: Duration) -> Ask<Words> {
        let jobs = self.clone();
        async move {
            login(&jobs.machines, &call.target, (LOGIN, limit), |_| true).await?;
            let there = jobs.with(&call.source, |source| {
                jobs.advance(source);
                source.board.rows.contains_key(&call.runner)
            });
            let life = if there { Life::Runs } else { Life::Ended(Some(0)) };
            Ok(Words { life, seconds: 1, ago: 0, lines: String::new(), too_old: None })
        }
        .boxed()
    }

    fn obstacle(&self, _: &SourceId) -> Ask<Option<String>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        self.with(source, |source| {
            if let Some(row) = source.board.rows.get_mut(runner) {
                row.more.quiet = true;
            }
        });
        sleep(CALL).map(Ok).boxed()
    }

    fn deregister(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        self.with(source, |source| {
            self.advance(source);
            source.board.rows.remove(runner);
            self.advance(source);
        });
        sleep(CALL).map(Ok).boxed()
    }
}
