//! The states of a CI system's job.

use super::words;

words! {
    /// Where a job of a source is, by drover's last poll.
    JobPhase, "job state" {
        /// It waits for an agent.
        Waiting = "waiting",
        /// It runs on an agent.
        Running = "running",
        /// No template serves it.
        Unserved = "unserved",
        /// Its source does not say what it wants.
        Unread = "unread",
        /// It wants labels that its source may not have.
        Ignored = "ignored",
    }
}
