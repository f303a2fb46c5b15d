//! What others may know of a lease.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, LeaseId};
use crate::phase::LeasePhase;
use crate::record::Want;
use crate::time::WallTime;

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
