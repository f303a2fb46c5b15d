//! What of the herd needs a look: alarms, sources that are not read, agents that do not go on, leases that lost
//! their machine, agents on nodes that are offline, and breakers that are not closed. The first page lists it, and
//! each page counts it.

use std::sync::Arc;
use std::time::Duration;

use drover_api::AlarmOut;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::placement::report::{NodeOffline, NodesKnown};
use drover_model::record::is_lost;
use drover_model::status::{AgentStatus, LeaseStatus};
use drover_model::time::WallTime;
use drover_page::standing_alarms;

use crate::alarms::alarms;
use crate::breakers::tripped_count;
use crate::shapes::Shown;
use crate::view::View;

/// How long an agent may be on its way out, or in doubt.
const SLOW: Duration = Duration::from_secs(60);
/// How long an agent without leases may drain: it goes at once, unless something keeps it.
const DRAINED: Duration = Duration::from_secs(10);
/// How long ago a lease was lost that is still shown.
const LATELY: Duration = Duration::from_secs(3600);

/// What needs a look.
#[derive(Default)]
pub(super) struct Attention {
    pub(super) alarms: Vec<AlarmOut>,
    pub(super) stuck: Vec<Arc<AgentStatus>>,
    pub(super) lost: Vec<LeaseStatus>,
    /// Nodes that are offline, each with the agents on it.
    pub(super) down: Vec<(NodeOffline, Vec<Arc<AgentStatus>>)>,
    /// How many breakers are not closed.
    breakers: usize,
}

impl Attention {
    pub(super) fn of(view: &View, known: &NodesKnown, now: WallTime) -> Self {
        let sources: Vec<_> = view.sources().iter().map(Shown::shown).collect();
        let down: Vec<_> = match known.offline.as_slice() {
            [] => Vec::new(),
            nodes => nodes.iter().map(|one| (one.clone(), on(view, one))).collect(),
        };
        let down: Vec<_> = down.into_iter().filter(|(_, agents)| !agents.is_empty()).collect();
        let is_down = |agent: &Arc<AgentStatus>| {
            down.iter().any(|(_, agents)| agents.iter().any(|one| one.agent == agent.agent))
        };
        let mut stuck = view.agents_where(|one| is_stuck(one, now));
        // Each of them stands with its node.
        stuck.retain(|agent| !is_down(agent));
        let ended = view.ended_since(lately(now)).into_iter();
        let lost = ended.filter(|(one, ended)| was_lost_lately(one, Some(*ended), now));
        Self {
            alarms: standing_alarms(alarms(view), &sources),
            stuck,
            lost: lost.map(|(one, _)| one).collect(),
            down,
            breakers: tripped_count(view),
        }
    }

    /// How many things need a look.
    pub(super) fn count(&self) -> usize {
        self.alarms.len() + self.stuck.len() + self.lost.len() + self.down.len() + self.breakers
    }
}

/// The agents on a node.
fn on(view: &View, node: &NodeOffline) -> Vec<Arc<AgentStatus>> {
    let clouds = view.clouds();
    let leads_there = |agent: &AgentStatus| {
        let cloud = clouds.iter().find(|cloud| cloud.cloud == agent.template.cloud);
        cloud.is_some_and(|cloud| cloud.cluster.as_ref() == Some(&node.cluster))
    };
    view.agents_where(|one| {
        one.node.as_ref() == Some(&node.node) && one.phase != AgentPhase::Gone && leads_there(one)
    })
}

/// Whether something keeps an agent, so that a person may have to see to it. One that is Stranded has an alarm.
fn is_stuck(agent: &AgentStatus, now: WallTime) -> bool {
    let limit = match agent.phase {
        AgentPhase::InDoubt | AgentPhase::Retiring => SLOW,
        AgentPhase::Draining if agent.leases.is_empty() => DRAINED,
        // Nobody knows yet whether what runs there is lost.
        AgentPhase::Leased | AgentPhase::Draining if agent.may_be_lost => return true,
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
fn lately(now: WallTime) -> WallTime {
    WallTime(now.0.saturating_sub(i64::try_from(LATELY.as_millis()).unwrap_or(i64::MAX)))
}

/// Whether a lease lost its machine within the last hour.
fn was_lost_lately(lease: &LeaseStatus, ended: Option<WallTime>, now: WallTime) -> bool {
    lease.state == LeasePhase::Ended
        && is_lost(&lease.detail)
        && ended.is_some_and(|at| !is_older(at, LATELY, now))
}

fn is_older(at: WallTime, than: Duration, now: WallTime) -> bool {
    i128::from(now.0.saturating_sub(at.0)) >= i128::try_from(than.as_millis()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use drover_model::fact::What;
    use drover_model::id::{CloudId, ClusterId, LeaseId, NodeName, SourceId, TemplateId};
    use drover_model::phase::{BreakerPhase, CloudHealth};
    use drover_model::scope::Scope;
    use drover_model::status::{BreakerStatus, CloudStatus, SourceStatus};

    use super::*;
    use crate::testing::{agent, lease, reported};

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
        let leased =
            AgentStatus { leases: [LeaseId::new("l1")].into(), ..agent("a1", AgentPhase::Leased) };
        assert!(!is_stuck(&leased, WallTime(0)));
        assert!(is_stuck(&AgentStatus { may_be_lost: true, ..leased }, WallTime(0)));
    }

    #[test]
    fn a_lost_lease_needs_a_look_for_an_hour_and_a_released_one_never() {
        let ended = |detail: &str| lease("l1", LeasePhase::Ended, None, detail);
        let at = Some(WallTime(1_000));
        assert!(was_lost_lately(&ended("lost: node pve2 is offline"), at, WallTime(3_600_000)));
        assert!(!was_lost_lately(&ended("lost: node pve2 is offline"), at, WallTime(3_601_000)));
        assert!(!was_lost_lately(&ended("released"), at, WallTime(2_000)));
        assert!(!was_lost_lately(&ended("lost"), None, WallTime(2_000)));
    }

    // Invariant: what is counted on each page is what the first one lists.

    #[test]
    fn a_silent_source_and_a_node_that_is_offline_with_an_agent_need_a_look() {
        let view = View::new(1);
        let now = WallTime(5_000_000);
        assert_eq!(Attention::of(&view, &NodesKnown::default(), now).count(), 0);
        let silent = SourceStatus {
            outage: Some((WallTime(1_000), "does not answer".to_owned())),
            ..SourceStatus::idle(SourceId::new("git"), "gitea")
        };
        reported(&view, What::Source(Box::new(silent)));
        assert_eq!(Attention::of(&view, &NodesKnown::default(), now).count(), 1);

        let (cluster, node) = (ClusterId::new("c1"), NodeName::new("pve2"));
        reported(
            &view,
            What::Cloud(Box::new(CloudStatus {
                cloud: CloudId::new("lab"),
                cluster: Some(cluster.clone()),
                health: CloudHealth::Well,
                version: None,
                detail: String::new(),
                agents: 1,
                cap: None,
                overrides: drover_model::overridden::CloudOverrides::default(),
            })),
        );
        let offline = vec![NodeOffline { cluster, node: node.clone(), since: WallTime(1_000) }];
        let known = NodesKnown { offline, ..NodesKnown::default() };
        assert_eq!(Attention::of(&view, &known, now).count(), 1, "no agent is there");
        let there = AgentStatus {
            node: Some(node),
            since: WallTime(1_000),
            ..agent("a1", AgentPhase::Retiring)
        };
        reported(&view, What::Agent(Arc::new(there)));
        let seen = Attention::of(&view, &known, now);
        assert_eq!((seen.count(), seen.down.len(), seen.stuck.len()), (2, 1, 0), "once");
    }

    #[test]
    fn a_breaker_needs_a_look_until_it_is_closed() {
        let view = View::new(1);
        let of = |breaker| {
            let template = TemplateId::new(CloudId::new("lab"), "linux");
            let scope = Scope::Cloud(CloudId::new("lab"));
            let status = BreakerStatus { scope, breaker, tripped: None, template };
            reported(&view, What::Breaker(Box::new(status)));
            Attention::of(&view, &NodesKnown::default(), WallTime(1_000)).count()
        };
        assert_eq!(
            [BreakerPhase::Open, BreakerPhase::HalfOpen, BreakerPhase::Closed].map(of),
            [1, 1, 0]
        );
    }
}
