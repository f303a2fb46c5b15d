//! What administrators are helped with: rights that drover needs ([`rights`]), checks of everything it
//! depends on ([`doctor`]), and what is set up on a cluster ([`setup`]).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod doctor;
pub mod rights;
pub mod setup;
