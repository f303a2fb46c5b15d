//! Real sockets and real processes: the simulated Proxmox on HTTPS with SSH guests, the service,
//! its command line, and clients others wrote.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests may end at the first surprise")]

mod addresses;
mod api;
mod buildbot;
mod demo;
mod examples;
mod fallen;
mod faults;
mod gitea;
mod harness;
mod hostile;
mod installations;
mod jenkins;
mod journal;
mod nodes;
mod operators;
mod outage;
mod parity;
mod parity_breakers;
mod parity_capacity;
mod parity_demand;
mod parity_provision;
mod parity_reconcile;
mod parity_retirement;
mod parity_shape;
mod parity_warm;
mod prepare;
mod proxy;
mod recovery;
mod reload;
mod resets;
mod rights;
mod rotations;
mod seeds;
mod service;
mod setup_network;
mod setup_service;
mod sim;
mod sources;
mod spine;
mod stress;
mod trials;
mod trust;
