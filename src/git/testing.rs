//! Servers of repositories for tests: `git http-backend` behind HTTP and a real `sshd`, on this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http_server;
mod ssh_server;

use std::path::Path;

pub use http_server::{HttpServer, Rules};
pub use ssh_server::SshServer;

/// A program that a test cannot do without: `false` where it is not there and need not be.
pub fn is_installed(program: &str) -> bool {
    let found = Path::new(program).exists();
    assert!(
        found || std::env::var_os("DROVER_TEST_PROGRAMS").is_none(),
        "{program} is not installed"
    );
    found
}
