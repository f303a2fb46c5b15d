//! One line of a trace, by what it is about.

use drover_model::record::Want;
use drover_model::time::WallTime;
use serde::{Deserialize, Serialize};

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first line.
    Trace(Header),
    Demand(Box<Demand>),
    Agent(Box<Agent>),
    Configuration(Configuration),
    Service(Service),
    /// The last line.
    End(End),
}

/// What a trace is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The format's number, [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// The version of drover that wrote it.
    pub drover: String,
    /// The first moment of the range.
    pub from: WallTime,
    /// The first moment after the range.
    pub to: WallTime,
    /// Whether names are as they were, and not hashed.
    pub names: bool,
    /// What was left out, each a sentence for people.
    pub left_out: Vec<String>,
    /// What nodes had when the trace was written; none in traces from before it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSize>,
}

/// What a node had for agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSize {
    /// A cloud that leads to its cluster.
    pub cloud: String,
    pub node: String,
    /// Threads of processors.
    pub cores: u32,
    /// Memory in MiB, without what the guests of others took.
    pub memory_mib: u64,
}

/// The end of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// Lines between the header and this one.
    pub lines: u64,
    /// Why records of the range are missing, where some are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Lines of the history that cannot be read, such as the one at which drover was killed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unread: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

impl End {
    /// Why the trace is not whole; none where it is.
    pub fn shortfall(&self) -> Option<String> {
        self.cut.clone().or_else(|| unread_note(self.unread))
    }
}

/// What people read of so many lines of the history that cannot be read; nothing of none.
pub fn unread_note(lines: u64) -> Option<String> {
    (lines > 0).then(|| format!("lines of the history that cannot be read: {lines}"))
}

/// Who wanted something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DemandKind {
    /// Somebody asked for a lease.
    Lease,
    /// A job waited at a source. A replay takes these and the leases.
    Job,
    /// A runner that drover started at a source, for jobs that waited there. Its time is the use of the
    /// agent; the job's time is that of the job alone. A replay ignores these.
    Runner,
}

impl DemandKind {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Job => "job",
            Self::Runner => "runner",
        }
    }
}

/// How what was wanted came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    /// The job ran, the lease was given back, the runner was done.
    Done,
    /// Nobody wanted it any more before it was served.
    Withdrawn,
    /// No agent was there for it in time.
    WaitedTooLong,
    /// Its holder overstayed.
    Expired,
    /// It was lost with its agent, or its runner could not be started.
    Lost,
    /// The runner found no job.
    Idle,
    /// drover was not there to see it.
    Unseen,
}

impl How {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Withdrawn => "withdrawn",
            Self::WaitedTooLong => "waited-too-long",
            Self::Expired => "expired",
            Self::Lost => "lost",
            Self::Idle => "idle",
            Self::Unseen => "unseen",
        }
    }
}

/// Something that was wanted: a lease, a job, or a runner for jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demand {
    /// The lease's id, or the job's id at its source.
    pub id: String,
    pub kind: DemandKind,
    /// The source of demand; none for who asked for a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For whom it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The group whose it was too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What people call the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was wanted: a template or labels, and a size; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Want>,
    /// The priority of its source at its arrival; leases have that of `leases`.
    #[serde(default)]
    pub priority: i32,
    /// Whether it takes its agent with all executors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// When it was asked for, or waited first.
    pub arrived: WallTime,
    /// When it could work: its lease was ready, its job ran. None where it was never served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<WallTime>,
    /// The agent that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The template of that agent, `cloud/template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Cores of that agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory of that agent in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// When it was over, or was withdrawn; none while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<WallTime>,
    /// How; none while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<How>,
    /// When it took its agent: a lease is granted before it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<WallTime>,
    /// Milliseconds of its agent that are its own, from the grant to the end: where several share an
    /// agent, each has its part. None while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_ms: Option<u64>,
}

impl Demand {
    /// Something that was wanted at this time, and of which nothing else is known yet.
    pub fn new(kind: DemandKind, source: Option<String>, id: &str, arrived: WallTime) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            source,
            owner: None,
            group: None,
            name: None,
            wants: None,
            priority: 0,
            whole: false,
            arrived,
            served: None,
            agent: None,
            template: None,
            cores: None,
            memory_mib: None,
            ended: None,
            how: None,
            granted: None,
            used_ms: None,
        }
    }

    /// How long it waited, in milliseconds, once it was served.
    pub fn waited_ms(&self) -> Option<u64> {
        Some(between(self.arrived, self.served?))
    }

    /// How long it ran, in milliseconds, once it was served and is over.
    pub fn ran_ms(&self) -> Option<u64> {
        Some(between(self.served?, self.ended?))
    }
}

/// What an agent was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MadeFor {
    /// Something that waited.
    Demand,
    /// The warm pool.
    Pool,
    /// An operator, who wanted one more (`drover provision`).
    Operator,
    /// A trial of the template; it serves nobody.
    Trial,
    /// drover did not see it, as of an agent that an earlier version made.
    Unknown,
}

/// An agent's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub id: String,
    /// Its template, as `cloud/template`.
    pub template: String,
    pub cloud: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Cores of its machine, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory of its machine in MiB, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    pub made_for: MadeFor,
    /// When drover decided to make it.
    pub made: WallTime,
    /// When its clone started: from here on it costs. None where that never came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<WallTime>,
    /// When it was ready first; none where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<WallTime>,
    /// The parts of its way to ready, in order: phases, and steps within them. Until its end where it
    /// never was ready.
    pub boot: Vec<Part>,
    /// The parts of its life after that, in order, those of one name together.
    pub after: Vec<Part>,
    /// When its machine was gone; none while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<WallTime>,
    /// Why, in one word, such as `used-up`, `idle` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The phase that failed or took too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_in: Option<String>,
    /// The kind of fault, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Uses it served.
    #[serde(default)]
    pub uses: u32,
    /// The most that its machine was seen to use.
    #[serde(default, skip_serializing_if = "Peaks::is_none")]
    pub peaks: Peaks,
}

impl Agent {
    /// How long it took to be ready, in milliseconds, once it was.
    pub fn boot_ms(&self) -> Option<u64> {
        Some(between(self.made, self.ready?))
    }

    /// Whether it came to its end before it was ready, by a fault or since a phase took too long.
    pub fn has_failed(&self) -> bool {
        self.failed_in.is_some()
    }
}

/// The most that a machine was seen to use, by the lists of its cluster: one look in ten seconds at most,
/// so shorter peaks are missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peaks {
    /// Busy cores, in thousandths of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// How many looks they are from.
    pub looks: u32,
}

impl Peaks {
    /// Whether nothing was seen.
    pub fn is_none(&self) -> bool {
        self.looks == 0
    }

    /// The higher of both, part by part.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_mib: self.memory_mib.max(other.memory_mib),
            looks: self.looks.saturating_add(other.looks),
        }
    }
}

/// A part of an agent's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// A phase, or a step of one.
    pub name: String,
    pub ms: u64,
}

/// A configuration came into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    pub at: WallTime,
    /// Its number, counted from the start of the service.
    pub generation: u64,
    /// The SHA-256 of what was read, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The service started or stopped: between a stop, or a death, and the next start drover saw nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    pub at: WallTime,
    pub change: ServiceChange,
    /// The version that did.
    pub drover: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceChange {
    Started,
    Stopped,
}

/// Milliseconds between two wall times; zero where the clock was set back between them.
fn between(from: WallTime, to: WallTime) -> u64 {
    u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0)
}
