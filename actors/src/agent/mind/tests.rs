//! The mind, as sentences, grouped by what must hold. The whole table is in `table.rs`, chance in
//! `chance.rs`.

mod address;
mod calls;
mod chance;
mod clone;
mod hold;
mod image;
mod lease;
mod prepare;
mod provision;
mod reset;
mod retire;
mod runner;
mod table;
