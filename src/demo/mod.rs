//! `drover demo`: a simulated cluster, the real service on it, and a small batch of real jobs.
//!
//! The cluster lives in this process; the service is a child process of the same program, so that
//! it can be killed and started again under everybody's eyes; each job is a `drover lease`.

pub mod board;
pub mod jobs;
mod leftovers;
mod show;
mod stage;
pub mod waterfall;

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use jobs::{BATCH, Fate, Job};
use show::Show;
use stage::Stage;

pub use stage::DemoError;

/// What the demo was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// End when the batch is done.
    pub once: bool,
    /// Plain lines even on a terminal.
    pub plain: bool,
    /// The simulated cluster's seed.
    pub seed: u64,
    /// Jobs in the batch.
    pub jobs: u32,
    /// Keep the state directory.
    pub keep: bool,
}

/// How a job came out.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub job: Job,
    pub exit: Option<i32>,
    pub output: String,
    pub as_expected: bool,
}

/// Plays the demo; says whether everything came out as it should and nothing is left.
///
/// # Errors
/// When the stage cannot be set.
pub async fn run(options: Options) -> Result<bool, DemoError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DemoError::system)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(DemoError::system)?;
    let mut show = Show::new(options.plain);
    show.say("starting a simulated Proxmox VE cluster (3 nodes) and the service on it");
    let mut stage = Stage::set(options.seed, options.keep).await?;
    if !stage.isolated() {
        show.say("bubblewrap is not installed: guests run only the demo's own jobs");
    }
    stage.start_service().await?;
    let story = async {
        let outcomes = batch(&mut stage, &mut show, options.jobs).await?;
        let good = show.summary(&outcomes);
        if !options.once {
            show.say(&stage.how_to_go_on());
            linger(&mut stage, &mut show).await?;
        }
        Ok::<bool, DemoError>(good)
    };
    let told = tokio::select! {
        told = story => told.map(Some),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    };
    show.say("stopping: every agent is retired");
    let struck = stage.strike(&mut show).await;
    // Whatever the last events were, the lines of agents are no news after the end.
    show.end();
    let clean = struck?;
    if clean {
        let file = if options.keep { "" } else { ", no file" };
        show.say(&format!("nothing is left: no guest, no volume, no process{file}"));
    }
    Ok(told?.unwrap_or(true) && clean)
}

/// Runs the batch, all jobs at once; the cap makes some of them wait.
async fn batch(stage: &mut Stage, show: &mut Show, count: u32) -> Result<Vec<Outcome>, DemoError> {
    let picked = BATCH.iter().cycle().take(count as usize);
    let mut running = tokio::task::JoinSet::new();
    for job in picked.copied() {
        let command = stage.lease(&job);
        running.spawn(async move { stage::finish(job, command).await });
    }
    let mut outcomes = Vec::new();
    while !running.is_empty() {
        tokio::select! {
            Some(done) = running.join_next() => {
                let outcome = done.map_err(|error| DemoError::system(std::io::Error::other(error)))??;
                show.job(&outcome);
                outcomes.push(outcome);
            }
            event = stage.next_event() => show.event(&event),
            () = tokio::time::sleep(stage::TICK) => stage.look_after(show).await?,
        }
    }
    Ok(outcomes)
}

/// Goes on showing what happens until somebody ends it.
async fn linger(stage: &mut Stage, show: &mut Show) -> Result<(), DemoError> {
    loop {
        tokio::select! {
            event = stage.next_event() => show.event(&event),
            () = tokio::time::sleep(stage::TICK) => stage.look_after(show).await?,
        }
    }
}

/// How long the demo waits for one thing before it gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

impl Outcome {
    /// Compares what came out with what was to come out.
    pub(crate) fn new(job: Job, exit: Option<i32>, output: String) -> Self {
        let as_expected = match job.fate {
            Fate::Exits(status) => exit == i32::try_from(status).ok(),
            Fate::LosesItsMachine => exit != Some(0),
        };
        Self { job, exit, output, as_expected }
    }
}
