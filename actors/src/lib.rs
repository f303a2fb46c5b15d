//! Everything drover decides: pure minds inside thin actix bodies, with no way to the network,
//! the disk or a clock but [`ports`].

pub mod addresses;
pub mod agent;
pub mod ambient;
pub mod birth;
pub mod board;
pub mod broker;
pub mod changes;
pub mod cloud;
pub mod cluster;
pub mod demand;
pub mod doubts;
mod effort;
pub mod fact;
pub mod fault;
pub mod herd;
pub mod id;
pub mod labels;
pub mod ledger;
pub mod machine;
pub mod marks;
pub mod message;
pub mod os;
pub mod overrides;
pub mod patience;
pub mod placement;
pub mod ports;
pub mod reconciler;
pub mod record;
pub mod records;
pub mod restraint;
pub mod seed;
pub mod source;
pub mod spec;
pub mod supervise;
pub mod suspicion;
pub mod template;
pub mod tenant;
#[cfg(test)]
mod testbed;
pub mod throttle;
pub mod time;
pub mod troubles;
pub mod ways;
