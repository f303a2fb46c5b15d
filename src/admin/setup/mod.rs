//! `drover setup`: what an administrator's rights make once, so that drover itself needs none of
//! them.

pub mod dhcp;
mod leftover;
pub mod machine;
mod rights;
mod rotate;
mod secret;
pub mod service;
pub mod step;
pub mod vip;

pub use leftover::{LeftToken, Leftovers, rotation_comment, secrets_beside};
pub use rights::{Action, Now, Plan, READS, Wanted, bars_renewal, lacking, plan};
pub use rotate::{Rotated, Rotation, Stand, rotate};
pub use secret::write_secret;
