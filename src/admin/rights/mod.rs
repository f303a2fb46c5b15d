//! Which privileges drover needs, where and for what: one table, and what follows from it for a
//! configuration.
//!
//! The doctor compares it with what a token holds, `drover setup rights` grants it, the tests take
//! each line of it away in turn. Opens no connection.

mod need;
mod reference;
mod role;
mod spelled;
mod table;

pub use need::{Facts, Need, Needs, Source, storages};
pub use reference::{REFERENCES, Reference, Standing};
pub use role::{Grants, RoleKind, Wishes, grants};
pub use spelled::markdown;
pub use table::{At, Feature, Lack, Release, Row, TABLE};

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
mod tests;
