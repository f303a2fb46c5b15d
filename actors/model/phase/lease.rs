//! The life of a lease.

use super::words;

words! {
    /// Where a lease is: `waiting → granted → ready → ended`, and from each of them to `ended`. One
    /// whose agent is lost before it was ready waits again.
    LeasePhase, "lease state" {
        /// No agent is there for it yet.
        Waiting = "waiting",
        /// An agent has it; its key or runner is being put into the guest.
        Granted = "granted",
        /// Its holder can use the agent.
        Ready = "ready",
        /// Released, expired, lost, or given up.
        Ended = "ended",
    }
}
