//! drover: everything that touches the world. Decisions live in `drover-actors`.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod app;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod known;
pub mod machine;
pub mod systemd;
pub mod telemetry;
