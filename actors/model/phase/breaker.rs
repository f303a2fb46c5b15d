//! The positions of a circuit breaker.

use super::words;

words! {
    /// Where a circuit breaker stands. The words of the API and the metrics are drover's own.
    BreakerPhase, "breaker state" {
        /// Agents are started without limit; failures are counted.
        Closed = "flowing",
        /// No agent is started until the cool-down is over.
        Open = "tripped",
        /// One agent is started for trial, and its outcome decides.
        HalfOpen = "probing",
    }
}
