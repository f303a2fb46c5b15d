//! `drover top`: the herd live on a terminal, as `drover status`, `drover agents` and the other lists show it,
//! with keys for details and for actions.
//!
//! In: keys, the size of the terminal, answers of the API, events of the stream, and the time. Out: frames,
//! requests to the API, and commands of the command line that a key stands for.
//!
//! ```text
//! keys, answers, events, ticks          calls, commands, end
//!        |                                   ^
//!        v                                   |
//!   +---------------------------------------------+
//!   | Top (model.rs): step(input, clock) -> effects|   pure
//!   +---------------------------------------------+
//!        | state
//!        v
//!   draw/ : cells of a terminal                        pure
//! ```
//!
//! Every action is a command line ([`action::Action`]): what the question shows is what is parsed and run when the
//! answer is yes. A list is fetched again once an event says that it moved, at most once a second, and seldom
//! without an event. Rows, events and texts are bounded ([`ROWS_MAX`], [`EVENTS_MAX`]).
//!
//! Failure paths: a service that is not reached, or has no leader, leaves the last answer on the screen, with
//! its age and the reason; both the stream and the list are tried again until they answer. A refused action
//! is shown as a note. The terminal is given back at each end: `q`, Ctrl-C, SIGTERM, SIGHUP, a panic, and a
//! terminal that takes nothing more.
//!
//! Files beside this one: `nouns` (what can be shown), `listing` (answers to rows), `herd` (its rows),
//! `summary` (the head), `shown` (the list with its cursor), `input`, `model` (the state), `keys` (what a key means there), `action`, `fetching` (when
//! to ask again), `happenings` (events), `detail` (one thing in full), `draw`, `live` (the loop), `feed`
//! (calls and the stream).

mod action;
mod detail;
mod draw;
mod feed;
mod fetching;
mod happenings;
mod herd;
mod input;
mod keys;
mod listing;
mod live;
mod model;
mod nouns;
mod shown;
mod summary;

#[cfg(test)]
mod tests;

pub(super) use live::run;

/// The rows that are kept of a list; of more it is said how many are left off.
const ROWS_MAX: usize = 10_000;
/// The events that are kept.
const EVENTS_MAX: usize = 1000;
