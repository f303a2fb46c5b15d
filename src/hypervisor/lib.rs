//! The actors' port to Proxmox VE: implements `Hypervisor` over `proxmox-client`.
//!
//! [`Proxmox`] knows the clouds by id, each with its [`Client`]. Clouds that lead to one cluster
//! share a watcher of tasks, a queue for starts and destroys, a queue of calls, and the list of
//! guests.
//!
//! ```text
//! actors ──Hypervisor──> Proxmox ──> Cloud: Client, Cluster (shared)
//!                                      │        │
//!    configure, snapshot, disc,        │        ├── calls.rs       when is a call sent
//!    guest, observe, fleet, image,     │        ├── task_queue.rs  when does a start or destroy begin
//!    template_image                    │        ├── watcher.rs     when has a task ended
//!                                      │        └── list.rs        one list of guests for all readers
//!                                      └──> proxmox-client ──> HTTPS, or the simulated cluster
//! ```
//!
//! In come requests in the actors' own types. Out go calls over any transport, so texts, retries
//! and the watcher are the same above real nodes and above a simulated cluster.
//!
//! Failures leave as a `Fault`; `classify.rs` reads Proxmox's prose. A write whose answer was lost
//! has a kind of its own (unknown outcome), and actors settle it by looking at the guest. Nothing
//! is written to a guest whose marks are not exactly the agent's.
//!
//! Beside it: `making.rs` and `container.rs` (what makes a guest, and what a container is to be),
//! `cloud_init.rs` and `nics.rs` (what goes into a guest's configuration), `call_in.rs`
//! (tokens of guests that call drover), `download.rs` and `web.rs` (sources of images that drover
//! downloads and uploads), `cluster_aliases.rs` (clusters with a new root
//! certificate).

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod call_in;
mod calls;
mod classify;
mod client;
mod cloud_init;
mod cluster_aliases;
mod configure;
mod container;
mod copied;
mod describe;
mod devices;
mod disc;
pub mod download;
mod figures;
mod fleet;
mod gated;
mod guest;
mod guest_tasks;
mod image;
mod list;
mod making;
mod nics;
mod observe;
mod os_template;
mod proxmox;
mod recent_calls;
mod snapshot;
mod task_queue;
mod template_image;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod watcher;
mod web;

pub use call_in::{CALL_IN_KEY, CallInKey};
pub use client::probe;
pub use client::{AsFault, Client, Failure};
pub use cloud_init::network::is_mac;
pub use cloud_init::{BUILT_IN_PLACEHOLDERS, TextsError, texts};
pub use configure::{has_agent, has_cloud_init, primary_disk};
pub use devices::read as read_devices;
pub use disc::cloud_init_place;
pub use figures::{GuestUse, MeasureCall, MeasureGuests, MeasureWait};
pub use fleet::{read_fleet, template_sizes};
pub use gated::GatedDialer;
pub use guest_tasks::GuestTask;
pub use observe::identify;
pub use proxmox::{Proxmox, TASK_POLL_INTERVAL};
pub use recent_calls::GuestCall;
pub use template_image::{locate, name_pattern};
pub use watcher::Watcher;
pub use web::HttpWeb;
