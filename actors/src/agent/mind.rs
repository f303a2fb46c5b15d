//! An agent's mind and the one function that moves it: [`step`] (book: agents, The transitions).
//!
//! The mind is pure. Time and chance are arguments; everything that must be done is an [`Effect`].
//!
//! ```text
//! event ──▶ command | answered | tick ──▶ the state's file ──▶ enter(state) ──▶ act ──▶ one call
//!                                                                                │
//!           back_off, retry_in (the same step again) ◀── fault that can pass ◀───┤
//!           fail ──▶ retire ◀── fault that stays, late() after the deadline ◀────┘
//! ```
//!
//! - A state waits for one call (`asked`). Calls for leases and probes run beside it.
//! - Every step ends with one timer ([`Effect::WakeAt`]) for the earliest deadline or retry.
//! - A parked agent's deadline does not count.
//!
//! `hear.rs` says which file handles a command or an answer; `state.rs` has the states.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_model::addresses::AssignedAddress;
use drover_model::ambient::jittered;
use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, Attempt, Installation, LeaseId};
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Hold, Owner, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::time::{Moment, Now};

use crate::agent::adopt::Unborn;
use crate::agent::alive::Alive;
use crate::agent::boots::Boot;
use crate::agent::event::{Call, Effect, Event, Guest};
use crate::agent::keys::Keys;
use crate::agent::provision::can_pass;
use crate::agent::state::{BootStep, CloneStep, Lease, State};
use crate::agent::status::{Reported, Waterfall};
use crate::boot_times::Booted;
use crate::reset_stats::TemplateHints;
use drover_limits::concurrency::OperationEnd;

const PAUSE_FIRST: Duration = Duration::from_secs(2);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// How long an agent on trial stays once it is ready: enough for its starter to see it.
const TRIAL_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq)]
pub struct Mind {
    pub(super) agent: AgentId,
    pub(super) installation: Installation,
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) state: State,
    pub(super) guest: Option<Guest>,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
    pub(super) keys: Keys,
    pub(super) uses: u32,
    /// Limits that override the template's.
    pub(super) overrides: Overrides,
    /// The hold that starts as soon as no lease is on the agent.
    pub(super) hold: Option<Hold>,
    /// Why the agent would have retired, where it is held instead.
    pub(super) held_why: Option<String>,
    /// The stamp of the latest effect.
    pub(super) stamp: Attempt,
    /// The call this state waits for.
    pub(super) asked: Option<Attempt>,
    pub(super) asked_at: Moment,
    /// A [`Call::Look`] beside `asked`, sent because a list shows the guest stopped.
    pub(super) peek: Option<Attempt>,
    pub(super) wake: Option<(Attempt, Moment)>,
    pub(super) deadline: Option<Moment>,
    pub(super) retry: Option<Moment>,
    pub(super) pause: Duration,
    /// Failures in a row of this state's step.
    pub(super) tries: u32,
    /// The last fault in this state.
    pub(super) hindrance: Option<Fault>,
    /// The deadline of the whole clone.
    pub(super) clone_until: Moment,
    pub(super) old_at: Option<Moment>,
    /// Whether the agent holds or asked for a place in the concurrency limits.
    pub(super) lane: bool,
    /// Whether others may use that place, because no clone is seen running in it.
    pub(super) lent: bool,
    pub(super) parked: bool,
    pub(super) cut_off: bool,
    /// Whether `detail` describes a call that waits for a way to the cluster.
    unproven: bool,
    /// Whether the user of a lease that ended before this start may still be in the guest.
    pub(super) unswept: bool,
    /// The owner of the last lease.
    pub(super) owner: Option<Owner>,
    /// Whether jobs of a source may have run since the guest was clean.
    pub(super) ran: bool,
    /// Whether a lease of the whole agent has ended.
    pub(super) spent: bool,
    /// Whether a snapshot from before the first use exists.
    pub(super) clean: bool,
    /// What the template knows at this moment.
    pub(super) hints: TemplateHints,
    /// When the clone was intended, until the agent is first ready.
    pub(super) started: Option<Moment>,
    /// When the reset or the retirement started.
    pub(super) since: Moment,
    /// The agent rests: it does nothing any more.
    pub(super) resting: bool,
    /// The clone was never made and the id was free. Only the check for volumes is left, which
    /// lasts as long as a storage is unreachable.
    pub(super) freed: bool,
    /// Whether the disc image is recorded but, as far as known, was never sent.
    pub(super) image_unsent: bool,
    /// Whether the guest is adopted and not inspected yet.
    pub(super) observing: bool,
    /// Set where the journal does not know the agent, which then ends.
    pub(super) unborn: Option<Unborn>,
    /// The agent's assigned addresses; drover connects to the first.
    pub(super) addresses: Vec<AssignedAddress>,
    /// Whether the addresses are recorded.
    pub(super) spoken: bool,
    /// The address that the guest called from.
    pub(super) called: Option<IpAddr>,
    /// The host key of the greeting, while the guest agent is asked for its keys.
    pub(super) offered: Option<String>,
    /// Leases whose end differs from the journal's: the service was down, or the clock was set.
    pub(super) moved: BTreeSet<LeaseId>,
    pub(super) boot: Boot,
    pub(super) alive: Alive,
    pub(super) detail: String,
    /// Why the outcome of the clone is unknown.
    pub(super) doubted: Option<String>,
    /// Problems that preparing found and passed over.
    pub(super) warnings: Vec<String>,
    pub(super) waterfall: Waterfall,
    pub(super) reported: Reported,
}

pub(super) struct Out {
    pub(super) now: Now,
    /// 64 random bits for this step.
    pub(super) draw: u64,
    pub(super) effects: Vec<Effect>,
    pub(super) fault: Option<Fault>,
    /// Leases that the agent refuses, or gives back before they were ready.
    pub(super) refused: Vec<LeaseId>,
}

impl Out {
    pub(super) fn record(&mut self, body: Body) {
        self.effects.push(Effect::Record(body));
    }

    pub(super) fn observe(&mut self, what: What) {
        self.effects.push(Effect::Observe(Box::new(what)));
    }
}

/// Moves the mind by one event. `draw` is 64 random bits.
pub fn step(mind: &mut Mind, event: Event, now: Now, draw: u64) -> Vec<Effect> {
    if mind.resting {
        return Vec::new();
    }
    let mut out = Out { now, draw, effects: Vec::new(), fault: None, refused: Vec::new() };
    let ran = mind.is_watched();
    match event {
        Event::Begin => mind.begin(&mut out),
        Event::Command(command) => mind.command(command, &mut out),
        Event::Intended { seq } => {
            if let Some(guest) = &mut mind.guest {
                guest.marks.seq = seq;
            }
        }
        Event::Answer(attempt, answer) => {
            if std::mem::take(&mut mind.unproven) {
                mind.detail.clear();
            }
            mind.answered(attempt, answer, &mut out);
        }
        Event::Unmade(attempt) => mind.not_made(attempt, &mut out),
        Event::Wake(attempt) => {
            if let Some((_, due)) = mind.wake.filter(|(expected, _)| *expected == attempt) {
                mind.wake = None;
                mind.tick(due, &mut out);
            }
        }
        Event::JournalFailed(text) => mind.detail = text,
        Event::Unproven(text) => {
            // What an administrator must know goes before a problem that passes by itself.
            if !matches!(mind.state, State::Stranded { .. }) {
                mind.detail = text;
                mind.unproven = true;
            }
        }
        Event::CutOff(cut_off) => mind.way(cut_off, &mut out),
        Event::Fenced => mind.rest(&mut out),
    }
    if !ran && mind.is_watched() {
        mind.alive = Alive::since(now.mono);
    }
    if !mind.resting {
        mind.settle_use(&out);
        mind.report_trouble(&mut out);
        mind.report(&mut out);
        mind.arm(&mut out);
    }
    out.effects
}

impl Mind {
    /// Makes the mind of a new agent.
    pub fn new(
        agent: AgentId,
        installation: Installation,
        spec: Arc<TemplateSpec>,
        epoch: u64,
        incarnation: u32,
        now: Now,
    ) -> Self {
        Self {
            agent,
            installation,
            state: State::Queued,
            guest: None,
            leases: BTreeMap::new(),
            keys: Keys::default(),
            uses: 0,
            overrides: Overrides::default(),
            hold: None,
            held_why: None,
            stamp: Attempt { epoch, incarnation, n: 0 },
            asked: None,
            asked_at: now.mono,
            peek: None,
            wake: None,
            deadline: None,
            retry: None,
            pause: PAUSE_FIRST,
            tries: 0,
            hindrance: None,
            clone_until: now.mono + spec.limits.clone,
            old_at: spec.limits.lifetime.map(|life| now.mono + life),
            lane: false,
            lent: false,
            parked: false,
            cut_off: false,
            unproven: false,
            unswept: false,
            owner: None,
            ran: false,
            spent: false,
            clean: false,
            hints: TemplateHints::default(),
            started: None,
            since: now.mono,
            resting: false,
            freed: false,
            image_unsent: false,
            observing: false,
            unborn: None,
            addresses: Vec::new(),
            spoken: false,
            called: None,
            offered: None,
            moved: BTreeSet::new(),
            boot: Boot::default(),
            alive: Alive::since(now.mono),
            detail: String::new(),
            doubted: None,
            warnings: Vec::new(),
            waterfall: Waterfall::new(now),
            reported: Reported::default(),
            spec,
        }
    }

    /// Updates what boots of this template have shown so far.
    pub fn inform(&mut self, hints: Option<Booted>) {
        self.boot.hints = hints;
    }

    /// Updates what else the template knows.
    pub fn know(&mut self, hints: TemplateHints) {
        self.hints = hints;
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn guest(&self) -> Option<&Guest> {
        self.guest.as_ref()
    }

    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// What delays the agent, or what people must know of it.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The spec of the agent's birth.
    pub fn spec(&self) -> &Arc<TemplateSpec> {
        &self.spec
    }

    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Whether the mind still waits for this answer. Other calls are not made.
    pub fn awaits(&self, attempt: Attempt) -> bool {
        self.asked == Some(attempt)
            || self.peek == Some(attempt)
            || self.alive.awaits(attempt)
            || self.leases.values().any(|l| l.asked == Some(attempt) && !l.outdated)
    }

    pub(super) fn start_deadline(&mut self, now: Moment) {
        self.deadline = self.deadline_of_state(now);
    }

    /// Moves to another state. Calls of the old state are stale from now on.
    pub(super) fn enter(&mut self, state: State, out: &mut Out) {
        let changed = self.state.phase() != state.phase();
        if changed {
            self.waterfall.move_on(&self.part(), out.now);
        }
        let within_startup = matches!(state, State::Connecting { .. } | State::Booting(_))
            && matches!(self.state, State::Connecting { .. } | State::Booting(_));
        self.state = state;
        self.asked = None;
        self.peek = self.peek.filter(|_| self.state.is_alive());
        self.retry = None;
        self.calm();
        self.hindrance = None;
        self.detail.clear();
        if !within_startup {
            self.deadline = self.deadline_of_state(out.now.mono);
        }
        if changed && (self.state.is_alive() || matches!(self.state, State::Retiring { .. })) {
            let state = self.state.phase();
            out.record(Body::Phase { agent: self.agent.clone(), state });
        }
        if self.observing {
            // The adopted guest must still be inspected, whatever a lease did to the state
            // meanwhile.
            self.ask(Call::Look, out);
        }
    }

    fn deadline_of_state(&self, now: Moment) -> Option<Moment> {
        let limits = &self.spec.limits;
        match &self.state {
            State::Queued => Some(now + limits.queue),
            State::Cloning { .. } => Some((now + limits.operation).min(self.clone_until)),
            State::InDoubt { .. } => Some(self.clone_until),
            State::Configuring => Some(now + limits.operation),
            // The start may have to wait for its turn before the startup time counts.
            State::Booting(BootStep::Start) => Some(now + limits.operation + limits.startup),
            State::Booting(_) | State::Connecting { .. } => Some(now + limits.startup),
            State::Preparing(_) => Some(now + limits.prepare),
            State::Resetting(_) => Some(now + limits.reset),
            State::Held { ends, .. } => Some(*ends),
            State::Retiring { .. } => Some(now + limits.retire),
            State::Ready => self.spec.trial.then(|| now + TRIAL_LIMIT),
            State::Leased | State::Draining(_) | State::Stranded { .. } | State::Gone { .. } => {
                None
            }
        }
    }

    pub(super) fn calm(&mut self) {
        self.pause = PAUSE_FIRST;
        self.tries = 0;
    }

    pub(super) fn next(&mut self) -> Attempt {
        self.stamp.n += 1;
        self.stamp
    }

    /// Makes the call of this state.
    pub(super) fn ask(&mut self, call: Call, out: &mut Out) {
        let attempt = self.next();
        self.ask_as(attempt, call, out);
    }

    fn ask_as(&mut self, attempt: Attempt, call: Call, out: &mut Out) {
        self.asked = Some(attempt);
        self.asked_at = out.now.mono;
        self.retry = None;
        out.effects.push(Effect::Ask(attempt, call));
    }

    /// Makes the call of this state on the keys, now or after another change of the keys.
    fn ask_for_keys(&mut self, call: Call, out: &mut Out) {
        let attempt = self.next();
        if self.take_keys(&call, attempt) {
            self.ask_as(attempt, call, out);
        }
    }

    /// Repeats this state's step after a growing pause.
    pub(super) fn back_off(&mut self, out: &Out) {
        self.retry_about(self.pause, out);
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
        self.tries += 1;
    }

    /// Repeats this state's step after about this pause, jittered because many may wait for one
    /// cause.
    pub(super) fn retry_about(&mut self, pause: Duration, out: &Out) {
        self.retry_in(jittered(pause, out.draw), out);
    }

    /// Repeats this state's step after exactly this pause.
    pub(super) fn retry_in(&mut self, pause: Duration, out: &Out) {
        self.asked = None;
        self.retry = Some(out.now.mono + pause);
    }

    /// Keeps a fault as the last one in this state.
    pub(super) fn hinder(&mut self, fault: Fault) {
        self.detail.clone_from(&fault.text);
        self.hindrance = Some(fault);
    }

    /// Makes the call of the state and its step.
    pub(super) fn act(&mut self, out: &mut Out) {
        if self.observing {
            // Idle and used agents go on as they were if the guest runs, which a list shows.
            let at_rest = matches!(
                self.state,
                State::Ready | State::Leased | State::Draining(_) | State::Held { .. }
            );
            let call = if at_rest && self.tries == 0 { Call::Confirm } else { Call::Look };
            return self.ask(call, out);
        }
        if matches!(self.state, State::Booting(BootStep::Address)) && self.awaits_call() {
            return;
        }
        let call = match &self.state {
            State::Queued => {
                self.lane = true;
                out.effects.push(Effect::LaneAsk);
                return;
            }
            State::Cloning { step: CloneStep::Call, .. } => {
                let Some(guest) = &self.guest else { return };
                Call::Clone { node: self.spec.home(&guest.node) }
            }
            State::Cloning { step: CloneStep::Task(upid), .. } => {
                Call::Await(upid.clone(), self.spec.limits.operation)
            }
            State::Cloning { step: CloneStep::Check(_), .. } | State::InDoubt { .. } => Call::Look,
            State::Configuring => match self.configure_call(out) {
                Some(call) => call,
                None => return,
            },
            State::Booting(step) => self.boot_call(step),
            State::Connecting { reading, .. } => match (reading, self.address()) {
                (false, Some(address)) => {
                    Call::Greet(address, super::provision::greet_limit(self.spec.os))
                }
                (true, _) => Call::HostKeys,
                (false, None) => Call::Look,
            },
            State::Preparing(step) => match self.prepare_call(*step, out.now.mono) {
                Some(call) => call,
                None => return,
            },
            State::Resetting(step) => match self.reset_call(*step, out) {
                Some(call) => call,
                None => return,
            },
            State::Retiring { step, .. } => self.retire_call(step),
            State::Stranded { listing, .. } => {
                if *listing {
                    Call::Leftovers
                } else {
                    Call::Look
                }
            }
            State::Held { login, .. } => match self.unlock_call(*login) {
                Some(call) => return self.ask_for_keys(call, out),
                None => return,
            },
            State::Ready | State::Leased | State::Draining(_) => return,
            State::Gone { .. } => {
                out.effects.push(Effect::End);
                return;
            }
        };
        self.ask(call, out);
    }

    fn tick(&mut self, due: Moment, out: &mut Out) {
        let now = out.now.mono;
        if self.deadline.is_some_and(|due| due <= now) && !self.parked {
            self.deadline = None;
            self.late(out);
        }
        if self.retry.is_some_and(|due| due <= now) {
            self.retry = None;
            self.act(out);
        }
        self.tick_leases(now - due, out);
        self.tick_age(out);
        self.tick_alive(out);
    }

    fn late(&mut self, out: &mut Out) {
        match &self.state {
            State::Queued => {
                self.lane_back(OperationEnd::Inconclusive, out);
                let (state, text) = (AgentPhase::Queued, self.detail.clone());
                self.gone(Reason::TooSlow { state, text }, false, out);
            }
            State::Cloning { step, cancelled } => {
                let cancelled = cancelled.clone();
                let (dead, cause) = match step {
                    CloneStep::Check(fault) => (Some(fault.clone()), Some(fault.clone())),
                    CloneStep::Call => (None, Some(self.unanswered())),
                    // Proxmox accepted the task: the clone is only slow.
                    CloneStep::Task(_) => (None, None),
                };
                self.doubt(dead, cause, cancelled, out);
            }
            State::InDoubt { dead, .. } => {
                out.fault = dead.clone().or_else(|| self.clone_too_slow());
                self.strand("whether its clone was made could not be found out in time", out);
            }
            State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Resetting(_) => self.too_slow(out),
            State::Held { .. } => self.retire(Reason::HoldOver, out),
            State::Retiring { .. } => self.retire_late(out),
            State::Ready => self.retire(Reason::TrialOver, out),
            State::Leased | State::Draining(_) | State::Stranded { .. } | State::Gone { .. } => {}
        }
    }

    fn too_slow(&mut self, out: &mut Out) {
        let state = self.state.phase();
        let cause = self.hindrance.as_ref().map_or(&self.detail, |fault| &fault.text).clone();
        let text = format!("`{}` took too long in {state}: {cause}", self.spec.id);
        out.fault = Some(match self.hindrance.take() {
            Some(fault) => Fault { text, ..slow(fault) },
            None => Fault::new(FaultKind::Broken, Culprit::Template, text),
        });
        self.retire(Reason::TooSlow { state, text: cause }, out);
    }

    /// Forgets timers and calls. The guest stays as it is.
    pub(super) fn rest(&mut self, out: &mut Out) {
        self.resting = true;
        self.asked = None;
        self.wake = None;
        out.effects.clear();
        out.effects.push(Effect::End);
    }

    /// Keeps exactly one wake pending, for the earliest due time.
    fn arm(&mut self, out: &mut Out) {
        let deadline = if self.parked { None } else { self.deadline };
        let due = [deadline, self.retry, self.old_due(), self.alive_due()]
            .into_iter()
            .flatten()
            .chain(self.leases_due())
            .min()
            .map(|at| at.max(out.now.mono));
        match due {
            None => self.wake = None,
            Some(at) if self.wake.is_some_and(|(_, armed)| armed == at) => {}
            Some(at) => {
                let attempt = self.next();
                self.wake = Some((attempt, at));
                out.effects.push(Effect::WakeAt(attempt, at));
            }
        }
    }
}

/// The fault of a step that was repeated until its deadline. Contention and a silent cluster are
/// no one's fault; a silent guest is the guest's (book: safety, rule 7).
pub(super) fn slow(fault: Fault) -> Fault {
    let nobodys = matches!(fault.kind, FaultKind::Contention | FaultKind::Locked { .. });
    let passes = can_pass(&fault.kind) && (nobodys || fault.culprit != Culprit::Guest);
    if passes { fault } else { Fault { kind: FaultKind::Broken, ..fault } }
}

#[cfg(test)]
#[expect(clippy::expect_used, clippy::wildcard_enum_match_arm, reason = "tests")]
mod tests;
