//! Sources of demand: how much waits and runs there, and since when one cannot be looked at.

use drover_model::fact::SourceStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shapes::rfc3339;
use crate::view::LostJob;

/// A source of demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceOut {
    /// Its key in `demand`.
    pub id: String,
    /// The kind of system.
    pub kind: String,
    /// Whether it is configured; one that is not has runners left.
    #[serde(default = "configured")]
    pub configured: bool,
    /// Jobs that wait for an agent, those aside that no template serves.
    pub waiting: usize,
    /// Since when the oldest of them does (RFC 3339).
    pub oldest: Option<String>,
    /// Jobs that wait and that no template serves.
    #[serde(default)]
    pub unoffered: usize,
    /// What templates are short of for them; the first few.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Jobs left alone, since they want labels that it may not have.
    pub ignored: usize,
    /// Runners of drover's there.
    pub runners: usize,
    /// Jobs that run on them.
    pub running: usize,
    /// Runners in a row that could not be started; nothing more is wanted for a while after each.
    #[serde(default)]
    pub unserved: u32,
    /// Since when it lets no runner be made (RFC 3339); null while it does.
    #[serde(default)]
    pub refused_since: Option<String>,
    /// Why it lets none be made.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Since when it cannot be looked at (RFC 3339); null while it can.
    pub silent_since: Option<String>,
    /// Why: that it does not answer, refuses the login, or what else it says.
    pub detail: Option<String>,
}

/// What is said of a source by a service that says nothing else.
fn configured() -> bool {
    true
}

/// A job that was lost with its machine. Nobody runs it again unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostJobOut {
    /// The source.
    pub source: String,
    /// The runner it was on.
    pub runner: String,
    /// The agent it ran on.
    pub agent: String,
    /// The job's id there, where it is known.
    pub job: Option<String>,
    /// When that was found (RFC 3339).
    pub at: String,
}

impl From<&SourceStatus> for SourceOut {
    fn from(one: &SourceStatus) -> Self {
        let (silent_since, detail) = one.outage.clone().unzip();
        let (refused_since, refusal) = one.refused.clone().unzip();
        Self {
            id: one.source.to_string(),
            kind: one.kind.clone(),
            configured: one.configured,
            waiting: one.waiting,
            oldest: one.oldest.map(rfc3339),
            unoffered: one.unoffered,
            lacks: one.lacks.clone(),
            ignored: one.ignored,
            runners: one.runners,
            running: one.running,
            unserved: one.unserved,
            refused_since: refused_since.map(rfc3339),
            refusal,
            silent_since: silent_since.map(rfc3339),
            detail,
        }
    }
}

impl From<&LostJob> for LostJobOut {
    fn from(one: &LostJob) -> Self {
        Self {
            source: one.source.to_string(),
            runner: one.runner.to_string(),
            agent: one.agent.to_string(),
            job: one.job.clone(),
            at: rfc3339(one.at),
        }
    }
}
