//! `drover demo`: a simulated cluster, the real service on it, and a small batch of real jobs.
//!
//! In: seed, number of jobs, and whether to stop after the batch. Out: lines about agents, jobs and
//! clouds, a waterfall for each agent, and whether each job ended as expected and nothing is left.
//!
//! ```text
//! this process                           child processes
//! +-------------------------------+      +---------------------------------+
//! | pve_sim: cluster over HTTPS,  |<-----| drover run (may be killed;      |
//! |          process guests       |      | started again)                  |
//! | Screen <- AgentTable <--------|------| drover events                   |
//! | run_batch                     |----->| drover lease -- JOB, one a job  |
//! +-------------------------------+      +---------------------------------+
//! ```
//!
//! Failure paths: the demo kills the VM of one job on purpose; a service that ends is started
//! again; a service that does not become ready or does not stop in [`STEP_TIMEOUT`] ends the demo
//! with the end of its log. At the end the service retires all agents; the demo then lists guests
//! and volumes that are left. An
//! output that takes no more ends the demo in the same order.
//!
//! Files beside this one: `environment` (cluster, service, files), `jobs`, `agents` and `screen`
//! (what is shown), `waterfall`, `leftovers` (files of demos that were killed), `demo.yaml`.

mod agents;
mod environment;
mod jobs;
mod leftovers;
mod screen;
mod waterfall;

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use environment::{DemoEnvironment, SUPERVISION_INTERVAL};
use jobs::{BATCH, ExpectedOutcome, Job};
use screen::Screen;

pub use environment::DemoError;

/// The options of `drover demo`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Stop when the batch is done.
    pub once: bool,
    /// Print plain lines even on a terminal.
    pub plain: bool,
    /// The seed of the simulated cluster.
    pub seed: u64,
    /// The number of jobs in the batch.
    pub jobs: u32,
    /// Keep the folder with state, keys and logs.
    pub keep: bool,
}

/// How a job ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub job: Job,
    /// The exit status of `drover lease`; none when a signal ended it.
    pub exit: Option<i32>,
    pub output: String,
    pub as_expected: bool,
}

/// Runs the demo. True when all jobs ended as expected and nothing is left.
///
/// # Errors
/// When the cluster or the service cannot run.
pub async fn run(options: Options) -> Result<bool, DemoError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DemoError::system)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(DemoError::system)?;
    let mut screen = Screen::new(options.plain);
    screen.say("starting a simulated Proxmox VE cluster (3 nodes) and the service on it");
    screen.written()?;
    let mut environment = DemoEnvironment::start(options.seed, options.keep).await?;
    if !environment.isolated() {
        screen.say("bubblewrap is not installed: guests run only the demo's own jobs");
    }
    environment.start_service().await?;
    let demo = async {
        let outcomes = run_batch(&mut environment, &mut screen, options.jobs).await?;
        let good = screen.summary(&outcomes);
        if !options.once {
            screen.say(&environment.next_steps());
            show_until_stopped(&mut environment, &mut screen).await?;
        }
        Ok::<bool, DemoError>(good)
    };
    let finished = tokio::select! {
        finished = demo => finished.map(Some),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    };
    screen.say("stopping: drover retires all agents");
    let torn_down = environment.tear_down(&mut screen).await;
    // The last lines must not be those of agents.
    screen.end();
    let clean = torn_down?;
    if clean {
        let file = if options.keep { "" } else { ", no file" };
        screen.say(&format!("nothing is left: no guest, no volume, no process{file}"));
    }
    let finished = finished?.unwrap_or(true);
    screen.written()?;
    Ok(finished && clean)
}

/// Runs all jobs at once. The instance cap makes some of them wait.
async fn run_batch(
    environment: &mut DemoEnvironment,
    screen: &mut Screen,
    count: u32,
) -> Result<Vec<Outcome>, DemoError> {
    let jobs = BATCH.iter().cycle().take(count as usize);
    let mut running = tokio::task::JoinSet::new();
    for job in jobs.copied() {
        let command = environment.lease_command(&job);
        running.spawn(async move { environment::run_job(job, command).await });
    }
    let mut outcomes = Vec::new();
    while !running.is_empty() {
        tokio::select! {
            Some(done) = running.join_next() => {
                let outcome = done.map_err(|error| DemoError::system(io::Error::other(error)))??;
                screen.job(&outcome);
                outcomes.push(outcome);
            }
            event = environment.next_event() => screen.event(&event),
            () = tokio::time::sleep(SUPERVISION_INTERVAL) => environment.supervise(screen).await?,
        }
        screen.written()?;
    }
    Ok(outcomes)
}

/// Shows events until the demo is stopped.
async fn show_until_stopped(
    environment: &mut DemoEnvironment,
    screen: &mut Screen,
) -> Result<(), DemoError> {
    loop {
        tokio::select! {
            event = environment.next_event() => screen.event(&event),
            () = tokio::time::sleep(SUPERVISION_INTERVAL) => environment.supervise(screen).await?,
        }
        screen.written()?;
    }
}

/// How long the demo waits for one step before it fails.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

impl Outcome {
    /// Compares the exit status with the expected outcome.
    pub(crate) fn new(job: Job, exit: Option<i32>, output: String) -> Self {
        let as_expected = match job.expected {
            ExpectedOutcome::Exits(status) => exit == i32::try_from(status).ok(),
            ExpectedOutcome::LosesItsVm => exit != Some(0),
        };
        Self { job, exit, output, as_expected }
    }
}
