//! What administrators are helped with: rights that drover needs ([`rights`]), checks of everything it
//! depends on ([`doctor`]), and what is set up on a cluster ([`setup`]).

pub mod doctor;
pub mod rights;
pub mod setup;
