//! `drover setup`: what an administrator's rights make once, so that drover itself needs none of
//! them.

pub mod dhcp;
pub mod machine;
mod rights;
mod rotate;
mod secret;
pub mod service;
pub mod step;
pub mod vip;

pub use rights::{Action, Now, Plan, Wanted, plan};
pub use rotate::{Rotated, Rotation, Stand, rotate};
pub use secret::write_secret;
