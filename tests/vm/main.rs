//! Real guests: the service on a simulated Proxmox whose machines are real ones, of QEMU.
//!
//! `tests/all vm` installs QEMU and builds the images (`image.sh`). Most guests are of the tiny
//! one; `full` boots a whole Debian once. What runs outside guests is shared with the tier `wire`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may end at the first surprise")]

#[path = "../wire/api.rs"]
#[expect(dead_code, reason = "shared with the tier wire")]
mod api;
mod firmware;
mod full;
#[path = "../wire/gitea_server.rs"]
#[expect(dead_code, reason = "shared with the tier wire")]
mod gitea_server;
#[path = "../wire/harness.rs"]
#[expect(dead_code, reason = "shared with the tier wire")]
mod harness;
mod images;
mod leases;
#[path = "../wire/open.rs"]
#[expect(dead_code, reason = "shared with the tier wire")]
mod open;
mod orders;
mod power;
mod processes;
mod troubles;
mod world;
