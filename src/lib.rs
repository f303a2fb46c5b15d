//! drover: everything that touches the world. Decisions live in `drover-actors`.

pub mod app;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod known;
pub mod machine;
pub mod systemd;
pub mod telemetry;
