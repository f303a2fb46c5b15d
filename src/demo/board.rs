//! What the demo shows while it runs: a line for each agent, folded from the service's events.

use std::collections::BTreeMap;

use serde_json::Value;

use super::waterfall;
use drover_model::phase::AgentPhase;
use drover_server::shapes::{AgentOut, CloudOut, GoneOut, PhaseOut};

/// The agents in sight and what is worth a line about them.
#[derive(Debug, Default)]
pub struct Board {
    agents: BTreeMap<String, AgentOut>,
    finished: Vec<(String, Vec<(String, u64)>)>,
    began: Option<jiff::Timestamp>,
    clouds: BTreeMap<String, String>,
    told: BTreeMap<String, std::time::Instant>,
}

impl Board {
    /// Folds an event and gives the line to print where there is no terminal, if it is worth one.
    pub fn fold(&mut self, event: &Value) -> Option<String> {
        let clock = self.clock(event);
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let said = match text("kind") {
            "agent" => {
                let agent: AgentOut = serde_json::from_value(event["agent"].clone()).ok()?;
                let line = line(&agent, 0);
                self.told.insert(agent.id.clone(), std::time::Instant::now());
                let before = self.agents.insert(agent.id.clone(), agent.clone());
                let moved = before.is_none_or(|old| old.state != agent.state);
                moved.then_some(line)?
            }
            "agentGone" => {
                let gone: GoneOut = serde_json::from_value(event["agent"].clone()).ok()?;
                let known = self.agents.remove(&gone.id);
                self.told.remove(&gone.id);
                let title = known.as_ref().map_or_else(|| short(&gone.id), name);
                self.finished.push((title.clone(), pairs(&gone.phases)));
                format!("{title:<34} {:<12} {}", AgentPhase::Gone, gone.detail)
            }
            "cloud" => {
                let cloud: CloudOut = serde_json::from_value(event["cloud"].clone()).ok()?;
                let told = format!("cloud {} is {} {}", cloud.id, cloud.health, cloud.detail);
                let before = self.clouds.insert(cloud.id, told.clone());
                (before.as_ref() != Some(&told)).then_some(told)?
            }
            "configApplied" => format!("configuration {} is in force", event["generation"]),
            "configRefused" => {
                format!("configuration refused, the old one stays:\n{}", text("text"))
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

    /// The block of lines for a terminal, one an agent, with the time spent up to this moment.
    pub fn lines(&self) -> Vec<String> {
        let since =
            |agent: &AgentOut| self.told.get(&agent.id).map_or(0, |at| at.elapsed().as_millis());
        let ms = |agent| u64::try_from(since(agent)).unwrap_or(u64::MAX);
        self.agents.values().map(|agent| line(agent, ms(agent))).collect()
    }

    /// Titles and phases of every agent seen, those that are gone first.
    pub fn waterfalls(&self) -> Vec<(String, Vec<(String, u64)>)> {
        let here = self.agents.values().map(|agent| (name(agent), pairs(&agent.phases)));
        self.finished.iter().cloned().chain(here).collect()
    }

    /// Where an agent's guest is.
    pub fn vmid(&self, agent: &str) -> Option<u32> {
        self.agents.get(agent)?.vmid
    }

    fn clock(&mut self, event: &Value) -> String {
        let at = event["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let Some(at) = at else { return String::new() };
        let began = *self.began.get_or_insert(at);
        let since = at.as_millisecond().saturating_sub(began.as_millisecond());
        waterfall::seconds(u64::try_from(since).unwrap_or(0))
    }
}

fn pairs(phases: &[PhaseOut]) -> Vec<(String, u64)> {
    phases.iter().map(|phase| (phase.state.clone(), phase.ms)).collect()
}

fn short(agent: &str) -> String {
    agent.chars().take(6).collect()
}

fn name(agent: &AgentOut) -> String {
    let vmid = agent.vmid.map_or_else(|| "-".to_owned(), |vmid| vmid.to_string());
    format!("{} {} vm {vmid}", agent.template, short(&agent.id))
}

fn line(agent: &AgentOut, since_ms: u64) -> String {
    let told: u64 = agent.phases.iter().map(|phase| phase.ms).sum();
    let spent = told.saturating_add(since_ms);
    format!(
        "{:<34} {:<12} {:>8}  {:<6} {}",
        name(agent),
        agent.state,
        waterfall::seconds(spent),
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

    // Invariant: a line is printed when an agent moves, not whenever its picture changes.

    #[test]
    fn an_agent_is_told_once_a_state() {
        let mut board = Board::default();
        let told = board.fold(&agent(AgentPhase::Cloning, 0)).unwrap_or_default();
        insta::assert_snapshot!(told.trim_start(), @"0.00 s  rack/linux 4f8z1c vm 10001         Cloning        0.00 s  pve1");
        assert_eq!(board.fold(&agent(AgentPhase::Cloning, 700)), None);
        assert!(board.fold(&agent(AgentPhase::Booting, 700)).is_some());
        assert_eq!(board.lines().len(), 1);
        assert_eq!(board.vmid("4f8z1c3px9t2vkab"), Some(10001));
    }
}
