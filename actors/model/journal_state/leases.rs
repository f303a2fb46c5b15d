//! Leases in the journal that are over, or wait again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::JournalState;
use super::granted::is_within;
use crate::id::{AgentId, LeaseId};
use crate::record::{EXPIRED, LOST, LeaseAsk};
use crate::time::WallTime;

/// How long an ended lease that has an idempotency key answers repeated requests.
const KEYED_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// How long any other is known: anyone who releases it again hears that it is over.
const PLAIN_KEEP: Duration = Duration::from_secs(60 * 60);

/// How long an ended lease is known.
pub fn ended_keep(ask: &LeaseAsk) -> Duration {
    if ask.key_hash.is_some() { KEYED_KEEP } else { PLAIN_KEEP }
}

/// A lease that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedLease {
    /// As asked for.
    pub ask: LeaseAsk,
    /// Its agent, if it ever had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Why it ended.
    pub why: String,
    /// What it was lost by; empty where there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    pub at: WallTime,
}

impl JournalState {
    pub(super) fn end_lease(&mut self, lease: &LeaseId, why: &str, cause: &str, at: WallTime) {
        let mut found = None;
        if let Some(index) = self.waiting.iter().position(|ask| &ask.lease == lease) {
            found = Some((self.waiting.remove(index), None));
        }
        for (agent, entry) in &mut self.agents {
            if let Some(granted) = entry.leases.remove(lease) {
                found = Some((granted.ask.clone(), Some(agent.clone())));
                if why == EXPIRED || why == LOST {
                    entry.unswept = true;
                } else if granted.ask.enters() {
                    entry.expelling.insert(lease.clone(), granted);
                }
            }
        }
        if let Some((ask, agent)) = found {
            let (why, cause) = (why.to_owned(), cause.to_owned());
            self.remember(EndedLease { ask, agent, why, cause, at });
        }
    }

    /// Remembers an ended lease for anyone who asks about it again; a source never does.
    pub(super) fn remember(&mut self, mut ended: EndedLease) {
        if ended.ask.source.is_none() {
            // It is let in nowhere any more.
            ended.ask.public_key = None;
            self.ended.insert(ended.ask.lease.clone(), ended);
        }
    }

    /// Back among those who wait, unless another agent has it already; a source wants again what it
    /// still wants.
    pub(super) fn return_lease(&mut self, agent: &AgentId, lease: &LeaseId) {
        let Some(entry) = self.agents.get_mut(agent) else { return };
        let Some(granted) = entry.leases.remove(lease) else { return };
        entry.unswept |= granted.ask.enters();
        // Its key is taken out where others go on.
        if granted.ask.enters() && granted.ask.source.is_none() && !entry.leases.is_empty() {
            entry.expelling.insert(lease.clone(), granted.clone());
        }
        if granted.ask.source.is_some() {
            return;
        }
        let place = self.waiting.partition_point(|other| other.asked <= granted.ask.asked);
        self.waiting.insert(place, granted.ask);
    }

    /// Forgets leases that ended long ago.
    pub(super) fn forget_leases(&mut self, now: WallTime) {
        self.ended.retain(|_, ended| {
            let keep = ended_keep(&ended.ask);
            ended.ask.source.is_none() && is_within(&mut ended.at, keep, now)
        });
    }
}
