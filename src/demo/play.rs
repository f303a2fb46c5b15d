//! The demo as it runs: carries events into the state, and takes the steps of the story. Beside it:
//! `retire` (its end).

mod retire;

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::AgentsOut;
use jiff::Timestamp;
use rustix::process::Signal;
use tokio::sync::mpsc;

use super::cluster::DemoCluster;
use super::ending::five_lines;
use super::fault::DemoError;
use super::files::DemoFiles;
use super::leases::{self, News};
use super::screen::Screen;
use super::service::{DemoService, Happened};
use super::state::{Change, DemoState, Tone};
use super::story::{Adoption, Step, Story};
use super::{Options, STEP_TIMEOUT};

/// How often the screen is drawn and the next step of the story is looked for.
const TICK: Duration = Duration::from_millis(125);
/// What jobs did and the loop did not take yet.
const NEWS_MAX: usize = 64;

pub struct Demo {
    files: DemoFiles,
    cluster: DemoCluster,
    service: DemoService,
    pub screen: Screen,
    pub state: DemoState,
    story: Story,
    news: mpsc::Receiver<News>,
    sender: mpsc::Sender<News>,
    /// Jobs whose lease is being released for them, or was.
    releasing: BTreeSet<String>,
    /// The ids and VMIDs of the agents when the service ended.
    before: Vec<(String, u32)>,
    /// Jobs that ran when the service ended.
    running_before: usize,
    was_ready: bool,
}

impl Demo {
    /// Starts the cluster and the service.
    ///
    /// # Errors
    /// See [`DemoError`].
    pub async fn start(options: &Options, screen: Screen) -> Result<Self, DemoError> {
        let mut files = DemoFiles::create()?;
        let cluster = DemoCluster::start(options.seed, &files.guests()).await?;
        files.write(&cluster)?;
        let mut service = DemoService::new(&files)?;
        service.start()?;
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let mut state = DemoState::new(Timestamp::now(), super::jobs::batch(options.jobs));
        state.nodes = cluster.nodes();
        Ok(Self {
            files,
            cluster,
            service,
            screen,
            state,
            story: Story::default(),
            news,
            sender,
            releasing: BTreeSet::new(),
            before: Vec::new(),
            running_before: 0,
            was_ready: false,
        })
    }

    /// Whether guests are isolated from this machine.
    pub fn is_isolated(&self) -> bool {
        self.cluster.is_isolated()
    }

    /// Commands to try while the demo keeps running.
    pub fn next_steps(&self) -> String {
        self.service.next_steps()
    }

    /// Says a line on every kind of output.
    pub fn say(&mut self, tone: Tone, text: &str) {
        let at_ms = self.now_ms();
        self.state.log(at_ms, tone, text);
        self.screen.say(text);
    }

    fn now_ms(&self) -> u64 {
        self.state.elapsed_ms(Timestamp::now())
    }

    /// Draws the screen, if there is one.
    pub fn draw(&mut self) {
        self.state.nodes = self.cluster.nodes();
        let now_ms = self.now_ms();
        self.screen.draw(&self.state, now_ms);
    }

    /// Plays the story and the batch to their end.
    ///
    /// # Errors
    /// When a step fails, and when the output takes no more.
    pub async fn play(&mut self, stays: bool) -> Result<(), DemoError> {
        while !self.story.has_ended(&self.state) {
            self.step().await?;
            if let Some(step) = self.story.next(&self.state) {
                self.take(step).await?;
            }
        }
        self.state.ending = Some(five_lines(&self.state, &self.story, stays));
        self.draw();
        self.screen.written()
    }

    /// Shows events until it is cancelled.
    ///
    /// # Errors
    /// When the service cannot be started again, and when the output takes no more.
    pub async fn stay(&mut self) -> Result<(), DemoError> {
        loop {
            self.step().await?;
        }
    }

    /// Waits for the next event, and draws.
    async fn step(&mut self) -> Result<(), DemoError> {
        tokio::select! {
            happened = self.service.next() => self.happened(happened?).await?,
            Some(news) = self.news.recv() => self.news(news),
            () = tokio::time::sleep(TICK) => self.tick()?,
        }
        self.screen.written()
    }

    fn tick(&mut self) -> Result<(), DemoError> {
        if self.was_ready && self.service.follow()? {
            self.say(Tone::Story, "the command that follows the events ended; started it again");
        }
        if self.was_ready {
            self.release_abandoned();
        }
        self.draw();
        Ok(())
    }

    fn release_abandoned(&mut self) {
        for (job, lease) in self.state.abandoned_leases() {
            if self.releasing.insert(job.clone()) {
                let text =
                    format!("job {job}: its command was killed; releasing its lease {lease}");
                self.say(Tone::Bad, &text);
                leases::release(&self.service, job, &lease, self.sender.clone());
            }
        }
    }

    fn news(&mut self, news: News) {
        match news {
            News::Printed(index, line) => self.state.printed(index, &line),
            // The next tick tries again.
            News::Released(job, false) => {
                self.releasing.remove(&job);
            }
            News::Released(_, true) => {}
            News::Ended(index, end) => {
                let now_ms = self.now_ms();
                if let Some((tone, line)) = self.state.ended(index, &end, now_ms) {
                    self.say(tone, &line);
                }
            }
        }
    }

    async fn happened(&mut self, happened: Happened) -> Result<(), DemoError> {
        match happened {
            Happened::Event(event) => {
                let change = self.state.event(&event);
                change.into_iter().for_each(|change| self.changed(change));
            }
            Happened::Ready => self.ready().await?,
            // The next tick starts it again, unless the service ends too.
            Happened::FollowerEnded => {}
            Happened::ServiceEnded(status) => {
                self.before = self.state.agents.alive();
                self.running_before =
                    self.state.jobs.iter().filter(|row| row.is_under_way()).count();
                if self.state.outages.last().is_none_or(|(_, until)| until.is_some()) {
                    let now_ms = self.now_ms();
                    self.state.outages.push((now_ms, None));
                }
                let text =
                    format!("the service ended ({status}); starting it again, as systemd would");
                self.say(Tone::Story, &text);
                self.was_ready = false;
                self.service.start()?;
            }
        }
        Ok(())
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Agent(line) => self.screen.agent(&line),
            Change::Refused(text) => {
                if self.story.refused(&text) {
                    let now_ms = self.now_ms();
                    self.state.marks.push((now_ms, "edit refused"));
                }
                self.say(Tone::Story, &super::refusal::sentence(&text));
                self.screen.detail(&text);
            }
            Change::Applied(generation) => {
                self.say(Tone::Plain, &format!("configuration {generation} is in force"));
            }
            Change::Notable(text) => self.say(Tone::Plain, &text),
        }
    }

    /// The service is ready: the first time it gets the batch, and later it has adopted agents.
    async fn ready(&mut self) -> Result<(), DemoError> {
        self.was_ready = true;
        self.service.follow()?;
        let now_ms = self.now_ms();
        let Some((from_ms, until)) = self.state.outages.last_mut() else {
            for index in 0..self.state.jobs.len() {
                let job = self.state.jobs[index].job.clone();
                leases::start(&self.service, index, &job, self.sender.clone())?;
            }
            let text =
                format!("the service is ready; {} jobs ask for machines", self.state.jobs.len());
            self.say(Tone::Plain, &text);
            return Ok(());
        };
        *until = Some(now_ms);
        let outage_ms = now_ms.saturating_sub(*from_ms);
        let adoption = Adoption {
            before: self.before.len(),
            vmids: self.adopted_vmids().await?,
            jobs: self.running_before,
            outage_ms,
        };
        let text = format!(
            "the service is ready again after {}; it adopted {} of {} agents, with the same VMIDs",
            crate::waterfall::seconds(outage_ms),
            adoption.vmids.len(),
            adoption.before
        );
        self.say(Tone::Good, &text);
        self.story.adopted(adoption);
        Ok(())
    }

    /// The VMIDs of the agents from before that the service has, with a guest in the cluster.
    async fn adopted_vmids(&self) -> Result<Vec<u32>, DemoError> {
        let mut command = self.service.command();
        command.args(["--json", "agents"]);
        let out = tokio::time::timeout(STEP_TIMEOUT, command.output()).await;
        // A service that does not answer has adopted none that anybody sees.
        let Ok(out) = out else { return Ok(Vec::new()) };
        let out = out.map_err(DemoError::system)?;
        let Ok(answer) = serde_json::from_slice::<AgentsOut>(&out.stdout) else {
            return Ok(Vec::new());
        };
        let guests = self.cluster.guests();
        let has = |(id, vmid): &&(String, u32)| {
            let same = |agent: &drover_api::AgentOut| agent.id == *id && agent.vmid == Some(*vmid);
            answer.agents.iter().any(same) && guests.contains(vmid)
        };
        Ok(self.before.iter().filter(has).map(|(_, vmid)| *vmid).collect())
    }

    async fn take(&mut self, step: Step) -> Result<(), DemoError> {
        let now_ms = self.now_ms();
        self.story.took(step);
        match step {
            Step::BreakConfig => {
                let (value, line) = self.files.wrong_line();
                self.say(
                    Tone::Story,
                    &format!("writing `{value}` into line {line} of drover.yaml"),
                );
                self.files.break_yaml()?;
            }
            Step::RepairConfig => {
                self.say(Tone::Plain, "putting the file right again");
                self.files.repair_yaml()?;
            }
            Step::KillService => {
                let pid = self.service.pid().unwrap_or_default();
                self.say(Tone::Story, &format!("kill -9 {pid}: the service dies under its jobs"));
                self.state.outages.push((now_ms, None));
                self.state.marks.push((now_ms, "kill -9"));
                self.service.signal(Signal::KILL)?;
            }
            Step::KillVm(vmid) => {
                self.say(Tone::Story, &format!("killing VM {vmid} while its job runs"));
                self.state.agents.killed(vmid, now_ms);
                self.state.marks.push((now_ms, "VM killed"));
                self.cluster.kill_guest(vmid).await;
            }
        }
        Ok(())
    }
}
