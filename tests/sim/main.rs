//! Whole herds in virtual time: the real actors, the real Proxmox client, the real journal writer
//! and the view, on the simulated cluster. No socket, no thread, no waiting: tokio's paused clock
//! drives it all, and a seed fixes all chance.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "tests may end at the first surprise"
)]

mod addresses;
mod adoption;
mod breaker;
mod canary;
mod canary_storm;
mod containers;
mod copies;
mod crash;
mod death;
mod declared;
mod declared_adopt;
mod declared_ends;
mod declared_storms;
mod demand;
mod discs;
mod doctor;
mod doubt;
mod faults;
mod figures;
mod forecast;
mod gotchas;
mod hardware;
mod holds;
mod image_storms;
mod images;
mod lanes;
mod life;
mod lifecycle;
mod lives;
mod lockouts;
mod lost_cloud;
mod machines;
mod members;
mod nodes;
mod operators;
mod placement;
mod places;
mod prepare;
mod reload;
mod reload_storm;
mod replay;
mod resets;
mod same_cluster;
mod self_built;
mod sizes;
mod sources;
mod strangers;
mod template_change;
mod trials;
mod twins;
mod variety;
mod warm;
mod world;
mod zones;
