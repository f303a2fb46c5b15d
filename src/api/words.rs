//! Counts and states in words for people.

use drover_model::addresses::POOL_USED_UP;
use drover_model::phase::{AgentPhase, CloudHealth, NO_ENDPOINT};

use crate::CloudOut;

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
        AgentPhase::Queued
        | AgentPhase::Cloning
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
