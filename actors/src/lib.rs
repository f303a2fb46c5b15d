//! All decisions of drover.
//!
//! Every actor has two parts. The mind is a pure state machine: it takes an event, the time and
//! random bits, and returns effects. The body is a thin actix actor that steps the mind and carries
//! the effects out. This crate does no I/O: the network, the disk and the clock are behind the
//! traits of `drover_model::ports`.
//!
//! ```text
//! herd ──▶ cloud ──▶ template ──▶ agent          each starts the next; reports go back up
//!   │                               │
//!   ├──▶ reconciler, cluster ◀──────┘            places, VMIDs, the list of a cluster
//!   └──▶ source (`demand`)                       jobs and runners of a CI system
//! ```
//!
//! - Actors: `herd` (the root), `cloud`, `template`, `agent`, `cluster`, `reconciler`, `demand`,
//!   `builder` (images), `keeper` (declared machines); the last two share a body, `embodied`, and the steps
//!   by which they destroy a guest, `removal`.
//! - The scheduler (`scheduler`) is a mind under the herd.
//! - Knowledge that actors of one thread share: `roster` (living agents), `board` (breakers of
//!   nodes, storages and clouds), `canary` (versions of templates), `doubts` (what holds clones back),
//!   `restraint` (agents that must not be destroyed), `sites` (nodes, cordons and drains), `runners`,
//!   `hold_next`, `records`, `ways`, `addresses`, and `history` of a template. `shared` lets the compiler say which role writes what.
//! - Modules import each other in one direction only (`tests/walls/circles.rs`).
//! - Layers between actors and ports: `suspicion` reads answers, `time_limits` limits their time.
//! - `source` chooses the template image, node and storage of a clone; `placement` counts what is
//!   free.
//! - `message` has the messages between actors; each actor's own commands are in its module.
//!
//! A panic restarts one actor (`drover_runtime::supervise`). See `src/book/architecture.md` and
//! `src/book/agents.md`.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod addresses;
pub mod agent;
pub mod birth;
pub mod board;
pub mod boot_times;
pub mod breaker;
pub mod builder;
pub mod canary;
pub mod cloud;
pub mod cluster;
pub mod demand;
pub mod doubts;
mod effort;
mod embodied;
pub mod herd;
pub mod history;
pub mod hold_next;
pub mod keeper;
pub mod message;
pub mod placement;
pub mod plan;
mod ran;
pub mod reconciler;
pub mod records;
mod removal;
pub mod reset_stats;
pub mod restraint;
pub mod roster;
pub mod runners;
pub mod scheduler;
pub mod shared;
pub mod sites;
pub mod source;
pub mod suspicion;
pub mod template;
#[cfg(test)]
mod testing;
pub mod time_limits;
pub mod troubles;
pub mod ways;
