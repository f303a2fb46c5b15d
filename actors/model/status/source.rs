//! What others may know of a source of demand.

use serde::{Deserialize, Serialize};

use crate::id::SourceId;
use crate::time::WallTime;

/// A source of demand at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    pub source: SourceId,
    /// The kind of system.
    pub kind: String,
    /// Whether it is configured; one that is not has runners left.
    pub configured: bool,
    /// Jobs that wait there for what some template serves.
    pub waiting: usize,
    /// Since when the oldest of them does.
    pub oldest: Option<WallTime>,
    /// Jobs that wait there and that no template serves.
    pub unoffered: usize,
    /// What templates are short of for them, in words for people; the first few.
    pub lacks: Vec<String>,
    /// Jobs that want labels it may not have.
    pub ignored: usize,
    /// Runners of drover's there.
    pub runners: usize,
    /// Jobs that run on them.
    pub running: usize,
    /// Runners in a row that could not be started; nothing more is wanted for a while after each.
    pub unserved: u32,
    /// Since when it lets no runner be made, and why.
    pub refused: Option<(WallTime, String)>,
    /// Since when it cannot be polled, and why.
    pub outage: Option<(WallTime, String)>,
}

impl SourceStatus {
    /// A configured source of that kind with no jobs and no runners, which answers.
    pub fn idle(source: SourceId, kind: &str) -> Self {
        Self {
            source,
            kind: kind.to_owned(),
            configured: true,
            waiting: 0,
            oldest: None,
            unoffered: 0,
            lacks: Vec::new(),
            ignored: 0,
            runners: 0,
            running: 0,
            unserved: 0,
            refused: None,
            outage: None,
        }
    }
}
