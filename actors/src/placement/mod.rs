//! Where agents are put: which nodes may take one, which of them does, and on which storage. Pure.
//!
//! What is free on a node is never counted up and down. It is worked out again for each decision from
//! one reading of the cluster's list and from drover's own living agents:
//!
//! - *Others* take what the node has in use less what its list says drover's guests use, and at least
//!   what the memory of all its running guests of others adds up to: a guest may use all of its
//!   memory at any time, whatever it uses now.
//! - *Drover's own* agents take all of their memory and processors from the decision to put them
//!   there until the last of them is gone, whether the list knows them yet or not. A full clone
//!   takes its disk of its storage until it is ready; from then on the storage's own figures, which
//!   are ten seconds old, show it.
//!
//! Figures need the right to see them (`Sys.Audit` on a node). Without them nothing is refused for
//! lack of room, and the nodes with the fewest agents go first.

pub mod claim;
pub mod rank;
pub mod room;

pub use claim::Claim;
pub use room::{Crowds, Room, Scene};
