//! The health of a cloud.

use super::words;

/// What a cloud is reported with of which no endpoint answers.
pub const NO_ENDPOINT: &str = "no endpoint of cloud";

words! {
    /// Whether drover can work with a cloud.
    CloudHealth, "cloud health" {
        /// It was not reached yet.
        Connecting = "connecting",
        /// It answers and the login works.
        Well = "well",
        /// It does not answer, refuses the login, or left the configuration.
        Degraded = "degraded",
    }
}
