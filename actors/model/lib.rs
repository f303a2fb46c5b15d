//! What everybody speaks of: ids, specifications, records of the journal and what they add up to, facts,
//! and the ports through which actors reach the world. Plain types; nothing is decided or done here.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod addresses;
pub mod ambient;
pub mod canary;
pub mod container;
pub mod declared;
pub mod demand;
pub mod fact;
pub mod fault;
pub mod finding;
pub mod gate;
pub mod hardware;
pub mod id;
pub mod image;
pub mod journal_state;
mod keyed;
pub mod labels;
pub mod layer;
pub mod machine;
pub mod marks;
pub mod noted;
pub mod operations;
pub mod order;
pub mod os;
pub mod outside;
pub mod overridden;
pub mod overrides;
pub mod phase;
pub mod place;
pub mod placement;
pub mod plan;
pub mod ports;
pub mod record;
pub mod scope;
pub mod seed;
pub mod size;
pub mod spec;
pub mod state_machine;
pub mod status;
pub mod stop;
pub mod strip;
pub mod template_image;
pub mod tenant;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
