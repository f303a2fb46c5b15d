//! The names of tasks: `UPID:node:pid:pstart:starttime:type:id:user:`, with the numbers in
//! hexadecimal (book: proxmox, section 5).

use std::fmt;

/// The name of a task, as a node returned it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Upid(String);

impl Upid {
    /// Takes a name without checking it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Upid> for String {
    fn from(upid: Upid) -> Self {
        upid.0
    }
}

/// The node that runs a task; empty when the name does not say.
pub fn task_node(upid: &str) -> &str {
    upid.split(':').nth(1).unwrap_or_default()
}

/// When a task started, in Unix seconds of its node's clock; 0 when the name does not say.
pub fn task_start(upid: &str) -> u64 {
    let start = upid.split(':').nth(4);
    start.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
}

/// The VMID of the task's guest, if it has one.
pub fn task_guest(upid: &str) -> Option<u32> {
    upid.split(':').nth(6)?.parse().ok()
}

/// The type of a task, such as `qmclone`.
pub fn task_kind(upid: &str) -> &str {
    upid.split(':').nth(5).unwrap_or_default()
}
