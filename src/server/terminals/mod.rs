//! Terminals in agents that are open: their screens, keys and readers, and who may sit at one.
//!
//! The calls and what carries output are in `terminal_calls`. Nothing here waits for anything but a guest that reads its
//! keys slowly.
//!
//! - `right.rs` says who may sit at a terminal of which agent, and when a terminal is over by its age. Pure.
//! - `screen.rs` keeps a screen, by the emulator `vt100`; `charset.rs` exchanges line-drawing letters before it. Pure.
//! - `terminal.rs` has one terminal, `registry.rs` those that are open, and bounds how many there are.

mod charset;
mod registry;
mod right;
mod screen;
mod terminal;

#[cfg(test)]
pub(super) use registry::TERMINALS;
pub(crate) use registry::Terminals;
pub(super) use right::{IDLE_LIMIT, LIFE_LIMIT, Right, over, right};
pub(super) use terminal::{Next, NotTyped, Reader, Terminal};
