//! The Proxmox VE client: the `Hypervisor` port over one HTTP-shaped [`transport::Transport`].
//!
//! Real nodes are reached by [`wire`]; the simulated cluster brings a transport of its own, so
//! that texts, classification, retries and the task watcher are the same beneath both.

pub mod admin;
pub mod api;
pub mod auth;
pub mod calls;
pub mod classify;
pub mod client;
pub mod configure;
pub mod connection;
mod continued;
pub mod endpoint;
pub mod error;
pub(crate) mod fleet;
pub mod gate;
pub mod guest;
#[cfg(test)]
mod life;
pub mod list;
pub mod loose;
mod nics;
pub mod proxmox;
pub mod route;
mod seed;
pub mod sight;
mod snapshot;
mod source;
pub mod tls;
pub mod transport;
pub mod types;
pub mod watcher;
pub mod wire;

#[cfg(test)]
pub(crate) mod script;

pub use connection::{Connection, Login, Tls, parse_pin};
pub use endpoint::Endpoint;
pub use error::PveError;
pub use proxmox::{Proxmox, TICK, probe};
pub use source::{locate, name_pattern};
pub use tls::client_config;
pub use wire::{WireDialer, refused_certificate};
