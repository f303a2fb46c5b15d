//! An agent's mind and the one function that moves it: [`StateMachine::step`] (book: agents, The
//! transitions).
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
//! `dispatch.rs` says which file handles a command or an answer; `state.rs` has the states.

use std::sync::Arc;
use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, Attempt, Installation, LeaseId};
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::time::{Moment, Now};

use crate::agent::address::Addresses;
use crate::agent::adoption::Adoption;
use crate::agent::alive::Alive;
use crate::agent::boots::Boot;
use crate::agent::concurrency_place::ConcurrencyPlace;
use crate::agent::event::{Call, Effect, Event, Guest};
use crate::agent::holding::Holding;
use crate::agent::in_flight::InFlight;
use crate::agent::keys::Keys;
use crate::agent::leases::Leases;
use crate::agent::machine::Machine;
use crate::agent::reachability::Reachability;
use crate::agent::report::Report;
use crate::agent::state::{BootStep, CloneStep, ConnectStep, PrepareStep, State};
use crate::agent::timers::Timers;
use crate::agent::tries::Tries;
use crate::agent::usage::Usage;
use crate::boot_times::Booted;
use crate::ran::can_pass;
use crate::reset_stats::TemplateHints;
use drover_limits::concurrency::OperationEnd;

/// How long an agent on trial stays once it is ready: enough for its starter to see it.
const TRIAL_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq)]
pub struct Mind {
    pub(super) agent: AgentId,
    pub(super) installation: Installation,
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) state: State,
    pub(super) guest: Option<Guest>,
    pub(super) leases: Leases,
    pub(super) keys: Keys,
    pub(super) usage: Usage,
    pub(super) holding: Holding,
    pub(super) machine: Machine,
    pub(super) in_flight: InFlight,
    pub(super) timers: Timers,
    pub(super) tries: Tries,
    pub(super) place: ConcurrencyPlace,
    pub(super) reachability: Reachability,
    pub(super) addresses: Addresses,
    pub(super) adoption: Adoption,
    /// What the template knows at this moment.
    pub(super) hints: TemplateHints,
    /// The agent rests: it does nothing any more.
    pub(super) resting: bool,
    pub(super) boot: Boot,
    pub(super) alive: Alive,
    pub(super) report: Report,
    /// The step that failed, while the guest is asked what a person must know of it.
    pub(super) failed_step: Option<(PrepareStep, Fault)>,
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

impl StateMachine for Mind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        if self.resting {
            return;
        }
        let mut out =
            Out { now, draw: turn.draw, effects: Vec::new(), fault: None, refused: Vec::new() };
        let ran = self.is_watched();
        match event {
            Event::Begin => self.begin(&mut out),
            Event::Command(command) => self.command(command, &mut out),
            Event::Intended { seq } => {
                if let Some(guest) = &mut self.guest {
                    guest.marks.seq = seq;
                }
            }
            Event::Answer(attempt, answer) => {
                self.report.way_found();
                self.answered(attempt, answer, &mut out);
            }
            Event::Unmade(attempt) => self.not_made(attempt, &mut out),
            Event::Wake(attempt) => {
                if let Some(due) = self.timers.take_wake(attempt) {
                    self.tick(due, &mut out);
                }
            }
            Event::JournalFailed(text) => self.report.say(text),
            Event::Unproven(text) => {
                // What an administrator must know goes before a problem that passes by itself.
                if !matches!(self.state, State::Stranded { .. }) {
                    self.report.no_way(text);
                }
            }
            Event::CutOff(cut_off) => self.way(cut_off, &mut out),
            Event::Fenced => self.rest(&mut out),
        }
        if !ran && self.is_watched() {
            self.alive.watched_again(now.mono);
        }
        if !self.resting {
            self.check_keys_back(&mut out);
            self.settle_use(&out);
            self.report_trouble(&mut out);
            self.publish(&mut out);
            self.arm(&mut out);
        }
        turn.effects.append(&mut out.effects);
    }
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
            leases: Leases::default(),
            keys: Keys::default(),
            usage: Usage::default(),
            holding: Holding::default(),
            machine: Machine::default(),
            in_flight: InFlight::new(epoch, incarnation, now.mono),
            timers: Timers::new(&spec.limits, now.mono),
            tries: Tries::default(),
            place: ConcurrencyPlace::None,
            reachability: Reachability::default(),
            addresses: Addresses::default(),
            adoption: Adoption::default(),
            hints: TemplateHints::default(),
            resting: false,
            boot: Boot::default(),
            alive: Alive::since(now.mono),
            report: Report::new(now),
            failed_step: None,
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
        self.report.detail()
    }

    /// The spec of the agent's birth.
    pub fn spec(&self) -> &Arc<TemplateSpec> {
        &self.spec
    }

    pub fn is_cut_off(&self) -> bool {
        self.reachability.is_cut_off()
    }

    /// Whether the mind still waits for this answer. Other calls are not made.
    pub fn awaits(&self, attempt: Attempt) -> bool {
        self.in_flight.awaits(attempt)
            || self.alive.awaits(attempt)
            || self.leases.awaits(attempt)
            || self.machine.awaits(attempt)
    }

    pub(super) fn start_deadline(&mut self, now: Moment) {
        self.timers.set_deadline(self.deadline_of_state(now));
    }

    /// Moves to another state. Calls of the old state are stale from now on.
    pub(super) fn enter(&mut self, state: State, out: &mut Out) {
        let changed = self.state.phase() != state.phase();
        if changed {
            let part = self.part();
            self.report.waterfall_mut().move_on(&part, out.now);
        }
        let within_startup = matches!(state, State::Connecting { .. } | State::Booting(_))
            && matches!(self.state, State::Connecting { .. } | State::Booting(_));
        self.state = state;
        self.in_flight.forget();
        if !self.state.is_alive() {
            self.in_flight.forget_peek();
        }
        self.timers.forget_retry();
        self.tries.start_again();
        self.report.say_nothing();
        if !within_startup {
            self.timers.set_deadline(self.deadline_of_state(out.now.mono));
        }
        if changed && (self.state.is_alive() || matches!(self.state, State::Retiring { .. })) {
            let state = self.state.phase();
            out.record(Body::Phase { agent: self.agent.clone(), state });
        }
        self.drop_order(out);
        if self.adoption.is_unseen() {
            // The adopted guest must still be inspected, whatever a lease did to the state
            // meanwhile.
            self.ask(Call::Look, out);
        }
    }

    fn deadline_of_state(&self, now: Moment) -> Option<Moment> {
        let limits = &self.spec.limits;
        match &self.state {
            State::Queued => Some(now + limits.queue),
            State::Cloning { .. } => Some((now + limits.operation).min(self.timers.clone_until())),
            State::InDoubt { .. } => Some(self.timers.clone_until()),
            State::Configuring => Some(now + limits.operation),
            // The start may have to wait for its turn before the startup time counts.
            State::Booting(BootStep::Start) => Some(now + limits.operation + limits.startup),
            State::Booting(_) | State::Connecting { .. } => Some(now + limits.startup),
            State::Preparing(_) => Some(now + limits.prepare),
            State::Resetting { .. } => Some(now + limits.reset),
            State::Held { ends, .. } => Some(*ends),
            State::Retiring { .. } => Some(now + limits.retire),
            State::Ready => self.spec.trial.then(|| now + TRIAL_LIMIT),
            State::Leased | State::Draining(_) | State::Stranded { .. } | State::Gone { .. } => {
                None
            }
        }
    }

    pub(super) fn next(&mut self) -> Attempt {
        self.in_flight.next()
    }

    /// Makes the call of this state.
    pub(super) fn ask(&mut self, call: Call, out: &mut Out) {
        let attempt = self.next();
        self.ask_as(attempt, call, out);
    }

    fn ask_as(&mut self, attempt: Attempt, call: Call, out: &mut Out) {
        self.in_flight.ask(attempt, out.now.mono);
        self.timers.forget_retry();
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
        let pause = self.tries.failed();
        self.retry_about(pause, out);
    }

    /// Repeats this state's step after about this pause, jittered because many may wait for one
    /// cause.
    pub(super) fn retry_about(&mut self, pause: Duration, out: &Out) {
        self.retry_in(jittered(pause, out.draw), out);
    }

    /// Repeats this state's step after exactly this pause.
    pub(super) fn retry_in(&mut self, pause: Duration, out: &Out) {
        self.in_flight.forget();
        self.timers.retry_at(out.now.mono + pause);
    }

    /// Keeps a fault as the last one in this state.
    pub(super) fn hinder(&mut self, fault: Fault) {
        self.report.say(self.parked_text().unwrap_or_else(|| fault.text.clone()));
        self.tries.keep(fault);
    }

    /// Makes the call of the state and its step.
    pub(super) fn act(&mut self, out: &mut Out) {
        if self.adoption.is_unseen() {
            // Idle and used agents go on as they were if the guest runs, which a list shows.
            let at_rest = matches!(
                self.state,
                State::Ready | State::Leased | State::Draining(_) | State::Held { .. }
            );
            let call = if at_rest && self.tries.count() == 0 { Call::Confirm } else { Call::Look };
            return self.ask(call, out);
        }
        if matches!(self.state, State::Booting(BootStep::Address)) && self.awaits_call() {
            return;
        }
        let call = match &self.state {
            State::Queued => {
                self.place = ConcurrencyPlace::Held;
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
            State::Connecting { step } => match (step, self.address()) {
                (ConnectStep::ReadKeys | ConnectStep::CompareKeys(_), _) => Call::HostKeys,
                (ConnectStep::Greet | ConnectStep::GreetAgain, Some(address)) => {
                    Call::Greet(address, super::provision::greet_limit(self.spec.os))
                }
                (ConnectStep::Greet | ConnectStep::GreetAgain, None) => Call::Look,
            },
            State::Preparing(step) => match self.prepare_call(*step, out.now.mono) {
                Some(call) => call,
                None => return,
            },
            State::Resetting { step, .. } => match self.reset_call(*step, out) {
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
        if !self.reachability.is_parked() && self.timers.take_deadline(now) {
            self.late(out);
        }
        if self.timers.take_retry(now) {
            self.act(out);
        }
        self.tick_leases(now - due, out);
        self.tick_age(out);
        self.tick_alive(out);
        self.tick_order(out);
    }

    fn late(&mut self, out: &mut Out) {
        match &self.state {
            State::Queued => {
                self.lane_back(OperationEnd::Inconclusive, out);
                let (state, text) = (AgentPhase::Queued, self.detail().to_owned());
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
            | State::Resetting { .. } => self.too_slow(out),
            State::Held { .. } => self.retire(Reason::HoldOver, out),
            State::Retiring { .. } => self.retire_late(out),
            State::Ready => self.retire(Reason::TrialOver, out),
            State::Leased | State::Draining(_) | State::Stranded { .. } | State::Gone { .. } => {}
        }
    }

    fn too_slow(&mut self, out: &mut Out) {
        let state = self.state.phase();
        let cause = self.tries.fault().map_or(self.detail(), |fault| &fault.text).to_owned();
        let text = format!("`{}` took too long in {state}: {cause}", self.spec.id);
        out.fault = Some(match self.tries.take_fault() {
            Some(fault) => Fault { text, ..slow(fault) },
            None => Fault::new(FaultKind::Broken, Culprit::Template, text),
        });
        self.retire(Reason::TooSlow { state, text: cause }, out);
    }

    /// Forgets timers and calls. The guest stays as it is.
    pub(super) fn rest(&mut self, out: &mut Out) {
        self.resting = true;
        self.in_flight.forget();
        self.timers.disarm();
        out.effects.clear();
        out.effects.push(Effect::End);
    }

    /// Keeps exactly one wake pending, for the earliest due time.
    fn arm(&mut self, out: &mut Out) {
        let deadline = if self.reachability.is_parked() { None } else { self.timers.deadline() };
        let due =
            [deadline, self.timers.retry(), self.old_due(), self.alive_due(), self.machine.due()]
                .into_iter()
                .flatten()
                .chain(self.leases.due())
                .min()
                .map(|at| at.max(out.now.mono));
        match due {
            None => self.timers.disarm(),
            Some(at) if self.timers.is_armed_for(at) => {}
            Some(at) => {
                let attempt = self.next();
                self.timers.arm(attempt, at);
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
