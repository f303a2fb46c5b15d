//! The part of the configuration that git manages, and what a configuration would change.

use serde::{Deserialize, Serialize};

/// A commit whose configuration was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AppliedOut {
    /// The commit's id, in full.
    pub commit: String,
    /// When it was committed (RFC 3339).
    pub committed_at: String,
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    pub branch: String,
    /// When it was applied last (RFC 3339).
    pub applied_at: String,
}

/// How the last attempt of a sync ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum SyncResult {
    /// A commit came into force.
    Applied,
    /// What git has is in force already.
    Unchanged,
    /// The configuration stays at another commit on purpose.
    Pinned,
    /// What git has was refused; the configuration before stays.
    Refused,
    /// Git could not be read; the configuration before stays.
    Failed,
}

/// The last attempt of a sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttemptOut {
    /// When it ended (RFC 3339).
    pub at: String,
    pub result: SyncResult,
    /// What git has; null where it could not be read.
    pub commit: Option<String>,
    /// What is wrong; null where nothing is.
    pub fault: Option<String>,
}

/// A value that people changed against git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ValueChangeOut {
    /// The path of a key, or of an entry such as `agentConfigurations.linux`.
    pub path: String,
    /// The value before, as YAML in one line; null where there was none.
    pub before: Option<String>,
    /// The value after; null where there is none.
    pub after: Option<String>,
    /// Whether it is about a whole entry, which is added or removed.
    pub entry: bool,
}

/// The state of `service.configSync`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SyncOut {
    pub repository: String,
    pub branch: String,
    /// The path in the repository.
    pub path: String,
    /// The cron pattern of the automatic sync; null for syncs on demand alone.
    pub schedule: Option<String>,
    /// When it comes next (RFC 3339).
    pub next_at: Option<String>,
    /// Whether people may change what git manages.
    pub allow_manual_changes: bool,
    /// Whether a sync is under way.
    pub running: bool,
    /// The commit in force; null before the first.
    pub in_force: Option<AppliedOut>,
    /// Whether the configuration stays at that commit until somebody asks for a sync.
    pub pinned: bool,
    /// The last attempt; null before the first since drover started.
    pub last_attempt: Option<AttemptOut>,
    /// The clouds that git manages.
    pub clouds: Vec<String>,
    /// What people changed against git, which the next sync undoes: from git's value to the one in
    /// force.
    pub manual_changes: Vec<ValueChangeOut>,
    /// Commits that were applied, the newest first; `to` of a sync may name them without git.
    pub history: Vec<AppliedOut>,
}

/// Asks for a sync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncIn {
    /// The commit to return to, in full or its first digits; the configuration stays there until a
    /// sync without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether to return to the commit that was applied before the one in force, in place of `to`.
    #[serde(default)]
    pub back: bool,
}

/// What came of a sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SyncDoneOut {
    pub result: SyncResult,
    /// The commit in force.
    pub in_force: AppliedOut,
    /// The configuration in force; null where nothing was applied.
    pub generation: Option<u64>,
    /// Changes of people that it undid.
    pub undone: usize,
    /// Clouds, and templates (`cloud/template`) of clouds that stay, which left git and are drained.
    #[serde(default)]
    pub drained: Vec<String>,
}

/// One part of a test of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SyncCheckOut {
    /// `repository`, `branch`, `file` or `configuration`.
    pub part: String,
    /// Whether it is well; null where a part before it is not.
    pub ok: Option<bool>,
    /// What was found, or what is wrong and what to do.
    pub text: String,
}

/// What a test of the connection found; it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyncTestOut {
    pub checks: Vec<SyncCheckOut>,
}
