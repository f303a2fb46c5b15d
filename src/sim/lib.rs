//! A simulated Proxmox VE cluster for tests, demonstrations and clients under development.
//!
//! The package owns a cluster as data, the API in front of it, and the guests inside it. It knows
//! nothing of drover: any client of the Proxmox API can use it.
//!
//! ```text
//!   client in this process          client on this computer
//!            |                                |
//!      memory (no socket)             api::https (TLS, loopback)
//!            +---------------+----------------+
//!                            v
//!                     api (HTTP, login, permissions, parameters)
//!                            |                    \
//!                            v                     v
//!                     world (nodes, guests,      api::access (users, roles,
//!                     storages, tasks, locks)    ACL, pools)
//!                            |
//!                            v
//!                     guests (stub | greeter | process | qemu)
//! ```
//!
//! In: a [`spec::ClusterSpec`] and [`simulation::SimulationOptions`] (version, seed, latency,
//! faults), then API requests, and commands on the control socket. Out: HTTP answers with the
//! texts of Proxmox, byte for byte, and on request a record of calls, tasks and boots.
//!
//! All waiting uses tokio's clock, so that a paused clock drives the whole cluster. All chance
//! comes from one seed. Equal seeds and equal calls give equal runs.
//!
//! Failure paths: `api` answers what Proxmox would refuse; [`world::Faults`] plans further
//! failures of calls, tasks, nodes and connections; [`run::SimError`] says why `drover sim` did not
//! start.
//!
//! Files beside this one: `simulation` (joins the parts), `run`, `running` and `control` (the command
//! `drover sim`), `spec` (the description of a cluster), `worlds` (descriptions with names), `interfaces` and `call` (what the parts ask of
//! each other), `guest` (what a host of guests offers), `conf` (the
//! configuration of a guest), `recorder`, `memory`, `clock`,
//! `section_keys`, `folder` (temporary files).

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod api;
pub(crate) mod call;
pub mod clock;
mod conf;
pub(crate) mod control;
mod folder;
pub mod guest;
pub mod guests;
pub(crate) mod interfaces;
pub mod memory;
pub(crate) mod recorder;
pub mod run;
mod running;
mod section_keys;
pub mod simulation;
pub mod spec;
pub mod world;
pub mod worlds;
