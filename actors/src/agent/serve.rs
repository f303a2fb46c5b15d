//! Ready, Leased, Draining: leases on this agent, and its age. Idle time is its template's
//! matter, which knows the warm minimum.

use std::time::Duration;

use drover_model::demand::words::Words;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{LeaseId, RunnerName};
use drover_model::ledger::GrantedLease;
use drover_model::overrides::OverrideChange;
use drover_model::record::{Body, EXPIRED, LOST, LeaseAsk, Reason, how_ended};
use drover_model::time::{Moment, WallTime};

use crate::agent::event::{Call, Effect};
use crate::agent::keys::KEY_PAUSE;
use crate::agent::mind::{Mind, Out};
use crate::agent::provision::can_pass;
use crate::agent::state::{Lease, Stage, State};
use crate::demand::runners::TooOld;
use drover_model::ledger::Pass;

/// Who is woken this much too late stood still, as a paused process or a suspended machine does:
/// nobody could renew a lease meanwhile, so that time is credited (design rule 13).
const PAUSE: Duration = Duration::from_secs(5);
/// How often a key is tried.
const KEY_TRIES: u32 = 3;
/// What is kept of the cause of a lease's loss: a guest may have said any part of it.
const CAUSE_CHARS: usize = 1000;

impl Mind {
    /// A lease is given out on this agent.
    pub(super) fn lease(&mut self, ask: LeaseAsk, out: &mut Out) {
        if self.leases.contains_key(&ask.lease) {
            return;
        }
        let open = matches!(self.state, State::Ready | State::Leased);
        let whose = ask.whose();
        let anothers = self.kept_for().is_some_and(|owner| *owner != whose);
        let crowded = ask.whole && !self.leases.is_empty();
        let closed = !open || anothers || crowded || self.observing || self.parked;
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
        self.uses += 1;
        self.owner = Some(whose);
        let stage = if ask.enters() { Stage::Admitting } else { Stage::Ready };
        let runner = self.intend_runner(&ask, out);
        self.ran |= runner.is_some();
        let (span_ms, pending) = (Some(ask.ttl_ms), ask.enters());
        let granted = GrantedLease { ask, expires, span_ms, runner, pending };
        let ends = out.now.mono + (expires - out.now.wall);
        let lease = Lease::new(granted, out.now.mono, ends, stage);
        self.show_lease(&lease, "", out);
        self.leases.insert(id.clone(), lease);
        if !matches!(self.state, State::Leased) {
            self.enter(State::Leased, out);
        }
        self.lease_act(&id, out);
    }

    /// Writes down the runner of a source's lease, by the number of this use.
    fn intend_runner(&self, ask: &LeaseAsk, out: &mut Out) -> Option<RunnerName> {
        let source = ask.source.clone()?;
        let runner = RunnerName::of(&self.installation, &self.agent, self.uses);
        let (agent, lease) = (self.agent.clone(), ask.lease.clone());
        // Where its source is, its actor writes in.
        let place = None;
        out.record(Body::RunnerIntended { agent, lease, source, runner: runner.clone(), place });
        Some(runner)
    }

    /// Writes down what was cut off between a grant and its runner: it can be the last grant's alone.
    pub(super) fn intend_missing_runner(&mut self, out: &mut Out) {
        let lacks = |lease: &&Lease| {
            let granted = &lease.granted;
            lease.stage != Stage::Expelling
                && granted.ask.source.is_some()
                && granted.runner.is_none()
        };
        let Some(ask) = self.leases.values().find(lacks).map(|lease| lease.granted.ask.clone())
        else {
            return;
        };
        let runner = self.intend_runner(&ask, out);
        if let Some(lease) = self.leases.get_mut(&ask.lease) {
            lease.granted.runner = runner;
        }
    }

    /// Makes the call a lease's stage stands for: not before the guest was looked at, after the one
    /// that is under way, and when the guest's keys are free for it.
    pub(super) fn lease_act(&mut self, id: &LeaseId, out: &mut Out) {
        let address = self.address();
        let attempt = self.next();
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.retry = None;
        lease.waits = false;
        if self.observing || lease.asked.is_some() {
            return;
        }
        let call = match (lease.stage, address, lease.granted.pass()) {
            (Stage::Admitting, Some(address), Some(pass)) => Call::Admit(address, id.clone(), pass),
            // A runner that was started is not started again.
            (Stage::Ready, Some(address), Some(pass @ Pass::Holder(_))) if lease.unseen => {
                Call::Admit(address, id.clone(), pass)
            }
            (Stage::Expelling, Some(address), Some(pass)) => Call::Expel(address, id.clone(), pass),
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
                lease.told_ready = true;
                lease.tries = 0;
                lease.unsure = false;
                let lease = lease.clone();
                let (agent, id) = (self.agent.clone(), id.clone());
                out.record(Body::LeaseReady { agent, lease: id });
                self.keys_open();
                self.show_lease(&lease, "", out);
                if let Some(Pass::Runner(source, runner, _)) = lease.granted.pass() {
                    out.effects.push(Effect::Hired(source, runner));
                }
            }
            // Another agent would have it no more than this one.
            Err(fault) if fault.kind == FaultKind::Gone && lease.granted.ask.user_data => {
                self.end_lease(id, &fault.text, out);
            }
            Err(fault) => {
                if let Some(Pass::Runner(source, runner, _)) = lease.granted.pass()
                    && fault.culprit == Culprit::Source(source.clone())
                    && !can_pass(&fault.kind)
                {
                    out.effects.push(Effect::NotHired(source, runner, fault.text.clone()));
                }
                // It may have started: nobody heard.
                lease.unsure |= fault.kind == FaultKind::UnknownOutcome && lease.is_runners();
                self.key_failed(id, fault, out);
            }
        }
    }

    /// The guest of a lease that goes on from an earlier start was entered, or could not be: the lease
    /// goes on either way, for its holder may be at work.
    fn seen(&mut self, id: &LeaseId, result: Result<(), Fault>, out: &mut Out) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        match result {
            Ok(()) => {
                lease.unseen = false;
                lease.tries = 0;
                self.keys_open();
            }
            // Its user data was in the guest before, and is its holder's.
            Err(fault) if fault.kind == FaultKind::Gone => lease.unseen = false,
            Err(fault) => {
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
        let others = !self.only_expels();
        let Some(lease) = self.leases.get_mut(id) else { return };
        let shut = matches!(fault.kind, FaultKind::KeyRejected | FaultKind::Impostor);
        // What its source says against a runner is its last word; a guest may be broken for a while.
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
            // The agent goes with the last of them, and the key as soon as it can.
            lease.let_go = true;
            self.key_later(id, out);
            self.drain(self.failure(&fault), out);
            self.keys_shut(&fault, out);
        } else {
            self.lease_failed(id, fault, out);
        }
    }

    /// A key could not be installed or removed: the agent takes nothing more and goes. Only one that
    /// nobody was in before tells anything of what it is made of.
    fn lease_failed(&mut self, id: &LeaseId, fault: Fault, out: &mut Out) {
        let reason = self.failure(&fault);
        let Some(lease) = self.leases.remove(id) else { return };
        let charged = match lease.stage {
            Stage::Admitting => self.uses <= 1,
            Stage::Ready => true,
            Stage::Expelling => false,
        };
        // Its key may be in, or come in when nobody waits for it any more, where others go on.
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
            self.leases.insert(id.clone(), lease);
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

    /// Somebody ends a lease; a lease that is not here, or ends already, is left alone.
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
        // Whatever it does in the guest is over before its end begins there.
        lease.outdated = lease.asked.is_some();
        lease.unsure = false;
        lease.tries = 0;
        lease.due = out.now.mono;
        self.spent |= ended.granted.ask.whole;
        self.write_end(ended, why, "", out);
        self.lease_go_on(id, out);
    }

    /// A source found a lease's runner not to be what it should. Its guest goes with it, and is asked
    /// about it before.
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

    /// Asks the guest about a lease's runner; gives whether an answer will come.
    pub(super) fn ask_words(&mut self, id: &LeaseId, out: &mut Out) -> bool {
        let (address, attempt) = (self.address(), self.next());
        let Some(lease) = self.leases.get_mut(id) else { return false };
        if self.observing || lease.stage != Stage::Ready {
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

    /// The guest answered what it knows of a runner.
    pub(super) fn worded(&mut self, id: &LeaseId, result: Result<Words, Fault>, out: &mut Out) {
        if self.is_outdated(id, out) {
            return;
        }
        let template = &self.spec.id;
        let Some(lease) = self.leases.get_mut(id) else { return };
        if let Some(text) = result.as_ref().ok().and_then(|words| words.too_old.clone())
            && let Some(Pass::Runner(source, runner, want)) = lease.granted.pass()
        {
            let told = TooOld { template: template.clone(), want, text };
            out.effects.push(Effect::TooOld(source, runner, Box::new(told)));
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

    /// Makes a lease's call, or passes over one whose key need not be removed.
    pub(super) fn lease_go_on(&mut self, id: &LeaseId, out: &mut Out) {
        let Some(lease) = self.leases.get(id) else { return };
        if lease.stage == Stage::Expelling && (self.goes_after() || !self.has_key(id)) {
            if self.goes_after() {
                // Keys that could not be removed before go with the guest, too.
                self.leases.clear();
            }
            self.leases.remove(id);
            self.lease_over(out);
        } else {
            self.lease_act(id, out);
        }
    }

    /// Whether the agent goes as soon as the leases that end are over: then their keys go with the guest.
    fn goes_after(&self) -> bool {
        let goes =
            self.used_up() || self.spec.reset.is_some() || matches!(self.state, State::Draining(_));
        self.only_expels() && goes && self.hold.is_none()
    }

    fn has_key(&self, id: &LeaseId) -> bool {
        self.leases.get(id).is_some_and(|lease| lease.granted.pass().is_some())
    }

    /// Uses after which it goes; none for no limit. Where nobody said it, jobs of a source find no
    /// guest that one was in before.
    pub(super) fn max_uses(&self) -> Option<u32> {
        let once = self.ran && self.spec.reset.is_none();
        self.overrides.max_uses(&self.spec).or(once.then_some(self.spec.executors.max(1)))
    }

    fn used_up(&self) -> bool {
        let spent = self.spent && self.spec.reset.is_none();
        spent || self.max_uses().is_some_and(|most| self.uses >= most)
    }

    /// Other limits hold from now on; one that was used often enough goes at once, or at the end of
    /// its last use.
    pub(super) fn override_limits(&mut self, change: OverrideChange, out: &mut Out) {
        self.overrides.change(change);
        if matches!(self.state, State::Ready) && !self.observing {
            self.lease_over(out);
        }
    }

    /// The last lease may be over: what becomes of the agent then.
    pub(super) fn lease_over(&mut self, out: &mut Out) {
        if !self.leases.is_empty() {
            return;
        }
        if let (Some(_), State::Ready | State::Leased) = (&self.hold, &self.state) {
            self.be_held("", out);
        } else if let State::Draining(reason) = &self.state {
            let reason = reason.clone();
            self.retire(reason, out);
        } else if self.used_up() {
            self.retire(Reason::UsedUp, out);
        } else if matches!(self.state, State::Leased) && self.spec.reset.is_some() {
            self.reset_or_retire(out);
        } else if matches!(self.state, State::Leased) {
            self.enter(State::Ready, out);
        }
    }

    /// Ends every lease at once, without a word to the guest, for this cause.
    pub(super) fn lose_leases(&mut self, cause: &str, out: &mut Out) {
        for lease in std::mem::take(&mut self.leases).into_values() {
            self.lose(lease, cause, out);
        }
    }

    /// The agent can not serve a lease any more: one that nobody was told is ready waits again.
    fn lose(&self, mut lease: Lease, cause: &str, out: &mut Out) {
        let failing = lease.failing.take();
        let cause = failing.as_deref().unwrap_or(cause);
        match lease.stage {
            Stage::Expelling => {}
            Stage::Admitting if !lease.told_ready => {
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

    /// When leases want attention: their end, or another try for their key.
    pub(super) fn leases_due(&self) -> Vec<Moment> {
        let due = |lease: &Lease| match lease.stage {
            Stage::Expelling => lease.retry,
            Stage::Admitting | Stage::Ready => {
                Some(lease.retry.map_or(lease.ends, |retry| retry.min(lease.ends)))
            }
        };
        self.leases.values().filter_map(due).collect()
    }

    /// Ends what ran out, and tries again what is due; `late` is by how much this comes too late.
    /// A lease runs out in time even where its guest could not be looked at yet.
    pub(super) fn tick_leases(&mut self, late: Duration, out: &mut Out) {
        for id in self.leases_in_line() {
            let Some(lease) = self.leases.get(&id) else { continue };
            let expired = lease.ends <= out.now.mono && lease.stage != Stage::Expelling;
            // It may have been woken for something that was due before.
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

    /// Whoever overstayed may still be at it: the guest goes, not only the key.
    fn lease_expired(&mut self, id: &LeaseId, out: &mut Out) {
        if let Some(lease) = self.leases.remove(id) {
            self.write_end(lease, EXPIRED, "", out);
            self.drain(Reason::LeaseExpired, out);
        }
    }

    /// Takes no new use and goes when the last one ends.
    pub(super) fn drain(&mut self, reason: Reason, out: &mut Out) {
        match &self.state {
            State::Draining(_) if !self.leases.is_empty() => {}
            // Nobody but an operator or its end takes it from whoever holds it.
            State::Held { .. } => {}
            State::Ready | State::Leased if !self.leases.is_empty() => {
                self.enter(State::Draining(reason), out);
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
            | State::Resetting(_)
            | State::Retiring { .. }
            | State::Stranded { .. }
            | State::Gone { .. } => self.retire(reason, out),
        }
    }

    /// When it will be too old.
    pub(super) fn old_due(&self) -> Option<Moment> {
        let counts = matches!(self.state, State::Ready | State::Leased) && !self.observing;
        self.old_at.filter(|_| counts)
    }

    pub(super) fn tick_age(&mut self, out: &mut Out) {
        if self.old_due().is_some_and(|due| due <= out.now.mono) {
            self.drain(Reason::Old, out);
        }
    }
}
