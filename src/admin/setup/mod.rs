//! `drover setup`: what an administrator's rights make once, so that drover itself needs none of
//! them.
//!
//! Every part works in the same order: read what exists, refuse what does not fit, work out a plan,
//! and run its steps. A step is one call to Proxmox and prints as the `pvesh` or `pveum` line that
//! does the same, so that an administrator can run it by hand. A plan contains only what is
//! missing: a repeated run does nothing.
//!
//! - `rights`: role, user, token and access entries with the least rights.
//! - `rotate`, `leftover`: a new token in place of the old one while drover runs, and what an
//!   interrupted rotation left behind. `secret` writes the token's file.
//! - [`service`]: a container or virtual machine that runs drover.
//! - [`dhcp`], [`vip`]: a DHCP server on a bridge, and a virtual IP address.
//! - [`step`], [`machine`]: one call to Proxmox; files and commands on a machine.
//!
//! A failure is a text for people: what failed, and where it leaves things.

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
pub(crate) use rights::COMMENT;
pub use rights::{
    Action, ExistingRights, READ_PRIVILEGES, RightsPlan, WantedRights, missing_privileges, plan,
    why_not_renewed,
};
pub use rotate::{Rotation, RotationError, RotationResult, rotate};
pub use secret::{service_group, write_secret};
