//! Tools for administrators: the rights that drover needs ([`rights`]), a check of everything that
//! drover depends on ([`doctor`]), and what `drover setup` makes on a cluster ([`setup`]).
//!
//! This package decides and calls Proxmox and the CI systems; the package `cli` asks questions and
//! prints. In: the checked configuration, a Proxmox client, and for `setup` an administrator's
//! login. Out: reports, and plans whose steps are shown before they run.
//!
//! - [`rights`] is a table: which call needs which privilege, where, and for which feature. It
//!   opens
//!   no connection. The other two build on it.
//! - [`doctor`] changes nothing. Every finding that is not `ok` comes with a command or a setting
//!   that helps.
//! - [`init`] works out the first configuration from what a cluster shows, and writes nothing.
//! - [`setup`] changes a cluster with an administrator's rights, so that drover itself needs none
//!   of
//!   them. Each plan is worked out from what exists, so a repeated run does only what is left.
//!
//! Failures of a doctor's check are findings. Failures of `setup` are texts for people that name
//! the missing privilege and what was done so far.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(unreachable_pub)]

pub mod doctor;
pub mod init;
pub mod rights;
pub mod setup;
