//! The mind, as sentences, grouped by what must hold. The whole table is in `table.rs`, chance in
//! `chance.rs`.

mod address;
mod alive;
mod calls;
mod chance;
mod clock;
mod clone;
mod hold;
mod image;
mod keys;
mod lease;
mod line;
mod prepare;
mod probe;
mod provision;
mod reset;
mod retire;
mod runner;
mod table;
