//! Why an agent is retired, and which of these is a failure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::FaultKind;
use crate::phase::AgentPhase;

/// Why an agent is retired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// Idle for longer than it may be.
    Idle,
    /// Used as often as it may be.
    UsedUp,
    /// Older than it may be.
    Old,
    /// An operator said so; journals from before the name was written.
    Asked,
    /// An operator said so, who is named as leases name their owners.
    AskedBy {
        /// Such as `token:ci`.
        by: String,
    },
    /// It was held for debugging, and that is over.
    HoldOver,
    Reaped,
    /// Its template makes agents otherwise by now.
    Outdated,
    /// Its template or cloud left the configuration.
    Unconfigured,
    /// The service stops and retires agents.
    Stopping,
    /// A lease ran out.
    LeaseExpired,
    /// The guest powered itself off, or was.
    PoweredOff,
    /// The guest is gone from the cluster.
    Vanished,
    /// It was found on the cluster with this installation's marks and nobody's record.
    Orphaned,
    /// Its node came back from being parked.
    ReturnedFromPark,
    /// An operator drains its node.
    NodeDrained,
    /// It was kept for one owner, and another had no place.
    MadeRoom,
    /// The window of the schedule closed that it was kept for.
    WindowClosed,
    /// It was made for trial, and that is over.
    TrialOver,
    /// Orders have changed its machine, or left it stopped.
    Altered,
    /// Wanted no longer before it was ready.
    Cancelled,
    /// A phase took too long.
    TooSlow {
        /// The state it was in.
        state: AgentPhase,
        /// What kept it there, as far as that is known; empty in journals from before it was written.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// A phase failed.
    Failed {
        /// The state it was in.
        state: AgentPhase,
        /// The fault's label.
        kind: String,
        /// One line for people.
        text: String,
    },
}

/// A failure of an agent, or its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The state it was in; none where its machine went without drover.
    pub state: Option<AgentPhase>,
    /// In a word why: the fault's label, or that of the reason.
    pub kind: &'a str,
}

impl Reason {
    /// A fixed word for metrics and tables.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::UsedUp => "used-up",
            Self::Old => "old",
            Self::Outdated => "outdated",
            Self::Asked | Self::AskedBy { .. } => "asked",
            Self::HoldOver => "hold-over",
            Self::Reaped => "reaped",
            Self::Unconfigured => "unconfigured",
            Self::Stopping => "stopping",
            Self::LeaseExpired => "lease-expired",
            Self::PoweredOff => "powered-off",
            Self::Vanished => "vanished",
            Self::Orphaned => "orphaned",
            Self::ReturnedFromPark => "returned-from-park",
            Self::NodeDrained => "node-drained",
            Self::MadeRoom => "made-room",
            Self::WindowClosed => "window-closed",
            Self::TrialOver => "trial-over",
            Self::Altered => "altered",
            Self::Cancelled => "cancelled",
            Self::TooSlow { .. } => "too-slow",
            Self::Failed { .. } => "failed",
        }
    }

    /// What failed, where this is no ordinary end.
    pub fn failure(&self) -> Option<Failure<'_>> {
        let (state, kind) = match self {
            Self::Failed { state, kind, .. } => (Some(*state), kind.as_str()),
            Self::TooSlow { state, .. } => (Some(*state), self.label()),
            Self::PoweredOff | Self::Vanished => (None, self.label()),
            Self::Idle
            | Self::UsedUp
            | Self::Old
            | Self::Asked
            | Self::AskedBy { .. }
            | Self::HoldOver
            | Self::Reaped
            | Self::Outdated
            | Self::Unconfigured
            | Self::Stopping
            | Self::LeaseExpired
            | Self::Orphaned
            | Self::ReturnedFromPark
            | Self::NodeDrained
            | Self::MadeRoom
            | Self::WindowClosed
            | Self::TrialOver
            | Self::Altered
            | Self::Cancelled => return None,
        };
        Some(Failure { state, kind })
    }
}

/// The labels of faults that are words of decisions: both kinds pass by themselves.
const CONTENTION: &str = FaultKind::Contention.label();
const UNKNOWN_OUTCOME: &str = FaultKind::UnknownOutcome.label();
/// What people read instead of them.
const CLASSES: [(&str, &str); 2] =
    [(CONTENTION, ", which may pass by itself"), (UNKNOWN_OUTCOME, " with an unknown outcome")];

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow { state, text } => {
                write!(f, "{state} took too long")?;
                if let Some(keys) = state.timeout_keys() {
                    write!(f, " ({keys})")?;
                }
                if text.is_empty() { Ok(()) } else { write!(f, ": {text}") }
            }
            // It asked for no machine yet.
            Self::Failed { state: AgentPhase::Queued, kind, text } if kind == CONTENTION => {
                write!(f, "it found no place: {text}")
            }
            Self::Failed { state, kind, text } => match CLASSES.iter().find(|(of, _)| of == kind) {
                Some((_, class)) => write!(f, "{state} failed{class}: {text}"),
                None => write!(f, "{state} failed ({kind}): {text}"),
            },
            Self::Idle => f.write_str("it was idle for as long as it may be"),
            Self::UsedUp => f.write_str("it served as often as it may (maxTotalUses, singleUse)"),
            Self::Old => f.write_str("it was as old as it may be (maxLifetimeMinutes)"),
            Self::Outdated => f.write_str("its template was changed"),
            Self::Asked => f.write_str("an operator retired it"),
            Self::AskedBy { by } => write!(f, "an operator retired it ({by})"),
            Self::HoldOver => f.write_str("its hold for debugging is over"),
            Self::Reaped => f.write_str("it was idle at a reap"),
            Self::Unconfigured => f.write_str("its template or cloud left the configuration"),
            Self::Stopping => f.write_str("the service stopped (service.onStop)"),
            Self::LeaseExpired => f.write_str("its lease ran out"),
            Self::PoweredOff => f.write_str("its guest was switched off"),
            Self::Vanished => f.write_str("its guest was gone from the cluster"),
            Self::Orphaned => f.write_str("its guest was on the cluster, and no agent had it"),
            Self::ReturnedFromPark => f.write_str("its node was offline for long, and came back"),
            Self::NodeDrained => f.write_str("its node is drained (drover drain)"),
            Self::MadeRoom => {
                f.write_str("others needed its place: it was one owner's alone, or of another size")
            }
            Self::WindowClosed => f.write_str("the window that it was kept for closed (schedule)"),
            Self::TrialOver => {
                f.write_str("it was made for trial (drover doctor), and that is over")
            }
            Self::Altered => f.write_str("orders changed its machine, or left it stopped"),
            Self::Cancelled => f.write_str("nobody wanted it any more before it was ready"),
        }
    }
}
