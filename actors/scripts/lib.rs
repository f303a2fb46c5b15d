//! What is run in guests: pure texts, for a POSIX shell ([`guest`]) and for Windows ([`windows`]).

pub mod guest;
pub mod windows;
