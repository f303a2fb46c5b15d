//! The states of an agent, with the data that only one state needs (book: agents, The life of an
//! agent).
//!
//! ```text
//! Queued ──▶ Cloning ──▶ Configuring ──▶ Booting ──▶ Connecting ──▶ Preparing ──▶ Ready
//!               │              ▲                                                   ▲ │ lease
//!               ▼              │ our marks                          last lease ends│ ▼
//!            InDoubt ──────────┘                    Resetting ◀── last lease ── Leased
//!               │ deadline, damaged marks             │ clean: Ready               │ drain
//!               ▼                                     ▼ fails                      ▼
//!           Stranded ◀── foreign, remains ──────── Retiring ◀── last lease ── Draining
//!               │ repaired: Retiring                  │ confirmed gone
//!               └──────────── id free ──────────────▶ Gone
//!
//! Ready, Leased, Resetting or a failed start ── hold ──▶ Held ── hold over ──▶ Retiring
//! ```
//!
//! - After a state's deadline `late` in `mind.rs` decides: `Queued` goes to `Gone`, `Cloning` to
//!   `InDoubt`, `InDoubt` to `Stranded`, the others to `Retiring`. `Retiring` itself only alarms.
//! - While a guest lives, a free id means `Gone` (`Retiring`, where a disc image remains), and
//!   foreign or damaged marks mean `Stranded`.
//! - [`State`] never leaves the actor. [`AgentPhase`] is the same without its data: journal,
//!   reports and API use it.
//!
//! Beside it: `mind.rs` moves between states, `event.rs` has the calls, `transitions.txt` has every
//! transition, drawn from the code by a test.

use drover_model::fault::Fault;
use drover_model::id::Upid;
use drover_model::phase::{AgentPhase, LoginPhase};
use drover_model::record::Reason;
use drover_model::time::{Moment, WallTime};

/// The state of an agent, with the data that only this state needs.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Waits for a place in the concurrency limits and a VMID.
    Queued,
    /// Waits for the clone call, then for its task.
    Cloning {
        step: CloneStep,
        /// Why the agent is not needed any more. drover never interrupts a clone.
        cancelled: Option<Reason>,
    },
    /// The outcome of the clone is unknown.
    InDoubt {
        /// A free id proves nothing before this moment.
        horizon: Moment,
        /// How the clone's task died, once known.
        dead: Option<Fault>,
        /// Why the agent is not needed any more.
        cancelled: Option<Reason>,
    },
    /// Sets cloud-init, sizes and tags.
    Configuring,
    /// Starts the guest and finds its address.
    Booting(BootStep),
    /// Waits for SSH.
    Connecting {
        step: ConnectStep,
    },
    /// Prepares the guest over SSH.
    Preparing(PrepareStep),
    Ready,
    /// In use; executors may be free.
    Leased,
    /// In use; takes no new lease.
    Draining(Reason),
    /// Returns to the snapshot after the last lease.
    Resetting {
        step: ResetStep,
        since: Moment,
    },
    /// Reserved for an operator's debugging.
    Held {
        /// The end in wall time, for people.
        until: WallTime,
        /// The end in monotonic time.
        ends: Moment,
        /// Whether the operator's key is in the guest.
        login: LoginPhase,
    },
    /// Stops and destroys the guest.
    Retiring {
        reason: Reason,
        step: RetireStep,
        /// Whether a shutdown, or closing SSH, comes before the stop. It is tried once.
        graceful: bool,
        /// Whether the deadline's alarm was sent.
        alarmed: bool,
        since: Moment,
    },
    Stranded {
        why: String,
        /// The command that helps the administrator.
        command: String,
        /// Why the agent was retiring, where it was.
        reason: Option<Reason>,
        /// Whether the id is free and only remains are listed.
        listing: bool,
    },
    /// The actor ends.
    Gone {
        reason: Reason,
        /// Whether the id is burned.
        burned: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum CloneStep {
    Call,
    /// The call failed; waits for whether the id is still free.
    Check(Fault),
    Task(Upid),
}

#[derive(Debug, Clone, PartialEq)]
pub enum BootStep {
    Start,
    Task(Upid),
    /// Reads the guest's status, because the outcome of the start is unclear.
    Check(Fault),
    Address,
    HostKeys,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectStep {
    Greet,
    /// The machine showed another host key than the guest agent reported. Reads the keys once more.
    ReadKeys,
    /// Greets with the keys of that reading.
    GreetAgain,
    /// The machine showed this host key. Asks the guest agent whether it is the guest's.
    CompareKeys(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareStep {
    /// Waits for the end of cloud-init.
    CloudInit,
    /// Creates the working directory.
    RemoteFs,
    /// Installs Java, where the template asks for it.
    Java,
    /// The template's own step with this index.
    Own(usize),
    /// The template's `readyCommand`.
    ReadyCommand,
    /// Takes the snapshot for resets.
    Snapshot,
    /// Asks a guest in which a step failed what a person must know of it.
    Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetStep {
    /// Returns to the snapshot.
    Rollback,
    /// Reads the address, which may have changed.
    Address,
    Greet,
    /// Repairs clock, network, randomness and sessions.
    Remedy,
    /// The template's `readyCommand`.
    ReadyCommand,
}

/// The step of `Retiring`. Every new try starts at the fence, which verifies the marks.
#[derive(Debug, Clone, PartialEq)]
pub enum RetireStep {
    /// Reads the marks and tags the guest.
    Fence,
    /// Closes SSH from inside the guest.
    Close,
    /// Looks for a guest that is not on its known node.
    Find,
    Shutdown,
    ShutdownTask(Upid),
    Stop,
    StopTask(Upid),
    Destroy,
    DestroyTask(Upid),
    /// The outcome of the destroy is unclear: checks whether the id is free.
    Confirm,
    /// The destroy ended with warnings: lists what remains.
    Leftovers,
}

impl State {
    /// The state without its data.
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
            Self::Resetting { .. } => AgentPhase::Resetting,
            Self::Held { .. } => AgentPhase::Held,
            Self::Retiring { .. } => AgentPhase::Retiring,
            Self::Stranded { .. } => AgentPhase::Stranded,
            Self::Gone { .. } => AgentPhase::Gone,
        }
    }

    /// Why the agent retires, or will retire as soon as its clone is there.
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
            | Self::Resetting { .. }
            | Self::Held { .. } => None,
        }
    }

    /// Whether the guest is known to exist, is ours and is meant for use.
    pub fn is_alive(&self) -> bool {
        self.phase().is_alive()
    }
}

/// Why an agent goes from one phase to the next, where no fault and no command is the reason.
pub fn usual(from: AgentPhase, to: AgentPhase) -> &'static str {
    use AgentPhase as Phase;
    match (from, to) {
        (Phase::Queued, Phase::Cloning) => "it has a place and a VMID",
        (Phase::Cloning, Phase::InDoubt) => "whether its clone was made is not known",
        (Phase::Cloning | Phase::InDoubt, Phase::Configuring) => "its clone is there",
        (Phase::Configuring, Phase::Booting) => "it is configured",
        (Phase::Booting, Phase::Connecting) => "it runs, and its address is known",
        (Phase::Connecting, Phase::Preparing) => "it lets drover in",
        (Phase::Preparing, Phase::Ready) => "it is prepared",
        (Phase::Resetting, Phase::Ready) => "it is as new",
        (Phase::Leased, Phase::Ready) => "its last lease ended",
        (_, Phase::Leased) => "it was handed out",
        (_, Phase::Draining) => "it takes no new lease, and goes after the last one",
        (_, Phase::Resetting) => "it is put back to how it was after its clone",
        (_, Phase::Held) => "it is held",
        (_, Phase::Gone) => "it is destroyed",
        (_, _) => "it went on",
    }
}
