//! What an agent reports: its standing to the template, its status and its waterfall to the read
//! side.

use drover_model::fact::{AgentDetail, LeaseStatus, What};
use drover_model::id::LeaseId;
use drover_model::phase::LeasePhase;
use drover_model::record::Reason;
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Moment, Now, WallTime};

use crate::agent::event::Effect;
use crate::agent::mind::{Mind, Out};
use crate::agent::prepare;
use crate::agent::state::{Lease, Stage, State};
use crate::message::AgentReport;
use drover_model::record::describe;

/// The most phases that are kept apart. Beyond that, time is added to an earlier phase of the same
/// name.
const PHASES_KEPT: usize = 64;

/// Time spent in each state. The parts always sum to the wall time since the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Waterfall {
    past: Vec<(String, u64)>,
    since: Moment,
    since_wall: WallTime,
}

impl Waterfall {
    /// Starts with no phase past.
    pub fn new(now: Now) -> Self {
        Self { past: Vec::new(), since: now.mono, since_wall: now.wall }
    }

    /// Starts with the time that passed before this start of the service.
    pub fn resumed(earlier_ms: u64, now: Now) -> Self {
        Self { past: vec![("Earlier".into(), earlier_ms)], ..Self::new(now) }
    }

    /// Sets the start of the running phase, which is older than this start of the service.
    pub fn shown_since(&mut self, since: WallTime) {
        self.since_wall = since;
    }

    /// Ends the phase of this name.
    pub fn move_on(&mut self, name: &str, now: Now) {
        self.step_on(name, now);
        self.since_wall = now.wall;
    }

    /// Ends a part of the running phase.
    pub fn step_on(&mut self, name: &str, now: Now) {
        let spent = now.mono.0.saturating_sub(self.since.0);
        let full = self.past.len() >= PHASES_KEPT;
        let known = self.past.iter_mut().rev().find(|(past, _)| past == name);
        match known {
            Some((_, sum)) if full => *sum += spent,
            Some(_) | None => self.past.push((name.to_owned(), spent)),
        }
        self.since = now.mono;
    }

    /// All phases; the running one is last.
    pub fn phases(&self, name: &str, now: Now) -> Vec<(String, u64)> {
        let mut phases = self.past.clone();
        phases.push((name.to_owned(), now.mono.0.saturating_sub(self.since.0)));
        phases
    }

    pub fn ended(&self) -> Vec<(String, u64)> {
        self.past.clone()
    }

    /// When the running phase started.
    pub fn since(&self) -> WallTime {
        self.since_wall
    }
}

/// What was reported last, so that only changes are reported.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reported {
    report: Option<AgentStatus>,
    status: Option<AgentDetail>,
}

impl Mind {
    /// Reports and publishes what changed in this step.
    pub(super) fn report(&mut self, out: &mut Out) {
        let status = self.status();
        let changed = self.reported.report.as_ref() != Some(&status);
        if changed || out.fault.is_some() || !out.refused.is_empty() {
            let report = AgentReport {
                agent: self.agent.clone(),
                template: self.spec.id.clone(),
                status: status.clone(),
                fault: out.fault.take(),
                refused: std::mem::take(&mut out.refused),
            };
            // At the front: the scheduler must know a taken executor before anything waits for a
            // disk.
            out.effects.insert(0, Effect::Report(Box::new(report)));
            self.reported.report = Some(status);
        }
        self.show(out);
    }

    fn status(&self) -> AgentStatus {
        AgentStatus {
            phase: self.state.phase(),
            standing: self.standing(),
            leases: self.reported_leases(),
            overrides: self.overrides,
            owner: self.kept_for().cloned(),
        }
    }

    fn reported_leases(&self) -> Vec<LeaseId> {
        let there = self.leases.iter().filter(|(_, lease)| !lease.let_go);
        there.map(|(id, _)| id.clone()).collect()
    }

    /// The waterfall's name for the present part of the agent's life.
    pub(super) fn part(&self) -> String {
        match &self.state {
            State::Preparing(step) => prepare::phase(*step, &self.spec),
            state @ (State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting(_)
            | State::Held { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. }) => state.phase().to_string(),
        }
    }

    fn show(&mut self, out: &mut Out) {
        if matches!(self.state, State::Gone { .. }) {
            return;
        }
        let status = self.full_status(Vec::new());
        if self.reported.status.as_ref() == Some(&status) {
            return;
        }
        let phases = self.waterfall.phases(&self.part(), out.now);
        out.observe(What::Agent(Box::new(AgentDetail { phases, ..status.clone() })));
        self.reported.status = Some(status);
    }

    fn full_status(&self, phases: Vec<(String, u64)>) -> AgentDetail {
        let guest = self.guest.as_ref();
        AgentDetail {
            agent: self.agent.clone(),
            template: self.spec.id.clone(),
            state: self.state.phase(),
            since: self.waterfall.since(),
            vmid: guest.map(|guest| guest.marks.vmid),
            node: guest.map(|guest| guest.node.clone()),
            address: self.address().or(self.own_address()).map(|address| address.to_string()),
            ssh: Some((self.spec.ssh.port, self.spec.ssh.user.clone())),
            host_keys: guest.map(|guest| guest.host_keys.clone()).unwrap_or_default(),
            leases: self.reported_leases(),
            uses: self.uses,
            overrides: self.overrides,
            held_until: self.held_until(),
            hold_owner: self.hold.as_ref().and_then(|hold| hold.owner.clone()),
            on_trial: self.spec.trial,
            detail: self.whole_detail(),
            phases,
        }
    }

    fn whole_detail(&self) -> String {
        let hindrance = Some(self.detail.clone()).filter(|detail| !detail.is_empty());
        let parts = [self.why_draining(), hindrance, self.trouble()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Why an agent with leases takes no more, and until when.
    fn why_draining(&self) -> Option<String> {
        let State::Draining(Reason::LeaseExpired) = &self.state else { return None };
        let others = self.leases.values().filter(|lease| lease.stage != Stage::Expelling);
        let last = others.map(|lease| lease.granted.expires).max()?;
        Some(format!(
            "takes no new lease: one of its leases ran out, and whoever held it may still be at work; \
             retires when its other leases end, at {} unless one is renewed",
            last.rfc3339()
        ))
    }

    fn held_until(&self) -> Option<WallTime> {
        if let State::Held { until, .. } = &self.state { Some(*until) } else { None }
    }

    /// What the agent means to its template.
    pub(super) fn standing(&self) -> Standing {
        if self.parked && !matches!(self.state, State::Gone { .. }) {
            return Standing::Parked;
        }
        if self.freed && matches!(self.state, State::Retiring { .. } | State::Stranded { .. }) {
            return Standing::Parked;
        }
        match &self.state {
            State::Queued | State::Configuring | State::Booting(_) | State::Connecting { .. } => {
                Standing::Coming
            }
            State::Preparing(_) | State::Resetting(_) => Standing::Coming,
            State::Cloning { cancelled, .. } => {
                if cancelled.is_some() {
                    Standing::Leaving
                } else {
                    Standing::Coming
                }
            }
            // A clone in doubt may take minutes, so the template does not wait for it. It only
            // holds its permit.
            State::InDoubt { cancelled, .. } => {
                if cancelled.is_some() {
                    Standing::Leaving
                } else {
                    Standing::Busy
                }
            }
            State::Ready | State::Leased if self.observing => {
                if self.leases.is_empty() {
                    Standing::Coming
                } else {
                    Standing::Busy
                }
            }
            State::Ready | State::Leased => match self.free_executors() {
                0 => Standing::Busy,
                // The guest is known not to run: no lease goes there.
                _ if self.trouble().is_some() => Standing::Busy,
                // SSH did not answer recently: drover probes it, which takes seconds.
                _ if !self.was_usable() && self.leases.is_empty() => Standing::Coming,
                _ if !self.was_usable() => Standing::Busy,
                executors => Standing::Free { executors, idle: self.leases.is_empty() },
            },
            State::Draining(_) | State::Held { .. } => Standing::Busy,
            State::Retiring { .. } | State::Stranded { .. } => Standing::Leaving,
            State::Gone { .. } => Standing::Gone,
        }
    }

    /// Leases that still fit. None while the guest has the key of an ended lease, while an operator
    /// waits to hold the agent, or while it is on trial.
    pub(super) fn free_executors(&self) -> u32 {
        if self.hold.is_some() || self.spec.trial {
            return 0;
        }
        if self.leases.values().any(|lease| lease.stage == Stage::Expelling) {
            return 0;
        }
        if self.spent || self.leases.values().any(|lease| lease.granted.ask.whole) {
            return 0;
        }
        let taken = u32::try_from(self.leases.len()).unwrap_or(u32::MAX);
        let free = self.spec.executors.saturating_sub(taken);
        match self.max_uses() {
            Some(most) => free.min(most.saturating_sub(self.uses)),
            None => free,
        }
    }

    /// Publishes a lease's status.
    pub(super) fn show_lease(&self, lease: &Lease, detail: &str, out: &mut Out) {
        let state = match lease.stage {
            Stage::Admitting => LeasePhase::Granted,
            Stage::Ready => LeasePhase::Ready,
            Stage::Expelling => LeasePhase::Ended,
        };
        let ask = &lease.granted.ask;
        out.observe(What::Lease(Box::new(LeaseStatus {
            lease: ask.lease.clone(),
            state,
            agent: Some(self.agent.clone()),
            owner: ask.owner.clone(),
            principal: ask.principal.clone(),
            group: ask.group.clone(),
            wants: describe(&ask.want),
            asked: Some(ask.asked),
            expires: Some(lease.granted.expires),
            detail: detail.into(),
        })));
    }
}
