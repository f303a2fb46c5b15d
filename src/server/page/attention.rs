//! What of the herd needs a look and has no alarm: agents that do not go on, and leases that lost their machine.

use std::time::Duration;

use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::LOST;
use drover_model::status::{AgentStatus, LeaseStatus};
use drover_model::time::WallTime;

/// How long an agent may be on its way out, or in doubt.
const SLOW: Duration = Duration::from_secs(60);
/// How long an agent without leases may drain: it goes at once, unless something keeps it.
const DRAINED: Duration = Duration::from_secs(10);
/// How long ago a lease was lost that is still shown.
const LATELY: Duration = Duration::from_secs(3600);

/// Whether something keeps an agent, so that a person may have to see to it. One that is Stranded has an alarm.
pub(super) fn is_stuck(agent: &AgentStatus, now: WallTime) -> bool {
    let limit = match agent.phase {
        AgentPhase::InDoubt | AgentPhase::Retiring => SLOW,
        AgentPhase::Draining if agent.leases.is_empty() => DRAINED,
        AgentPhase::Queued
        | AgentPhase::Cloning
        | AgentPhase::Configuring
        | AgentPhase::Booting
        | AgentPhase::Connecting
        | AgentPhase::Preparing
        | AgentPhase::Ready
        | AgentPhase::Leased
        | AgentPhase::Draining
        | AgentPhase::Resetting
        | AgentPhase::Held
        | AgentPhase::Stranded
        | AgentPhase::Gone => return false,
    };
    is_older(agent.since, limit, now)
}

/// From when on a lost lease is shown.
pub(super) fn lately(now: WallTime) -> WallTime {
    WallTime(now.0.saturating_sub(i64::try_from(LATELY.as_millis()).unwrap_or(i64::MAX)))
}

/// Whether a lease lost its machine within the last hour.
pub(super) fn is_lost(lease: &LeaseStatus, ended: Option<WallTime>, now: WallTime) -> bool {
    lease.state == LeasePhase::Ended
        && lease.detail.starts_with(LOST)
        && ended.is_some_and(|at| !is_older(at, LATELY, now))
}

fn is_older(at: WallTime, than: Duration, now: WallTime) -> bool {
    i128::from(now.0.saturating_sub(at.0)) >= i128::try_from(than.as_millis()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use drover_model::id::LeaseId;

    use super::*;
    use crate::testing::{agent, lease};

    fn of(phase: AgentPhase, leases: &[&str], age: i64) -> bool {
        let leases = leases.iter().map(|id| LeaseId::new(*id)).collect();
        let since = WallTime(1_000_000);
        let agent = AgentStatus { since, leases, ..agent("a1", phase) };
        is_stuck(&agent, WallTime(1_000_000 + age))
    }

    // Invariant: what cannot go on is shown on the first page, and what goes on is not.

    #[test]
    fn agents_that_leave_too_slowly_need_a_look_and_those_that_work_do_not() {
        assert!(!of(AgentPhase::Retiring, &[], 59_999));
        assert!(of(AgentPhase::Retiring, &[], 60_000));
        assert!(of(AgentPhase::InDoubt, &[], 60_000));
        assert!(of(AgentPhase::Draining, &[], 10_000));
        assert!(!of(AgentPhase::Draining, &["l1"], 3_600_000));
        assert!(!of(AgentPhase::Ready, &[], 3_600_000));
    }

    #[test]
    fn a_lost_lease_needs_a_look_for_an_hour_and_a_released_one_never() {
        let ended = |detail: &str| lease("l1", LeasePhase::Ended, None, detail);
        let at = Some(WallTime(1_000));
        assert!(is_lost(&ended("lost: node pve2 is offline"), at, WallTime(3_600_000)));
        assert!(!is_lost(&ended("lost: node pve2 is offline"), at, WallTime(3_601_000)));
        assert!(!is_lost(&ended("released"), at, WallTime(2_000)));
        assert!(!is_lost(&ended("lost"), None, WallTime(2_000)));
    }
}
