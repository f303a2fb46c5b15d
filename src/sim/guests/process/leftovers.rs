//! Kills the processes of a guest without a namespace: those with the guest's variable in their
//! environment.
//!
//! A process that clears its environment and leaves its process group is not found; only a
//! namespace contains it.

use rustix::process::{Pid, Signal, kill_process};

/// Several rounds also find processes that were being created.
const ROUNDS_MAX: u32 = 10;

/// Kills all processes with exactly this variable, `NAME=value`, until none is left.
pub(super) fn kill_marked(mark: &str) {
    for _ in 0..ROUNDS_MAX {
        let marked = marked(mark);
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            // The process can have ended.
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

fn marked(mark: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else { continue };
        // The environment of other users' processes cannot be read; they do not belong to a guest.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        }
    }
    found
}
