//! The world as its door sees it, on a paused clock, with permissive rights and hollow guests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod backups;
mod clones;
mod configs;
mod containers;
mod destroys;
mod entitled;
mod fakes;
mod firewalls;
mod freshness;
mod jobs;
mod locks;
mod lone;
mod managed;
mod mappings;
mod networks;
mod sdn;
mod sections;
mod services;
mod storages;
mod tasks;
mod vmids;

use fakes::Play;
