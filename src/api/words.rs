//! Counts and states in words for people.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use drover_model::addresses::POOL_USED_UP;
use drover_model::phase::{AgentPhase, CloudHealth, NO_ENDPOINT};

use crate::{AgentOut, CloudOut, StatusOut, TemplateOut};

/// A number of things, such as `1 agent` or `no agents`.
pub fn count(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        more => format!("{more} {thing}s"),
    }
}

/// A cloud's health in a word for people.
pub fn health(health: CloudHealth) -> &'static str {
    match health {
        CloudHealth::Well => "healthy",
        CloudHealth::Connecting | CloudHealth::Degraded => health.name(),
    }
}

/// A cloud's state in a word for people, who read of one without an endpoint that it cannot be reached.
pub fn standing(cloud: &CloudOut) -> &'static str {
    let is_silent = cloud.health == CloudHealth::Degraded && cloud.detail.contains(NO_ENDPOINT);
    if is_silent { "unreachable" } else { health(cloud.health) }
}

/// Whether the last failure of a template's agents is said beside what keeps it from starting more: that has
/// the same cause, or an older one, unless addresses rest after that failure.
pub fn shows_failure(waits: Option<&str>) -> bool {
    waits.is_none_or(|why| why.contains(POOL_USED_UP))
}

/// What an agent is to those who look at a herd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It waits until it may start: nothing of it is made yet.
    Queued,
    /// It is on its way, for the first time or after a reset.
    Coming,
    Ready,
    /// Somebody has it, and nobody else gets it now.
    Busy,
    /// It goes, or is gone.
    Leaving,
    /// It needs an administrator.
    Stranded,
}

/// The part of a herd that agents in this phase are.
pub fn part(phase: AgentPhase) -> Part {
    match phase {
        AgentPhase::Queued => Part::Queued,
        AgentPhase::Cloning
        | AgentPhase::InDoubt
        | AgentPhase::Configuring
        | AgentPhase::Booting
        | AgentPhase::Connecting
        | AgentPhase::Preparing
        | AgentPhase::Resetting => Part::Coming,
        AgentPhase::Ready => Part::Ready,
        AgentPhase::Leased | AgentPhase::Draining | AgentPhase::Held => Part::Busy,
        AgentPhase::Retiring | AgentPhase::Gone => Part::Leaving,
        AgentPhase::Stranded => Part::Stranded,
    }
}

/// Whether an agent only waits for its end: it drains, and nobody has it.
pub fn is_let_go(phase: AgentPhase, has_leases: bool) -> bool {
    phase == AgentPhase::Draining && !has_leases
}

/// Agents by what they are to those who look at a herd: one definition for the page and for lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// They wait until they may start.
    pub queued: u32,
    /// They are on their way.
    pub coming: u32,
    /// They would be queued or on their way, and their cloud cannot be used.
    pub held_up: u32,
    pub ready: u32,
    /// Somebody has them: a lease or a hold is on them.
    pub busy: u32,
    pub leaving: u32,
    pub stranded: u32,
}

impl Counts {
    /// Of a template's agents, of which so many are let go: the herd counts them by phase alone.
    pub fn of(
        states: &BTreeMap<AgentPhase, u32>,
        let_go: u32,
        health: Option<CloudHealth>,
    ) -> Self {
        let mut counts = Self::default();
        for (phase, count) in states.iter().filter(|(phase, _)| **phase != AgentPhase::Gone) {
            *match part(*phase) {
                Part::Queued => &mut counts.queued,
                Part::Coming => &mut counts.coming,
                Part::Ready => &mut counts.ready,
                Part::Busy => &mut counts.busy,
                Part::Leaving => &mut counts.leaving,
                Part::Stranded => &mut counts.stranded,
            } += count;
        }
        let let_go = let_go.min(counts.busy);
        counts.busy -= let_go;
        counts.leaving += let_go;
        if health.is_some_and(|health| health != CloudHealth::Well) {
            counts.held_up = counts.queued + counts.coming;
            (counts.queued, counts.coming) = (0, 0);
        }
        counts
    }

    /// Of a template, as a whole status has it.
    pub fn of_template(template: &TemplateOut, status: &StatusOut) -> Self {
        let is_let_go = |agent: &&AgentOut| {
            agent.template == template.id && is_let_go(agent.state, !agent.leases.is_empty())
        };
        let let_go = status.agents.iter().filter(is_let_go).count();
        let cloud = template.id.split('/').next();
        let cloud = status.clouds.iter().find(|one| Some(one.id.as_str()) == cloud);
        let let_go = u32::try_from(let_go).unwrap_or(u32::MAX);
        Self::of(&template.states, let_go, cloud.map(|one| one.health))
    }

    /// All that are not gone.
    pub fn all(self) -> u32 {
        let Self { queued, coming, held_up, ready, busy, leaving, stranded } = self;
        queued + coming + held_up + ready + busy + leaving + stranded
    }

    /// Idle agents that a template with these keeps at this moment: its idle ones, and those that its minimum lacks
    /// beside the ones in use.
    pub fn kept_idle(self, template: &TemplateOut) -> u32 {
        template.idle_minimum.max(template.minimum.saturating_sub(self.busy))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.queued += other.queued;
        self.coming += other.coming;
        self.held_up += other.held_up;
        self.ready += other.ready;
        self.busy += other.busy;
        self.leaving += other.leaving;
        self.stranded += other.stranded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(states: &[(AgentPhase, u32)], let_go: u32, health: CloudHealth) -> Counts {
        Counts::of(&states.iter().copied().collect(), let_go, Some(health))
    }

    // Invariant: each agent counts once, whatever its cloud does.

    #[test]
    fn nothing_is_on_its_way_where_a_cloud_cannot_be_used() {
        let states = [(AgentPhase::Queued, 1), (AgentPhase::Booting, 2), (AgentPhase::Leased, 1)];
        let well = of(&states, 0, CloudHealth::Well);
        assert_eq!((well.queued, well.coming, well.held_up, well.busy), (1, 2, 0, 1));
        let down = of(&states, 0, CloudHealth::Degraded);
        assert_eq!((down.queued, down.coming, down.held_up, down.busy), (0, 0, 3, 1));
        assert_eq!([well.all(), down.all()], [4, 4]);
    }

    // Invariant: an agent whose lease was lost is in nobody's use.

    #[test]
    fn an_agent_that_drains_without_a_lease_is_not_in_use() {
        let states = [(AgentPhase::Draining, 2), (AgentPhase::Gone, 5)];
        let counts = of(&states, 1, CloudHealth::Well);
        assert_eq!((counts.busy, counts.leaving, counts.all()), (1, 1, 2));
        assert!(is_let_go(AgentPhase::Draining, false));
        assert!(!is_let_go(AgentPhase::Draining, true) && !is_let_go(AgentPhase::Leased, false));
    }
}
