//! Everything drover decides: pure minds inside thin actix bodies, with no way to the network,
//! the disk or a clock but [`ports`].

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod addresses;
pub mod agent;
pub mod birth;
pub mod board;
pub mod broker;
pub mod cloud;
pub mod cluster;
pub mod demand;
pub mod doubts;
mod effort;
pub mod herd;
pub mod message;
pub mod patience;
pub mod placement;
pub mod reconciler;
pub mod records;
pub mod restraint;
pub mod source;
pub mod suspicion;
pub mod template;
#[cfg(test)]
mod testbed;
pub mod troubles;
pub mod ways;
