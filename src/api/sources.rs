//! Sources of demand, their jobs, and jobs that were lost.

use drover_model::phase::JobPhase;
use serde::{Deserialize, Serialize};

// Not `SourceStatus`: times are spelled, and older services leave fields out.
/// A source of demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Since when it cannot be polled (RFC 3339); null while it can.
    pub silent_since: Option<String>,
    /// Why: that it does not answer, refuses the login, or what else it says.
    pub detail: Option<String>,
}

/// Older services list configured sources alone, and do not say that they are.
fn configured() -> bool {
    true
}

/// A job that was lost with its machine. Nobody runs it again unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LostJobOut {
    /// The name of the source.
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

/// The answer to a list of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobsOut {
    /// By source; those that wait the longest first, then those that run, those that no template
    /// serves, those of which it is not known what they want, and those left alone.
    pub jobs: Vec<JobOut>,
    /// Sources that cannot be polled: what is listed of their jobs is old, or nothing.
    #[serde(default)]
    pub silent: Vec<SilentOut>,
}

/// A source that cannot be polled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SilentOut {
    /// The name of the source.
    pub source: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// Why: that it does not answer, refuses the login, or what else it says.
    pub detail: String,
}

/// A job of a source, by its last look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobOut {
    /// The name of the source.
    pub source: String,
    /// Its id there.
    pub id: String,
    /// What people call it; null where it was not seen to wait.
    pub name: Option<String>,
    /// `waiting`, `running`, `unserved`: no template serves it, `unread`: the source does not say what it
    /// wants, or `ignored`: it wants labels that the source may not have.
    pub state: JobPhase,
    /// What templates are short of for it, where it is unserved; why it is unread.
    #[serde(default)]
    pub lacks: Option<String>,
    /// What it wants; null where it was not seen to wait.
    pub wants: Option<String>,
    /// Since when it waits, or waited (RFC 3339); null where it was not seen to wait.
    pub since: Option<String>,
    /// The agent it runs on.
    pub agent: Option<String>,
}
