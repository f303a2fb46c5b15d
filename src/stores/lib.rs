//! Journals in stores that several machines share, as back ends of [`drover_journal::Log`].
//!
//! - [`EtcdLog`] keeps the journal in etcd, beneath the prefix of an [`EtcdAddress`].
//!
//! ```text
//! EtcdLog ── etcd/layout.rs: keys, chunks, the head
//!    │
//!    └─────> etcd/gateway.rs ── JSON over HTTP ──> any member of the cluster
//! ```
//!
//! A store's log is a fence by itself: each write names what the log's head was, and comes to
//! nothing once somebody else has written.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod address;
mod etcd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use address::StoreAddress;
pub use etcd::{AddressError, EtcdAddress, EtcdLog, EtcdStore};
