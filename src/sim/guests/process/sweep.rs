//! Ending processes where no namespace does: those whose environment bears a guest's mark.
//!
//! A process that empties its environment and leaves its group is not found; only a namespace
//! holds such a one.

use rustix::process::{Pid, Signal, kill_process};

/// Rounds in which processes that were being born are caught too.
const ROUNDS_MAX: u32 = 10;

/// Kills every process with exactly this variable, until none is left.
pub(super) fn kill_marked(mark: &str) {
    for _ in 0..ROUNDS_MAX {
        let marked = marked(mark);
        if marked.is_empty() {
            return;
        }
        for pid in marked {
            // It may have ended since it was seen.
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

fn marked(mark: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else { continue };
        // Other users' processes can not be read, and are none of ours.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        }
    }
    found
}
