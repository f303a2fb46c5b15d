//! The privileges that drover needs: one table, and what follows from it for a configuration.
//!
//! In: the configuration as specifications, and [`Facts`] about a cluster where it was asked. Out:
//! [`Needs`] (each privilege on its path, with the templates that need it) and [`Grants`] (the
//! roles and access entries that give exactly that). This module opens no connection.
//!
//! `drover doctor` compares the needs with what a token holds, `drover setup rights` grants them,
//! and the tests remove each line of the table in turn.
//!
//! Beside this file: `table` (the lines), `need` (lines on paths), `role` (roles and entries),
//! `spelled` (the table for README), `reference` (what other provisioners ask for).

mod markdown;
mod need;
mod reference;
mod role;
mod table;

pub use markdown::markdown;
pub use need::{Facts, Need, Needs, TemplateGuest, is_placeholder, storages};
pub use reference::{REFERENCES, Reference, Relevance};
pub use role::{GrantOptions, Grants, RoleKind, grants};
pub use table::{At, Feature, Release, Row, TABLE, Without};

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
mod tests;
