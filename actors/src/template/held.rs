//! One agent as its template sees it.

use std::sync::Arc;

use drover_model::id::{AgentId, LeaseId};
use drover_model::journal_state::AgentEntry;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::spec::TemplateSpec;
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Moment, Now, WallTime};

use super::AgentLevel;
use super::state::renew::Renewal;
use crate::roster::Living;

/// One agent as its template sees it.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) status: Arc<AgentStatus>,
    /// Leases it could not take, until the next news.
    pub(super) refused: Vec<LeaseId>,
    /// Leases that were on it and are not any more, until the next news.
    pub(super) over: Vec<LeaseId>,
    /// When it was started.
    pub(super) born: WallTime,
    /// When it is renewed; none if it may grow as old as it likes.
    pub(super) renews: Option<Renewal>,
    /// Since when its template makes agents otherwise; none where it is as they are.
    pub(super) outdated: Option<Moment>,
    /// When it got free without leases.
    pub(super) idle_since: Option<Moment>,
    pub(super) was_ready: bool,
    /// It goes, or will once it is free: its command was sent.
    pub(super) going: bool,
    /// Why it goes once it is idle, unless somebody takes it first.
    pub(super) reaped: Option<Reason>,
    /// Started because an operator said so: no lease given up takes it back.
    pub(super) wanted: bool,
    /// It tries a new version.
    pub(super) tries: bool,
}

impl Held {
    /// One that is started.
    pub(super) fn started(
        agent: &AgentId,
        spec: Arc<TemplateSpec>,
        born: WallTime,
        now: Now,
    ) -> Self {
        Self {
            renews: Renewal::of(agent, &spec, born, now),
            status: Arc::new(AgentStatus {
                size: spec.asked_size(),
                ..AgentStatus::started(agent.clone(), spec.id.clone(), born)
            }),
            born,
            spec,
            refused: Vec::new(),
            over: Vec::new(),
            outdated: None,
            idle_since: None,
            was_ready: false,
            going: false,
            reaped: None,
            wanted: false,
            tries: false,
        }
    }

    /// One that lived before this start of the service.
    pub(super) fn adopted(agent: &AgentId, entry: &AgentEntry, now: Now) -> Self {
        Self {
            status: Arc::new(entry.status()),
            was_ready: entry.phase() == AgentPhase::Ready || entry.uses > 0,
            going: entry.retiring.is_some(),
            ..Self::started(agent, Arc::new((*entry.spec).clone()), entry.intended, now)
        }
    }

    /// One that lived before this incarnation of its template.
    pub(super) fn recalled(agent: &AgentId, living: &Living, now: Now) -> Self {
        // The herd may have set other overrides since the agent's last report.
        let status = (*living.status).clone();
        let status = Arc::new(AgentStatus { overrides: living.overrides, ..status });
        Self {
            idle_since: status.is_idle().then_some(now.mono),
            was_ready: matches!(status.standing, Standing::Free { .. } | Standing::Busy)
                && !status.phase.is_busy_unproven(),
            status,
            ..Self::started(agent, living.spec.clone(), living.born, now)
        }
    }

    /// What the herd hears of it.
    pub(super) fn level(&mut self) -> AgentLevel {
        AgentLevel {
            spec: self.spec.clone(),
            status: self.status.clone(),
            queued: self.status.phase == AgentPhase::Queued && !self.wanted && !self.spec.trial,
            refused: std::mem::take(&mut self.refused),
            over: std::mem::take(&mut self.over),
            going: self.going,
        }
    }
}
