//! What becomes of agents when the service stops.

/// What becomes of the agents when the service stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopPolicy {
    /// They live on and are adopted at the next start.
    #[default]
    Keep,
    /// Idle ones are retired.
    RetireIdle,
    /// All are retired.
    RetireAll,
}
