//! The SSH client with which drover enters its agents: keys, logins with a checked host key,
//! commands with bounded output, and uploads.
//!
//! - [`connect`] logs in once; [`connect_until`] tries until a deadline while a guest boots
//!   (`retry.rs`).
//! - [`Session`] runs commands and uploads files: over a plain command ([`Session::upload`]), or by
//!   SFTP for guests without a POSIX shell ([`Session::send`]). It also opens terminals
//!   ([`Session::terminal`]).
//! - [`probe()`] only checks whether an SSH server answers, without a login.
//! - [`PrivateKey`] and [`PublicKey`] read, make and print keys; [`quote`] and [`join`] build
//!   commands for a POSIX shell.
//!
//! Guests are hostile: everything they send is cut to a limit, and every wait has an end. What to
//! run, and whether to try again after a refused key or host key, is up to the caller.
//!
//! Each failure has a type that separates the cases: [`ConnectError`] (unreachable, refused key,
//! wrong host key), [`ExecError`] (timeout, refused, connection lost), [`UploadError`] and
//! [`KeyError`].

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod client;
mod key;
mod probe;
mod retry;
mod session;
pub mod sftp;
mod terminal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod upload;
mod words;

pub use client::{ConnectError, HostKeyPolicy, Target, connect};
pub use key::{KeyError, PrivateKey, PublicKey};
pub use probe::{ProbeError, probe};
pub use retry::{Backoff, connect_until};
pub use session::{ExecError, ExecResult, Gate, Input, Keep, Limits, Output, Session};
pub use terminal::{
    TERMINAL_KIND, Terminal, TerminalEnd, TerminalInput, TerminalOutput, TerminalSize,
};
pub use upload::{UploadError, upload_command, upload_target};
pub use words::{join, quote};
