//! One agent as its template sees it.

use std::sync::Arc;

use drover_model::id::{AgentId, LeaseId};
use drover_model::ledger::AgentEntry;
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::record::{Owner, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::time::{Moment, Now, WallTime};

use super::AgentLevel;
use super::state::renew::Renewal;
use crate::birth::Living;
use crate::message::Standing;

/// One agent as its template sees it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) standing: Standing,
    pub(super) state: AgentPhase,
    pub(super) leases: Vec<LeaseId>,
    /// What holds for it instead of what its spec says.
    pub(super) overrides: Overrides,
    /// Leases it could not take, until they are told.
    pub(super) refused: Vec<LeaseId>,
    /// Leases that were on it and are not any more, until they are told.
    pub(super) over: Vec<LeaseId>,
    /// The only one it serves, when it is kept for one.
    pub(super) owner: Option<Owner>,
    /// When it was begun.
    pub(super) born: WallTime,
    /// When it is renewed; none if it may grow as old as it likes.
    pub(super) renews: Option<Renewal>,
    /// When it got free without leases.
    pub(super) idle_since: Option<Moment>,
    pub(super) was_ready: bool,
    /// Told to go.
    pub(super) going: bool,
    /// Why it goes once it is idle, unless somebody takes it first.
    pub(super) reaped: Option<Reason>,
    /// Begun because an operator said so: no lease given up takes it back.
    pub(super) wanted: bool,
}

impl Held {
    /// One that is begun.
    pub(super) fn begun(
        agent: &AgentId,
        spec: Arc<TemplateSpec>,
        born: WallTime,
        now: Now,
    ) -> Self {
        Self {
            renews: Renewal::of(agent, &spec, born, now),
            born,
            spec,
            standing: Standing::Coming,
            state: AgentPhase::Queued,
            leases: Vec::new(),
            overrides: Overrides::default(),
            refused: Vec::new(),
            over: Vec::new(),
            owner: None,
            idle_since: None,
            was_ready: false,
            going: false,
            reaped: None,
            wanted: false,
        }
    }

    /// One that lived before this start of the service.
    pub(super) fn adopted(
        agent: &AgentId,
        entry: &AgentEntry,
        standing: Standing,
        now: Now,
    ) -> Self {
        Self {
            standing,
            state: entry.phase(),
            leases: entry.leases.keys().cloned().collect(),
            overrides: entry.wishes.overrides,
            owner: entry.owner.clone().filter(|_| entry.spec.reset.is_some()),
            was_ready: entry.phase() == AgentPhase::Ready || entry.uses > 0,
            going: entry.retiring.is_some(),
            ..Self::begun(agent, Arc::new((*entry.spec).clone()), entry.intended, now)
        }
    }

    /// One that lived before this incarnation of its template.
    pub(super) fn recalled(agent: &AgentId, living: &Living, now: Now) -> Self {
        let idle = matches!(living.standing, Standing::Free { idle: true, .. });
        Self {
            standing: living.standing,
            state: living.state,
            leases: living.leases.clone(),
            overrides: living.overrides,
            owner: living.owner.clone(),
            idle_since: idle.then_some(now.mono),
            was_ready: matches!(living.standing, Standing::Free { .. } | Standing::Busy)
                && !living.state.is_busy_unproven(),
            ..Self::begun(agent, living.spec.clone(), living.born, now)
        }
    }

    /// What the herd is told of it.
    pub(super) fn level(&mut self, agent: AgentId) -> AgentLevel {
        AgentLevel {
            agent,
            spec: self.spec.clone(),
            standing: self.standing,
            queued: self.state == AgentPhase::Queued && !self.wanted && !self.spec.trial,
            leases: self.leases.clone(),
            refused: std::mem::take(&mut self.refused),
            over: std::mem::take(&mut self.over),
            owner: self.owner.clone(),
            going: self.going,
        }
    }
}
