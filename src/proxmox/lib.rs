//! A client of the Proxmox VE API, for any program.
//!
//! [`Client`] makes calls as one login over one or more [`Endpoint`]s of a cluster. It moves on to
//! the next endpoint when one accepts no connection, keeps tickets fresh, and bounds every wait. It
//! repeats a read once when its kept-alive connection was closed, and never repeats a write.
//!
//! - [`connection`]: endpoints, login ([`Login`]) and trust ([`Tls`]: authorities, pins or none).
//! - [`api`] and [`admin`]: typed calls; [`types`] has the shapes of their answers. [`Client::get`]
//!   and [`Client::write`] make any other call.
//! - [`transport`]: what carries requests. [`WireDialer`] is HTTPS; tests bring their own.
//! - [`error`]: what can go wrong. [`PveError`] separates a call that was not sent from one whose
//!   answer was lost and one that was refused; [`refusal`] holds what the node said.
//! - [`limiter`]: lets a program decide when each call is sent; [`call_route`] has fixed words for
//!   figures about calls.
//! - [`loose`] and [`upid`]: reading Perl's loosely typed JSON, and the names of tasks.
//!
//! ```no_run
//! # async fn run() -> Result<(), proxmox_client::PveError> {
//! use proxmox_client::{Client, Connection, Endpoint, Login, Tls, WireDialer};
//!
//! let login = Login::Token { id: "ci@pve!list".into(), secret: "…".into() };
//! let connection = Connection::new(vec![Endpoint::new("pve1.example.com", 8006)], login, Tls::System);
//! let client = Client::new(&connection, &WireDialer)?;
//! let (_, rows) = client.resources(true).await?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(missing_docs)]
#![warn(unreachable_pub)]

pub mod admin;
pub mod api;
mod auth;
pub mod call_route;
pub mod client;
pub mod connection;
pub mod endpoint;
pub mod error;
pub mod gate;
mod guest_id;
pub mod limiter;
pub mod loose;
mod machine;
pub mod refusal;
pub mod route;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod transport;
pub mod types;
pub mod upid;
mod upload;
pub mod wire;

pub use client::{Client, Params};
pub use connection::{Connection, Login, Tls, parse_pin};
pub use endpoint::Endpoint;
pub use error::PveError;
pub use guest_id::GuestId;
pub use tls::client_config;
pub use upid::Upid;
pub use wire::{GatedWireDialer, WireDialer, refused_certificate};
