//! `drover setup`: what an administrator's rights make once, so that drover itself needs none of
//! them.

mod rights;
mod rotate;
mod secret;

pub use rights::{Action, Now, Plan, Wanted, plan};
pub use rotate::{Rotation, Stand, rotate};
pub use secret::write_secret;
