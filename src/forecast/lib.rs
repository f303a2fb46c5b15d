//! Herds in virtual time.
//!
//! - `clock`: the clock and the dice.
//! - `guests`, `ssh`: guests as the network shows them, and logins to them.
//! - `ci`: a CI system.
//! - `herd`: the real actors on the current thread.
//!
//! Tests put the simulated cluster beneath them.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod ci;
pub mod clock;
pub mod guests;
pub mod herd;
pub mod ssh;
