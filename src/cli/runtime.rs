//! The runtime of commands that do more than to ask a service.

use std::process::ExitCode;

use super::report::{self, FAILED};

/// Starts a runtime; reports why it cannot be started, and gives the exit code.
pub(super) fn runtime(json: bool) -> Result<tokio::runtime::Runtime, ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        let text = format!("the runtime cannot be started: {error}");
        report::fail(json, FAILED, &text, &format!("drover: {text}\n"))
    })
}
