//! Tests of the mind, grouped by what must hold. The transition table is in `table.rs`, random
//! lives are in `chance.rs`.

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
mod order;
mod prepare;
mod probe;
mod provision;
mod reset;
mod retire;
mod runner;
mod table;
