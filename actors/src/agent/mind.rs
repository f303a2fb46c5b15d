//! An agent's mind, and the one function that moves it (agent-machine, the table).
//!
//! Pure: time and chance come in as arguments, everything wanted goes out as [`Effect`]s. What each state
//! does with its answers is in the files beside this one.

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
use drover_model::record::{Body, Hold, Owner, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::time::{Moment, Now};

use crate::agent::adopt::Unborn;
use crate::agent::alive::Alive;
use crate::agent::boots::{Boot, Booted};
use crate::agent::event::{Call, Effect, Event, Guest};
use crate::agent::keys::Keys;
use crate::agent::lessons::Taught;
use crate::agent::picture::{Told, Waterfall};
use crate::agent::provision::can_pass;
use crate::agent::state::{BootStep, CloneStep, Lease, State};
use crate::cluster::OperationEnd;

/// The first pause before something is tried again.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// The longest pause before something is tried again.
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// How long an agent on trial stays once it is ready: whoever follows it has seen that by then.
const TRIAL_LIMIT: Duration = Duration::from_secs(60);

/// An agent's mind.
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
    /// What holds for it instead of what its template says.
    pub(super) overrides: Overrides,
    /// That it is held for debugging as soon as no lease is on it, and on what terms.
    pub(super) hold: Option<Hold>,
    /// Why it would have gone, when it is held instead.
    pub(super) held_why: Option<String>,
    /// The stamp of the latest effect.
    pub(super) stamp: Attempt,
    /// The call this state waits for.
    pub(super) asked: Option<Attempt>,
    /// When it was made.
    pub(super) asked_at: Moment,
    /// A look under way beside it, because somebody saw the guest stopped.
    pub(super) peek: Option<Attempt>,
    pub(super) wake: Option<(Attempt, Moment)>,
    pub(super) deadline: Option<Moment>,
    pub(super) retry: Option<Moment>,
    pub(super) pause: Duration,
    /// Failures in a row of this state's step.
    pub(super) tries: u32,
    /// The last thing in the way in this state.
    pub(super) hindrance: Option<Fault>,
    /// When the clone has taken too long in all.
    pub(super) clone_until: Moment,
    pub(super) old_at: Option<Moment>,
    /// Whether a place in the lanes is held or asked for.
    pub(super) lane: bool,
    /// Whether that place was left to others: nobody sees a clone running in it.
    pub(super) lent: bool,
    pub(super) parked: bool,
    /// Whether no configured cloud leads to its guest.
    pub(super) cut_off: bool,
    /// Whether its detail tells of a call that waits for a way in.
    unproven: bool,
    /// Whether somebody whose lease ended before this start may still be in the guest.
    pub(super) unswept: bool,
    /// For whom its last lease was.
    pub(super) owner: Option<Owner>,
    /// Whether jobs of a source may have run on it since it was clean.
    pub(super) ran: bool,
    /// Whether one that took it whole is over.
    pub(super) spent: bool,
    /// Whether there is a snapshot from before its first use.
    pub(super) clean: bool,
    /// What its template knows at this moment.
    pub(super) taught: Taught,
    /// When its clone was intended, while it has never been ready.
    pub(super) begun: Option<Moment>,
    /// When its reset or its retirement began.
    pub(super) since: Moment,
    /// Told to rest: nothing is done any more.
    pub(super) resting: bool,
    /// Its clone came to nothing and its id was free: all that is still to be done is to see that
    /// no volumes are left, which may take as long as a storage is out of reach.
    pub(super) freed: bool,
    /// Whether its disc image was written down, and never sent as far as anybody knows.
    pub(super) image_unsent: bool,
    /// Adopted, and not looked at yet.
    pub(super) observing: bool,
    /// To be given up, since the journal does not know it.
    pub(super) unborn: Option<Unborn>,
    /// Addresses that are its own; by the first it is reached.
    pub(super) addresses: Vec<AssignedAddress>,
    /// Whether that is written down.
    pub(super) spoken: bool,
    /// Where its guest called from.
    pub(super) called: Option<IpAddr>,
    /// The host key it was greeted with, while the guest agent is asked for it.
    pub(super) offered: Option<String>,
    /// Leases that end at another time than the journal says, since the service was down or the clock
    /// was set.
    pub(super) moved: BTreeSet<LeaseId>,
    pub(super) boot: Boot,
    /// What is known of its guest's being alive.
    pub(super) alive: Alive,
    pub(super) detail: String,
    /// Why what became of its clone is unknown.
    pub(super) doubted: Option<String>,
    /// What preparing found amiss, and went on.
    pub(super) warnings: Vec<String>,
    pub(super) waterfall: Waterfall,
    pub(super) told: Told,
}

/// What one step produces.
pub(super) struct Out {
    pub(super) now: Now,
    /// Chance for this step.
    pub(super) draw: u64,
    pub(super) effects: Vec<Effect>,
    pub(super) fault: Option<Fault>,
    /// Leases that are not taken, or given back before they were ready.
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

/// Moves the mind by one event; `draw` is the chance in it, 64 random bits.
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
            // What an administrator must know goes before what will pass by itself.
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
        mind.tell_trouble(&mut out);
        mind.tell(&mut out);
        mind.arm(&mut out);
    }
    out.effects
}

impl Mind {
    /// Makes the mind of an agent that was just decided on.
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
            taught: Taught::default(),
            begun: None,
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
            told: Told::default(),
            spec,
        }
    }

    /// Takes in what the boots of its template have taught so far.
    pub fn teach(&mut self, taught: Option<Booted>) {
        self.boot.taught = taught;
    }

    /// Takes in what else its template knows by now.
    pub fn know(&mut self, taught: Taught) {
        self.taught = taught;
    }

    /// Where it is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What it knows of its guest.
    pub fn guest(&self) -> Option<&Guest> {
        self.guest.as_ref()
    }

    /// The agent it is the mind of.
    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// What stands in its way, or is to be known of it, in words for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The spec it was born with.
    pub fn spec(&self) -> &Arc<TemplateSpec> {
        &self.spec
    }

    /// Whether no configured cloud leads to its guest, as it was told last.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Whether an answer with this stamp is still waited for; a call nobody waits for is not made.
    pub fn awaits(&self, attempt: Attempt) -> bool {
        self.asked == Some(attempt)
            || self.peek == Some(attempt)
            || self.alive.awaits(attempt)
            || self.leases.values().any(|l| l.asked == Some(attempt) && !l.outdated)
    }

    pub(super) fn start_deadline(&mut self, now: Moment) {
        self.deadline = self.deadline_of_state(now);
    }

    /// Moves to another state; whatever the old one waited for is stale from here on.
    pub(super) fn enter(&mut self, state: State, out: &mut Out) {
        let changed = self.state.name() != state.name();
        if changed {
            self.waterfall.move_on(&self.phase(), out.now);
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
            let state = self.state.name().to_owned();
            out.record(Body::Phase { agent: self.agent.clone(), state });
        }
        if self.observing {
            // The first look is still owed, whatever a lease did to the state meanwhile.
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
            // Its turn to start may have to be waited for, before its startup begins.
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

    /// The next stamp.
    pub(super) fn next(&mut self) -> Attempt {
        self.stamp.n += 1;
        self.stamp
    }

    /// Makes this state's call.
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

    /// Makes this state's call on the keys, now or as soon as another change of them is over.
    fn ask_for_keys(&mut self, call: Call, out: &mut Out) {
        let attempt = self.next();
        if self.take_keys(&call, attempt) {
            self.ask_as(attempt, call, out);
        }
    }

    /// Does this state's step again after a pause that grows.
    pub(super) fn back_off(&mut self, out: &Out) {
        self.retry_about(self.pause, out);
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
        self.tries += 1;
    }

    /// Does this state's step again after about this long: many may wait for the same cause.
    pub(super) fn retry_about(&mut self, pause: Duration, out: &Out) {
        self.retry_in(jittered(pause, out.draw), out);
    }

    /// Does this state's step again after this long.
    pub(super) fn retry_in(&mut self, pause: Duration, out: &Out) {
        self.asked = None;
        self.retry = Some(out.now.mono + pause);
    }

    /// Keeps a fault as what is in the way.
    pub(super) fn hinder(&mut self, fault: Fault) {
        self.detail.clone_from(&fault.text);
        self.hindrance = Some(fault);
    }

    /// Makes the call that the state and its step stand for.
    pub(super) fn act(&mut self, out: &mut Out) {
        if self.observing {
            // One that was in use or at rest goes on as it was if it runs, which a list tells.
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

    /// The state's deadline has passed.
    fn late(&mut self, out: &mut Out) {
        match &self.state {
            State::Queued => {
                self.lane_back(OperationEnd::Inconclusive, out);
                let (state, text) = ("Queued".into(), self.detail.clone());
                self.gone(Reason::TooSlow { state, text }, false, out);
            }
            State::Cloning { step, cancelled } => {
                let cancelled = cancelled.clone();
                let (dead, cause) = match step {
                    CloneStep::Check(fault) => (Some(fault.clone()), Some(fault.clone())),
                    CloneStep::Call => (None, Some(self.unanswered())),
                    // Proxmox accepted it: it is only slow.
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
        let state = self.state.name().to_owned();
        let cause = self.hindrance.as_ref().map_or(&self.detail, |fault| &fault.text).clone();
        let text = format!("`{}` took too long in {state}: {cause}", self.spec.id);
        out.fault = Some(match self.hindrance.take() {
            Some(fault) => Fault { text, ..slow(fault) },
            None => Fault::new(FaultKind::Broken, Culprit::Template, text),
        });
        self.retire(Reason::TooSlow { state, text: cause }, out);
    }

    /// Forgets timers and calls; the guest stays as it is.
    pub(super) fn rest(&mut self, out: &mut Out) {
        self.resting = true;
        self.asked = None;
        self.wake = None;
        out.effects.clear();
        out.effects.push(Effect::End);
    }

    /// Keeps exactly one wake pending, for whatever is due first.
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

/// What a fault means that was tried over until there was no time left: contention and a cluster
/// that is silent are nobody's fault, a guest that is silent is (design rule 7).
pub(super) fn slow(fault: Fault) -> Fault {
    let nobodys = matches!(fault.kind, FaultKind::Contention | FaultKind::Locked { .. });
    let passes = can_pass(&fault.kind) && (nobodys || fault.culprit != Culprit::Guest);
    if passes { fault } else { Fault { kind: FaultKind::Broken, ..fault } }
}

#[cfg(test)]
#[expect(clippy::expect_used, clippy::wildcard_enum_match_arm, reason = "tests")]
mod tests;
