//! What the demo shows while it runs: a line for each agent, folded from facts.

use std::collections::BTreeMap;

use drover_actors::fact::{AgentPicture, Fact, What};
use drover_actors::id::AgentId;
use drover_actors::time::WallTime;

use super::waterfall;

/// The agents in sight and what is worth a line about them.
#[derive(Debug, Default)]
pub struct Board {
    agents: BTreeMap<AgentId, AgentPicture>,
    /// Waterfalls of agents that are gone, in the order of going.
    pub finished: Vec<Finished>,
    began: Option<WallTime>,
}

/// An agent that is gone.
#[derive(Debug, Clone)]
pub struct Finished {
    /// What it was called.
    pub title: String,
    /// Milliseconds in each state.
    pub phases: Vec<(String, u64)>,
}

impl Board {
    /// Folds a fact and gives the line to print where there is no terminal, if it is worth one.
    pub fn fold(&mut self, fact: &Fact) -> Option<String> {
        let began = *self.began.get_or_insert(fact.at);
        let clock = waterfall::seconds(u64::try_from((fact.at - began).as_millis()).unwrap_or(0));
        match &fact.what {
            What::Agent(picture) => {
                let before = self.agents.insert(picture.agent.clone(), (**picture).clone());
                let moved = before.is_none_or(|old| old.state != picture.state);
                moved.then(|| format!("{clock:>9}  {}", line(picture)))
            }
            What::AgentGone { agent, phases, reason, .. } => {
                let title = match self.agents.remove(agent) {
                    Some(picture) => name(&picture),
                    None => short(agent),
                };
                let line = format!("{clock:>9}  {title:<28} Gone          {}", why(reason));
                self.finished.push(Finished { title, phases: phases.clone() });
                Some(line)
            }
            What::Alarm { agent, text, command } => {
                Some(format!("{clock:>9}  ALARM {}: {text}; run: {command}", short(agent)))
            }
            What::Cloud { cloud, health, detail, .. } => {
                Some(format!("{clock:>9}  cloud {cloud} is {health} {detail}"))
            }
            What::ConfigApplied { generation } => {
                Some(format!("{clock:>9}  configuration {} is in force", generation.0))
            }
            What::ConfigRefused { text } => {
                Some(format!("{clock:>9}  configuration refused, the old one stays:\n{text}"))
            }
            What::Restarted { actor, count, .. } => {
                Some(format!("{clock:>9}  {actor} was restarted ({count})"))
            }
            What::Lease(_)
            | What::Template { .. }
            | What::TemplateGone { .. }
            | What::CloudGone { .. } => None,
            What::Reconciled { findings, .. } if findings.is_empty() => None,
            What::Reconciled { findings, .. } => {
                Some(format!("{clock:>9}  reconciled: {}", findings.join("; ")))
            }
        }
    }

    /// The block of lines for a terminal, one an agent.
    pub fn lines(&self) -> Vec<String> {
        self.agents.values().map(line).collect()
    }

    /// Whether any agent is in sight.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }
}

fn short(agent: &AgentId) -> String {
    agent.as_str().chars().take(6).collect()
}

fn name(picture: &AgentPicture) -> String {
    let vmid = picture.vmid.map_or_else(|| "-".to_owned(), |vmid| vmid.to_string());
    format!("{} {} vm {vmid}", picture.template.name, short(&picture.agent))
}

fn line(picture: &AgentPicture) -> String {
    let place = picture.node.as_ref().map_or("", |node| node.as_str());
    let spent: u64 = picture.phases.iter().map(|(_, ms)| ms).sum();
    format!(
        "{:<28} {:<12} {:>8}  {place:<6} {}",
        name(picture),
        picture.state,
        waterfall::seconds(spent),
        picture.detail
    )
    .trim_end()
    .to_owned()
}

fn why(reason: &drover_actors::record::Reason) -> String {
    use drover_actors::record::Reason;
    match reason {
        Reason::Idle => "idle".into(),
        Reason::UsedUp => "used up".into(),
        Reason::Old => "old".into(),
        Reason::Asked => "asked to".into(),
        Reason::Reaped => "reaped".into(),
        Reason::Unconfigured => "left the configuration".into(),
        Reason::Stopping => "the service stops".into(),
        Reason::LeaseExpired => "its lease ran out".into(),
        Reason::PoweredOff => "it was powered off".into(),
        Reason::Vanished => "its guest vanished".into(),
        Reason::Orphaned => "nobody's record knew it".into(),
        Reason::ReturnedFromPark => "its node came back".into(),
        Reason::Cancelled => "not wanted any more".into(),
        Reason::TooSlow { state } => format!("too slow in {state}"),
        Reason::Failed { state, text, .. } => format!("{state} failed: {text}"),
    }
}
