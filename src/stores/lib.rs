//! Journals in stores that several machines share, as back ends of [`drover_journal::Log`].
//!
//! - [`EtcdLog`] keeps the journal in etcd, beneath the prefix of an [`EtcdAddress`].
//! - [`ObjectLog`] keeps it in an object store, beneath the prefix of an [`ObjectAddress`]: S3, stores
//!   like it, and Google Cloud Storage. [`ObjectVault`] and [`ObjectRegister`] hold what lies beside it.
//!
//! ```text
//! EtcdLog ── etcd/layout.rs: keys, chunks, the head
//!    │
//!    └─────> etcd/gateway.rs ── JSON over HTTP ──> any member of the cluster
//!
//! ObjectLog ── objects/layout.rs: entries, parts
//!    │
//!    └─────> objects/gateway.rs ── conditional writes ──> the store
//! ```
//!
//! A store's log is a fence by itself: each write names what the log's end was, and comes to
//! nothing once somebody else has written.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod address;
mod etcd;
mod files;
mod nearby;
mod objects;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls_advice;

pub use address::{StoreAddress, StoreAddressError};
pub use etcd::{AddressError, EtcdAddress, EtcdLog, EtcdStore, IdentityError};
pub use objects::{ObjectAddress, ObjectAddressError, ObjectLog, ObjectRegister, ObjectVault};
