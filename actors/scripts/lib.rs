//! The scripts that drover runs in guests, as text: [`guest`] for a POSIX shell, [`windows`] for
//! Windows. Pure: no I/O.
//!
//! In come arguments from the configuration and from leases, which are quoted. Out comes one
//! command line for the guest's login shell; `drover-shell` sends it. The scripts themselves are in
//! `guest/`:
//!
//! - preparing: `cloud-init`, `remote-fs` (working directory), `java`, `packages`.
//! - keys: `grant-access`, `revoke-access`, `close-ssh` (before a destroy), with `keys` and
//!   `sessions` as shared parts.
//! - `after-rollback`: what a guest needs after a rollback to its snapshot.
//! - `runner-*` (Windows): start, watch and end a CI runner.
//! - `image/` ([`image`]): what only the build of an image runs, such as `clean`.
//!
//! A script reports a failure by its exit status and a text on standard error, which drover shows
//! with the step that failed. Lines that start with `warning: ` do not fail a step.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod guest;
pub mod image;
pub mod windows;
