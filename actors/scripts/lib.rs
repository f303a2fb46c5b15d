//! What is run in guests: pure texts, for a POSIX shell ([`guest`]) and for Windows ([`windows`]).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod guest;
pub mod windows;
