//! One agent: its life, its events, and what may be done with it.

use askama::Template;
use drover_api::{AgentOut, BlackBoxOut, GoneOut, PhaseOut};

use drover_model::phase::AgentPhase;

use crate::events::EventRow;
use crate::frame::Frame;
use crate::waterfall::{self, Bar};

/// A living agent.
#[derive(Template)]
#[template(path = "agent.html")]
pub struct AgentPage {
    frame: Frame,
    agent: AgentOut,
    bars: Vec<Bar>,
    total: String,
    events: Vec<EventRow>,
    is_held: bool,
    /// Whether a hold still comes in time.
    may_be_held: bool,
    /// Whether it does not go already.
    may_be_retired: bool,
    has_terminal: bool,
    limits: String,
}

impl AgentPage {
    /// With whether a terminal may be opened there, its events, the last first, and how long it is in its state.
    pub fn new(
        frame: Frame,
        mut agent: AgentOut,
        has_terminal: bool,
        events: Vec<EventRow>,
        in_state_ms: u64,
    ) -> Self {
        // The phase under way grows, too.
        match agent.phases.last_mut().filter(|last| last.state == agent.state.name()) {
            Some(last) => last.ms = last.ms.max(in_state_ms),
            None => {
                let state = agent.state.name().to_owned();
                agent.phases.push(PhaseOut { state, ms: in_state_ms });
            }
        }
        Self {
            frame,
            bars: waterfall::bars(&agent.phases),
            total: waterfall::total(&agent.phases),
            is_held: agent.held_until.is_some(),
            may_be_held: !agent.state.is_leaving(),
            may_be_retired: !agent.state.is_leaving() && agent.state != AgentPhase::Draining,
            has_terminal,
            limits: agent.overrides.spell(),
            agent,
            events,
        }
    }
}

/// An agent that is gone.
#[derive(Template)]
#[template(path = "gone.html")]
pub struct GonePage {
    frame: Frame,
    agent: GoneOut,
    bars: Vec<Bar>,
    total: String,
    events: Vec<EventRow>,
    /// What was kept of it where it failed.
    kept: Option<BlackBoxOut>,
}

impl GonePage {
    /// With its events, the last first, and what was kept of it where it failed.
    pub fn new(
        frame: Frame,
        agent: GoneOut,
        events: Vec<EventRow>,
        kept: Option<BlackBoxOut>,
    ) -> Self {
        let (bars, total) = (waterfall::bars(&agent.phases), waterfall::total(&agent.phases));
        Self { frame, agent, bars, total, events, kept }
    }
}
