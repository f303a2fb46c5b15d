//! Concurrency limits: how much may be done at once at one cluster. Decisions alone; who calls Proxmox
//! asks here first.
//!
//! - [`throttle`]: one limit that finds its width from how long work takes and how it ends.
//! - [`lanes`]: clones, starts and destroys, limited for each storage and each node.
//! - [`traffic`]: single calls, limited for each endpoint and node, the vital ones first.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod lanes;
pub mod throttle;
pub mod traffic;
