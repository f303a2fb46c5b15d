//! Whether a machine runs.

use super::words;

words! {
    /// Whether a machine runs, in drover's words.
    Power, "power state" {
        Running = "running",
        Stopped = "stopped",
        /// It stands still with its memory: paused, or kept on disk.
        Suspended = "suspended",
        /// Proxmox does not say, or says what is none of these.
        Unknown = "unknown",
    }
}

impl Power {
    /// Of a guest whose list or process shows this word of Proxmox or QEMU.
    ///
    /// QEMU's `prelaunch` is a machine whose processors were not let go yet: it stands still.
    pub fn of(word: &str) -> Self {
        match word {
            "running" => Self::Running,
            "stopped" => Self::Stopped,
            "paused" | "suspended" | "prelaunch" => Self::Suspended,
            _ => Self::Unknown,
        }
    }
}
