//! Circuit breakers of templates, nodes, storages and clouds.

use drover_model::phase::BreakerPhase;
use serde::{Deserialize, Serialize};

// Not `BreakerStatus`: a time is spelled, and breakers of templates are among them.
/// A breaker that does not flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BreakerOut {
    /// `cloud/template`, or `node:`, `storage:` or `cloud:` and a name.
    pub id: String,
    pub state: BreakerPhase,
    /// When it is tried again (RFC 3339), while it is tripped.
    pub retry_at: Option<String>,
    /// What tripped it.
    pub cause: Option<String>,
    /// The template whose agent moved it last.
    pub template: String,
}

/// The answer to a list of circuit breakers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BreakersOut {
    /// Those that do not flow.
    pub breakers: Vec<BreakerOut>,
}

/// What was reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResetOut {
    /// The name of the breaker.
    pub id: String,
    /// Whether it flowed already.
    #[serde(default)]
    pub flowed: bool,
}
