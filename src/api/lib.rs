//! What the service and its callers say to each other: types that the server and the command line share.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod nearest;
mod roles;

pub use nearest::nearest;
pub use roles::{Peer, Role};
