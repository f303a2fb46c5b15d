//! What others may know of a lease.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, LeaseId};
use crate::phase::LeasePhase;
use crate::record::{CANCELLED, EXPIRED, IDLE, LOST, RELEASED, WAITED, Want};
use crate::time::WallTime;

/// How principals of sources are spelled.
const SOURCE: &str = "source:";

/// A lease at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    pub lease: LeaseId,
    pub state: LeasePhase,
    /// Its agent, once granted.
    pub agent: Option<AgentId>,
    /// For whom, as the lease API was given it.
    pub owner: String,
    /// Who asked, as authenticated.
    pub principal: String,
    /// The group whose lease it is too.
    pub group: Option<String>,
    /// What is wanted, in words.
    pub wants: String,
    /// The same, as drover reads it; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub want: Option<Want>,
    /// Whether it takes its agent with all executors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// When it was asked for; none where that is not known.
    pub asked: Option<WallTime>,
    /// When it was granted; none before, and where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<WallTime>,
    /// When it runs out, once granted.
    pub expires: Option<WallTime>,
    /// Why it waits or ended.
    pub detail: String,
}

impl LeaseStatus {
    /// The source that asked for it; none where a holder of the API did.
    pub fn source(&self) -> Option<&str> {
        self.principal.strip_prefix(SOURCE)
    }
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Its holder gave it back, or its job is done.
    Done,
    /// Its holder overstayed.
    Expired,
    /// Its agent could not serve it any more.
    Lost,
    /// No agent was there in time.
    Waited,
    /// Nobody wanted it any more before it was served.
    Cancelled,
    /// Its runner took no job.
    Idle,
    /// It could not be served for another reason.
    NotServed,
}

impl LeaseEnd {
    /// How a lease ended, by the text that says why it did.
    pub fn of(detail: &str) -> Self {
        // Behind the word stands what it was lost by.
        match detail.split(':').next().unwrap_or_default() {
            EXPIRED => Self::Expired,
            LOST => Self::Lost,
            WAITED => Self::Waited,
            CANCELLED => Self::Cancelled,
            IDLE => Self::Idle,
            RELEASED => Self::Done,
            // Such as `its runner could not be started`, where all else is one word.
            sentence if sentence.contains(' ') => Self::NotServed,
            // What a source says of its job, such as `done`.
            _ => Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each text by which a lease can end means one end.

    #[test]
    fn a_text_says_how_a_lease_ended() {
        for (detail, end) in [
            ("released", LeaseEnd::Done),
            ("done", LeaseEnd::Done),
            ("expired", LeaseEnd::Expired),
            ("lost", LeaseEnd::Lost),
            ("lost: its guest was gone from the cluster", LeaseEnd::Lost),
            ("waited-too-long", LeaseEnd::Waited),
            ("cancelled", LeaseEnd::Cancelled),
            ("idle", LeaseEnd::Idle),
            ("its runner could not be started", LeaseEnd::NotServed),
            ("its runner could not be started: no network", LeaseEnd::NotServed),
        ] {
            assert_eq!(LeaseEnd::of(detail), end, "{detail}");
        }
    }
}
