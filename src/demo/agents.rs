//! The agents of the demo: a row for each, with its phases on the demo's time axis.

use drover_api::{AgentOut, GoneOut, PhaseOut};
use drover_model::phase::AgentPhase;

use crate::waterfall;

/// The most rows that are kept; the oldest agents that are gone leave first.
const ROWS_MAX: usize = 200;

/// A phase of an agent, in milliseconds since the start of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// None for the time before this start of the service, where the demo did not see it.
    pub phase: Option<AgentPhase>,
    pub from_ms: u64,
    pub to_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRow {
    pub id: String,
    pub template: String,
    pub vmid: Option<u32>,
    pub node: String,
    pub phase: AgentPhase,
    pub detail: String,
    pub segments: Vec<Segment>,
    /// When the demo killed its VM, in milliseconds since the start of the demo.
    pub killed_at_ms: Option<u64>,
    /// The time in each state as the service reports it.
    reported: Vec<(String, u64)>,
    reported_at_ms: u64,
}

impl AgentRow {
    pub fn is_gone(&self) -> bool {
        self.phase == AgentPhase::Gone
    }

    /// The row as a line of text, at this time.
    pub fn line(&self, now_ms: u64) -> String {
        let reported: u64 = self.reported.iter().map(|(_, ms)| ms).sum();
        let since = match self.is_gone() {
            true => 0,
            false => now_ms.saturating_sub(self.reported_at_ms),
        };
        let text = format!(
            "{:<34} {:<12} {:>8}  {:<6} {}",
            self.title(),
            self.phase,
            waterfall::seconds(reported.saturating_add(since)),
            self.node,
            self.detail
        );
        text.trim_end().to_owned()
    }

    fn title(&self) -> String {
        let vmid = self.vmid.map_or_else(|| "-".to_owned(), |vmid| vmid.to_string());
        format!("{} {} vm {vmid}", self.template, short_id(&self.id))
    }
}

/// All agents that were seen, in the order of their first event.
#[derive(Debug, Clone, Default)]
pub struct AgentTable {
    rows: Vec<AgentRow>,
}

impl AgentTable {
    /// Updates a row. Gives its line if the agent changed its state.
    pub fn update(&mut self, agent: &AgentOut, at_ms: u64) -> Option<String> {
        let reported = reported(&agent.phases);
        let old = self.rows.iter_mut().find(|row| row.id == agent.id);
        let changed = old.as_ref().is_none_or(|row| row.phase != agent.state);
        let (old_segments, killed_at_ms) = match old.as_deref() {
            Some(row) => (row.segments.clone(), row.killed_at_ms),
            None => (Vec::new(), None),
        };
        let row = AgentRow {
            id: agent.id.clone(),
            template: agent.template.clone(),
            vmid: agent.vmid,
            node: agent.node.clone().unwrap_or_default(),
            phase: agent.state,
            detail: agent.detail.clone(),
            segments: segments(&old_segments, &reported, at_ms),
            killed_at_ms,
            reported,
            reported_at_ms: at_ms,
        };
        let line = changed.then(|| row.line(at_ms));
        match old {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        if self.rows.len() > ROWS_MAX
            && let Some(index) = self.rows.iter().position(AgentRow::is_gone)
        {
            self.rows.remove(index);
        }
        line
    }

    /// Marks an agent as gone. Gives its line.
    pub fn gone(&mut self, gone: &GoneOut, at_ms: u64) -> Option<String> {
        let row = self.rows.iter_mut().find(|row| row.id == gone.id)?;
        if row.is_gone() {
            return None;
        }
        row.reported = reported(&gone.phases);
        row.segments = segments(&row.segments, &row.reported, at_ms);
        row.phase = AgentPhase::Gone;
        Some(format!("{:<34} {:<12} {}", row.title(), row.phase, gone.detail))
    }

    /// Notes that the demo killed the VM of an agent.
    pub fn killed(&mut self, vmid: u32, at_ms: u64) {
        let found = self.rows.iter_mut().rev().find(|row| row.vmid == Some(vmid));
        if let Some(row) = found {
            row.killed_at_ms = Some(at_ms);
        }
    }

    pub fn rows(&self) -> &[AgentRow] {
        &self.rows
    }

    /// The VMID of an agent's guest; none before it has one.
    pub fn vmid(&self, agent: &str) -> Option<u32> {
        self.rows.iter().find(|row| row.id == agent)?.vmid
    }

    /// The ids and VMIDs of the agents that have a guest and are meant to stay.
    pub fn alive(&self) -> Vec<(String, u32)> {
        let alive = self.rows.iter().filter(|row| row.phase.is_alive());
        alive.filter_map(|row| Some((row.id.clone(), row.vmid?))).collect()
    }

    /// The titles and phases of all agents.
    pub fn waterfalls(&self) -> Vec<(String, Vec<(String, u64)>)> {
        self.rows.iter().map(|row| (row.title(), row.reported.clone())).collect()
    }
}

fn reported(phases: &[PhaseOut]) -> Vec<(String, u64)> {
    phases.iter().map(|phase| (phase.state.clone(), phase.ms)).collect()
}

/// The phases that end at `at_ms`. What was seen before a restart of the service stays in place of
/// the one part `Earlier` that the service knows of it.
fn segments(old: &[Segment], reported: &[(String, u64)], at_ms: u64) -> Vec<Segment> {
    // A service that has just started reports an agent before it knows its phases.
    if reported.is_empty() {
        return old.to_vec();
    }
    let total: u64 = reported.iter().map(|(_, ms)| ms).sum();
    let mut from_ms = at_ms.saturating_sub(total);
    let mut all: Vec<Segment> = Vec::new();
    for (part, ms) in reported {
        let to_ms = from_ms.saturating_add(*ms);
        let phase = AgentPhase::of_part(part);
        match (phase, all.last_mut()) {
            (None, None) if !old.is_empty() => {
                all = old.iter().filter(|segment| segment.from_ms < to_ms).copied().collect();
                if let Some(last) = all.last_mut() {
                    last.to_ms = to_ms;
                }
            }
            (phase, Some(last)) if last.phase == phase => last.to_ms = to_ms,
            (phase, _) => all.push(Segment { phase, from_ms, to_ms }),
        }
        from_ms = to_ms;
    }
    all
}

fn short_id(agent: &str) -> String {
    agent.chars().take(6).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(state: AgentPhase, phases: &[(&str, u64)]) -> AgentOut {
        let phases: Vec<_> =
            phases.iter().map(|(state, ms)| json!({ "state": state, "ms": ms })).collect();
        let agent = json!({
            "id": "4f8z1c3px9t2vkab", "template": "rack/linux", "state": state,
            "since": "2026-11-21T08:11:02Z", "vmid": 10001, "node": "pve1", "ssh": null,
            "leases": [], "uses": 0, "detail": "", "phases": phases,
        });
        serde_json::from_value(agent).unwrap_or_else(|error| panic!("{error}"))
    }

    fn spans(row: &AgentRow) -> Vec<(String, u64, u64)> {
        let name = |phase: Option<AgentPhase>| phase.map_or("?".to_owned(), |p| p.to_string());
        row.segments.iter().map(|s| (name(s.phase), s.from_ms, s.to_ms)).collect()
    }

    // Invariant: a line is printed when an agent changes its state, and not at each event.

    #[test]
    fn an_agent_is_printed_once_for_each_state() {
        let mut table = AgentTable::default();
        let line = table.update(&agent(AgentPhase::Cloning, &[("Cloning", 0)]), 40);
        insta::assert_snapshot!(line.unwrap_or_default(), @"rack/linux 4f8z1c vm 10001         Cloning        0.00 s  pve1");
        assert_eq!(table.update(&agent(AgentPhase::Cloning, &[("Cloning", 700)]), 740), None);
        assert!(table.update(&agent(AgentPhase::Booting, &[("Booting", 700)]), 1440).is_some());
        assert_eq!(table.rows().len(), 1);
        assert_eq!(table.vmid("4f8z1c3px9t2vkab"), Some(10001));
    }

    // Invariant: phases lie on the axis where they were, also those before a restart of the service.

    #[test]
    fn phases_before_a_restart_stay_on_the_axis() {
        let mut table = AgentTable::default();
        let parts = [("Cloning", 500), ("Preparing: a", 100), ("Preparing: b", 100), ("Leased", 0)];
        table.update(&agent(AgentPhase::Leased, &parts), 1000);
        table.update(&agent(AgentPhase::Leased, &[]), 2900);
        table.update(&agent(AgentPhase::Leased, &[("Earlier", 2700), ("Leased", 200)]), 3200);
        let expected = [("Cloning", 300, 800), ("Preparing", 800, 1000), ("Leased", 1000, 3200)];
        let expected = expected.map(|(name, from, to)| (name.to_owned(), from, to));
        assert_eq!(spans(&table.rows()[0]), expected);
    }

    #[test]
    fn an_agent_that_was_not_seen_before_a_restart_has_one_part_without_a_name() {
        let mut table = AgentTable::default();
        table.update(&agent(AgentPhase::Ready, &[("Earlier", 900), ("Ready", 100)]), 2000);
        let expected = [("?".to_owned(), 1000, 1900), ("Ready".to_owned(), 1900, 2000)];
        assert_eq!(spans(&table.rows()[0]), expected);
    }
}
