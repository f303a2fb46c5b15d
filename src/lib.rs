//! drover: everything that touches the world. Decisions live in `drover-actors`.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub(crate) mod app;
pub mod cli;
pub mod clock;
pub(crate) mod demo;
pub(crate) mod host;
pub(crate) mod known;
pub(crate) mod machine;
pub(crate) mod pages;
pub(crate) mod systemd;
pub(crate) mod telemetry;
pub(crate) mod terminal;
pub(crate) mod waterfall;
