//! Agents, and those that went.

use drover_api::{AgentOut, GoneOut};
use drover_model::phase::AgentPhase;
use drover_model::size::Size;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};

impl Listed for AgentOut {
    const COLUMNS: &'static [Column] = &[
        column("ID", Kind::Id, 0),
        column("TEMPLATE", Kind::Name, 0),
        column("STATE", Kind::State, 0),
        column("CHANGED", Kind::Time, 2),
        column("VMID", Kind::Number, 4),
        column("NODE", Kind::Name, 3),
        column("LOGIN", Kind::Name, 6),
        column("LEASES", Kind::Id, 5),
        column("DETAIL", Kind::Text, 1),
    ];

    fn states() -> Vec<String> {
        AgentPhase::ALL.iter().map(ToString::to_string).collect()
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let login = self.ssh.as_ref().map(|ssh| format!("{}@{}:{}", ssh.user, ssh.host, ssh.port));
        vec![
            Cell::of(&self.id),
            Cell::of(&self.template),
            Cell::State(self.state.to_string(), tone(self.state)),
            Cell::Time(self.since.clone()),
            Cell::maybe(self.vmid),
            Cell::maybe(self.node.as_ref()),
            Cell::maybe(login),
            Cell::list(&self.leases),
            Cell::of(detail(self)),
        ]
    }
}

const fn tone(phase: AgentPhase) -> Tone {
    match phase {
        AgentPhase::Ready | AgentPhase::Leased => Tone::Good,
        AgentPhase::Queued
        | AgentPhase::Cloning
        | AgentPhase::InDoubt
        | AgentPhase::Configuring
        | AgentPhase::Booting
        | AgentPhase::Connecting
        | AgentPhase::Preparing
        | AgentPhase::Draining
        | AgentPhase::Resetting
        | AgentPhase::Held => Tone::Busy,
        AgentPhase::Stranded => Tone::Bad,
        AgentPhase::Retiring | AgentPhase::Gone => Tone::Gone,
    }
}

/// What an agent waits for, after what is other than its template says.
fn detail(agent: &AgentOut) -> String {
    let own = agent.overrides.spell();
    let trial = if agent.on_trial { "on trial" } else { "" };
    let size = Size::from(agent.size).to_string();
    let parts = [trial, size.as_str(), own.as_str(), agent.detail.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

impl Listed for GoneOut {
    const COLUMNS: &'static [Column] = &[
        column("ID", Kind::Id, 0),
        column("TEMPLATE", Kind::Name, 0),
        column("GONE", Kind::Time, 1),
        column("LIVED", Kind::Number, 2),
        column("WHY", Kind::Text, 0),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let life: u64 = self.phases.iter().map(|phase| phase.ms).sum();
        vec![
            Cell::of(&self.id),
            Cell::of(&self.template),
            Cell::Time(self.gone_at.clone()),
            Cell::of(format!("{:.1} s", life as f64 / 1000.0)),
            Cell::of(&self.detail),
        ]
    }
}

/// Agents that went, under a heading.
pub(in crate::cli) fn gone(agents: &[GoneOut], page: &mut Page) {
    page.heading("GONE");
    super::page(agents, page);
}
