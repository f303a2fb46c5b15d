//! The SSH client drover greets agents with: keys, logins with a checked host key, commands with
//! bounded output, uploads.
//!
//! Guests are hostile: whatever they send is cut to a limit and every wait has an end. Deciding
//! what to run, and when to try again after an impostor, is the agents' affair.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod client;
mod key;
mod probe;
mod retry;
mod session;
pub mod sftp;
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
pub use session::{ExecError, ExecResult, Keep, Limits, Output, Session};
pub use upload::{UploadError, upload_command, upload_target};
pub use words::{join, quote};
