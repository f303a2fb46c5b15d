//! The commands that only the build of an image runs in a guest.

use crate::guest::{COMMON, script};

const CLEAN: &str = include_str!("image/clean.sh");
const NETPLAN: &str = include_str!("image/netplan.sh");
const RUNNER: &str = include_str!("image/runner.sh");

/// Removes what no clone may have.
pub fn clean() -> String {
    script(&[COMMON, CLEAN], &[])
}

/// Gives clones the network whatever their card is called.
pub fn netplan() -> String {
    script(&[COMMON, NETPLAN], &[])
}

/// Installs the runner of a CI system; `url` and `sha256` may be blank.
pub fn runner(system: &str, version: &str, url: &str, sha256: &str) -> String {
    script(&[COMMON, RUNNER], &[system, version, url, sha256])
}
