//! The ways out: what the actors may ask of the world. `src/` implements these; tests and storms
//! put the simulated cluster beneath the same implementations. `operations.rs` lists their calls.
//!
//! Every future is driven on the actors' thread and only waits; work happens on the ports' own
//! runtime. Dropping a future does not take the call back.

mod order;
mod ran;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::container::GuestType;
use crate::demand::{report::UnreadJob, words::Words};
use crate::fact::Fact;
use crate::fault::{Culprit, Fault, FaultKind};
use crate::id::{CloudId, ClusterId, NodeName, RunnerName, SourceId, VmId};
use crate::image::{Downloader, Hardware};
use crate::marks::{Marks, Reading};
use crate::noted::Noted;
use crate::os::Os;
use crate::record::{Body, Want};
use crate::spec::{SshSpec, TemplateSpec, WindowSpec};
use crate::time::{Now, WallTime};

pub use order::{Carried, OrderCall};
pub use ran::Ran;

pub use crate::demand::report::{JobObservation, JobOrigin};
pub use crate::operations::{Demand, Hypervisor, Shell};
#[cfg(any(test, feature = "testing"))]
pub use crate::operations::{FakeHypervisor, FakeShell};

/// What a port gives back.
pub type Ask<T> = BoxFuture<'static, Result<T, Fault>>;

/// A guest's place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VmRef {
    /// The cloud to go through.
    pub cloud: CloudId,
    /// The node it is on, as last known.
    pub node: NodeName,
    pub vmid: VmId,
    /// Whether it is a container, which has calls of its own.
    pub guest: GuestType,
}

/// What a cloud's endpoint says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterObservation {
    /// Which cluster it is.
    pub cluster: ClusterId,
    /// Proxmox's version, such as `8.4.21`.
    pub version: String,
    /// Whether it is quorate (a lone node is).
    pub quorate: bool,
    /// Its nodes and whether each is online.
    pub nodes: Vec<(NodeName, bool)>,
}

/// A guest in a list: an index, never proof (book: safety, rules 4 and 5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub vmid: VmId,
    /// The node it is on.
    pub node: NodeName,
    /// Its name, once the list knows it.
    pub name: Option<String>,
    pub tags: Vec<String>,
    /// Proxmox's `lock` of its config, such as `backup` or `migrate`.
    pub lock: Option<String>,
    /// Its status: `running`, `stopped`, `unknown`, …
    pub status: String,
    /// Whether it is a template.
    pub template: bool,
    /// Whether it is a container.
    pub container: bool,
}

/// All guests of a cluster in one read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Guests the token may see.
    pub guests: Vec<Listed>,
    /// Nodes and whether each is online.
    pub nodes: Vec<(NodeName, bool)>,
    /// Whether the endpoint that answered is quorate.
    pub quorate: bool,
    /// How long ago the list was asked for.
    pub age: Duration,
}

/// Whether an id is taken, from `nextid?vmid=N` of a quorate endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdStatus {
    /// Nobody has it.
    Free,
    /// Somebody has it.
    Taken,
    /// The endpoint was not quorate or did not answer: no evidence.
    Unknown,
}

/// One guest, read directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmObservation {
    /// Whether the id is taken.
    pub id: IdStatus,
    /// The node it was found on, when it was.
    pub node: Option<NodeName>,
    /// Its marks; none when its config could not be read.
    pub marks: Option<Reading>,
    /// Proxmox's `lock` of its config, such as `backup` or `migrate`.
    pub lock: Option<String>,
    /// Whether it runs; none when that could not be read.
    pub running: Option<bool>,
}

/// A clone to be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct CloneCall {
    /// The cloud to go through.
    pub cloud: CloudId,
    /// The node of the template.
    pub node: NodeName,
    /// The node that the clone goes to, when it is another one.
    pub target: Option<NodeName>,
    /// The marks the new guest carries; the new VMID is in them.
    pub marks: Marks,
    /// What to clone and how.
    pub spec: TemplateSpec,
}

/// A guest to be configured after its clone.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigureCall {
    pub vm: VmRef,
    /// The marks it must carry; anything else is `Foreign` and nothing is written.
    pub marks: Marks,
    /// The values to set.
    pub spec: TemplateSpec,
}

/// A guest whose snapshot from before its first use drover takes or goes back to.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotCall {
    pub vm: VmRef,
    /// The marks it must carry; anything else is `Foreign` and nothing is written.
    pub marks: Marks,
    /// Whether it holds the memory too.
    pub memory: bool,
    /// How long its task may take.
    pub limit: Duration,
}

/// What a storage holds a file as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A disk image that guests are made of.
    DiskImage,
    /// An ISO image that guests boot from.
    Iso,
}

impl FileKind {
    /// Proxmox's word for such content.
    pub fn word(self) -> &'static str {
        match self {
            Self::DiskImage => "import",
            Self::Iso => "iso",
        }
    }
}

/// The source of an image, to be brought to a storage of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullCall {
    /// The cloud to go through.
    pub cloud: CloudId,
    pub node: NodeName,
    pub storage: String,
    /// Where it is.
    pub url: String,
    /// Its checksum, in hexadecimal digits, and what kind of one, as Proxmox names it.
    pub checksum: String,
    pub algorithm: String,
    pub kind: FileKind,
    /// What it is called on the storage.
    pub file: String,
    pub by: Downloader,
    /// How long the call may take.
    pub limit: Duration,
}

impl PullCall {
    /// Proxmox's volume id of the file.
    pub fn volume(&self) -> String {
        format!("{}:{}/{}", self.storage, self.kind.word(), self.file)
    }
}

/// What the disk of a new guest begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewDisk {
    /// A copy of this volume.
    CopyOf(String),
    /// Nothing, and so many GiB; the guest boots from this ISO image while its disk is empty.
    InstalledFrom { iso: String, gib: u32 },
}

/// A guest to be made of a disk image, or to be installed.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateCall {
    /// The cloud to go through.
    pub cloud: CloudId,
    pub node: NodeName,
    /// The marks it carries; its VMID is in them.
    pub marks: Marks,
    pub hardware: Hardware,
    pub disk: NewDisk,
    /// The storage of its disks.
    pub storage: String,
    /// What else it is to be: name, description, sizes, pool.
    pub spec: TemplateSpec,
}

/// An installed guest whose discs are taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EjectCall {
    pub vm: VmRef,
    /// The marks it must carry; anything else is `Foreign` and nothing is written.
    pub marks: Marks,
    /// Its own disc image for cloud-init, which is removed.
    pub disc: Option<String>,
}

/// A built guest that becomes a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishCall {
    pub vm: VmRef,
    /// The marks it must carry; anything else is `Foreign` and nothing is written.
    pub marks: Marks,
    /// The storage of its cloud-init drive.
    pub storage: String,
    /// Its own disc image for cloud-init, which is removed.
    pub disc: Option<String>,
}

/// A template that gets the marks of an image, or a guest that gets those of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealCall {
    pub vm: VmRef,
    /// The marks it must carry; none for a template that is taken over, which must carry none.
    pub from: Option<Marks>,
    /// The marks that it gets.
    pub to: Marks,
    /// Text for people.
    pub description: String,
    /// Whether to change nothing, and to say only what would refuse it.
    pub dry_run: bool,
}

/// What came of taking a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapped {
    /// It is there.
    Taken,
    /// There can be none: a right is missing, or its storage has no snapshots. In words for people.
    Impossible(String),
}

/// What configuring found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// The guest's volumes.
    pub volumes: Vec<String>,
    /// The MAC address of net0, upper case.
    pub mac: Option<String>,
    /// Tags were refused and left out, with the refusal.
    pub tags_refused: Option<String>,
    /// The disc image was refused, so that nothing of it was stored; nothing else was done then.
    pub image_refused: Option<Fault>,
}

/// A disc image on a storage that drover made, with its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageObservation {
    /// The node that sees it.
    pub node: NodeName,
    /// Its volume id.
    pub volume: String,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    /// `OK`, or `WARNINGS: n` with the lines of the warnings.
    Done {
        /// Warnings, oldest first.
        warnings: Vec<String>,
    },
    Failed(Fault),
    /// `unexpected status`, or the task is unknown: the effect may have happened.
    Unknown(String),
}

/// What the guest says of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressObservation {
    /// The agent does not answer, or there is no fitting address yet.
    NotYet(String),
    /// The address to connect to.
    At(std::net::IpAddr),
}

/// A guest and how to log in to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellTarget {
    pub address: std::net::IpAddr,
    /// How to log in.
    pub ssh: SshSpec,
    /// What runs there.
    pub os: Os,
    /// Known host keys, public key lines; empty to trust and learn at the first connection.
    pub host_keys: Vec<String>,
}

/// What becomes of the SSH sessions of a guest, and of the programs they started, when a lease ends.
/// No guest says which session is of which lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    /// They go on: somebody else is in the guest.
    Stay,
    /// They end, but for drover's own.
    End,
}

/// What is put into a guest for anyone who holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The key that is added to the login's authorised keys, tagged with the lease.
    pub public_key: Option<String>,
    /// Whether the lease's user data goes there, which the port itself keeps.
    pub user_data: bool,
}

impl Holder {
    /// Somebody who only logs in.
    pub fn of_key(public_key: impl Into<String>) -> Self {
        Self { public_key: Some(public_key.into()), user_data: false }
    }
}

/// What a machine shows of itself at a first login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    /// The SSH host key, as a public key line.
    pub host_key: String,
    /// The MAC addresses of its network cards; none where it cannot be asked.
    pub cards: Vec<String>,
}

impl From<&str> for Greeting {
    fn from(host_key: &str) -> Self {
        Self { host_key: host_key.to_owned(), cards: Vec::new() }
    }
}

/// A runner to be put on an agent, or taken from it.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRunnerCall {
    pub source: SourceId,
    /// Its name there.
    pub runner: RunnerName,
    /// The guest it runs in.
    pub target: ShellTarget,
    /// The spec of its agent: labels, executors, folders.
    pub spec: Arc<TemplateSpec>,
    /// What it was started for.
    pub want: Want,
}

/// A runner at a source whose name is one of drover's, of whichever installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowObservation {
    pub runner: RunnerName,
    /// Whether it is connected.
    pub online: bool,
    /// Jobs that run on it.
    pub jobs: u32,
    /// One of them, where that is known.
    pub job: Option<String>,
    /// What it is worth that no job is on it.
    pub idle: Idle,
    /// What sources report whose runners are nodes that take job after job.
    pub node: NodeObservation,
}

/// What it is worth that a source shows no job on a runner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Idle {
    /// The source knows it.
    #[default]
    Known,
    /// The source draws it from when it heard of the runner last, or may not see all jobs.
    Guessed,
    /// The runner had its job, and the source shows none on it now; that is drawn, too.
    Spent,
    /// The source knows that the runner's job is over. The runner waits for another, and may still send
    /// the end of that job's log.
    Over,
}

/// Runners that a look reports on, each with the numbers that its rows are known to have.
pub type Known = BTreeMap<RunnerName, BTreeSet<u64>>;

/// What only sources report whose runners are nodes that take job after job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeObservation {
    /// The jobs on it by their ids, as far as those are known.
    pub running: BTreeSet<String>,
    /// Whether it takes jobs.
    pub shut: Shut,
    /// Why it is not connected, in its source's words.
    pub reason: Option<String>,
}

/// What keeps a node from taking jobs, connected or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Shut {
    /// Nothing keeps drover from making runners.
    #[default]
    Open,
    /// drover said so.
    Quiet,
    /// A person said so there.
    Person,
    /// Its source finds it unfit, for this reason.
    Unfit(String),
}

/// What a source says at one moment. Runners were read before jobs, so that a job taken meanwhile
/// is in neither rather than in both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceObservation {
    /// Runners that were seen. One that is missing here may be there all the same: lists come in
    /// pages, which shift while they are read.
    pub rows: Vec<RowObservation>,
    /// Runners that were asked for and are not there: the source was asked for each by itself.
    pub gone: BTreeSet<RunnerName>,
    /// Runners that `rows` has for their jobs alone: the source was asked for each and has no row of it.
    pub removed: BTreeSet<RunnerName>,
    /// Those of `gone` whose job is over, as the source says of that very job, and how, in one word.
    pub over: BTreeMap<RunnerName, &'static str>,
    /// Runners that were asked for and had all jobs that they are given, as the source says.
    pub done: BTreeSet<RunnerName>,
    /// Whether `rows` has all rows; a list that was cut, or changed while it was read, is not whole.
    pub whole: bool,
    /// The numbers that rows of runners have or had, as far as the source named them.
    pub numbers: Known,
    /// Jobs that wait for a runner and nothing else.
    pub jobs: Vec<JobObservation>,
    /// Jobs that wait and do not say what they want.
    pub unread: Vec<UnreadJob>,
    /// What keeps runners from being made or jobs from being read, in words for people.
    pub obstacle: Option<String>,
}

/// No source of demand.
pub struct NoDemand;

impl NoDemand {
    fn none<T: Send + 'static>(source: &SourceId) -> Ask<T> {
        let text = format!("source `{source}` is not configured");
        let fault = Fault::new(FaultKind::Gone, Culprit::Source(source.clone()), text);
        Box::pin(std::future::ready(Err(fault)))
    }
}

impl Demand for NoDemand {
    fn look_at_jobs(&self, source: &SourceId, _: &Known) -> Ask<SourceObservation> {
        Self::none(source)
    }

    fn start_runner(&self, call: StartRunnerCall, _: Duration) -> Ask<()> {
        Self::none(&call.source)
    }

    fn stop_runner(&self, call: StartRunnerCall, _: Duration) -> Ask<()> {
        Self::none(&call.source)
    }

    fn words(&self, call: StartRunnerCall, _: Duration) -> Ask<Words> {
        Self::none(&call.source)
    }

    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        Self::none(source)
    }

    fn quiet(&self, source: &SourceId, _: &RunnerName) -> Ask<()> {
        Self::none(source)
    }

    fn deregister(&self, source: &SourceId, _: &RunnerName) -> Ask<()> {
        Self::none(source)
    }
}

/// Why the journal took nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalFault {
    /// Somebody else leads: nothing may be done any more.
    #[error("another drover took the journal over")]
    Fenced,
    /// The write failed; the same append may be tried again.
    #[error("the journal could not be written: {0}")]
    Failed(String),
}

pub trait Journal: Send + Sync + 'static {
    /// Appends records in order; done when all of them are durable if any is *before acting*,
    /// else when they are accepted. Gives the sequence of the first one.
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>>;
    /// The sequence of the last record appended, for judging marks (book: safety, rule 14).
    fn last_seq(&self) -> u64;
}

/// Where facts go: the read side. Must not block and must not fail.
pub trait Observer: Send + Sync + 'static {
    /// Takes one fact.
    fn observe(&self, fact: Fact);

    /// Takes what the history alone hears.
    fn note(&self, _at: WallTime, _noted: Noted) {}
}

/// Time and chance, the two inputs nobody may fetch elsewhere.
pub trait Ambient: Send + Sync + 'static {
    /// The monotonic and the wall clock, read at one moment.
    fn now(&self) -> Now;
    /// 64 random bits from the service's seeded dice.
    fn draw(&self) -> u64;
}

/// What a window of a schedule is at a wall time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowStatus {
    /// Whether it is open.
    pub open: bool,
    /// When it closed last, while it is closed.
    pub closed: Option<WallTime>,
    /// When that must be looked at again.
    pub until: Option<WallTime>,
}

/// Cron patterns and time zones. Must not block.
pub trait Calendar: Send + Sync + 'static {
    /// What a window is at a wall time; one that cannot be read is never open.
    fn observation(&self, window: &WindowSpec, at: WallTime) -> WindowStatus;
}

/// All ways out, as handed to every actor.
#[derive(Clone)]
pub struct Ports {
    pub hypervisor: Arc<dyn Hypervisor>,
    pub shell: Arc<dyn Shell>,
    pub demand: Arc<dyn Demand>,
    pub journal: Arc<dyn Journal>,
    /// The read side.
    pub observer: Arc<dyn Observer>,
    /// Time and chance.
    pub ambient: Arc<dyn Ambient>,
    /// Cron patterns and time zones.
    pub calendar: Arc<dyn Calendar>,
}
