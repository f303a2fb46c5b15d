//! The life of an order to a machine.

use super::words;

words! {
    /// What became of an order to a machine.
    OrderPhase, "order phase" {
        /// drover carries it out.
        Running = "running",
        /// It is carried out.
        Done = "done",
        /// It came to nothing, or nobody knows whether it did.
        Failed = "failed",
    }
}
