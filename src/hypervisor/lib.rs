//! The actors' port to Proxmox VE.
//!
//! [`Proxmox`] is the `Hypervisor` port: clouds by id, each with its [`client::Client`], and one watcher
//! of tasks ([`watcher`]), one gate for clones, starts and destroys ([`gate`]), one queue of calls
//! ([`calls`]) and one list of guests ([`list`]) for all clouds that lead to one cluster.
//!
//! What comes in is what actors ask for, in their own types. What goes out are calls of the crate
//! `proxmox-client`, over any transport: real nodes over HTTPS, or a simulated cluster in the same
//! process, so that texts, retries and the watcher are the same beneath both.
//!
//! Failures leave as a `Fault` ([`classify`] reads Proxmox's prose). A write whose answer was lost is a
//! fault of its own kind (unknown outcome), which actors settle by looking.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod call_in;
pub mod calls;
pub mod classify;
pub mod client;
pub mod configure;
mod continued;
mod disc;
pub mod fleet;
pub mod gate;
pub mod guest;
pub mod list;
mod nics;
pub mod proxmox;
pub mod sight;
mod snapshot;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod texts;
pub mod watcher;

pub use client::{AsFault, Client, Failure};
pub use proxmox::{Proxmox, TICK, probe};
pub use source::{locate, name_pattern};
