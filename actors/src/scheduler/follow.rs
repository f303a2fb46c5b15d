//! How the scheduler follows what templates report of their agents: room and obstacles of the
//! template, and for each agent which leases it has, gave back, or ended.

use std::collections::BTreeMap;

use drover_model::id::LeaseId;
use drover_model::record::{CANCELLED, LOST};
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::book::Stand;
use super::state::{Scheduler, TemplateView};
use super::{AgentView, Effect};
use crate::template::{AgentLevel, TemplateNews};

/// How often a lease may lose its agent before it is ready.
const RETURNS: u32 = 3;

fn fails(news: &TemplateNews) -> bool {
    news.configured && (!news.flowing || news.paused.is_some())
}

impl Scheduler {
    /// A template's agents and levels changed.
    pub(super) fn news(&mut self, news: &TemplateNews, now: WallTime) -> Vec<Effect> {
        let kind = self.specs.enter(&news.spec);
        let known = self.templates.contains_key(&news.template);
        let view = self.templates.entry(news.template.clone()).or_insert_with(|| TemplateView {
            spec: news.spec.clone(),
            kind,
            configured: news.configured,
            flowing: news.flowing,
            tripped: None,
            paused: None,
            live: 0,
            room: 0,
            lack: None,
            kept: news.kept,
            starts: BTreeMap::new(),
            unplaced: BTreeMap::new(),
        });
        // Which spec starts agents of other sizes is part of what serves a want.
        let is_other = view.kind != kind;
        if known {
            self.specs.leave(std::mem::replace(&mut view.kind, kind));
        }
        if !known || is_other || view.fails() != fails(news) {
            self.specs.changed();
        }
        view.spec = news.spec.clone();
        view.configured = news.configured;
        view.flowing = news.flowing;
        view.tripped.clone_from(&news.tripped);
        view.paused.clone_from(&news.paused);
        view.live = news.live;
        view.room = news.room;
        view.lack.clone_from(&news.lack);
        view.kept = news.kept;
        view.unplaced.clone_from(&news.unplaced);
        for (size, count) in &news.answered {
            view.answered(*size, *count);
        }
        let mut effects = Vec::new();
        for level in &news.agents {
            effects.extend(self.follow(level, now));
            let free = matches!(level.status.standing, Standing::Free { .. });
            let earlier = self.agents.get(&level.status.agent);
            let was = earlier.filter(|view| matches!(view.status.standing, Standing::Free { .. }));
            let order = was.map_or(self.clock + 1, |view| view.order);
            self.clock += u64::from(free && was.is_none());
            let coming = level.status.standing == Standing::Coming;
            let started = earlier.map_or(coming.then_some(now), |view| view.started);
            if let Some(started) = started.filter(|_| free) {
                self.start_backoff.ready(&level.spec.id, now - started);
            }
            let kind = self.specs.enter(&level.spec);
            let view = AgentView {
                spec: self.specs.get(kind).unwrap_or(&level.spec).clone(),
                kind,
                status: level.status.clone(),
                queued: level.queued,
                going: level.going,
                order,
                started: started.filter(|_| coming),
            };
            if let Some(before) = self.agents.insert(level.status.agent.clone(), view) {
                self.specs.leave(before.kind);
            }
        }
        for level in &news.gone {
            if let Some(before) = self.agents.remove(&level.status.agent) {
                self.specs.leave(before.kind);
            }
            effects.extend(self.follow(level, now));
        }
        if news.empty && !news.configured {
            if let Some(view) = self.templates.remove(&news.template) {
                self.specs.leave(view.kind);
                self.specs.changed();
            }
            self.start_backoff.forget(&news.template);
        }
        effects
    }

    /// Compares the leases an agent reports with the book.
    fn follow(&mut self, level: &AgentLevel, now: WallTime) -> Vec<Effect> {
        let agent = &level.status.agent;
        let mut effects = Vec::new();
        let leaves = matches!(level.status.standing, Standing::Leaving | Standing::Gone);
        for (lease, stand) in self.book.at(agent) {
            let there = level.status.leases.contains(&lease);
            let back = level.refused.contains(&lease);
            let refused = leaves || back;
            let releasing = self.book.get(&lease).is_some_and(|entry| entry.releasing);
            match stand {
                Stand::Sent(_) if there => {
                    self.book.stand(&lease, Stand::On(agent.clone()));
                    if releasing {
                        let why = self.book.ending(&lease);
                        effects.push(Effect::End { agent: agent.clone(), lease, why });
                    }
                }
                Stand::On(_) | Stand::Sent(_) if level.over.contains(&lease) && !there => {
                    if leaves && !releasing {
                        self.leave_to_next_look(&lease);
                    }
                    self.start_backoff.used(&level.spec.id, self.book.lasted(&lease, now));
                    self.book.end(&lease, now);
                    effects.push(Effect::Over { lease });
                }
                Stand::Sent(_) if refused => {
                    if releasing {
                        self.book.stand(&lease, Stand::Cancelling);
                        effects.push(Effect::Cancel { lease, why: CANCELLED });
                    } else if self.book.of_source(&lease).is_some() {
                        // Its source wants another as long as its job waits.
                        self.book.forget(&lease);
                    } else {
                        self.book.stand(&lease, Stand::Waiting);
                    }
                }
                Stand::On(_) if !there && back => {
                    effects.push(self.returned(lease, releasing));
                }
                Stand::On(_) if !there => {
                    if leaves && !releasing {
                        self.leave_to_next_look(&lease);
                    }
                    self.start_backoff.used(&level.spec.id, self.book.lasted(&lease, now));
                    self.book.end(&lease, now);
                    effects.push(Effect::Over { lease });
                }
                Stand::Sent(_)
                | Stand::On(_)
                | Stand::Recording
                | Stand::Waiting
                | Stand::Cancelling
                | Stand::Ended(_) => {}
            }
        }
        effects
    }

    /// A lease that was reported and never ready waits again. One that is given back too often would
    /// use up one agent after the other: its key may be what no guest takes.
    fn returned(&mut self, lease: LeaseId, releasing: bool) -> Effect {
        if let Some(source) = self.book.of_source(&lease) {
            self.book.forget(&lease);
            // It says again what it wants, which is nothing for a while: no machine is started before.
            self.demanded(&source, Vec::new(), std::iter::empty());
            return Effect::NotServed { source, lease };
        }
        let returns = self.book.returned(&lease);
        if releasing || returns > RETURNS {
            self.book.stand(&lease, Stand::Cancelling);
            let why = if releasing { CANCELLED } else { LOST };
            return Effect::Cancel { lease, why };
        }
        self.book.stand(&lease, Stand::Waiting);
        Effect::Again { lease }
    }
}
