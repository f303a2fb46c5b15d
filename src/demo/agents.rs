//! A table with a line for each agent, updated by the service's events.

use std::collections::BTreeMap;

use serde_json::Value;

use super::waterfall;
use drover_api::{AgentOut, CloudOut, GoneOut, PhaseOut};
use drover_model::phase::AgentPhase;

/// The agents and clouds as the last events showed them.
#[derive(Debug, Default)]
pub struct AgentTable {
    agents: BTreeMap<String, AgentOut>,
    finished: Vec<(String, Vec<(String, u64)>)>,
    first_event_at: Option<jiff::Timestamp>,
    clouds: BTreeMap<String, String>,
    updated_at: BTreeMap<String, std::time::Instant>,
}

impl AgentTable {
    /// Updates the table by an event. Gives the line to print without a terminal, if the event
    /// changes more than counts and times.
    pub fn update(&mut self, event: &Value) -> Option<String> {
        let clock = self.elapsed_text(event);
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let said = match text("kind") {
            "agent" => {
                let agent: AgentOut = serde_json::from_value(event["agent"].clone()).ok()?;
                let line = line(&agent, 0);
                self.updated_at.insert(agent.id.clone(), std::time::Instant::now());
                let before = self.agents.insert(agent.id.clone(), agent.clone());
                let changed = before.is_none_or(|old| old.state != agent.state);
                changed.then_some(line)?
            }
            "agentGone" => {
                let gone: GoneOut = serde_json::from_value(event["agent"].clone()).ok()?;
                let known = self.agents.remove(&gone.id);
                self.updated_at.remove(&gone.id);
                let title = known.as_ref().map_or_else(|| short_id(&gone.id), title);
                self.finished.push((title.clone(), phase_times(&gone.phases)));
                format!("{title:<34} {:<12} {}", AgentPhase::Gone, gone.detail)
            }
            "cloud" => {
                let cloud: CloudOut = serde_json::from_value(event["cloud"].clone()).ok()?;
                let line = format!("cloud {} is {} {}", cloud.id, cloud.health, cloud.detail);
                let before = self.clouds.insert(cloud.id, line.clone());
                (before.as_ref() != Some(&line)).then_some(line)?
            }
            "configApplied" => format!("configuration {} is in force", event["generation"]),
            "configRefused" => {
                format!("configuration refused; the old one stays in force:\n{}", text("text"))
            }
            "alarm" => format!(
                "ALARM {}; run: {}",
                event["alarm"]["text"].as_str().unwrap_or_default(),
                event["alarm"]["command"].as_str().unwrap_or_default()
            ),
            "restarted" => format!("{} was restarted", text("actor")),
            _ => return None,
        };
        Some(format!("{clock:>9}  {}", said.trim_end()))
    }

    /// A line for each agent, with the time since its start, for a terminal.
    pub fn lines(&self) -> Vec<String> {
        let since = |agent: &AgentOut| {
            self.updated_at.get(&agent.id).map_or(0, |at| at.elapsed().as_millis())
        };
        let ms = |agent| u64::try_from(since(agent)).unwrap_or(u64::MAX);
        self.agents.values().map(|agent| line(agent, ms(agent))).collect()
    }

    /// The titles and phases of all agents, those that are gone first.
    pub fn waterfalls(&self) -> Vec<(String, Vec<(String, u64)>)> {
        let here = self.agents.values().map(|agent| (title(agent), phase_times(&agent.phases)));
        self.finished.iter().cloned().chain(here).collect()
    }

    /// The VMID of an agent's guest; none before it has one.
    pub fn vmid(&self, agent: &str) -> Option<u32> {
        self.agents.get(agent)?.vmid
    }

    fn elapsed_text(&mut self, event: &Value) -> String {
        let at = event["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let Some(at) = at else { return String::new() };
        let first_event_at = *self.first_event_at.get_or_insert(at);
        let since = at.as_millisecond().saturating_sub(first_event_at.as_millisecond());
        waterfall::seconds(u64::try_from(since).unwrap_or(0))
    }
}

fn phase_times(phases: &[PhaseOut]) -> Vec<(String, u64)> {
    phases.iter().map(|phase| (phase.state.clone(), phase.ms)).collect()
}

fn short_id(agent: &str) -> String {
    agent.chars().take(6).collect()
}

fn title(agent: &AgentOut) -> String {
    let vmid = agent.vmid.map_or_else(|| "-".to_owned(), |vmid| vmid.to_string());
    format!("{} {} vm {vmid}", agent.template, short_id(&agent.id))
}

fn line(agent: &AgentOut, since_ms: u64) -> String {
    let reported_ms: u64 = agent.phases.iter().map(|phase| phase.ms).sum();
    let spent_ms = reported_ms.saturating_add(since_ms);
    format!(
        "{:<34} {:<12} {:>8}  {:<6} {}",
        title(agent),
        agent.state,
        waterfall::seconds(spent_ms),
        agent.node.as_deref().unwrap_or_default(),
        agent.detail
    )
    .trim_end()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(state: AgentPhase, ms: u64) -> Value {
        json!({
            "at": "2026-11-21T08:11:02.500Z", "kind": "agent",
            "agent": {
                "id": "4f8z1c3px9t2vkab", "template": "rack/linux", "state": state,
                "since": "2026-11-21T08:11:02Z", "vmid": 10001, "node": "pve1", "ssh": null,
                "leases": [], "uses": 0, "detail": "", "phases": [{"state": state, "ms": ms}],
            },
        })
    }

    // Invariant: a line is printed when an agent changes its state, and not at each event.

    #[test]
    fn an_agent_is_printed_once_for_each_state() {
        let mut table = AgentTable::default();
        let line = table.update(&agent(AgentPhase::Cloning, 0)).unwrap_or_default();
        insta::assert_snapshot!(line.trim_start(), @"0.00 s  rack/linux 4f8z1c vm 10001         Cloning        0.00 s  pve1");
        assert_eq!(table.update(&agent(AgentPhase::Cloning, 700)), None);
        assert!(table.update(&agent(AgentPhase::Booting, 700)).is_some());
        assert_eq!(table.lines().len(), 1);
        assert_eq!(table.vmid("4f8z1c3px9t2vkab"), Some(10001));
    }
}
