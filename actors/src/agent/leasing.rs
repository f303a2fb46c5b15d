//! Leases on an agent (`Ready`, `Leased`, `Draining`), and the agent's age.
//!
//! ```text
//! Lease ──▶ lease() ── closed, no executor, another owner, SSH not proven ──▶ refused
//!             │ LeaseGranted durable
//!             ▼
//!         Admitting ── key or runner is in ──▶ Ready ── end ──▶ Expelling ── key is out
//!             │ fails: the lease waits again     │ expired, guest lost           │
//!             ▼                                  ▼                               ▼
//!         drain the agent                    LeaseEnded                      lease_over
//!
//! lease_over: held, retired (draining, used up), reset, or `Ready` again
//! ```
//!
//! - In: the lease commands of `AgentCommand`, the answers of [`Call::Admit`], [`Call::Expel`]
//!   and [`Call::Words`], the timer.
//! - Out: records of each lease, lease status, the lists of refused leases and faults for the
//!   template.
//! - A lease is durable before anything is done for it, and `ready` only with its key, user data or
//!   runner in the guest.
//! - A key that cannot be installed or removed is tried three times. Then the agent takes nothing
//!   more and retires. A lease that was ready goes on also while its guest refuses drover's login.
//! - An expired lease costs the guest, not only the key: its holder may still be at work.
//! - Idle time is the template's matter, because the template knows the warm minimum.
//!
//! Beside it: `keys.rs` (the queue for key changes), `leases.rs` ([`Lease`], [`Stage`]), `reset.rs`,
//! `hold.rs`, `alive.rs` (whether a lease may be given out now).

use std::time::Duration;

use drover_model::demand::words::Words;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{LeaseId, RunnerName};
use drover_model::journal_state::GrantedLease;
use drover_model::overrides::OverrideChange;
use drover_model::ports::Sessions;
use drover_model::record::{Body, EXPIRED, LOST, LeaseAsk, Reason, how_ended};
use drover_model::time::{Moment, WallTime};

use crate::agent::event::{Call, Effect};
use crate::agent::keys::KEY_PAUSE;
use crate::agent::leases::{Lease, Leases, Stage};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::State;
use crate::ran::can_pass;
use crate::runners::TooOld;
use drover_model::journal_state::Pass;

/// A timer that comes this much too late shows that the process stood still, as a paused process or
/// a suspended machine does. Meanwhile no holder could renew a lease, so that time is credited
/// (book: safety, rule 13).
const PAUSE: Duration = Duration::from_secs(5);
const KEY_TRIES: u32 = 3;
/// The most characters of a loss's cause that are kept. A guest may have written any part of it.
const CAUSE_CHARS: usize = 1000;

impl Mind {
    /// Gives a lease to this agent.
    pub(super) fn lease(&mut self, ask: LeaseAsk, out: &mut Out) {
        if self.leases.has(&ask.lease) {
            return;
        }
        let open = matches!(self.state, State::Ready | State::Leased);
        let whose = ask.whose();
        let anothers = self.kept_for().is_some_and(|owner| *owner != whose);
        let crowded = ask.whole && !self.leases.is_empty();
        let closed = !open
            || anothers
            || crowded
            || self.adoption.is_unseen()
            || self.reachability.is_parked();
        if closed || self.free_executors() == 0 || !self.may_be_used(out) {
            out.refused.push(ask.lease);
            return;
        }
        let expires = out.now.wall + Duration::from_millis(ask.ttl_ms);
        let id = ask.lease.clone();
        out.record(Body::LeaseGranted {
            agent: self.agent.clone(),
            ask: Box::new(ask.clone()),
            expires,
            pending: ask.enters(),
        });
        self.usage.begin(whose);
        let stage = if ask.enters() { Stage::Admitting } else { Stage::Ready };
        let runner = self.intend_runner(&ask, out);
        if runner.is_some() {
            self.usage.begin_jobs();
        }
        let (span_ms, pending) = (Some(ask.ttl_ms), ask.enters());
        let granted =
            GrantedLease { ask, granted: Some(out.now.wall), expires, span_ms, runner, pending };
        let ends = out.now.mono + (expires - out.now.wall);
        let lease = Lease::new(granted, out.now.mono, ends, stage);
        self.show_lease(&lease, "", out);
        self.leases.put(id.clone(), lease);
        if !matches!(self.state, State::Leased) {
            self.enter(State::Leased, out);
        }
        self.lease_act(&id, out);
    }

    /// Records the runner of a source's lease. The number of this use is part of its name.
    fn intend_runner(&self, ask: &LeaseAsk, out: &mut Out) -> Option<RunnerName> {
        let source = ask.source.clone()?;
        let runner = RunnerName::of(&self.installation, &self.agent, self.usage.count());
        let (agent, lease) = (self.agent.clone(), ask.lease.clone());
        // The agent's actor fills in the source's place.
        let place = None;
        out.record(Body::RunnerIntended { agent, lease, source, runner: runner.clone(), place });
        Some(runner)
    }

    /// Records a runner that was cut off between its grant and its record. Only the last grant can
    /// lack one.
    pub(super) fn intend_missing_runner(&mut self, out: &mut Out) {
        let lacks = |lease: &&Lease| {
            let granted = &lease.granted;
            lease.stage != Stage::Expelling
                && granted.ask.source.is_some()
                && granted.runner.is_none()
        };
        let Some(ask) = self.leases.each().find(lacks).map(|lease| lease.granted.ask.clone())
        else {
            return;
        };
        let runner = self.intend_runner(&ask, out);
        if let Some(lease) = self.leases.get_mut(&ask.lease) {
            lease.granted.runner = runner;
        }
    }

    /// Makes the call of a lease's stage. The call waits until the guest was inspected, until the
    /// running call is back, and until the guest's keys are free.
    pub(super) fn lease_act(&mut self, id: &LeaseId, out: &mut Out) {
        let address = self.address();
        let attempt = self.next();
        let sessions = self.sessions();
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.retry = None;
        lease.waits = false;
        // What a lease needs of a machine that stands still is done once it runs again.
        if self.adoption.is_unseen() || lease.asked.is_some() || !self.machine.takes_keys() {
            return;
        }
        let call = match (lease.stage, address, lease.granted.pass()) {
            (Stage::Admitting, Some(address), Some(pass)) => Call::Admit(address, id.clone(), pass),
            // A runner that was started is not started again.
            (Stage::Ready, Some(address), Some(pass @ Pass::Holder(_))) if lease.unseen => {
                Call::Admit(address, id.clone(), pass)
            }
            (Stage::Expelling, Some(address), Some(pass)) => {
                Call::Expel(address, id.clone(), pass, sessions)
            }
            (Stage::Admitting | Stage::Expelling, None, _) => {
                let text = "the agent has no address to reach its keys at";
                let fault = Fault::new(FaultKind::Broken, Culprit::Guest, text);
                return self.lease_failed(id, fault, out);
            }
            (Stage::Admitting | Stage::Expelling | Stage::Ready, _, _) => return,
        };
        let turn = self.take_keys(&call, attempt);
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.waits = !turn;
        if turn {
            lease.asked = Some(attempt);
            out.effects.push(Effect::Ask(attempt, call));
        }
    }

    pub(super) fn admitted(&mut self, id: &LeaseId, result: Result<(), Fault>, out: &mut Out) {
        if self.is_outdated(id, out) {
            return;
        }
        let Some(lease) = self.leases.get_mut(id) else { return };
        if lease.stage == Stage::Ready {
            return self.seen(id, result, out);
        }
        match result {
            Ok(()) => {
                lease.stage = Stage::Ready;
                lease.reported_ready = true;
                lease.tries = 0;
                lease.unsure = false;
                let lease = lease.clone();
                let (agent, id) = (self.agent.clone(), id.clone());
                out.record(Body::LeaseReady { agent, lease: id });
                self.keys_open();
                self.show_lease(&lease, "", out);
                if let Some(Pass::Runner(source, runner, _)) = lease.granted.pass() {
                    out.effects.push(Effect::RunnerStarted(source, runner));
                }
            }
            // Another agent could not install this user data either.
            Err(fault) if fault.kind == FaultKind::Gone && lease.granted.ask.user_data => {
                self.end_lease(id, &fault.text, out);
            }
            Err(fault) => {
                if let Some(Pass::Runner(source, runner, _)) = lease.granted.pass()
                    && fault.culprit == Culprit::Source(source.clone())
                    && !can_pass(&fault.kind)
                {
                    out.effects.push(Effect::StartFailed(source, runner, fault.text.clone()));
                }
                // The runner may have started, although no answer came.
                lease.unsure |= fault.kind == FaultKind::UnknownOutcome && lease.is_runners();
                self.key_failed(id, fault, out);
            }
        }
    }

    /// The result of entering the guest of a lease from an earlier start. The lease goes on either
    /// way, because its holder may be at work.
    fn seen(&mut self, id: &LeaseId, result: Result<(), Fault>, out: &mut Out) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        match result {
            Ok(()) => {
                lease.unseen = false;
                lease.tries = 0;
                self.keys_open();
            }
            // The user data was in the guest before and belongs to the holder.
            Err(fault) if fault.kind == FaultKind::Gone => lease.unseen = false,
            Err(fault) => {
                self.machine.hinder_keys(&fault);
                self.keys_shut(&fault, out);
                self.key_later(id, out);
            }
        }
    }

    pub(super) fn expelled(&mut self, id: &LeaseId, result: Result<(), Fault>, out: &mut Out) {
        if self.is_outdated(id, out) {
            return;
        }
        match result {
            Ok(()) => {
                self.leases.remove(id);
                self.keys_open();
                if !self.leases.is_empty() {
                    let (agent, lease) = (self.agent.clone(), id.clone());
                    out.record(Body::KeyRemoved { agent, lease });
                }
                self.lease_over(out);
            }
            Err(fault) => self.key_failed(id, fault, out),
        }
    }

    fn key_failed(&mut self, id: &LeaseId, fault: Fault, out: &mut Out) {
        let others = !self.leases.only_expels();
        let Some(lease) = self.leases.get_mut(id) else { return };
        let shut = matches!(fault.kind, FaultKind::KeyRejected | FaultKind::Impostor);
        // A source's refusal of a runner is final. A guest may be broken for a while.
        let broken =
            fault.kind == FaultKind::Broken && !matches!(fault.culprit, Culprit::Source(_));
        if lease.unsure && (can_pass(&fault.kind) || shut || broken) {
            self.keys_shut(&fault, out);
            return self.key_later(id, out);
        }
        if can_pass(&fault.kind) && lease.tries + 1 < KEY_TRIES {
            lease.tries += 1;
            lease.retry_at(out.now.mono + KEY_PAUSE);
        } else if lease.stage == Stage::Expelling && others {
            // The agent retires with its last lease. The key is removed as soon as possible.
            lease.let_go = true;
            self.key_later(id, out);
            self.drain(self.failure(&fault), out);
            self.keys_shut(&fault, out);
        } else {
            self.lease_failed(id, fault, out);
        }
    }

    /// A key could not be installed or removed, or a runner failed: the agent takes nothing more and
    /// retires. A failed installation is charged only at the agent's first use, because an earlier
    /// user may have changed the guest. A failed removal is not charged.
    fn lease_failed(&mut self, id: &LeaseId, fault: Fault, out: &mut Out) {
        let reason = self.failure(&fault);
        let Some(lease) = self.leases.remove(id) else { return };
        let charged = match lease.stage {
            Stage::Admitting => self.usage.count() <= 1,
            Stage::Ready => true,
            Stage::Expelling => false,
        };
        // The key may be in the guest, or get there after drover stopped waiting, while other
        // leases go on.
        let unclear = lease.stage == Stage::Admitting && can_pass(&fault.kind);
        let entered = unclear && !lease.is_runners();
        let stays = (entered && !self.leases.is_empty()).then(|| lease.clone());
        self.lose(lease, &fault.text, out);
        if let Some(lease) = stays {
            let lease = Lease {
                stage: Stage::Expelling,
                let_go: true,
                unsure: false,
                outdated: lease.asked.is_some(),
                tries: 0,
                ..lease
            };
            self.leases.put(id.clone(), lease);
            self.key_later(id, out);
        }
        out.fault = Some(fault).filter(|_| charged);
        self.drain(reason, out);
    }

    fn write_end(&self, mut lease: Lease, why: &str, cause: &str, out: &mut Out) {
        let id = lease.granted.ask.lease.clone();
        let cause: String = cause.chars().take(CAUSE_CHARS).collect();
        let detail = how_ended(why, &cause);
        out.record(Body::LeaseEnded { lease: id, why: why.to_owned(), cause });
        lease.stage = Stage::Expelling;
        self.show_lease(&lease, &detail, out);
    }

    /// Ends a lease. A lease that is unknown here, or is ending already, stays as it is.
    pub(super) fn end_lease(&mut self, id: &LeaseId, why: &str, out: &mut Out) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        if lease.stage == Stage::Expelling {
            return;
        }
        if let Some(text) = lease.failing.take() {
            return self.runner_failed(id, text, out);
        }
        let ended = lease.clone();
        lease.stage = Stage::Expelling;
        // Calls for the lease's earlier stage come back before its end starts in the guest.
        lease.outdated = lease.asked.is_some();
        lease.unsure = false;
        lease.tries = 0;
        lease.due = out.now.mono;
        if ended.granted.ask.whole {
            self.usage.end_whole();
        }
        self.write_end(ended, why, "", out);
        self.lease_go_on(id, out);
    }

    /// A source found that a lease's runner is not what it should be. The guest is asked about the
    /// runner, and then retires with it.
    pub(super) fn fail_lease(&mut self, id: &LeaseId, text: String, out: &mut Out) {
        if self.leases.get(id).is_none_or(|lease| lease.stage == Stage::Expelling) {
            return;
        }
        if !self.ask_words(id, out) {
            return self.runner_failed(id, text, out);
        }
        if let Some(lease) = self.leases.get_mut(id) {
            lease.failing.get_or_insert(text);
        }
    }

    /// Asks the guest about a lease's runner. Returns whether an answer will come.
    pub(super) fn ask_words(&mut self, id: &LeaseId, out: &mut Out) -> bool {
        let (address, attempt) = (self.address(), self.next());
        let Some(lease) = self.leases.get_mut(id) else { return false };
        if self.adoption.is_unseen() || lease.stage != Stage::Ready {
            return false;
        }
        if lease.asked.is_some() {
            return true;
        }
        let (Some(address), Some(pass @ Pass::Runner(..))) = (address, lease.granted.pass()) else {
            return false;
        };
        lease.asked = Some(attempt);
        out.effects.push(Effect::Ask(attempt, Call::Words(address, id.clone(), pass)));
        true
    }

    /// The guest's answer about a runner.
    pub(super) fn worded(&mut self, id: &LeaseId, result: Result<Words, Fault>, out: &mut Out) {
        if self.is_outdated(id, out) {
            return;
        }
        let template = &self.spec.id;
        let Some(lease) = self.leases.get_mut(id) else { return };
        if let Some(text) = result.as_ref().ok().and_then(|words| words.too_old.clone())
            && let Some(Pass::Runner(source, runner, want)) = lease.granted.pass()
        {
            let reported = TooOld { template: template.clone(), want, text };
            out.effects.push(Effect::TooOld(source, runner, Box::new(reported)));
        }
        match (lease.failing.take(), result) {
            (Some(text), Ok(words)) => self.runner_failed(id, format!("{text}; {words}"), out),
            (Some(text), Err(fault)) => {
                let text = format!("{text}; its guest could not be asked: {}", fault.text);
                self.runner_failed(id, text, out);
            }
            (None, Ok(words)) => {
                if let Some(Pass::Runner(source, runner, _)) = lease.granted.pass()
                    && let Some(how) = words.end()
                {
                    let ago = Duration::from_secs(words.ago);
                    out.effects.push(Effect::Ended(source, runner, how, ago));
                }
            }
            (None, Err(_)) => {}
        }
    }

    fn runner_failed(&mut self, id: &LeaseId, text: String, out: &mut Out) {
        self.lease_failed(id, Fault::new(FaultKind::Broken, Culprit::Template, text), out);
    }

    /// Makes a lease's call, or skips it where the key need not be removed.
    pub(super) fn lease_go_on(&mut self, id: &LeaseId, out: &mut Out) {
        let Some(lease) = self.leases.get(id) else { return };
        let ends = lease.stage == Stage::Expelling;
        if ends && self.leave_with_keys(out) {
            return;
        }
        if ends && !self.has_key(id) {
            self.leases.remove(id);
            self.lease_over(out);
        } else {
            self.lease_act(id, out);
        }
    }

    /// Ends the agent's use where nothing but keys of ended leases is left and they go with the guest:
    /// also those that could not be removed before, or that a machine which stands still has.
    pub(super) fn leave_with_keys(&mut self, out: &mut Out) -> bool {
        let leaves = self.goes_after();
        if leaves {
            self.leases = Leases::default();
            self.lease_over(out);
        }
        leaves
    }

    /// Whether the agent retires once the ending leases are over. Then their keys go with the
    /// guest. A hold lets them be removed first, which a machine that stands still cannot do.
    fn goes_after(&self) -> bool {
        let goes = self.usage.is_used_up(&self.spec)
            || self.machine.spoils()
            || self.spec.reset.is_some()
            || matches!(self.state, State::Draining(_));
        let held = self.holding.is_wanted() && !self.machine.stands_still();
        self.leases.only_expels() && goes && !held
    }

    /// Sessions end with the last lease, or a program of its holder would go on beside the next one.
    /// A hold keeps what a job left running.
    fn sessions(&self) -> Sessions {
        let ends = self.leases.only_expels() && !self.holding.is_wanted();
        if ends { Sessions::End } else { Sessions::Stay }
    }

    fn has_key(&self, id: &LeaseId) -> bool {
        self.leases.get(id).is_some_and(|lease| lease.granted.pass().is_some())
    }

    /// Applies new limits. An agent that was used often enough retires at once, or at the end of
    /// its last lease.
    pub(super) fn override_limits(&mut self, change: OverrideChange, out: &mut Out) {
        self.usage.override_limits(change);
        if matches!(self.state, State::Ready) && !self.adoption.is_unseen() {
            self.lease_over(out);
        }
    }

    /// Decides what follows the last lease, if no lease is left.
    pub(super) fn lease_over(&mut self, out: &mut Out) {
        if !self.leases.is_empty() {
            return;
        }
        if let (Some(_), State::Ready | State::Leased) = (self.holding.hold(), &self.state) {
            self.be_held("", out);
        } else if let State::Draining(reason) = &self.state {
            let reason = reason.clone();
            self.retire(reason, out);
        } else if self.usage.is_used_up(&self.spec) {
            self.retire(Reason::UsedUp, out);
        } else if self.machine.spoils() {
            self.retire(Reason::Altered, out);
        } else if matches!(self.state, State::Leased) && self.spec.reset.is_some() {
            self.reset_or_retire(out);
        } else if matches!(self.state, State::Leased) {
            self.enter(State::Ready, out);
        }
    }

    /// Ends every lease at once for this cause, without a call to the guest.
    pub(super) fn lose_leases(&mut self, cause: &str, out: &mut Out) {
        for lease in self.leases.remove_all() {
            self.lose(lease, cause, out);
        }
    }

    /// The agent cannot serve a lease any more. A lease that was never reported ready waits again.
    fn lose(&self, mut lease: Lease, cause: &str, out: &mut Out) {
        let failing = lease.failing.take();
        let cause = failing.as_deref().unwrap_or(cause);
        match lease.stage {
            Stage::Expelling => {}
            Stage::Admitting if !lease.reported_ready => {
                let (agent, lease) = (self.agent.clone(), lease.granted.ask.lease);
                out.record(Body::LeaseReturned { agent, lease: lease.clone() });
                out.refused.push(lease);
            }
            Stage::Admitting | Stage::Ready => self.write_end(lease, LOST, cause, out),
        }
    }

    pub(super) fn renewed(&mut self, id: &LeaseId, expires: WallTime, out: &mut Out) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.granted.renew(expires, out.now.wall);
        lease.ends = out.now.mono + (expires - out.now.wall);
        if lease.stage != Stage::Expelling {
            let lease = lease.clone();
            self.show_lease(&lease, "", out);
        }
    }

    /// Ends expired leases and repeats due calls. `late` is how much too late the timer came. A
    /// lease expires in time even where its guest could not be inspected yet.
    pub(super) fn tick_leases(&mut self, late: Duration, out: &mut Out) {
        for id in self.leases.in_line() {
            let Some(lease) = self.leases.get(&id) else { continue };
            let expired = lease.ends <= out.now.mono && lease.stage != Stage::Expelling;
            // The timer may have been for something that was due earlier.
            let late = late.min(out.now.mono - lease.ends);
            if expired && late >= PAUSE {
                let expires = out.now.wall + late;
                out.record(Body::LeaseRenewed { lease: id.clone(), expires });
                self.renewed(&id, expires, out);
            } else if expired {
                self.lease_expired(&id, out);
            } else if lease.retry.is_some_and(|due| due <= out.now.mono) {
                self.lease_act(&id, out);
            }
        }
    }

    /// The holder may still be at work, so the guest is retired, and not only the key is removed.
    fn lease_expired(&mut self, id: &LeaseId, out: &mut Out) {
        if let Some(lease) = self.leases.remove(id) {
            self.write_end(lease, EXPIRED, "", out);
            self.drain(Reason::LeaseExpired, out);
        }
    }

    /// Takes no new lease and retires when the last one ends, at once where that has ended.
    pub(super) fn drain(&mut self, reason: Reason, out: &mut Out) {
        match &self.state {
            State::Draining(_) if !self.leases.is_empty() => {
                // After a restart nobody knows any more why it drained.
                if reason == Reason::Unconfigured {
                    self.state = State::Draining(reason);
                }
                self.leave_with_keys(out);
            }
            // Only an operator or the end of the hold takes a held agent from its holder.
            State::Held { .. } => {}
            State::Ready | State::Leased if !self.leases.is_empty() => {
                self.enter(State::Draining(reason), out);
                self.leave_with_keys(out);
            }
            State::Queued
            | State::Cloning { .. }
            | State::InDoubt { .. }
            | State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => self.retire(reason, out),
        }
    }

    /// When the agent gets too old.
    pub(super) fn old_due(&self) -> Option<Moment> {
        let counts =
            matches!(self.state, State::Ready | State::Leased) && !self.adoption.is_unseen();
        self.timers.old_at().filter(|_| counts)
    }

    pub(super) fn tick_age(&mut self, out: &mut Out) {
        if self.old_due().is_some_and(|due| due <= out.now.mono) {
            self.drain(Reason::Old, out);
        }
    }
}
