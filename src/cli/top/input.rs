//! What comes into the state of the screen, and what goes out of it.

use std::time::Duration;

use drover_api::{WhoAmIOut, WhySubjectOut};
use jiff::Timestamp;
use serde_json::Value;

use super::action::Action;
use super::keys::Key;
use super::nouns::Ask;

/// The time of an input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub since_start: Duration,
    pub wall: Timestamp,
}

/// Why a call or the stream gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub kind: FaultKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// No service answers.
    NotReached,
    /// A member of a store answers, and none leads.
    NoLeader,
    /// The service said no, or what answered is no drover.
    Refused,
}

/// What comes in.
#[derive(Debug)]
pub(super) enum Input {
    Key(Key),
    /// Columns and rows of the terminal.
    Size(u16, u16),
    Tick,
    Answer(Ask, Result<Value, Fault>),
    Who(Result<WhoAmIOut, Fault>),
    /// Why the thing of this name waits.
    Why(String, Result<Box<WhySubjectOut>, Fault>),
    /// What an action printed, and whether it did what it was asked for.
    Did {
        text: String,
        is_good: bool,
    },
    StreamOpen,
    /// An event: its id, its kind, and its data as they came.
    Happened {
        id: String,
        kind: String,
        data: String,
    },
    StreamEnded(Fault),
}

/// What goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Ask(Ask),
    Who,
    Why(String),
    Run(Action),
    End,
}
