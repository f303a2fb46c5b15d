//! `drover demo`: a simulated cluster, the real service on it, a small batch of real jobs, and a
//! story that plays by itself.
//!
//! In: seed, number of jobs, and whether to stop after the story. Out: a live screen or plain lines,
//! five lines at the end, and whether each job ended as expected and nothing is left.
//!
//! ```text
//! this process                           child processes, which die with it
//! +-------------------------------+      +---------------------------------+
//! | DemoCluster: HTTPS API,       |<-----| drover run (is killed and       |
//! |              process guests   |      | started again)                  |
//! | DemoState <- Demo <-----------|------| drover events                   |
//! |   |           ^ Story         |----->| drover lease -- JOB, one a job  |
//! |   v                           |      +---------------------------------+
//! | Screen: terminal, lines, SVG  |
//! +-------------------------------+
//! ```
//!
//! The story: a wrong value in the YAML is refused, the service is killed under its jobs and adopts
//! its agents, and the VM of one job is killed. Each step waits for a condition.
//!
//! Failure paths: a service that ends is started again; a follower of events that ends is started
//! again; the lease of a job whose command was killed is released; a service that does not become
//! ready or does not stop in [`STEP_TIMEOUT`] ends the demo with the end of its log. At the end the
//! service retires all agents; the demo then lists guests and volumes that are left. An output that
//! takes no more ends the demo in the same order. The terminal is put back in each case but
//! `kill -9` of this process.
//!
//! Files beside this one: `play` (the loop), `state`, `agents`, `jobs`, `story`, `refusal`, `ending`
//! (pure), `draw` (state to cells), `screen`, `record` and `svg` (outputs), `cluster`,
//! `service`, `leases`, `files`, `leftovers` (effects), `fault`, `demo.yaml`. `crate::terminal` and `crate::waterfall` are shared with
//! `drover top`.

mod agents;
mod cluster;
mod draw;
mod ending;
mod fault;
mod files;
mod jobs;
mod leases;
mod leftovers;
mod play;
mod record;
mod refusal;
mod screen;
mod service;
mod state;
mod story;
mod svg;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use play::Demo;
use screen::Screen;
use state::Tone;

use crate::waterfall;

pub use fault::DemoError;

/// How long the demo waits for one step before it fails.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// The width of a waterfall's bars in columns.
const BAR_COLUMNS: usize = 40;

/// The options of `drover demo`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Stop when the story has ended.
    pub once: bool,
    /// Print plain lines even on a terminal.
    pub plain: bool,
    /// Use colours on the live screen.
    pub color: bool,
    /// The seed of the simulated cluster.
    pub seed: u64,
    /// The number of jobs in the batch.
    pub jobs: u32,
    /// Keep the folder with state, keys and logs.
    pub keep: bool,
    /// Record the screen into this SVG file.
    pub record: Option<PathBuf>,
}

/// The signals that end the demo.
struct Endings([Signal; 4]);

impl Endings {
    fn new() -> Result<Self, DemoError> {
        let of = |kind| signal(kind).map_err(DemoError::system);
        Ok(Self([
            of(SignalKind::interrupt())?,
            of(SignalKind::terminate())?,
            of(SignalKind::hangup())?,
            of(SignalKind::quit())?,
        ]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// Runs the demo. True when all jobs ended as expected and nothing is left.
///
/// # Errors
/// When the cluster or the service cannot run, and when the output takes no more.
pub async fn run(options: Options) -> Result<bool, DemoError> {
    let mut endings = Endings::new()?;
    let mut screen = Screen::new(options.plain, options.color, options.record.clone());
    screen.say("starting a simulated Proxmox VE cluster (3 nodes) and the service on it");
    screen.written()?;
    let was_live = screen.is_live();
    let mut demo = Demo::start(&options, screen).await?;
    if !demo.is_isolated() {
        demo.say(Tone::Plain, "bubblewrap is not installed: guests run only the demo's own jobs");
    }
    let finished = tokio::select! {
        finished = story(&mut demo, &options) => finished.map(Some),
        () = endings.any() => Ok(None),
    };
    demo.screen.leave();
    demo.screen.say("stopping: drover retires all agents");
    // On a terminal the last lines are not those of agents.
    demo.screen.print_agents(!was_live);
    let (mut screen, torn_down) = demo.tear_down(options.keep).await;
    let clean = torn_down?;
    if clean {
        let file = if options.keep { "" } else { ", no file" };
        screen.say(&format!("nothing is left: no guest, no volume, no process{file}"));
    }
    let finished = finished?.unwrap_or(true);
    screen.written()?;
    Ok(finished && clean)
}

/// Plays the story and says what happened; without `--once` it then goes on until it is cancelled.
async fn story(demo: &mut Demo, options: &Options) -> Result<bool, DemoError> {
    demo.play(!options.once).await?;
    demo.screen.write_recording()?;
    let was_live = demo.screen.is_live();
    demo.screen.leave();
    if !was_live {
        let waterfalls = demo.state.agents.waterfalls();
        let drawn =
            waterfalls.iter().map(|(title, phases)| waterfall::draw(title, phases, BAR_COLUMNS));
        let drawn: Vec<String> = drawn.collect();
        demo.screen.detail(&format!("\ntime of each agent in each state:\n{}", drawn.join("\n")));
        demo.screen.say("");
        let ending = demo.state.ending.clone();
        ending.iter().flatten().for_each(|line| demo.screen.say(line));
    }
    let good = demo.state.is_good();
    if !options.once {
        demo.screen.detail(&format!("\n{}", demo.next_steps()));
        demo.screen.print_agents(true);
        demo.stay().await?;
    }
    Ok(good)
}
