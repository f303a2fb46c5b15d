//! Several drovers on one store. One leads; the others stand by and take over.
//!
//! - [`Mind`] decides, from what the register holds and the time, when to read, to write, to lead and
//!   to stop leading. It does no I/O.
//! - [`Election`] carries that out on a thread of its own.
//! - [`SendBy`] says until when the leader may send calls that change something; its [`Gate`](drover_model::gate::Gate) makes
//!   the others wait.
//! - [`Roll`] is who the members are: each writes its own card into the vault, and reads the others'.
//! - [`watch`] finds out for those who are no members whether one leads.
//! - [`ShardConfig`] is the configuration of the herd, where it lies in the store.
//!
//! ```text
//!            reads every tenth of the time
//!   standby ────────────────────────────────┐
//!      │  the leader gave up, or was silent for the whole time
//!      v                                    │
//!   leader ── renews every fifth of it ─────┘ another member leads: never again in this term
//! ```
//!
//! The leader lease decides who is asked, and not who is right: the journal is the fence, because the
//! store takes no record from a drover that does not know the last one. What the leader lease adds is
//! that a leader which was paused sends nothing late. A leader may send until three quarters of the
//! time after it *began* its last renewal; a standby waits the whole time after it *saw* that
//! renewal. Each measures on its own clock, so clocks that differ do no harm, and clocks that run
//! at another speed may differ by a quarter.
//!
//! Failures: a store that does not answer closes the gate, and opens it again with the next renewal.
//! A leader lease that another member has ends the leader's term.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod election;
mod leader_watch;
mod lease;
mod mind;
mod roll;
mod send_by;
mod shard_config;

#[cfg(test)]
mod tests;

pub use election::{Election, Participant, Role, leader_lease};
pub use leader_watch::{Unled, Watched, watch};
pub use lease::{Leader, LeaderLease};
pub use mind::{Effect, Mind, Settings, Step};
pub use roll::{Card, Listed, Roll, cards, forget, silent_after};
pub use send_by::SendBy;
pub use shard_config::{ConfigStore, Found, ShardConfig, ShardConfigError, file_name};
