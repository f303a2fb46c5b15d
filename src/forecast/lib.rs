//! Herds in virtual time.
//!
//! - `clock`: the clock and the dice.
//! - `guests`, `ssh`: guests as the network shows them, and logins to them.
//! - `ci`: a CI system.
//! - `herd`: the real actors on the current thread.
//!
//! Tests put the simulated cluster beneath them. A replay puts the history of a herd there:
//!
//! ```text
//! trace ──▶ ways (lengths) ─▶ machines, logins ──┐
//!   │                                            ├─▶ herd ─▶ seen ─▶ trace ─▶ figures ─▶ suggest
//!   └─────▶ play (arrivals) ─▶ jobs, leases ─────┘
//! ```
//!
//! - `ways`: how long agents take, as measured.
//! - `ground`: clusters, nodes and template images, and what is assumed of them.
//! - `machines`, `logins`, `jobs`: the ports of the herd's actors.
//! - `play`: one replay; `seen` is its observer.
//! - `figures`: waits, hits and hours of a trace, of a herd or of a replay.
//! - `suggest`: warm pools and sizes.
//!
//! A replay does not simulate Proxmox: the lengths that the trace measured have in them what Proxmox
//! took. So every configuration can be replayed, and a week takes seconds.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ci;
pub mod clock;
pub mod figures;
mod ground;
pub mod guests;
pub mod herd;
mod jobs;
mod logins;
mod machines;
pub mod play;
mod seen;
pub mod ssh;
pub mod suggest;
mod ways;

#[cfg(test)]
mod tests;

pub use ground::{Hardware, NodeHardware};
