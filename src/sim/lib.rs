//! A simulated Proxmox VE cluster: one world as data with two faces, an in-memory transport for
//! virtual time and HTTPS on a socket, both beneath the same door.
//!
//! All waiting is tokio's, so that a paused clock drives the whole of it.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod call;
pub mod clock;
pub mod control;
pub mod door;
pub mod guest;
pub mod guests;
mod keys;
pub mod memory;
pub mod record;
pub mod rights;
pub mod run;
pub mod simulation;
pub mod spec;
pub mod world;
