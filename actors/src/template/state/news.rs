//! What others hear of a template: news for its cloud and the herd, counts for people, and why nothing
//! more is started.

use std::collections::BTreeMap;

use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::state_machine::Turn;
use drover_model::status::TemplateStatus;
use drover_model::time::{Moment, Now};

use super::{Effect, TemplateMind};
use crate::template::{AgentLevel, TemplateNews};

impl TemplateMind {
    /// Why nothing more may be started at this moment, in words for people.
    pub fn shortage(&self, now: Moment) -> String {
        let id = &self.spec.id;
        let full = self.spec.cap.filter(|cap| self.live() >= *cap);
        match (full, self.breaker.tripped()) {
            _ if self.stopping => "the service is stopping".into(),
            _ if !self.configured => format!("template {id} is not configured any more"),
            _ if !self.open => format!("cloud {}: its cluster is not known yet", id.cloud),
            (Some(cap), _) => format!("{id} is full: {} of {cap}", self.live()),
            (None, Some((until, cause))) => {
                format!("{id}: {cause}; its breaker is open until {}", until.rfc3339())
            }
            (None, None) if matches!(self.source, Some(Err(_))) => {
                format!("{id} pauses: {}", self.paused(now).unwrap_or_default())
            }
            (None, None) if self.supply.lack.is_some() => {
                format!("{id}: {}", self.supply.lack.as_deref().unwrap_or_default())
            }
            (None, None) if self.breaker.allowance(now) <= 1 => {
                format!("{id}: its breaker lets a single agent try first")
            }
            (None, None) => match self.paused(now) {
                Some(why) => format!("{id} pauses, for it could not begin agents: {why}"),
                None => format!("{id} pauses, for it could not begin agents"),
            },
        }
    }

    /// Gives the cloud what changed since the last time, where anything did.
    pub(super) fn publish(&mut self, now: Now, turn: &mut Turn<Effect>) {
        let (kept, room, lack) = (self.kept(), self.room(now.mono), self.supply.lack.clone());
        let unplaced = self.unplaced.at(now.mono);
        let why = (self.paused(now.mono), lack.clone(), unplaced.clone());
        let breaker = (self.breaker.phase(), self.breaker.tripped());
        let level = (self.live(), room, self.configured, kept, why, breaker, self.spec.clone());
        let unchanged = self.changed.is_empty() && self.gone.is_empty();
        if unchanged
            && self.released == 0
            && self.answered.is_empty()
            && self.reported.as_ref() == Some(&level)
        {
            return;
        }
        self.reported = Some(level);
        let changed = std::mem::take(&mut self.changed);
        let agents: Vec<AgentLevel> =
            changed.iter().filter_map(|agent| Some(self.agents.get_mut(agent)?.level())).collect();
        turn.push(Effect::News(Box::new(TemplateNews {
            template: self.spec.id.clone(),
            agents,
            spec: self.spec.clone(),
            configured: self.configured,
            flowing: self.breaker.phase() == BreakerPhase::Closed,
            tripped: self.breaker.tripped(),
            paused: self.pause(now),
            live: self.live(),
            room,
            lack,
            kept,
            empty: self.agents.is_empty(),
            gone: std::mem::take(&mut self.gone),
            released: std::mem::take(&mut self.released),
            answered: std::mem::take(&mut self.answered),
            unplaced,
        })));
    }

    /// Its counts for the read side.
    pub fn status(&self, now: Moment) -> TemplateStatus {
        let mut states: BTreeMap<AgentPhase, u32> = BTreeMap::new();
        for held in self.agents.values() {
            *states.entry(held.status.phase).or_default() += 1;
        }
        TemplateStatus {
            template: self.spec.id.clone(),
            states,
            cap: self.spec.cap,
            minimum: self.kept().all,
            idle_minimum: self.kept().idle,
            lack: self.supply.lack.clone(),
            labels: self.spec.labels.iter().cloned().collect(),
            max_uses: self.spec.max_uses,
            executors: self.spec.executors,
            breaker: self.breaker.phase(),
            tripped: self.breaker.tripped(),
            source: self.source.clone().and_then(Result::ok),
            paused: self.paused(now),
            // The body knows it.
            canary: None,
            outdated: self.outdated(),
            overrides: self.spec.overrides,
        }
    }
}
