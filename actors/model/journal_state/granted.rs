//! Leases on agents, and spans of wall time that must end however the clock is set.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{RunnerName, SourceId};
use crate::ports::Holder;
use crate::record::{LeaseAsk, Want};
use crate::time::WallTime;

/// What is put into a guest for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// What its holder needs there.
    Holder(Holder),
    /// A runner of its source, for what it was started for.
    Runner(SourceId, RunnerName, Want),
}

/// A lease on an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedLease {
    /// As asked for.
    pub ask: LeaseAsk,
    /// When it was granted; none in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<WallTime>,
    /// When it runs out.
    pub expires: WallTime,
    /// For how long it was granted or renewed last, in milliseconds, whatever the clock says; none
    /// in older journals.
    #[serde(default)]
    pub span_ms: Option<u64>,
    /// Its runner's name, where it serves a source.
    #[serde(default)]
    pub runner: Option<RunnerName>,
    /// Whether what it needs in its guest may not be there yet; no lease of an older journal is.
    #[serde(default)]
    pub pending: bool,
}

/// A span as it is written down.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a span that began then is not over. What began in the future, while the clock was ahead,
/// begins now: else it would last until the clock is there again.
pub(super) fn is_within(since: &mut WallTime, span: Duration, now: WallTime) -> bool {
    *since = (*since).min(now);
    now - *since < span
}

/// For how long a lease of an older journal may have been renewed.
const RENEWED_ONCE: Duration = Duration::from_secs(24 * 60 * 60);

impl GrantedLease {
    /// What is left of it, never more than it was granted for: the clock may have been set since.
    pub fn left(&self, now: WallTime) -> Duration {
        let most = self.span_ms.map(Duration::from_millis);
        let most = most.unwrap_or_else(|| Duration::from_millis(self.ask.ttl_ms).max(RENEWED_ONCE));
        (self.expires - now).min(most)
    }

    /// Whether all that it needs in its guest is there, as far as the journal says.
    pub fn is_ready(&self) -> bool {
        // One without its runner's name was cut off before the runner could be made.
        !self.ask.enters() || !self.pending && self.pass().is_some()
    }

    /// It runs out at another time, as is said at that moment.
    pub fn renew(&mut self, expires: WallTime, now: WallTime) {
        self.expires = expires;
        self.span_ms = Some(millis(expires - now));
    }

    /// What is put into the guest for it.
    pub fn pass(&self) -> Option<Pass> {
        let ask = &self.ask;
        if ask.public_key.is_some() || ask.user_data {
            let (public_key, user_data) = (ask.public_key.clone(), ask.user_data);
            return Some(Pass::Holder(Holder { public_key, user_data }));
        }
        let (source, runner) = (ask.source.clone()?, self.runner.clone()?);
        Some(Pass::Runner(source, runner, ask.want.clone()))
    }
}
