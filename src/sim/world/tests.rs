//! Tests of the world as the API front end sees it, on a paused clock, with fake access control and
//! fake guests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod backup_jobs;
mod backups;
mod broadcast;
mod clones;
mod configs;
mod containers;
mod destroys;
mod fakes;
mod firewalls;
mod ha;
mod locks;
mod mappings;
mod networks;
mod permissions;
mod sdn;
mod sections;
mod services;
mod standalone;
mod storages;
mod tasks;
mod vmids;

use fakes::TestCluster;
