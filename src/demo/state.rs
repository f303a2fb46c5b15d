//! What the demo knows: nodes, jobs, agents and the last lines, updated by events. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use drover_api::{AgentOut, CloudOut, GoneOut, LeaseOut};
use drover_model::phase::LeasePhase;
use jiff::Timestamp;
use pve_sim::world::NodeLoad;
use serde_json::Value;

use super::agents::AgentTable;
use super::jobs::Job;
use crate::waterfall;

/// The lines that are kept for the screen.
const LOG_LINES: usize = 100;
/// The events by which a new follower's first ones are recognized.
const SEEN_EVENTS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Its lease waits for a machine.
    Waiting,
    /// Its lease is ready, or its command printed a line.
    Running,
    Done,
}

/// A job, its lease and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub job: Job,
    pub state: JobState,
    pub lease: Option<String>,
    pub lease_ended: bool,
    pub vmid: Option<u32>,
    /// Whether its command printed a line.
    pub has_printed: bool,
    /// The last line that the command printed.
    pub output: String,
    /// When it ended, in milliseconds since the start of the demo.
    pub ended_at_ms: Option<u64>,
    /// The exit status of `drover lease`; none when a signal ended it, or before its end.
    pub exit: Option<i32>,
    pub as_expected: bool,
}

impl JobRow {
    fn new(job: Job) -> Self {
        Self {
            job,
            state: JobState::Waiting,
            lease: None,
            lease_ended: false,
            vmid: None,
            has_printed: false,
            output: String::new(),
            ended_at_ms: None,
            exit: None,
            as_expected: false,
        }
    }

    /// Whether its command runs on a machine.
    pub fn is_under_way(&self) -> bool {
        self.state == JobState::Running && self.has_printed
    }
}

/// How the command of a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// The exit status of `drover lease`; none when a signal ended it.
    pub exit: Option<i32>,
    /// The last line of its standard error.
    pub error: String,
}

/// How a line of the log is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    /// What the demo breaks on purpose.
    Story,
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub at_ms: u64,
    pub tone: Tone,
    pub text: String,
}

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An agent changed its state: a line for outputs without the screen.
    Agent(String),
    /// The service refused the configuration: what it says.
    Refused(String),
    /// A configuration is in force: its generation.
    Applied(u64),
    /// Something that everybody is to read.
    Notable(String),
}

#[derive(Debug, Clone)]
pub struct DemoState {
    pub started: Timestamp,
    pub nodes: Vec<NodeLoad>,
    pub jobs: Vec<JobRow>,
    pub agents: AgentTable,
    pub log: VecDeque<LogLine>,
    /// When the service was killed and ready again, in milliseconds since the start of the demo.
    pub outages: Vec<(u64, Option<u64>)>,
    /// What the demo broke, and when.
    pub marks: Vec<(u64, &'static str)>,
    /// The last five lines of the story, once it has ended.
    pub ending: Option<[String; 5]>,
    clouds: BTreeMap<String, String>,
    /// Hashes of the last events, oldest first.
    seen: VecDeque<u64>,
}

impl DemoState {
    pub fn new(started: Timestamp, jobs: Vec<Job>) -> Self {
        Self {
            started,
            nodes: Vec::new(),
            jobs: jobs.into_iter().map(JobRow::new).collect(),
            agents: AgentTable::default(),
            log: VecDeque::new(),
            outages: Vec::new(),
            marks: Vec::new(),
            ending: None,
            clouds: BTreeMap::new(),
            seen: VecDeque::new(),
        }
    }

    /// Milliseconds from the start of the demo to this moment.
    pub fn elapsed_ms(&self, at: Timestamp) -> u64 {
        let ms = at.as_millisecond().saturating_sub(self.started.as_millisecond());
        u64::try_from(ms).unwrap_or(0)
    }

    /// Adds a line to the log, without what could move the cursor.
    pub fn log(&mut self, at_ms: u64, tone: Tone, text: &str) {
        self.log.push_back(LogLine { at_ms, tone, text: one_line(text) });
        if self.log.len() > LOG_LINES {
            self.log.pop_front();
        }
    }

    /// Updates by an event of the service. None when the event changes only counts and times, and
    /// when it was seen before: a new follower starts with the events that are kept.
    pub fn event(&mut self, event: &Value) -> Option<Change> {
        let at = event["at"].as_str()?.parse::<Timestamp>().ok()?;
        if self.was_seen(event) {
            return None;
        }
        let at_ms = self.elapsed_ms(at);
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let clock = waterfall::seconds(at_ms);
        let line = |said: &str| format!("{clock:>9}  {}", said.trim_end());
        let change = match text("kind").as_str() {
            "agent" => {
                let agent: AgentOut = serde_json::from_value(event["agent"].clone()).ok()?;
                Change::Agent(line(&self.agents.update(&agent, at_ms)?))
            }
            "agentGone" => {
                let gone: GoneOut = serde_json::from_value(event["agent"].clone()).ok()?;
                Change::Agent(line(&self.agents.gone(&gone, at_ms)?))
            }
            "lease" => {
                let lease: LeaseOut = serde_json::from_value(event["lease"].clone()).ok()?;
                self.lease(&lease);
                return None;
            }
            "cloud" => {
                let cloud: CloudOut = serde_json::from_value(event["cloud"].clone()).ok()?;
                let said = format!("cloud {} is {} {}", cloud.id, cloud.health, cloud.detail);
                let before = self.clouds.insert(cloud.id, said.clone());
                (before.as_ref() != Some(&said)).then(|| Change::Notable(said.trim_end().into()))?
            }
            "configApplied" => Change::Applied(event["generation"].as_u64().unwrap_or(0)),
            "configRefused" => Change::Refused(text("text")),
            "alarm" => Change::Notable(format!(
                "ALARM {}; run: {}",
                event["alarm"]["text"].as_str().unwrap_or_default(),
                event["alarm"]["command"].as_str().unwrap_or_default()
            )),
            "restarted" => Change::Notable(format!("{} was restarted", text("actor"))),
            _ => return None,
        };
        Some(change)
    }

    fn was_seen(&mut self, event: &Value) -> bool {
        let mut hasher = DefaultHasher::new();
        event.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        if self.seen.contains(&hash) {
            return true;
        }
        self.seen.push_back(hash);
        if self.seen.len() > SEEN_EVENTS {
            self.seen.pop_front();
        }
        false
    }

    fn lease(&mut self, lease: &LeaseOut) {
        let vmid = lease.agent.as_deref().and_then(|agent| self.agents.vmid(agent));
        let found = self.jobs.iter_mut().find(|row| row.job.name == lease.owner);
        let Some(row) = found else { return };
        row.lease = Some(lease.id.clone());
        row.vmid = vmid.or(row.vmid);
        row.lease_ended = lease.state == LeasePhase::Ended;
        if lease.state == LeasePhase::Ready && row.state == JobState::Waiting {
            row.state = JobState::Running;
        }
    }

    /// Notes a line that a job printed.
    pub fn printed(&mut self, index: usize, line: &str) {
        if let Some(row) = self.jobs.get_mut(index) {
            row.output = one_line(line);
            row.has_printed = true;
            if row.state == JobState::Waiting {
                row.state = JobState::Running;
            }
        }
    }

    /// Notes how a job ended: the exit status of `drover lease`, and why it failed. Gives the line.
    pub fn ended(&mut self, index: usize, end: &JobEnd, at_ms: u64) -> Option<(Tone, String)> {
        let row = self.jobs.get_mut(index)?;
        let JobEnd { exit, ref error } = *end;
        row.state = JobState::Done;
        row.ended_at_ms = Some(at_ms);
        row.exit = exit;
        row.as_expected = row.job.expects(exit);
        if !error.is_empty() && exit != Some(0) {
            row.output = one_line(error);
        }
        let exit = exit.map_or("no exit status".to_owned(), |exit| format!("exit {exit}"));
        let word = if row.as_expected { "as expected" } else { "NOT as expected" };
        let tone = if row.as_expected { Tone::Good } else { Tone::Bad };
        Some((tone, format!("job {:<9} {exit} ({word}): {}", row.job.name, row.output)))
    }

    /// Whether all jobs have ended.
    pub fn is_batch_done(&self) -> bool {
        self.jobs.iter().all(|row| row.state == JobState::Done)
    }

    /// Whether all jobs have ended as expected.
    pub fn is_good(&self) -> bool {
        self.jobs.iter().all(|row| row.state == JobState::Done && row.as_expected)
    }

    /// Leases whose command was killed, and which nobody else releases.
    pub fn abandoned_leases(&self) -> Vec<(String, String)> {
        let killed = |row: &&JobRow| row.state == JobState::Done && row.exit.is_none();
        let abandoned = self.jobs.iter().filter(killed).filter(|row| !row.lease_ended);
        abandoned.filter_map(|row| Some((row.job.name.clone(), row.lease.clone()?))).collect()
    }
}

/// A text as one line in which nothing can move the cursor.
pub fn one_line(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '?',
        c => c,
    };
    text.trim_end().chars().map(harmless).collect()
}

#[cfg(test)]
mod tests;
