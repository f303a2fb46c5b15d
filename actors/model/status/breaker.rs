//! What others may know of a circuit breaker.

use serde::{Deserialize, Serialize};

use crate::id::TemplateId;
use crate::phase::BreakerPhase;
use crate::scope::Scope;
use crate::time::WallTime;

/// The breaker of a node, a storage or a cloud at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerStatus {
    pub scope: Scope,
    pub breaker: BreakerPhase,
    /// When an open breaker may be tried again, and the cause.
    pub tripped: Option<(WallTime, String)>,
    /// The template whose agent moved it last.
    pub template: TemplateId,
}
