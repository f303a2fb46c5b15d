//! Concurrency limits: how much may run at once at one cluster. Decisions only, without I/O:
//! anyone who calls Proxmox asks here first.
//!
//! - [`adaptive`]: one limit that finds its width from how long operations take and how they end.
//! - [`concurrency`]: limits for clones, starts and destroys, on each storage and each node.
//! - [`call_queue`]: limits for single API calls, through each endpoint and on each node; health
//!   checks, lists and ends of tasks go first.
//!
//! In come requests to start, ends of operations, and the time. Out come the requests that may
//! start now. Nothing here fails: a request that finds its queue full gets none, and an end that
//! says nothing about the load leaves the limits as they are.
//!
//! The cluster actor uses [`concurrency`] for clones. `drover-hypervisor` uses it for destroys and
//! starts, and passes every API call of every cloud through [`call_queue`].

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod adaptive;
pub mod call_queue;
pub mod concurrency;
