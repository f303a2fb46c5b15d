//! What drover's actors run on, on top of actix.
//!
//! - [`supervise`]: restarts an actor that panics, alone, and gives it up when it panics too often.
//!   Also the census of living actors, and turns, which keep one actor from occupying the thread.
//! - [`notifier`]: wakes those who wait for a change of shared state.
//! - [`reply`]: where the answer to a command goes.
//!
//! ```text
//! supervise ──> runs ──panic──> pause ──> restarting (rebuilt from durable state) ──> runs
//!                │                │
//!                │ stops itself   └── more panics than its RestartLimit ──> given up
//!                v
//!              ended
//! ```
//!
//! Failures: a panic costs the message that was being handled, and a `Restarted` fact is observed.
//! An actor that is given up ends, and its parent decides what that means (`on_give_up`). A panic
//! that cannot be counted, because a port panics too, also ends in giving up.
//!
//! Only this package and `drover-actors` use actix.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod notifier;
pub mod reply;
pub mod supervise;
