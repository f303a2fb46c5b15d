//! Where an agent is in its life: the states of agent-machine, with what only each part needs.

use drover_model::fault::Fault;
use drover_model::id::{Attempt, LeaseId, Upid};
use drover_model::ledger::GrantedLease;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::time::{Moment, WallTime};

/// Where an agent is in its life, with what only that part needs.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Waits for a place in the lanes and a VMID.
    Queued,
    /// The clone was asked for.
    Cloning {
        /// What it waits for.
        step: CloneStep,
        /// Why it is not wanted any more; a clone is never cut.
        cancelled: Option<Reason>,
    },
    /// Nobody knows whether the clone was made.
    InDoubt {
        /// Before this moment a free id proves nothing.
        horizon: Moment,
        /// How the clone's task died, once that is known.
        dead: Option<Fault>,
        /// Why it is not wanted any more.
        cancelled: Option<Reason>,
    },
    /// Cloud-init, sizes and tags are being set.
    Configuring,
    /// The guest starts and gets its address.
    Booting(BootStep),
    /// SSH is being reached.
    Connecting {
        /// Whether the host keys were read a second time after a mismatch.
        reread: bool,
        /// Whether that reading is what it waits for.
        reading: bool,
    },
    /// The guest is made ready over SSH.
    Preparing(PrepareStep),
    /// Free for use.
    Ready,
    /// In use, perhaps with executors free.
    Leased,
    /// In use for the last time.
    Draining(Reason),
    /// Being made clean again after its last lease.
    Resetting(ResetStep),
    /// Kept for an operator to look into.
    Held {
        /// Until when, for people.
        until: WallTime,
        /// Until when, by this clock.
        ends: Moment,
        /// Whether the operator can log in.
        login: Login,
    },
    /// On its way out.
    Retiring {
        /// Why.
        reason: Reason,
        /// How far.
        step: RetireStep,
        /// Whether it is to be shut down before it is stopped: owed once.
        graceful: bool,
        /// Whether the alarm of its deadline was given.
        alarmed: bool,
    },
    /// Needs an administrator.
    Stranded {
        /// Why.
        why: String,
        /// What to run.
        command: String,
        /// Why it was being retired, when it was.
        reason: Option<Reason>,
        /// Whether the id is free and only remains are being looked for.
        listing: bool,
    },
    /// Gone; the actor ends.
    Gone {
        /// Why.
        reason: Reason,
        /// Whether the id is burned.
        burned: bool,
    },
}

/// How far the operator's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// To be installed.
    Owed,
    /// Installed.
    Open,
    /// It could not be installed.
    Closed,
}

/// What `Cloning` waits for.
#[derive(Debug, Clone, PartialEq)]
pub enum CloneStep {
    /// The call.
    Call,
    /// The call failed: whether the id is still free.
    Check(Fault),
    /// The task.
    Task(Upid),
}

/// What `Booting` waits for.
#[derive(Debug, Clone, PartialEq)]
pub enum BootStep {
    /// The start call.
    Start,
    /// The start's task.
    Task(Upid),
    /// The status, because the start's outcome is unclear.
    Check(Fault),
    /// The address.
    Address,
    /// The host keys.
    HostKeys,
}

/// What `Preparing` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareStep {
    /// Cloud-init's end.
    CloudInit,
    /// The working directory.
    RemoteFs,
    /// Java, where it is to be installed.
    Java,
    /// The template's own step of this place in its list.
    Own(usize),
    /// The template's own command.
    ReadyCommand,
    /// The snapshot that resets go back to.
    Snapshot,
}

/// What `Resetting` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetStep {
    /// The way back to the snapshot.
    Rollback,
    /// The address, which may be another now.
    Address,
    /// The login.
    Greet,
    /// Clock, network, randomness and sessions.
    Mend,
    /// The template's own command.
    ReadyCommand,
}

/// How far `Retiring` is. Every attempt starts again at the fence, which verifies the marks.
#[derive(Debug, Clone, PartialEq)]
pub enum RetireStep {
    /// The marks are read and the guest is tagged.
    Fence,
    /// The door of SSH is closed from inside.
    Close,
    /// The guest could not be found where it was: where it is.
    Find,
    /// The shutdown call.
    Shutdown,
    /// The shutdown's task.
    ShutdownTask(Upid),
    /// The stop call.
    Stop,
    /// The stop's task.
    StopTask(Upid),
    /// The destroy call.
    Destroy,
    /// The destroy's task.
    DestroyTask(Upid),
    /// The destroy's outcome is unclear: whether the id is free.
    Confirm,
    /// The destroy left warnings: what remains.
    Leftovers,
}

impl State {
    /// Its phase, without what only the phase needs.
    pub fn phase(&self) -> AgentPhase {
        match self {
            Self::Queued => AgentPhase::Queued,
            Self::Cloning { .. } => AgentPhase::Cloning,
            Self::InDoubt { .. } => AgentPhase::InDoubt,
            Self::Configuring => AgentPhase::Configuring,
            Self::Booting(_) => AgentPhase::Booting,
            Self::Connecting { .. } => AgentPhase::Connecting,
            Self::Preparing(_) => AgentPhase::Preparing,
            Self::Ready => AgentPhase::Ready,
            Self::Leased => AgentPhase::Leased,
            Self::Draining(_) => AgentPhase::Draining,
            Self::Resetting(_) => AgentPhase::Resetting,
            Self::Held { .. } => AgentPhase::Held,
            Self::Retiring { .. } => AgentPhase::Retiring,
            Self::Stranded { .. } => AgentPhase::Stranded,
            Self::Gone { .. } => AgentPhase::Gone,
        }
    }

    /// Why it goes, or is to go as soon as its clone is there.
    pub fn leaving(&self) -> Option<&Reason> {
        match self {
            Self::Cloning { cancelled: reason, .. }
            | Self::InDoubt { cancelled: reason, .. }
            | Self::Stranded { reason, .. } => reason.as_ref(),
            Self::Draining(reason) | Self::Retiring { reason, .. } | Self::Gone { reason, .. } => {
                Some(reason)
            }
            Self::Queued
            | Self::Configuring
            | Self::Booting(_)
            | Self::Connecting { .. }
            | Self::Preparing(_)
            | Self::Ready
            | Self::Leased
            | Self::Resetting(_)
            | Self::Held { .. } => None,
        }
    }

    /// Whether the guest is known to be there, ours, and meant for use.
    pub fn is_alive(&self) -> bool {
        self.phase().is_alive()
    }
}

/// Where a lease on this agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its key is being installed.
    Admitting,
    /// In use.
    Ready,
    /// Its end is written down, its key is being removed.
    Expelling,
}

/// A lease on this agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// As asked for, and its end as its holder and the journal know it.
    pub granted: GrantedLease,
    /// When it ends: by this clock, which nobody sets forward (design rule 13).
    pub ends: Moment,
    /// Where it is.
    pub stage: Stage,
    /// The call under way for it.
    pub asked: Option<Attempt>,
    /// When that call is made again.
    pub retry: Option<Moment>,
    /// How often it failed.
    pub tries: u32,
    /// Whether its holder was ever told that it is ready.
    pub told_ready: bool,
    /// Why it fails as soon as its guest was asked about its runner.
    pub failing: Option<String>,
    /// Whether its call waits until another change of the guest's keys is over.
    pub waits: bool,
    /// Since when its call is due, which is its place among those that wait: its grant, its end, or
    /// the end of a pause between two tries.
    pub due: Moment,
    /// Whether the call under way is one of a stage that is over.
    pub outdated: bool,
    /// Whether it goes on from an earlier start of the service, and nobody has been in its guest
    /// since.
    pub unseen: bool,
    /// Whether its runner can be at work although nobody was told that it started.
    pub unsure: bool,
    /// Whether it is over for everybody else although its key could not be removed yet.
    pub let_go: bool,
}

impl Lease {
    /// Whether a runner of a source is what it puts into the guest.
    pub fn is_runners(&self) -> bool {
        self.granted.ask.source.is_some()
    }

    /// Its call is made again at this moment, behind those that wait by then.
    pub fn retry_at(&mut self, at: Moment) {
        self.retry = Some(at);
        self.due = at;
    }

    /// What decides whose call is made first: since when it is due, then who asked first.
    pub fn place(&self) -> (Moment, WallTime, &LeaseId) {
        let ask = &self.granted.ask;
        (self.due, ask.asked, &ask.lease)
    }

    /// One that nothing was done for yet.
    pub fn new(granted: GrantedLease, now: Moment, ends: Moment, stage: Stage) -> Self {
        Self {
            granted,
            due: now,
            ends,
            told_ready: stage != Stage::Admitting,
            stage,
            asked: None,
            retry: None,
            tries: 0,
            failing: None,
            waits: false,
            outdated: false,
            unseen: false,
            unsure: false,
            let_go: false,
        }
    }
}

/// Why an agent goes from one phase to the next where nothing out of the ordinary did it.
pub fn usual(from: AgentPhase, to: AgentPhase) -> &'static str {
    use AgentPhase as Phase;
    match (from, to) {
        (Phase::Queued, Phase::Cloning) => "it has a place and a VMID",
        (Phase::Cloning, Phase::InDoubt) => "whether its clone was made is not known",
        (Phase::Cloning | Phase::InDoubt, Phase::Configuring) => "its clone is there",
        (Phase::Configuring, Phase::Booting) => "it is configured",
        (Phase::Booting | Phase::Resetting, Phase::Connecting) => {
            "it runs, and its address is known"
        }
        (Phase::Connecting, Phase::Preparing) => "it lets drover in",
        (Phase::Connecting | Phase::Preparing, Phase::Ready) => "it is prepared",
        (Phase::Resetting, Phase::Ready) => "it is as new",
        (Phase::Leased | Phase::Draining, Phase::Ready) => "its last lease ended",
        (Phase::Held, Phase::Ready) => "its hold ended",
        (_, Phase::Leased) => "it was handed out",
        (_, Phase::Draining) => "it takes no new lease, and goes after the last one",
        (_, Phase::Resetting) => "it is put back to how it was after its clone",
        (_, Phase::Held) => "it is held",
        (_, Phase::Gone) => "it is destroyed",
        (_, _) => "it went on",
    }
}
