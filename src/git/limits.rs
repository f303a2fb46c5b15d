//! What one operation may take.

use std::time::Duration;

/// What one operation may take: time, disk, and the size and number of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The time of a whole operation, of all programs that it runs together.
    pub time: Duration,
    /// The largest file in bytes that git may write, such as a pack.
    pub disk_bytes: u64,
    /// The size in bytes of all files together that one operation reads.
    pub file_bytes: u64,
    /// The number of files that one operation reads.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(120),
            disk_bytes: 512 << 20,
            file_bytes: 4 << 20,
            files: 64,
        }
    }
}
