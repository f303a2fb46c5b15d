//! What drover's actors run on.
//!
//! - [`supervise`]: an actor that panics is started again, alone, and given up when that happens too
//!   often; a census of those that live; turns, so that no mailbox keeps the thread for itself.
//! - [`changes`]: news for whoever waits for a change.
//! - [`reply`]: where the answer to a command goes.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod changes;
pub mod reply;
pub mod supervise;
