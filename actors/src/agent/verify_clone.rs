//! The clone, and every question whether a guest exists and whose it is.
//!
//! ```text
//! Cloning ── call ──▶ task ── OK ────────────────────────────▶ Configuring
//!    │          │        │ failed
//!    │          └────────┴──▶ check: read the id
//!    │ lost answer, deadline,      │ free: nothing was made      ──▶ Gone
//!    │ unknown end                 │ free, task was accepted     ──▶ Retiring (volumes?)
//!    ▼                             │ a stranger's                ──▶ Gone, id burned
//! InDoubt ◀────────────────────────┘ ours, copying, unclear
//!    │ our marks                                               ──▶ Configuring
//!    │ copying, task known                                     ──▶ wait for the task
//!    │ free beyond the horizon, or the task failed             ──▶ Retiring (volumes?)
//!    │ a stranger's                                            ──▶ Gone, id burned
//!    └ damaged marks, dead task, `cloneTimeoutSec` over        ──▶ Stranded
//! ```
//!
//! - In: answers of [`Call::Clone`], [`Call::Await`] and [`Call::Look`], in every state.
//! - Out: the next state, [`Effect::Doubted`] and [`Effect::CloneAccepted`] for `crate::doubts`,
//!   and the place in the concurrency limits.
//! - An agent makes one clone call in its life (book: safety, rule 3). It looks before it decides
//!   (book: safety, rule 6).
//! - While a guest lives: free means gone, foreign or damaged marks mean `Stranded`, and an unclear
//!   answer is asked for again. Lists only lead to a look (`seen_stopped`).
//!
//! See book: agents, A clone that times out. Beside it: `strand.rs` for `Stranded`, `adopt.rs` for
//! the first look after a restart, `alive.rs` for what lists show.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::marks::{Reading, is_ours};
use drover_model::ports::{IdStatus, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::spec::LimitSpec;
use drover_model::time::{Moment, Now};

use crate::agent::event::{Call, Effect, Guest};
use crate::agent::mind::{Mind, Out, slow};
use crate::agent::state::{BootStep, CloneStep, ResetStep, RetireStep, State};
use crate::reset_stats::ResetStats;
use drover_limits::concurrency::OperationEnd;

/// How long a Proxmox node waits for another node that it passes a call on to (book: proxmox,
/// section 1).
const INNER_HOP: Duration = Duration::from_secs(30);
/// How long a call that has arrived may wait for locks (book: proxmox, section 6).
const LOCK_WAITS: Duration = Duration::from_secs(60);
/// The longest single wait for the task of a clone in doubt.
const DOUBT_WAIT: Duration = Duration::from_secs(30);

/// Time after a clone call of unknown outcome before a free id proves that the call did nothing.
pub(super) fn horizon(limits: &LimitSpec) -> Duration {
    limits.call + INNER_HOP + LOCK_WAITS
}

/// Whether the clone's task ended without a result, rather than failed.
fn died(fault: &Fault) -> bool {
    fault.kind == FaultKind::UnknownOutcome
}

/// What an observation says of a guest that this agent believes to be its own.
pub(super) enum Verdict {
    /// A quorate endpoint says that the id is free.
    Free,
    /// The marks are exactly ours.
    Ours,
    /// A running clone locks the guest, and no marks are there yet.
    Copying,
    /// The guest is somebody else's.
    Foreign(String),
    /// The marks look like drover's and are not exactly ours.
    Damaged(String),
    Unclear,
}

impl Mind {
    pub(super) fn judge(&self, observation: &VmObservation) -> Verdict {
        let Some(guest) = &self.guest else { return Verdict::Unclear };
        match observation.id {
            IdStatus::Free => return Verdict::Free,
            IdStatus::Unknown => return Verdict::Unclear,
            IdStatus::Taken => {}
        }
        let copying = self.is_copied_under(observation.lock.as_deref());
        match &observation.marks {
            None => Verdict::Unclear,
            Some(reading) if is_ours(reading, &guest.marks, guest.marks.vmid) => {
                if copying {
                    Verdict::Copying
                } else {
                    Verdict::Ours
                }
            }
            Some(Reading::Unmarked) if copying => Verdict::Copying,
            // The last step of a destroy leaves a configuration with nothing but this lock (book:
            // proxmox, section 7).
            Some(Reading::Unmarked) if observation.lock.as_deref() == Some("destroyed") => {
                Verdict::Unclear
            }
            Some(Reading::Unmarked) => {
                Verdict::Foreign(format!("VMID {} carries no marks", guest.marks.vmid))
            }
            Some(Reading::Marked(other)) => Verdict::Foreign(format!(
                "VMID {} is agent `{}` of installation `{}`",
                guest.marks.vmid, other.agent, other.installation
            )),
            Some(Reading::Damaged(text)) => Verdict::Damaged(format!(
                "the marks of VMID {} are damaged: {text}",
                guest.marks.vmid
            )),
        }
    }

    /// Whether a lock is that of a guest that is being made. Proxmox locks new containers with
    /// `create`, also those that it clones.
    fn is_copied_under(&self, lock: Option<&str>) -> bool {
        match lock {
            Some("clone") => true,
            Some("create") => self.spec.guest().is_container(),
            Some(_) | None => false,
        }
    }

    fn is_ours(&self, observation: &VmObservation) -> bool {
        matches!(self.judge(observation), Verdict::Ours)
    }

    pub(super) fn cloned(&mut self, result: Result<Upid, Fault>, out: &mut Out) {
        let State::Cloning { cancelled, .. } = &self.state else { return };
        let cancelled = cancelled.clone();
        match result {
            Ok(upid) => {
                out.effects.push(Effect::CloneAccepted);
                out.record(Body::TaskAccepted { agent: self.agent.clone(), upid: upid.clone() });
                if let Some(guest) = &mut self.guest {
                    guest.upid = Some(upid.clone());
                }
                self.state = State::Cloning { step: CloneStep::Task(upid), cancelled };
                self.act(out);
            }
            Err(fault) => match fault.kind {
                FaultKind::UnknownOutcome => {
                    self.doubt(None, Some(fault.clone()), cancelled, out);
                    self.tries.keep(fault);
                }
                // Nothing was sent.
                FaultKind::Unreachable => self.clone_failed(fault, false, out),
                // Only the marks show whose the id is: Proxmox refuses a call that arrives twice
                // because of the guest that it has just made.
                FaultKind::IdTaken
                | FaultKind::Contention
                | FaultKind::Locked { .. }
                | FaultKind::Denied { .. }
                | FaultKind::Gone
                | FaultKind::Capacity
                | FaultKind::Foreign
                | FaultKind::KeyRejected
                | FaultKind::Impostor
                | FaultKind::Broken => {
                    let fault = self.with_storage(fault);
                    self.state = State::Cloning { step: CloneStep::Check(fault), cancelled };
                    self.act(out);
                }
            },
        }
    }

    /// The clone did nothing, or the id is a stranger's. The agent ends without cleaning up.
    fn clone_failed(&mut self, fault: Fault, burned: bool, out: &mut Out) {
        let reason = self.failure(&fault);
        out.fault = Some(fault);
        self.gone(reason, burned, out);
    }

    /// Whether Proxmox accepted the clone's task. A refused call has made nothing.
    fn may_leave_volumes(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.upid.is_some())
    }

    /// The clone removed its guest again, or never made it. The task only warns of what it could
    /// not free (book: proxmox, section 9), so the id is not given back before a list shows no
    /// volumes.
    fn clone_undone(&mut self, reason: Reason, fault: Option<Fault>, out: &mut Out) {
        self.lane_back(lane_end(&self.state, fault.as_ref()), out);
        out.fault = fault;
        self.send_out_at(reason, RetireStep::Leftovers, out);
    }

    pub(super) fn clone_ended(&mut self, result: Result<TaskEnd, Fault>, out: &mut Out) {
        if matches!(self.state, State::InDoubt { .. }) {
            return self.doubt_task_ended(result, out);
        }
        let State::Cloning { cancelled, .. } = &self.state else { return };
        let cancelled = cancelled.clone();
        match result {
            Ok(TaskEnd::Done { .. }) => self.clone_is_ours(cancelled, None, out),
            Ok(TaskEnd::Failed(fault)) => {
                let fault = self.with_storage(fault);
                self.state = State::Cloning { step: CloneStep::Check(fault), cancelled };
                self.act(out);
            }
            Ok(TaskEnd::Unknown(text)) => {
                let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                self.doubt(Some(fault.clone()), Some(fault), cancelled, out);
            }
            Err(fault) => {
                self.doubt(None, Some(fault.clone()), cancelled, out);
                self.tries.keep(fault);
            }
        }
    }

    /// The clone is proven: by the OK of the task in the journal, or by the marks (book: safety,
    /// rule 3).
    pub(super) fn clone_is_ours(
        &mut self,
        cancelled: Option<Reason>,
        dead: Option<Fault>,
        out: &mut Out,
    ) {
        // Until the clone was done its guest was on the node of the template image.
        if let (Some(guest), Some(_), Some(node)) =
            (&mut self.guest, &self.spec.origin, &self.spec.node)
            && dead.is_none()
        {
            guest.node = node.clone();
        }
        self.settle(out);
        match (cancelled, dead) {
            (Some(reason), _) => self.send_out(reason, out),
            (None, Some(fault)) => {
                let reason = self.failure(&fault);
                out.fault = Some(fault);
                self.send_out(reason, out);
            }
            (None, None) => {
                self.enter(State::Configuring, out);
                self.act(out);
            }
        }
    }

    /// The outcome of the clone is unknown: drover looks. The cause is reported and holds back the
    /// clones that it speaks against.
    pub(super) fn doubt(
        &mut self,
        dead: Option<Fault>,
        cause: Option<Fault>,
        cancelled: Option<Reason>,
        out: &mut Out,
    ) {
        let horizon = out.now.mono + horizon(&self.spec.limits);
        self.enter(State::InDoubt { horizon, dead, cancelled }, out);
        self.report.doubt_clone(cause.as_ref().map(|fault| fault.text.clone()));
        out.effects.extend(cause.map(|fault| Effect::Doubted(Box::new(fault))));
        self.say_doubt(out.now);
        self.act(out);
    }

    /// Shows what a clone in doubt waits for, and until when at most.
    pub(super) fn say_doubt(&mut self, now: Now) {
        if let State::InDoubt { horizon, .. } = self.state {
            let until = (now.wall + (horizon - now.mono)).rfc3339();
            self.report.say(match self.report.clone_doubt() {
                Some(cause) => format!(
                    "whether its clone was made is not known: {cause}; looked for until {until}"
                ),
                None => {
                    format!("whether its clone was made is not known; looked for until {until}")
                }
            });
        }
    }

    /// The result of a look, in whatever state asked for it.
    pub(super) fn looked(&mut self, result: Result<VmObservation, Fault>, out: &mut Out) {
        let observation = match result {
            Ok(observation) => observation,
            Err(fault) => {
                // The agent looks again for as long as it takes. Its template must learn the cause.
                if matches!(fault.culprit, Culprit::Cloud(_)) {
                    out.fault = Some(fault.clone());
                }
                self.hinder(fault);
                self.say_doubt(out.now);
                return self.back_off(out);
            }
        };
        if let (IdStatus::Taken, Some(node), Some(guest)) =
            (observation.id, &observation.node, &mut self.guest)
        {
            guest.node = node.clone();
        }
        if self.adoption.is_unseen() {
            return self.observed(&observation, out);
        }
        match self.state.clone() {
            State::Cloning { step: CloneStep::Check(fault), cancelled } => {
                self.clone_checked(&observation, fault, cancelled, out);
            }
            State::Cloning { .. } | State::Queued | State::Gone { .. } => {}
            State::InDoubt { horizon, dead, cancelled } => {
                self.doubt_looked(&observation, horizon, dead, cancelled, out);
            }
            State::Booting(BootStep::Check(fault)) if self.is_ours(&observation) => {
                self.start_checked(&observation, fault, out);
            }
            State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Held { .. } => self.alive_looked(&observation, out),
            State::Retiring { .. } => self.retire_found(&observation, out),
            State::Stranded { reason, .. } => self.stranded_looked(&observation, reason, out),
        }
    }

    fn clone_checked(
        &mut self,
        observation: &VmObservation,
        fault: Fault,
        cancelled: Option<Reason>,
        out: &mut Out,
    ) {
        let taken = fault.kind == FaultKind::IdTaken;
        match self.judge(observation) {
            Verdict::Free if self.may_leave_volumes() && !taken => {
                let reason = self.failure(&fault);
                self.clone_undone(reason, Some(fault), out);
            }
            Verdict::Free => self.clone_failed(fault, taken, out),
            Verdict::Foreign(_) => self.clone_failed(fault, true, out),
            Verdict::Ours | Verdict::Copying | Verdict::Damaged(_) => {
                // The fault "id taken" says nothing against a guest that turns out to be ours.
                self.doubt(Some(fault).filter(|_| !taken), None, cancelled, out);
            }
            Verdict::Unclear => {
                self.doubt(Some(fault.clone()).filter(|_| !taken), Some(fault), cancelled, out);
            }
        }
    }

    fn doubt_looked(
        &mut self,
        observation: &VmObservation,
        horizon: Moment,
        dead: Option<Fault>,
        cancelled: Option<Reason>,
        out: &mut Out,
    ) {
        let task = self.guest.as_ref().and_then(|guest| guest.upid.clone());
        match (self.judge(observation), task) {
            (Verdict::Ours, _) => self.clone_is_ours(cancelled, dead, out),
            (Verdict::Foreign(text), _) => {
                let fault = Fault::new(FaultKind::IdTaken, Culprit::Guest, text);
                self.clone_failed(fault, true, out);
            }
            (Verdict::Damaged(text), _) => self.strand(&text, out),
            (Verdict::Copying | Verdict::Free, Some(upid)) if dead.is_none() => {
                self.ask(Call::Await(upid, DOUBT_WAIT), out);
            }
            (Verdict::Copying, Some(_)) if dead.as_ref().is_some_and(died) => {
                out.fault = dead;
                self.strand("its clone's task died and left a locked guest behind", out);
            }
            // A task that fails removes its copy. So another task is copying, perhaps that of the
            // same call which arrived twice.
            (Verdict::Copying, Some(_) | None) => self.back_off(out),
            (Verdict::Free, _) if dead.is_some() || out.now.mono >= horizon => {
                let text = "its clone was never made".to_owned();
                let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                match cancelled {
                    Some(reason) => self.clone_undone(reason, None, out),
                    None => {
                        let fault = dead.unwrap_or(fault);
                        let reason = self.failure(&fault);
                        self.clone_undone(reason, Some(fault), out);
                    }
                }
            }
            (Verdict::Free, None) => {
                self.lend_lane(out);
                self.back_off(out);
            }
            (Verdict::Free | Verdict::Unclear, _) => self.back_off(out),
        }
    }

    fn doubt_task_ended(&mut self, result: Result<TaskEnd, Fault>, out: &mut Out) {
        let State::InDoubt { dead, cancelled, .. } = &mut self.state else { return };
        match result {
            Ok(TaskEnd::Done { .. }) => {
                let cancelled = cancelled.clone();
                self.clone_is_ours(cancelled, None, out);
            }
            Ok(TaskEnd::Failed(fault)) => {
                *dead = Some(fault);
                self.act(out);
            }
            Ok(TaskEnd::Unknown(text)) => {
                *dead = Some(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text));
                self.act(out);
            }
            Err(fault) => {
                self.hinder(fault);
                self.back_off(out);
            }
        }
    }

    /// The observation of a guest that should exist.
    fn alive_looked(&mut self, observation: &VmObservation, out: &mut Out) {
        match self.judge(observation) {
            Verdict::Free => self.vanished(out),
            Verdict::Foreign(text) | Verdict::Damaged(text) => self.strand(&text, out),
            Verdict::Copying | Verdict::Unclear => self.back_off(out),
            Verdict::Ours if observation.running == Some(false) && self.should_run() => {
                self.powered_off(out);
            }
            Verdict::Ours => self.back_off(out),
        }
    }

    /// A clone whose task was accepted and ran past every limit is its template's fault. A clone of
    /// unknown state is not.
    pub(super) fn clone_too_slow(&self) -> Option<Fault> {
        self.guest.as_ref()?.upid.as_ref()?;
        if let Some(fault) = self.tries.fault() {
            return Some(slow(fault.clone()));
        }
        let text = format!("a clone of `{}` took longer than it may in all", self.spec.id);
        Some(Fault::new(FaultKind::Broken, Culprit::Template, text))
    }

    /// The guest stopped by itself. Before `Ready` that is its template's fault.
    fn powered_off(&mut self, out: &mut Out) {
        let was_ready = matches!(
            self.state,
            State::Ready | State::Leased | State::Draining(_) | State::Resetting { .. }
        );
        if !was_ready {
            let text = format!("a guest of `{}` stopped in {}", self.spec.id, self.state.phase());
            out.fault = Some(Fault::new(FaultKind::Broken, Culprit::Template, text));
        }
        self.retire(Reason::PoweredOff, out);
    }

    /// Whether a stopped guest has powered itself off in this state.
    pub(super) fn should_run(&self) -> bool {
        if let State::Booting(step) = &self.state {
            return matches!(step, BootStep::Address | BootStep::HostKeys);
        }
        // The holder of a guest may stop and start it, and a rollback does so too.
        let may_stand = matches!(
            self.state,
            State::Configuring
                | State::Held { .. }
                | State::Resetting { step: ResetStep::Rollback, .. }
        );
        self.state.is_alive() && !may_stand && self.machine.expects_running()
    }

    /// A list shows the guest stopped. The agent reads the guest itself, beside any other call.
    pub(super) fn seen_stopped(&mut self, out: &mut Out) {
        if self.should_run()
            && !self.adoption.is_unseen()
            && let Some(attempt) = self.in_flight.peek()
        {
            out.effects.push(Effect::Ask(attempt, Call::Look));
        }
    }

    pub(super) fn peeked(&mut self, result: Result<VmObservation, Fault>, out: &mut Out) {
        let Ok(observation) = result else { return };
        match self.judge(&observation) {
            Verdict::Free => self.vanished(out),
            Verdict::Foreign(text) | Verdict::Damaged(text) => self.strand(&text, out),
            // A backup stops a guest and starts it again: the owner of the lock is at work.
            Verdict::Ours if observation.running == Some(false) && observation.lock.is_some() => {}
            Verdict::Ours if observation.running == Some(false) => {
                self.settle_power(false, out);
                if self.should_run() {
                    self.powered_off(out);
                }
            }
            Verdict::Ours if observation.running == Some(true) => {
                self.settle_power(true, out);
                self.seen_running(out);
            }
            Verdict::Ours | Verdict::Copying | Verdict::Unclear => {}
        }
    }

    /// The first observation of an adopted guest.
    fn observed(&mut self, observation: &VmObservation, out: &mut Out) {
        match self.judge(observation) {
            Verdict::Free => self.vanished(out),
            Verdict::Foreign(text) | Verdict::Damaged(text) => self.strand(&text, out),
            Verdict::Copying | Verdict::Unclear => self.back_off(out),
            Verdict::Ours if observation.running.is_none() => self.back_off(out),
            Verdict::Ours => self.resume(observation.running == Some(true), out),
        }
    }

    /// A quorate endpoint says that the id of a proven guest is free.
    pub(super) fn vanished(&mut self, out: &mut Out) {
        let settled = self.guest.as_ref().is_some_and(Guest::is_settled);
        if settled && (self.has_image() || self.may_leave_memory()) {
            // Only drover removes the guest's disc image, and memory that a torn snapshot left.
            self.send_out(Reason::Vanished, out);
        } else if settled {
            self.gone(Reason::Vanished, false, out);
        }
    }

    /// The fault of a clone call without an answer.
    pub(super) fn unanswered(&self) -> Fault {
        let limit = self.spec.limits.operation.as_secs();
        let text = format!("Proxmox did not answer the clone call within {limit} s");
        let culprit = Culprit::Cloud(self.spec.id.cloud.clone());
        Fault::new(FaultKind::UnknownOutcome, culprit, text)
    }

    /// Gives the place in the concurrency limits back, once.
    pub(super) fn lane_back(&mut self, end: OperationEnd, out: &mut Out) {
        if self.place.give_back() {
            out.effects.push(Effect::LaneFree(end));
        }
    }

    /// Lends the place in the concurrency limits to others while the clone is in doubt, once.
    /// Nothing is seen that would keep a storage busy. Without this, as many doubts as there are
    /// places would stop all clones until their horizon. A clone call that starts late runs beside
    /// the others.
    fn lend_lane(&mut self, out: &mut Out) {
        if self.place.lend() {
            out.effects.push(Effect::LaneFree(OperationEnd::InDoubt));
        }
    }

    /// The end of the agent. The id goes back after the journal has the record.
    pub(super) fn gone(&mut self, reason: Reason, burned: bool, out: &mut Out) {
        let settled = self.guest.as_ref().is_some_and(Guest::is_settled);
        if let State::Retiring { since, .. } = self.state
            && settled
        {
            self.learn(ResetStats::Retired(out.now.mono - since), out);
        }
        self.adoption.finish();
        self.lose_leases(&reason.to_string(), out);
        self.lane_back(lane_end(&self.state, out.fault.as_ref()), out);
        self.enter(State::Gone { reason: reason.clone(), burned }, out);
        out.observe(What::AgentGone {
            agent: self.agent.clone(),
            template: self.spec.id.clone(),
            reason: reason.clone(),
            phases: self.report.waterfall().ended(),
        });
        let Some(guest) = &self.guest else {
            // A grant may still be on its way, and the agent must give it back.
            return self.retry_in(LINGER, out);
        };
        let vmid = guest.marks.vmid;
        out.record(Body::Gone { agent: self.agent.clone(), reason, burned });
        out.effects.push(Effect::IdBack { vmid, burned });
        self.act(out);
    }
}

/// What a failed clone says of the storage or node that had to serve it.
fn lane_end(state: &State, fault: Option<&Fault>) -> OperationEnd {
    let cloning = matches!(state, State::Cloning { .. } | State::InDoubt { .. });
    match fault.filter(|fault| cloning && fault.kind == FaultKind::Contention) {
        Some(Fault { culprit: Culprit::Storage(_), .. }) => OperationEnd::StorageBusy,
        Some(Fault { culprit: Culprit::Node(_), .. }) => OperationEnd::NodeBusy,
        Some(_) | None => OperationEnd::Inconclusive,
    }
}

/// How long a gone agent without a VMID waits for a grant on its way.
const LINGER: Duration = Duration::from_secs(5);
