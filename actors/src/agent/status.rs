//! An agent's status and those of its leases: how they are made, and when they are given to the
//! template and to people.

use std::sync::Arc;

use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase, LoginPhase};
use drover_model::record::Reason;
use drover_model::status::{AgentStatus, LeaseStatus, Standing, WayIn};
use drover_model::time::WallTime;

use crate::agent::event::{Effect, Guest};
use crate::agent::leases::{Lease, Stage};
use crate::agent::mind::{Mind, Out};
use crate::agent::prepare;
use crate::agent::state::State;
use crate::message::AgentReport;
use drover_model::record::describe;

impl Mind {
    /// Gives the agent's status to those whom its change concerns: the template decides by it, people
    /// see it.
    pub(super) fn publish(&mut self, out: &mut Out) {
        let mut status = self.status();
        let must_answer = out.fault.is_some() || !out.refused.is_empty();
        let reports = must_answer || self.report.is_decisive(&status);
        let shows = self.report.is_visible(&status);
        if !reports && !shows {
            return;
        }
        status.phases = self.report.waterfall().phases(&self.part(), out.now);
        let status = Arc::new(status);
        self.report.gave(Arc::clone(&status));
        if reports {
            let (fault, refused) = (out.fault.take(), std::mem::take(&mut out.refused));
            let report = AgentReport { status: Arc::clone(&status), fault, refused };
            // At the front: the scheduler must know a taken executor before anything waits for a
            // disk.
            out.effects.insert(0, Effect::Report(Box::new(report)));
        }
        if shows && status.phase != AgentPhase::Gone {
            out.observe(What::Agent(status));
        }
    }

    /// The one place where an agent's status is made. It lacks the waterfall, which changes with time
    /// alone.
    fn status(&self) -> AgentStatus {
        let guest = self.guest.as_ref();
        AgentStatus {
            agent: self.agent.clone(),
            template: self.spec.id.clone(),
            phase: self.state.phase(),
            since: self.report.waterfall().since(),
            standing: self.standing(),
            vmid: guest.map(|guest| guest.marks.vmid),
            node: guest.map(|guest| guest.node.clone()),
            address: self.address().or(self.own_address()).map(|address| address.to_string()),
            ssh: Some((self.spec.ssh.port, self.spec.ssh.user.clone())),
            host_keys: guest.map(|guest| guest.host_keys.clone()).unwrap_or_default(),
            way_in: Some(WayIn { ssh: self.spec.ssh.clone(), os: self.spec.os }),
            leases: self.leases.reported(),
            uses: self.usage.count(),
            overrides: self.usage.overrides(),
            owner: self.kept_for().cloned(),
            held_until: self.held_until(),
            login: self.login_phase(),
            hold_owner: self.holding.hold().and_then(|hold| hold.owner.clone()),
            on_trial: self.spec.trial,
            size: self.spec.asked_size(),
            machine: self.machine.orders.clone(),
            may_be_lost: self.may_be_lost(),
            detail: self.whole_detail(),
            phases: Vec::new(),
        }
    }

    /// The waterfall's name for the present part of the agent's life.
    pub(super) fn part(&self) -> String {
        match &self.state {
            // While the guest is asked what is wrong, the part is the step that failed.
            State::Preparing(step) => {
                let step = self.failed_step.as_ref().map_or(*step, |(failed, _)| *failed);
                prepare::phase(step, &self.spec)
            }
            state @ (State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Held { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. }) => state.phase().to_string(),
        }
    }

    fn whole_detail(&self) -> String {
        let hindrance = Some(self.detail().to_owned()).filter(|detail| !detail.is_empty());
        let parts = [self.why_draining(), hindrance, self.trouble()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Why an agent with leases takes no more, and until when.
    fn why_draining(&self) -> Option<String> {
        let State::Draining(Reason::LeaseExpired) = &self.state else { return None };
        let others = self.leases.running();
        let last = others.map(|lease| lease.granted.expires).max()?;
        Some(format!(
            "takes no new lease: one of its leases ran out, and its holder may still be at work; \
             retires when its other leases end, at {} unless one is renewed",
            last.rfc3339()
        ))
    }

    fn held_until(&self) -> Option<WallTime> {
        if let State::Held { until, .. } = &self.state { Some(*until) } else { None }
    }

    fn login_phase(&self) -> Option<LoginPhase> {
        if let State::Held { login, .. } = &self.state { Some(*login) } else { None }
    }

    /// What the agent means to its template.
    pub(super) fn standing(&self) -> Standing {
        if self.reachability.is_parked() && !matches!(self.state, State::Gone { .. }) {
            return Standing::Parked;
        }
        if self.guest.as_ref().is_some_and(Guest::is_never_made)
            && matches!(self.state, State::Retiring { .. } | State::Stranded { .. })
        {
            return Standing::Parked;
        }
        match &self.state {
            State::Queued | State::Configuring | State::Booting(_) | State::Connecting { .. } => {
                Standing::Coming
            }
            State::Preparing(_) | State::Resetting { .. } => Standing::Coming,
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
            State::Ready | State::Leased if self.adoption.is_unseen() => {
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
        if self.holding.is_wanted() || self.spec.trial || self.machine.spoils() {
            return 0;
        }
        if self.leases.any_expels() {
            return 0;
        }
        if self.usage.is_whole_spent() || self.leases.any_whole() {
            return 0;
        }
        let taken = u32::try_from(self.leases.len()).unwrap_or(u32::MAX);
        let free = self.spec.executors.saturating_sub(taken);
        self.usage.left(&self.spec).map_or(free, |left| free.min(left))
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
            want: Some(ask.want.clone()),
            whole: ask.whole,
            asked: Some(ask.asked),
            granted: lease.granted.granted,
            expires: Some(lease.granted.expires),
            detail: detail.into(),
        })));
    }
}
